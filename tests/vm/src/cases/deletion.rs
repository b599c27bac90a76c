//! Deleted machines.

use anyhow::{Result, ensure};
use blackbox::cluster::wait;
use blackbox::manifest::Manifest;
use serde_json::{Value, json};

use crate::cases::Case;
use crate::stage::Stage;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("delete/guest-first", "A deleted machine is Terminating until its guest is gone.", guest_first),
        Case::new(
            "delete/orphan",
            "A machine deleted with --cascade=orphan leaves its guest, and a new one adopts it.",
            orphan,
        ),
        Case::new("delete/stopped", "A stopped machine is gone at once, with its revisions.", stopped),
    ]
}

async fn guest_first(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(600));
    let machine = stage.create("Always", &manifest).await?;
    let (guest, mut console) = machine.login().await?;
    console.run("ignore-acpi").await?;
    stage.kubectl.run(&["delete", "vm", "machine", "--wait=false"]).await?;
    machine.reach("Terminating", 30).await?;
    wait("the guest to be deleted", 30, || async {
        Ok(guest.get().await?["metadata"]["deletionTimestamp"].is_string().then_some(()))
    })
    .await?;
    machine.stays(&guest.uid, "Running", "Terminating").await?;
    console.send("poweroff -f\n").await?;
    wait("machine and guest to be gone", 60, || async {
        // The machine is looked at first: what goes last must not be gone before.
        let machine_is_gone = machine.find().await?.is_none();
        let guest_is_gone = machine.find_guest().await?.is_none();
        ensure!(guest_is_gone || !machine_is_gone, "the machine is gone, and its guest is not");
        Ok((machine_is_gone && guest_is_gone).then_some(()))
    })
    .await
}

async fn orphan(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1));
    let machine = stage.create("Always", &manifest).await?;
    let guest = machine.running().await?;
    stage.kubectl.run(&["delete", "vm", "machine", "--cascade=orphan", "--timeout=60s"]).await?;
    ensure!(machine.find().await?.is_none(), "the machine is still there");
    let left = guest.get().await?;
    ensure!(left["metadata"]["uid"] == guest.uid.as_str(), "the guest is another one");
    ensure!(left["metadata"]["deletionTimestamp"].is_null(), "the guest is deleted too");
    let owners = &left["metadata"]["ownerReferences"];
    ensure!(owners.as_array().is_none_or(Vec::is_empty), "the guest still belongs to {owners}");
    guest.running().await?;

    let again = stage.create("Always", &manifest).await?;
    let uid = again.get().await?["metadata"]["uid"].clone();
    wait("the guest to be adopted", 30, || async {
        let owner = guest.get().await?["metadata"]["ownerReferences"][0].clone();
        Ok((owner["uid"] == uid && owner["controller"] == true && owner["kind"] == "VirtualMachine").then_some(()))
    })
    .await?;
    again.reach("Running", 30).await?;
    again.stays(&guest.uid, "Running", "Running").await?;
    stage.kubectl.run(&["delete", "vm", "machine", "--timeout=60s"]).await?;
    again.gone().await
}

async fn stopped(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("machine").with("/spec/terminationGracePeriodSeconds", json!(1));
    let machine = stage.create("Always", &manifest).await?;
    machine.running().await?;
    machine.accept("stop", &Value::Null).await?;
    machine.stopped().await?;
    stage.kubectl.run(&["delete", "vm", "machine", "--timeout=30s"]).await?;
    machine.gone().await?;
    let path = stage.scene.path("/apis/apps/v1", "controllerrevisions");
    wait("its revisions to be gone", 30, || async {
        let left = stage.scene.cluster.get(&path).await?;
        Ok(left["items"].as_array().is_none_or(Vec::is_empty).then_some(()))
    })
    .await
}
