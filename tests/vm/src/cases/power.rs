//! Starting and stopping in other than the plain way.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use blackbox::manifest::Manifest;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::machine::Machine;
use crate::stage::Stage;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "power/start-paused",
            "A machine with Manual starts paused, and boots when it may go on.",
            paused_manual,
        ),
        Case::new("power/halted-paused", "A halted machine that is started paused becomes Always.", paused_halted),
        Case::new("power/stop-now", "A stop with grace period 0 waits for no guest.", stop_now),
        Case::new(
            "power/stop-harder",
            "A machine that is stopping takes a stop with less time, and no other.",
            stop_harder,
        ),
        Case::new("power/restart-now", "A restart with grace period 0 waits for no guest.", restart_now),
        Case::new(
            "power/delete-pod",
            "A guest whose pod is deleted is asked to power off, and the machine goes on with another.",
            delete_pod,
        ),
        Case::new("power/dry-run", "A dry run is answered as the real one, and changes nothing.", dry_run),
    ]
}

fn quick() -> Manifest {
    Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1))
}

/// A machine whose guest runs and does not listen when it is asked to shut down, with more time for it than a case has.
async fn deaf(stage: &Stage, strategy: &str) -> Result<(Machine, blackbox::guest::Guest)> {
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(600));
    let machine = stage.create(strategy, &manifest).await?;
    if strategy == "Manual" {
        machine.reach("Stopped", 30).await?;
        machine.accept("start", &Value::Null).await?;
    }
    let (guest, mut console) = machine.login().await?;
    console.run("ignore-acpi").await?;
    Ok((machine, guest))
}

async fn starts_paused(machine: &Machine) -> Result<()> {
    machine.accept("start", &json!({"paused": true})).await?;
    machine.reach("Paused", 90).await?;
    machine.condition("Paused", "True", 10).await?;
    let guest = machine.guest().await?;
    ensure!(guest.get().await?["spec"]["startStrategy"] == "Paused", "the guest was not started paused");
    guest.call("unpause").await?;
    machine.reach("Running", 30).await?;
    machine.no_condition("Paused", 10).await?;
    machine.stays(&guest.uid, "Running", "Running").await
}

async fn paused_manual(stage: Stage) -> Result<()> {
    let machine = stage.create("Manual", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    starts_paused(&machine).await?;
    ensure!(machine.strategy().await? == "Manual");
    // It was not only said to go on.
    machine.guest().await?.login().await?;
    Ok(())
}

async fn paused_halted(stage: Stage) -> Result<()> {
    let machine = stage.create("Halted", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    starts_paused(&machine).await?;
    ensure!(machine.strategy().await? == "Always");
    // The next start is a plain one.
    let guest = machine.guest().await?;
    machine.accept("restart", &Value::Null).await?;
    machine.running_but(&guest.uid).await?;
    Ok(())
}

async fn stop_now(stage: Stage) -> Result<()> {
    let (machine, _) = deaf(&stage, "Always").await?;
    machine.accept("stop", &json!({"gracePeriod": 0})).await?;
    machine.stopped().await?;
    machine.stays("", "", "Stopped").await
}

async fn stop_harder(stage: Stage) -> Result<()> {
    let (machine, guest) = deaf(&stage, "Always").await?;
    machine.accept("stop", &Value::Null).await?;
    machine.reach("Stopping", 30).await?;
    let words = "only supports manual stop requests with a shorter graceperiod";
    machine.refuse("stop", &Value::Null, 409, words).await?;
    machine.refuse("stop", &json!({"gracePeriod": 600}), 409, words).await?;
    ensure!(guest.phase().await? == "Running", "the guest has not been left alone");
    machine.accept("stop", &json!({"gracePeriod": 0})).await?;
    machine.stopped().await
}

async fn restart_now(stage: Stage) -> Result<()> {
    let (machine, guest) = deaf(&stage, "Manual").await?;
    machine.accept("restart", &json!({"gracePeriodSeconds": 0})).await?;
    let other = machine.running_but(&guest.uid).await?;
    machine.stays(&other.uid, "Running", "Running").await
}

async fn delete_pod(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(600));
    let machine = stage.create("Always", &manifest).await?;
    let (guest, mut console) = machine.login().await?;
    let ending = tokio::spawn({
        let guest = guest.clone();
        async move { guest.last_phase(90).await }
    });
    machine.delete_pod(false).await?;
    console.expect("guest: poweroff", Duration::from_secs(60)).await.context("the guest was not asked to power off")?;
    let phase = ending.await??;
    ensure!(phase == "Succeeded", "its last phase is {phase}");
    machine.running_but(&guest.uid).await?;
    machine.accept("stop", &json!({"gracePeriod": 0})).await
}

async fn dry_run(stage: Stage) -> Result<()> {
    let all = json!({"dryRun": ["All"]});
    let machine = stage.create("Halted", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    machine.accept("start", &all).await?;
    machine.stays("", "", "Stopped").await?;
    ensure!(machine.strategy().await? == "Halted");
    machine.accept("start", &Value::Null).await?;
    let guest = machine.running().await?;
    for action in ["stop", "restart"] {
        machine.accept(action, &all).await?;
    }
    machine.refuse("start", &all, 409, "VM is already running").await?;
    machine.stays(&guest.uid, "Running", "Running").await?;
    ensure!(machine.strategy().await? == "Always");
    Ok(())
}
