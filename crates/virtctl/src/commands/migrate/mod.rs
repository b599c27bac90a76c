//! `virtctl migrate`, `migrate-cancel`, `evacuate-cancel`.

mod view;
mod watch;

use std::time::Duration;

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Map, Value, json};

use super::dry_run;
use crate::cluster::Cluster;
use crate::session::Session;
use crate::target::{Kind, Target};

const MIGRATIONS: &str = "virtualmachineinstancemigrations";
/// Marks the migrations of a guest.
const SELECTOR: &str = "kubevirt.io%2Fvmi-name";

/// Arguments of `migrate`.
#[derive(clap::Args, Clone)]
pub(crate) struct Migrate {
    /// The machine: `NAME` or `vm/NAME`.
    #[arg(value_name = "VM")]
    name: String,
    /// Labels that the other node must have, for this move only: `key=value,key2=value2`.
    #[arg(
        long = "addedNodeSelector",
        visible_alias = "added-node-selector",
        value_name = "LABELS",
        value_delimiter = ','
    )]
    added_node_selector: Vec<String>,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Wait until the guest has moved and show how it goes.
    #[arg(long, visible_alias = "wait")]
    watch: bool,
    /// How long to wait with --watch.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = crate::time::duration)]
    timeout: Duration,
}

/// Arguments of `migrate-cancel`.
#[derive(clap::Args, Clone)]
pub(crate) struct Cancel {
    /// The machine: `NAME` or `vm/NAME`.
    #[arg(value_name = "VM")]
    name: String,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `evacuate-cancel`.
#[derive(clap::Args, Clone)]
pub(crate) struct Evacuation {
    /// `vm NAME` or `vmi NAME`.
    #[arg(value_name = "TARGET", num_args = 1..=2, required = true)]
    target: Vec<String>,
    /// Check only; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// `virtctl migrate`
pub(crate) async fn migrate(cluster: &Cluster, args: &Migrate) -> anyhow::Result<()> {
    let name = Target::machine(&args.name)?;
    let session = cluster.session().await?;
    let mut options = json!({});
    if !args.added_node_selector.is_empty() {
        options["addedNodeSelector"] = labels(&args.added_node_selector)?;
    }
    dry_run(&mut options, args.dry_run);
    let before = active(&session, &name).await?.map(|migration| migration["metadata"]["name"].clone());
    let path = Session::subresource(&session.namespace, Kind::Machine.resource(), &name, "migrate");
    session.send(Method::PUT, &path, &options).await.context("Error migrating VirtualMachine ")?;
    println!("VM {name} was scheduled to migrate");
    if args.watch && !args.dry_run {
        let now = active(&session, &name).await?.map(|migration| migration["metadata"]["name"].clone());
        let Some(migration) = now.or(before) else { bail!("VM {name} has no migration to watch") };
        watch::watch(&session, &name, migration.as_str().unwrap_or_default(), args.timeout).await?;
    }
    Ok(())
}

fn labels(given: &[String]) -> anyhow::Result<Value> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), json!(value))),
        _ => bail!("\"{text}\" is no label: use KEY=VALUE"),
    };
    Ok(Value::Object(given.iter().map(pair).collect::<anyhow::Result<Map<_, _>>>()?))
}

/// The migration of a guest that is not over.
async fn active(session: &Session, guest: &str) -> anyhow::Result<Option<Value>> {
    let path = format!("{}?labelSelector={SELECTOR}%3D{guest}", Session::collection(&session.namespace, MIGRATIONS));
    let list = session.get(&path).await.context("Error fetching virtual machine instance migration list ")?;
    let is_active = |migration: &&Value| !matches!(phase(migration), "Succeeded" | "Failed");
    Ok(list["items"].as_array().and_then(|items| items.iter().find(is_active)).cloned())
}

fn phase(migration: &Value) -> &str {
    migration["status"]["phase"].as_str().unwrap_or("Pending")
}

/// `virtctl migrate-cancel`
pub(crate) async fn cancel(cluster: &Cluster, args: &Cancel) -> anyhow::Result<()> {
    let name = Target::machine(&args.name)?;
    let session = cluster.session().await?;
    let mut options = json!({});
    dry_run(&mut options, args.dry_run);
    let Some(migration) = active(&session, &name).await? else { bail!("Found no migration to cancel for {name}") };
    let migration = migration["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{}/{migration}", Session::collection(&session.namespace, MIGRATIONS));
    let told = session.send(Method::DELETE, &path, &options).await;
    told.with_context(|| format!("Error canceling migration {migration} of a VirtualMachine {name}"))?;
    println!("VM {name} was scheduled to migrate-cancel");
    Ok(())
}

/// `virtctl evacuate-cancel`
pub(crate) async fn cancel_evacuation(cluster: &Cluster, args: &Evacuation) -> anyhow::Result<()> {
    let Target { kind, name, .. } = Target::words(&args.target)?;
    let session = cluster.session().await?;
    let (namespace, word) = (&session.namespace, kind.short().to_uppercase());
    let path = format!("{}/{name}", Session::collection(namespace, Kind::Guest.resource()));
    let guest = session.get(&path).await;
    let guest =
        guest.with_context(|| format!("error retrieving VMI for evacuation cancel for {word} {namespace}/{name}"))?;
    let Some(node) = guest["status"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        bail!("{word} {namespace}/{name} doesn't report Node name");
    };
    let mut options = json!({"evacuationNodeName": node});
    dry_run(&mut options, args.dry_run);
    let path = Session::subresource(namespace, kind.resource(), &name, "evacuate/cancel");
    let told = session.send(Method::PUT, &path, &options).await;
    told.with_context(|| format!("error canceling evacuation for {word} {namespace}/{name}"))?;
    println!("{word} {namespace}/{name} was canceled evacuation");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_selectors_are_pairs() {
        let given = ["zone=a".to_owned(), "disk=".to_owned()];
        assert_eq!(labels(&given).unwrap(), json!({"zone": "a", "disk": ""}));
        assert!(labels(&["zone".to_owned()]).is_err());
    }
}
