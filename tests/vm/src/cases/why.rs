//! `virtctl why`: the first thing that keeps a machine from running, and what to do. Exit code 0 says that nothing does.

use anyhow::{Context, Result};
use blackbox::cluster::wait;
use blackbox::manifest::{HOSTILE_IMAGE, Manifest};
use blackbox::program::Outcome;
use serde_json::json;

use super::backoff::{NO_IMAGE, broken, fail};
use crate::cases::Case;
use crate::stage::Stage;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("why/healthy", "Nothing is wrong with a machine that runs.", healthy),
        Case::new("why/unschedulable", "No node takes the guest: the node's lack is named.", unschedulable),
        Case::new("why/claim", "A claim does not exist: it is named.", claim),
        Case::new("why/image", "An image does not exist: it is named.", image),
        Case::new("why/broken-image", "A disk is refused: the volume and the reason are named.", broken_image),
        Case::new(
            "why/crash-loop",
            "A machine waits for its next try: the failures and the time are named.",
            crash_loop,
        ),
        Case::new("why/halted", "A machine is halted: how to start it is said.", halted),
        Case::new("why/paused", "A guest is paused: how to go on is said.", paused),
        Case::new("why/panicked", "A guest has crashed: that is said.", panicked),
        Case::new("why/unknown", "A machine that does not exist is not found.", unknown),
    ]
}

fn quick() -> Manifest {
    Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1))
}

/// Asks until the answer has all the words (the cause takes its time to show), and has the exit code of something that is wrong.
async fn named(stage: &Stage, words: &[&str]) -> Result<()> {
    let complete = |outcome: &Outcome| {
        let said = outcome.text().to_lowercase();
        outcome.code != 0 && words.iter().all(|word| said.contains(&word.to_lowercase()))
    };
    let asked = stage.virtctl.until(&["why", "machine"], 90, complete).await;
    asked.with_context(|| format!("waiting for the words {words:?}"))?;
    Ok(())
}

async fn healthy(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    machine.running().await?;
    stage.virtctl.until(&["why", "machine"], 30, |outcome| outcome.code == 0).await?;
    Ok(())
}

async fn unschedulable(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick().with("/spec/nodeSelector", json!({"colour": "green"}))).await?;
    machine.reach("ErrorUnschedulable", 60).await?;
    named(&stage, &["machine", "node"]).await
}

async fn claim(stage: Stage) -> Result<()> {
    let source = json!({"persistentVolumeClaim": {"claimName": "not-there"}});
    let machine = stage.create("Always", &quick().volume("data", source)).await?;
    machine.reach("ErrorPvcNotFound", 60).await?;
    named(&stage, &["not-there"]).await
}

async fn image(stage: Stage) -> Result<()> {
    stage.create("Always", &quick().container_disk("data", NO_IMAGE)).await?;
    let machine = stage.machine("machine");
    wait("the image's absence to be shown", 90, || async {
        let shown = machine.get().await?["status"]["printableStatus"].clone();
        Ok((shown == "ErrImagePull" || shown == "ImagePullBackOff").then_some(()))
    })
    .await?;
    named(&stage, &[NO_IMAGE]).await
}

async fn broken_image(stage: Stage) -> Result<()> {
    stage.create("Always", &quick().container_disk("data", HOSTILE_IMAGE)).await?;
    named(&stage, &["data", "backing file"]).await
}

async fn crash_loop(stage: Stage) -> Result<()> {
    let machine = broken(&stage, "Always").await?;
    fail(&machine, 1).await?;
    named(&stage, &["failed once", "next try", "virtctl stop machine"]).await
}

async fn halted(stage: Stage) -> Result<()> {
    let machine = stage.create("Halted", &quick()).await?;
    machine.reach("Stopped", 30).await?;
    named(&stage, &["halted", "virtctl start machine"]).await
}

async fn paused(stage: Stage) -> Result<()> {
    let machine = stage.create("Always", &quick()).await?;
    machine.running().await?.call("pause").await?;
    machine.reach("Paused", 30).await?;
    named(&stage, &["paused", "virtctl unpause"]).await
}

async fn panicked(stage: Stage) -> Result<()> {
    let manifest = quick().with("/spec/domain/devices/panicDevices", json!([{"model": "isa"}]));
    let machine = stage.create("Once", &manifest).await?;
    let (guest, mut console) = machine.login().await?;
    console.send("panic\n").await?;
    guest.reach("Failed", 60).await?;
    machine.reach("Stopped", 30).await?;
    named(&stage, &["machine", "panicked"]).await
}

async fn unknown(stage: Stage) -> Result<()> {
    stage.virtctl.refused(&["why", "nobody"], &["nobody", "no virtual machine"]).await?;
    Ok(())
}
