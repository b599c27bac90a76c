//! Machines whose guests never come up: tried again later and later, until something changes.

use anyhow::{Context, Result, ensure};
use blackbox::cluster::wait;
use blackbox::manifest::{DISK_IMAGE, Manifest};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::machine::Machine;
use crate::stage::Stage;

/// An image that no registry has.
pub(super) const NO_IMAGE: &str = "127.0.0.1:1/not-there:1";

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("backoff/twice", "Failures are counted, each is waited for longer, and a stop forgets them.", twice),
        Case::new("backoff/success", "A machine that waits is tried again, and runs once it can.", success),
        Case::new("backoff/rerun", "RerunOnFailure waits and tries again as Always does.", rerun),
    ]
}

/// A machine that cannot start: its guest waits for an image, so that the pod can be taken away before it ever runs.
pub(super) async fn broken(stage: &Stage, strategy: &str) -> Result<Machine> {
    let manifest = Manifest::kernel("machine")
        .with("/spec/terminationGracePeriodSeconds", json!(1))
        .container_disk("data", NO_IMAGE);
    stage.create(strategy, &manifest).await
}

/// Takes the pod of the guest that is about to start, and waits until the failure is counted.
pub(super) async fn fail(machine: &Machine, count: u64) -> Result<Value> {
    let guest = wait("a guest that wants to start", 120, || async {
        let Some(object) = machine.find_guest().await? else { return Ok(None) };
        Ok((object["status"]["phase"] == "Scheduling").then_some(object))
    })
    .await?;
    machine.delete_pod(true).await?;
    let object = wait("the failure to be counted", 60, || async {
        let object = machine.get().await?;
        Ok((object["status"]["startFailure"]["consecutiveFailCount"] == count).then_some(object))
    })
    .await
    .with_context(|| format!("failure {count}"))?;
    let failure = &object["status"]["startFailure"];
    ensure!(failure["lastFailedVMIUID"] == guest["metadata"]["uid"], "the failed guest is not in {failure}");
    ensure!(failure["retryAfterTimestamp"].is_string(), "{failure} does not say when it is tried again");
    machine.reach("CrashLoopBackOff", 30).await
}

async fn twice(stage: Stage) -> Result<()> {
    let machine = broken(&stage, "Always").await?;
    let first = fail(&machine, 1).await?;
    let second = fail(&machine, 2).await?;
    let tried_again = |object: &Value| object["status"]["startFailure"]["retryAfterTimestamp"].to_string();
    ensure!(tried_again(&first) < tried_again(&second), "the second wait does not end later than the first");
    machine.accept("stop", &Value::Null).await?;
    machine.stopped().await?;
    forgotten(&machine).await?;
    ensure!(machine.strategy().await? == "Halted");
    Ok(())
}

async fn success(stage: Stage) -> Result<()> {
    let machine = broken(&stage, "Always").await?;
    fail(&machine, 1).await?;
    repair(&machine).await?;
    machine.running().await?;
    forgotten(&machine).await
}

async fn rerun(stage: Stage) -> Result<()> {
    let machine = broken(&stage, "RerunOnFailure").await?;
    fail(&machine, 1).await?;
    repair(&machine).await?;
    machine.running().await?;
    forgotten(&machine).await
}

/// Gives the machine a disk that exists.
async fn repair(machine: &Machine) -> Result<()> {
    let volumes = json!([{"name": "data", "containerDisk": {"image": DISK_IMAGE, "imagePullPolicy": "IfNotPresent"}}]);
    machine.patch(&json!({"spec": {"template": {"spec": {"volumes": volumes}}}})).await?;
    Ok(())
}

async fn forgotten(machine: &Machine) -> Result<()> {
    wait("the failures to be forgotten", 30, || async {
        Ok(machine.get().await?["status"]["startFailure"].is_null().then_some(()))
    })
    .await
}
