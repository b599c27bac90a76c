//! Guests that cannot run: a condition names the cause, and nothing is left when they are deleted.

use anyhow::{Result, ensure};
use serde_json::json;

use blackbox::cluster::wait;
use blackbox::machine::Machine;
use blackbox::manifest::{DISK_IMAGE, HOSTILE_IMAGE, Manifest, claim};
use blackbox::scene::Scene;

pub(super) async fn unschedulable(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest").with("/spec/nodeSelector", json!({"colour": "green"}));
    refused(&scene, &manifest, "PodScheduled", "Unschedulable", &["node"]).await
}

pub(super) async fn missing_claim(scene: Scene) -> Result<()> {
    let manifest =
        Manifest::kernel("guest").volume("data", json!({"persistentVolumeClaim": {"claimName": "not-there"}}));
    refused(&scene, &manifest, "Synchronized", "FailedPvcNotFound", &["not-there"]).await
}

pub(super) async fn missing_image(scene: Scene) -> Result<()> {
    let image = "127.0.0.1:1/not-there:1";
    let manifest = Manifest::kernel("guest").container_disk("data", image);
    refused(&scene, &manifest, "Synchronized", "ErrImagePull,ImagePullBackOff", &[image]).await
}

pub(super) async fn hostile_disk(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest").container_disk("data", HOSTILE_IMAGE);
    let words = ["volume data", "backing file", "qemu-img convert"];
    refused(&scene, &manifest, "Synchronized", "", &words).await
}

pub(super) async fn machine_type(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest").with("/spec/domain/machine/type", json!("pc-q35-99.9"));
    refused(&scene, &manifest, "PodScheduled", "Unschedulable", &["pc-q35-99.9"]).await
}

pub(super) async fn memory(scene: Scene) -> Result<()> {
    // No node has the one, and no processor can address the other.
    for amount in ["64Ti", "1Ei"] {
        let manifest = Manifest::kernel("guest").with("/spec/domain/memory/guest", json!(amount));
        refused(&scene, &manifest, "PodScheduled", "Unschedulable", &["memory"]).await?;
    }
    Ok(())
}

/// The condition becomes False with one of the reasons (any, where there is none) and a message that has all the words; the deleted
/// guest leaves the machine as it was.
async fn refused(scene: &Scene, manifest: &Manifest, kind: &str, reasons: &str, words: &[&str]) -> Result<()> {
    let before = Machine::now();
    let guest = scene.start(manifest.json()).await?;
    let mut last = String::new();
    let named = wait("the cause in a condition", 60, || async {
        let object = guest.get().await?;
        let Some(condition) = blackbox::guest::condition(&object, kind) else { return Ok(None) };
        let (reason, message) =
            (condition["reason"].as_str().unwrap_or_default(), condition["message"].as_str().unwrap_or_default());
        let known = reasons.is_empty() || reasons.split(',').any(|one| one == reason);
        let complete = condition["status"] == "False" && known && words.iter().all(|word| message.contains(word));
        Ok(complete.then_some(()))
    })
    .await;
    if named.is_err() {
        last = guest.get().await?["status"]["conditions"].to_string();
    }
    ensure!(named.is_ok(), "no condition {kind} with {reasons:?} and {words:?}, but: {last}");
    ensure!(guest.phase().await? != "Running", "a guest that cannot run is Running");
    guest.delete().await?;
    guest.gone(60).await?;
    before.clean_again(30).await
}

pub(super) async fn nothing_left(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest")
        .container_disk("image", DISK_IMAGE)
        .volume("scratch", json!({"emptyDisk": {"capacity": "64Mi"}}))
        .user_data("#cloud-config\n");
    leaves_nothing(&scene, manifest, "Filesystem").await
}

pub(super) async fn no_device_left(scene: Scene) -> Result<()> {
    leaves_nothing(&scene, Manifest::kernel("guest"), "Block").await
}

/// A guest that also has a claim runs; it is deleted, and then the claim.
async fn leaves_nothing(scene: &Scene, manifest: Manifest, mode: &str) -> Result<()> {
    let before = Machine::now();
    scene.create("persistentvolumeclaims", &claim("data", "64Mi", mode)).await?;
    let manifest = manifest.volume("data", json!({"persistentVolumeClaim": {"claimName": "data"}}));
    let guest = scene.start(manifest.json()).await?;
    guest.login().await?;
    guest.delete().await?;
    guest.gone(60).await?;
    scene.cluster.delete(&scene.path("/api/v1", "persistentvolumeclaims/data")).await?;
    before.clean_again(30).await
}
