//! Moves that are refused, with the reason.

use anyhow::{Result, bail};
use blackbox::cluster::GUESTS;
use blackbox::guest::Guest;
use blackbox::manifest::{Manifest, claim};
use serde_json::json;

use crate::stage::Stage;

/// Asks for a move that has to be refused with these words.
async fn refused(stage: &Stage, guest: &str, words: &[&str]) -> Result<()> {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"generateName": "move-"}, "spec": {"vmiName": guest},
    });
    let path = stage.scene.path(GUESTS, "virtualmachineinstancemigrations");
    let answer = stage.scene.cluster.answer(http::Method::POST, &path, Some(&object)).await?;
    let message = answer.body["message"].as_str().unwrap_or_default();
    if answer.code < 400 {
        bail!("the move was not refused");
    }
    match words.iter().find(|word| !message.contains(**word)) {
        Some(missing) => bail!("the refusal does not say {missing:?}: {message}"),
        None => Ok(()),
    }
}

/// The guest says that it cannot move, and why; and so does the refusal.
async fn fixed(stage: &Stage, guest: &Guest, reason: &str) -> Result<()> {
    guest.running().await?;
    let told = guest.condition("LiveMigratable", "False", 30).await?;
    if told["reason"] != reason || told["message"].as_str().unwrap_or_default().is_empty() {
        bail!("LiveMigratable is {told}, not False for {reason}");
    }
    refused(stage, &guest.name, &[reason]).await
}

pub(super) async fn disk(stage: Stage) -> Result<()> {
    stage.scene.create("persistentvolumeclaims", &claim("data", "64Mi", "Filesystem")).await?;
    let manifest = Manifest::kernel("worker").volume("data", json!({"persistentVolumeClaim": {"claimName": "data"}}));
    let guest = stage.scene.start(manifest.json()).await?;
    fixed(&stage, &guest, "DisksNotLiveMigratable").await
}

pub(super) async fn bridge(stage: Stage) -> Result<()> {
    let interfaces = json!([{"name": "default", "bridge": {}}]);
    let manifest = Manifest::kernel("worker").with("/spec/domain/devices/interfaces", interfaces);
    let guest = stage.scene.start(manifest.json()).await?;
    fixed(&stage, &guest, "InterfaceNotLiveMigratable").await
}

pub(super) async fn missing(stage: Stage) -> Result<()> {
    refused(&stage, "nobody", &["nobody"]).await
}

pub(super) async fn second(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let work = async {
        let first = guest.migrate().await?;
        first.reach(&["Running"], 90).await?;
        refused(&stage, "worker", &["moves already", &first.name]).await?;
        first.cancel().await?;
        first.gone(60).await
    };
    stage.with_policy(json!({"bandwidthPerMigration": "2Mi"}), work).await?;
    guest.moved().await.map(drop)
}
