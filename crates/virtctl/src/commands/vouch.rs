//! `virtctl vouch`: somebody takes it upon themselves that nothing of a guest's vanished pods runs any more.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use ferrovirt_api::names::{annotations, conditions};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::session::Session;
use crate::target::{Kind, Target};

/// Arguments of `vouch`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// `vm NAME`, `vmi NAME`, or `vm/NAME`.
    #[arg(value_name = "TARGET", num_args = 1..=2, required = true)]
    target: Vec<String>,
    /// Do not ask: nothing of the named pods runs any more.
    #[arg(long)]
    yes: bool,
}

/// `virtctl vouch`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let Target { name, .. } = Target::words(&args.target)?;
    let session = cluster.session().await?;
    let path = format!("{}/{name}", Session::collection(&session.namespace, Kind::Guest.resource()));
    let guest = session.get(&path).await.with_context(|| format!("Error getting VirtualMachineInstance {name}"))?;
    let missing = missing(&guest, &pods(&session, &guest).await?);
    if missing.is_empty() {
        bail!("there is nothing to vouch for: VMI {name} waits for no vanished pod");
    }
    eprintln!("{}", risk(&name, &missing));
    if !args.yes && !is_confirmed(&name)? {
        bail!("nothing was vouched for: confirm with the name of the VMI, or give --yes");
    }
    // On the condition that nothing has changed: what was shown is what is vouched for.
    let version = &guest["metadata"]["resourceVersion"];
    let notes = json!({annotations::VOUCHED_PODS: vouched(&guest, &missing)});
    let changes = json!({"metadata": {"resourceVersion": version, "annotations": notes}});
    let kind = "application/merge-patch+json";
    session.ask(Method::PATCH, &path, Some((kind, &changes)), "application/json").await.context("Error vouching")?;
    println!("VMI {name}: {} vouched for", if missing.len() == 1 { "one pod was" } else { "several pods were" });
    Ok(())
}

/// Uids of the guest's pods that have an object.
async fn pods(session: &Session, guest: &Value) -> anyhow::Result<Vec<String>> {
    let uid = guest["metadata"]["uid"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{}/pods?labelSelector=kubevirt.io%2Fcreated-by%3D{uid}", session.namespace);
    let list = session.get(&path).await.context("Error listing the pods of the VMI")?;
    let pods = list["items"].as_array().into_iter().flatten();
    Ok(pods.filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)).collect())
}

/// Pods that the guest waits for and that have no object: their uids and nodes.
fn missing<'a>(guest: &'a Value, pods: &[String]) -> BTreeMap<&'a str, &'a str> {
    let all = guest["status"]["conditions"].as_array();
    let waits = all.into_iter().flatten().any(|it| it["type"] == conditions::POD_UNACCOUNTED && it["status"] == "True");
    let ledger = guest["status"]["activePods"].as_object().filter(|_| waits);
    let ledger = ledger.into_iter().flatten().filter(|(uid, _)| !pods.contains(uid));
    ledger.map(|(uid, node)| (uid.as_str(), node.as_str().unwrap_or_default())).collect()
}

/// What is vouched for from now on.
fn vouched(guest: &Value, missing: &BTreeMap<&str, &str>) -> String {
    let before = guest["metadata"]["annotations"][annotations::VOUCHED_PODS].as_str().unwrap_or_default();
    let before = before.split(',').map(str::trim).filter(|uid| !uid.is_empty());
    let mut all: Vec<&str> = before.chain(missing.keys().copied()).collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

fn risk(name: &str, missing: &BTreeMap<&str, &str>) -> String {
    let pods = missing.iter().map(|(uid, node)| format!("  pod {uid} on node {node}\n"));
    format!(
        "The objects of these pods of VMI {name} are gone, and their nodes have not said that nothing of them runs any more:\n{}\
         You vouch that nothing of them runs: the node is switched off, or you have looked at its processes. If that is wrong, two copies \
         of the guest run and write to the same disks, which destroys what is on them. Nobody can check it for you.",
        pods.collect::<String>()
    )
}

fn is_confirmed(name: &str) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Ok(false);
    }
    eprint!("Type the name of the VMI to vouch for them: ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    Ok(line.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(waits: &str) -> Value {
        json!({
            "metadata": {"name": "web", "annotations": {"ferrovirt.io/vouched-pods": "z"}},
            "status": {
                "conditions": [{"type": "PodUnaccounted", "status": waits}], "activePods": {"a": "node1", "b": "node2"},
            },
        })
    }

    #[test]
    fn only_pods_without_an_object_that_are_waited_for_are_vouched_for() {
        let (waiting, fine) = (guest("True"), guest("False"));
        let found = missing(&waiting, &["b".to_owned()]);
        assert_eq!(found, [("a", "node1")].into());
        assert_eq!(vouched(&waiting, &found), "a,z");
        assert!(missing(&fine, &[]).is_empty());
        let risk = risk("web", &found);
        assert!(risk.contains("pod a on node node1") && risk.contains("two copies"), "{risk}");
    }
}
