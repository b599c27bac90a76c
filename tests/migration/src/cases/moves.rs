//! Moves that go well.

use anyhow::{Result, bail};
use blackbox::cluster::GUESTS;
use blackbox::guest::{Guest, condition};
use blackbox::manifest::Manifest;
use blackbox::workload::{Count, Listener};
use serde_json::{Value, json};

use crate::stage::Stage;

/// Moves the guest there and back as often as was asked for; after each move it has to count and write on.
async fn there_and_back(stage: &Stage, guest: &Guest) -> Result<Count> {
    let listener = Listener::new(guest);
    let mut count = guest.count().await?;
    for number in 1..=stage.moves {
        guest.moved().await.map_err(|error| error.context(format!("move {number}")))?;
        count = guest.goes_on(count).await.map_err(|error| error.context(format!("after move {number}")))?;
    }
    let records = guest.records("vda").await?;
    if records < count.written {
        bail!("{records} records are on the disk, and it had said {}", count.written);
    }
    let heard = listener.judge()?;
    if heard < count.beat {
        bail!("beat {heard} was the last on the serial port, and the guest was at {}", count.beat);
    }
    stage.tidy(guest).await?;
    Ok(count)
}

pub(super) async fn idle(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    there_and_back(&stage, &guest).await.map(drop)
}

pub(super) async fn busy(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &["dirty-memory 48 20 &"]).await?;
    let before = guest.count().await?;
    let after = there_and_back(&stage, &guest).await?;
    if after.dirtied <= before.dirtied {
        bail!("its memory did not change meanwhile: {before:?}, {after:?}");
    }
    Ok(())
}

pub(super) async fn paused(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let before = guest.count().await?;
    guest.call("pause").await?;
    guest.condition("Paused", "True", 20).await?;
    guest.moved().await?;
    let paused = guest.condition("Paused", "True", 20).await?;
    if paused["reason"] != "PausedByUser" {
        bail!("after its move it is paused for another reason: {paused}");
    }
    guest.call("unpause").await?;
    guest.no_condition("Paused", 20).await?;
    guest.goes_on(before).await?;
    guest.records("vda").await.map(drop)
}

pub(super) async fn status(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let source = guest.node().await?;
    let source_pod = guest.pods().await?[0]["metadata"]["name"].clone();
    let migration = guest.migrate().await?;
    let ended = migration.end(120).await?;
    if ended.phase != "Succeeded" {
        bail!("it is {}: {}", ended.phase, ended.reason());
    }
    let object = guest.get().await?;
    let state = &object["status"]["migrationState"];
    let target = guest.node().await?;
    expect(&object["metadata"]["labels"]["kubevirt.io/nodeName"], &json!(target), "the label of its node")?;
    for (field, wanted) in [
        ("migrationUid", json!(migration.uid)),
        ("sourceNode", json!(source)),
        ("sourcePod", source_pod),
        ("targetNode", json!(target)),
        ("completed", json!(true)),
        ("mode", json!("PreCopy")),
        ("targetNodeDomainDetected", json!(true)),
    ] {
        expect(&state[field], &wanted, field)?;
    }
    for field in ["startTimestamp", "endTimestamp", "targetNodeDomainReadyTimestamp", "targetPod", "targetNodeAddress"]
    {
        if !state[field].is_string() {
            bail!("the record has no {field}: {state}");
        }
    }
    if state["failed"] == true || !state["migrationConfiguration"].is_object() {
        bail!("the record is not as it should be: {state}");
    }
    expect(&ended.state["migrationUid"], &state["migrationUid"], "the migration's copy of the record")?;
    let phases: Vec<&str> = migration_phases(&migration.get().await?.unwrap_or_default());
    if phases.last() != Some(&"Succeeded") || !phases.contains(&"Scheduling") {
        // The object is a value of its own here, so look again for the message.
        bail!("its phases were {phases:?}");
    }
    let ready = condition(&object, "Ready").map(|ready| ready["status"].clone());
    expect(&ready.unwrap_or_default(), &json!("True"), "the condition Ready")?;
    stage.tidy(&guest).await
}

fn migration_phases(migration: &Value) -> Vec<&'static str> {
    let known =
        ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed"];
    let entries = migration["status"]["phaseTransitionTimestamps"].as_array().into_iter().flatten();
    entries.filter_map(|entry| known.into_iter().find(|phase| entry["phase"] == *phase)).collect()
}

fn expect(found: &Value, wanted: &Value, what: &str) -> Result<()> {
    if found != wanted {
        bail!("{what} is {found}, not {wanted}");
    }
    Ok(())
}

pub(super) async fn virtctl(stage: Stage) -> Result<()> {
    let manifest = Manifest::working("web", json!({"emptyDisk": {"capacity": "16Mi"}}), &[]);
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "web"},
        "spec": {"runStrategy": "Always", "template": {"spec": manifest.json()["spec"]}},
    });
    stage.scene.cluster.create(&stage.scene.path(GUESTS, "virtualmachines"), &machine).await?;
    let path = stage.scene.path(GUESTS, "virtualmachineinstances/web");
    let found = blackbox::cluster::wait("the machine's guest", 60, || stage.scene.cluster.find(&path)).await?;
    let uid = found["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let guest = Guest { scene: stage.scene.clone(), name: "web".to_owned(), uid };
    let count = guest.working().await?;
    guest.condition("LiveMigratable", "True", 30).await?;
    let source = guest.node().await?;
    let said = stage.virtctl.run(&["migrate", "web", "--watch"]).await?;
    let target = guest.node().await?;
    for wanted in
        ["VM web was scheduled to migrate\n", &format!("VM web moved to {target}"), "the guest stood still for"]
    {
        if !said.contains(wanted) {
            bail!("virtctl does not say {wanted:?}: {said}");
        }
    }
    if source == target {
        bail!("it is still on {source}");
    }
    guest.goes_on(count).await?;
    stage.virtctl.refused(&["migrate-cancel", "web"], &["Found no migration to cancel for web"]).await?;
    let why = stage.virtctl.run(&["why", "web"]).await?;
    if !why.contains("is healthy") {
        bail!("after its move, virtctl why says: {why}");
    }
    Ok(())
}
