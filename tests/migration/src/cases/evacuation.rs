//! Nodes that are emptied.

use anyhow::{Context, Result, bail};
use blackbox::cluster::wait;
use blackbox::manifest::{Manifest, claim};
use serde_json::json;

use crate::stage::Stage;

/// For a drain: every guest of the node moves, two at a time.
const DRAIN: &str = "--timeout=240s";

pub(super) async fn drain(stage: Stage) -> Result<()> {
    let nodes = stage.nodes().await?;
    let (from, to) = (&nodes[0], &nodes[1]);
    let done = drained(&stage, from, to).await;
    for node in &nodes {
        stage.kubectl.run(&["uncordon", node]).await?;
    }
    done
}

async fn drained(stage: &Stage, from: &str, to: &str) -> Result<()> {
    // All guests begin on one node.
    stage.kubectl.run(&["cordon", to]).await?;
    let mut guests = Vec::new();
    for number in 1..=3 {
        let manifest = Manifest::working(&format!("worker-{number}"), json!({"emptyDisk": {"capacity": "16Mi"}}), &[])
            .with("/spec/evictionStrategy", json!("LiveMigrate"));
        guests.push(stage.scene.start(manifest.json()).await?);
    }
    let mut counts = Vec::new();
    for guest in &guests {
        counts.push(guest.working().await?);
        guest.condition("LiveMigratable", "True", 30).await?;
        if guest.node().await? != from {
            bail!("guest {} is not on {from}", guest.name);
        }
    }
    stage.kubectl.run(&["uncordon", to]).await?;
    let mut command =
        stage.kubectl.command(&["drain", from, "--ignore-daemonsets", "--delete-emptydir-data", "--force", DRAIN]);
    let output = command.output().await.context("kubectl drain")?;
    if !output.status.success() {
        bail!("kubectl drain: {}", String::from_utf8_lossy(&output.stderr));
    }
    for (guest, count) in guests.iter().zip(counts) {
        if guest.node().await? != to {
            bail!("the node is drained, and guest {} is on {}", guest.name, guest.node().await?);
        }
        guest.goes_on(count).await?;
        guest.records("vda").await?;
        if guest.get().await?["status"]["evacuationNodeName"].is_string() {
            bail!("guest {} still should leave its node", guest.name);
        }
    }
    let evacuations = stage.migrations().await?;
    if evacuations.is_empty() {
        bail!("the node was drained without migrations");
    }
    let pods = stage.scene.cluster.get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{from}")).await?;
    let launchers = pods["items"].as_array().into_iter().flatten().filter(|pod| {
        let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        !is_over && pod["metadata"]["namespace"] == stage.scene.namespace.as_str()
    });
    match launchers.count() {
        0 => Ok(()),
        left => bail!("{left} pods are left on the drained node"),
    }
}

/// Asks for the eviction of the guest's pod.
async fn evict(stage: &Stage, guest: &blackbox::guest::Guest) -> Result<blackbox::cluster::Answer> {
    let pod = guest.pods().await?[0]["metadata"]["name"].as_str().context("no pod")?.to_owned();
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": stage.scene.namespace}});
    let path = stage.scene.path("/api/v1", &format!("pods/{pod}/eviction"));
    stage.scene.cluster.answer(http::Method::POST, &path, Some(&body)).await
}

pub(super) async fn blocked(stage: Stage) -> Result<()> {
    stage.scene.create("persistentvolumeclaims", &claim("data", "64Mi", "Filesystem")).await?;
    let manifest = Manifest::working("worker", json!({"persistentVolumeClaim": {"claimName": "data"}}), &[])
        .with("/spec/evictionStrategy", json!("LiveMigrate"));
    let guest = stage.scene.start(manifest.json()).await?;
    let count = guest.working().await?;
    guest.condition("LiveMigratable", "False", 30).await?;
    let answer = evict(&stage, &guest).await?;
    if answer.code != 429 || !answer.body["message"].as_str().unwrap_or_default().contains("not live-migratable") {
        bail!("an eviction is answered with {} {}", answer.code, answer.body);
    }
    guest.goes_on(count).await.map(drop)
}

pub(super) async fn external(stage: Stage) -> Result<()> {
    let manifest = Manifest::working("worker", json!({"emptyDisk": {"capacity": "16Mi"}}), &[])
        .with("/spec/evictionStrategy", json!("External"));
    let guest = stage.scene.start(manifest.json()).await?;
    let count = guest.working().await?;
    let node = guest.node().await?;
    let answer = evict(&stage, &guest).await?;
    if answer.code != 429 {
        bail!("an eviction is answered with {} {}", answer.code, answer.body);
    }
    wait("the guest to be marked", 10, || async {
        Ok((guest.get().await?["status"]["evacuationNodeName"] == node.as_str()).then_some(()))
    })
    .await?;
    let why = stage.virtctl.attempt(&["why", "vmi/worker"]).await?;
    if why.code != 1 || !why.out.contains("reason: EvacuationExternal") {
        bail!("virtctl why says: {}", why.text());
    }
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    if !stage.migrations().await?.is_empty() {
        bail!("somebody else was to move it, and it was moved");
    }
    let said = stage.virtctl.run(&["evacuate-cancel", "vmi", "worker"]).await?;
    if !said.contains("was canceled evacuation") {
        bail!("virtctl says {said:?}");
    }
    if guest.get().await?["status"]["evacuationNodeName"].is_string() {
        bail!("the mark is still there");
    }
    guest.goes_on(count).await.map(drop)
}
