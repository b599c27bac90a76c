//! Moves that are called off or given up: the guest is untouched.

use anyhow::{Context, Result, bail};
use blackbox::cluster::{GUESTS, wait};
use blackbox::guest::Guest;
use blackbox::machine::qemus_of;
use blackbox::migration::Migration;
use blackbox::workload::Count;
use serde_json::{Value, json};

use crate::stage::Stage;

/// So slow that there is time to do something meanwhile: a guest takes half a minute.
fn slow() -> Value {
    json!({"bandwidthPerMigration": "2Mi"})
}

/// A guest that is being copied.
async fn copying(guest: &Guest) -> Result<Migration> {
    let migration = guest.migrate().await?;
    migration.reach(&["Running"], 90).await?;
    Ok(migration)
}

/// The guest is where it was and goes on, with one pod and nothing at the other node.
async fn untouched(stage: &Stage, guest: &Guest, node: &str, count: Count) -> Result<()> {
    if guest.node().await? != node {
        bail!("the guest is on another node than before");
    }
    guest.goes_on(count).await?;
    guest.records("vda").await?;
    stage.tidy(guest).await?;
    wait("one QEMU", 30, || async { Ok((qemus_of(&guest.scene.namespace, &guest.name).len() == 1).then_some(())) })
        .await
}

pub(super) async fn abort(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let (node, count) = (guest.node().await?, guest.count().await?);
    let work = async {
        let migration = copying(&guest).await?;
        migration.cancel().await?;
        migration.gone(60).await?;
        let record = guest.record().await?;
        for (field, wanted) in
            [("abortRequested", json!(true)), ("abortStatus", json!("Succeeded")), ("failed", json!(true))]
        {
            if record[field] != wanted {
                bail!("{field} of an aborted move is {}, not {wanted}: {record}", record[field]);
            }
        }
        untouched(&stage, &guest, &node, count).await
    };
    stage.with_policy(slow(), work).await?;
    guest.moved().await.map(drop)
}

pub(super) async fn virtctl_cancel(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let (node, count) = (guest.node().await?, guest.count().await?);
    let work = async {
        let migration = copying(&guest).await?;
        let said = stage.virtctl.run(&["migrate-cancel", "worker"]).await?;
        if said != "VM worker was scheduled to migrate-cancel\n" {
            bail!("virtctl says {said:?}");
        }
        migration.gone(60).await?;
        untouched(&stage, &guest, &node, count).await
    };
    stage.with_policy(slow(), work).await
}

pub(super) async fn unschedulable(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let (node, count) = (guest.node().await?, guest.count().await?);
    let annotations = json!({"kubevirt.io/migrationUnschedulablePodTimeoutSeconds": "8"});
    let migration = guest.migrate_with(json!({"addedNodeSelector": {"no-such": "label"}}), annotations).await?;
    migration.reach(&["Scheduling"], 30).await?;
    let stuck =
        |outcome: &blackbox::program::Outcome| outcome.code == 1 && outcome.out.contains("reason: Unschedulable");
    stage.virtctl.until(&["why", "vmi/worker"], 8, stuck).await?;
    let ended = migration.end(60).await?;
    if ended.phase != "Failed" {
        bail!("it is {}", ended.phase);
    }
    wait("the target pod to go", 30, || async { Ok(migration.target_pod().await?.is_none().then_some(())) }).await?;
    untouched(&stage, &guest, &node, count).await?;
    guest.moved().await.map(drop)
}

pub(super) async fn deleted(stage: Stage) -> Result<()> {
    let guest = stage.worker("worker", &[]).await?;
    let work = async {
        let migration = copying(&guest).await?;
        guest.delete().await?;
        guest.gone(90).await?;
        migration.gone(60).await
    };
    stage.with_policy(slow(), work).await?;
    wait("no QEMU", 30, || async { Ok(qemus_of(&stage.scene.namespace, "worker").is_empty().then_some(())) }).await
}

pub(super) async fn pending(stage: Stage) -> Result<()> {
    let (first, second) = (stage.worker("first", &[]).await?, stage.worker("second", &[]).await?);
    let (node, count) = (second.node().await?, second.count().await?);
    let work = async {
        let running = copying(&first).await?;
        let waiting = second.migrate().await?;
        waiting.reach(&["Pending"], 20).await?;
        let queued = |outcome: &blackbox::program::Outcome| outcome.out.contains("reason: MigrationQueued");
        stage.virtctl.until(&["why", "vmi/second"], 10, queued).await?;
        waiting.cancel().await?;
        waiting.gone(30).await?;
        let left = stage.scene.cluster.get(&stage.scene.path("/api/v1", "pods")).await?;
        let of_waiting =
            |pod: &&Value| pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] == waiting.uid.as_str();
        if left["items"].as_array().context("no pods")?.iter().any(|pod| of_waiting(&pod)) {
            bail!("a move that waited has a target pod");
        }
        untouched(&stage, &second, &node, count).await?;
        if second.record().await?.is_object() {
            bail!("a move that never began is in the guest's record");
        }
        running.cancel().await?;
        running.gone(60).await
    };
    let settings = json!({"parallelMigrationsPerCluster": 1});
    let path = stage.scene.path(GUESTS, "virtualmachineinstancemigrations");
    stage.with_settings(settings, stage.with_policy(slow(), work)).await?;
    wait("no migrations", 30, || async {
        let left = stage.scene.cluster.get(&path).await?;
        Ok(left["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })
    .await
}
