//! How guests stop, go on and end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use blackbox::cluster::wait;
use blackbox::guest::Guest;
use blackbox::machine;
use blackbox::manifest::Manifest;
use blackbox::scene::Scene;

pub(super) async fn pause(scene: Scene) -> Result<()> {
    let guest = scene.start(Manifest::kernel("guest").json()).await?;
    let mut console = guest.login().await?;
    console.send("heartbeat\n").await?;
    console.expect("beat 5\n", Duration::from_secs(30)).await?;
    guest.call("pause").await?;
    let condition = guest.condition("Paused", "True", 10).await?;
    ensure!(condition["reason"] == "PausedByUser", "the condition is {condition}");
    // What was on its way when it stopped.
    let before = console.listen(Duration::from_millis(500)).await?;
    let silence = console.listen(Duration::from_secs(2)).await?;
    ensure!(silence.is_empty(), "a paused guest says {silence:?}");
    let last = before.lines().filter_map(|line| line.strip_prefix("beat ")?.parse::<u32>().ok()).next_back();
    guest.call("unpause").await?;
    let next = last.map_or(6, |last| last + 1);
    console.expect(&format!("beat {}\n", next + 3), Duration::from_secs(30)).await.context("after it was unpaused")?;
    guest.no_condition("Paused", 10).await?;
    ensure!(guest.phase().await? == "Running");
    Ok(())
}

pub(super) async fn off(scene: Scene) -> Result<()> {
    let guest = scene.start(Manifest::kernel("guest").json()).await?;
    let mut console = guest.login().await?;
    console.send("poweroff -f\n").await?;
    guest.reach("Succeeded", 30).await?;
    pod_ends(&guest, "Succeeded").await
}

pub(super) async fn panic(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest").with("/spec/domain/devices/panicDevices", json!([{"model": "isa"}]));
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    console.send("panic\n").await?;
    guest.reach("Failed", 30).await?;
    pod_ends(&guest, "Failed").await
}

pub(super) async fn delete(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest").with("/spec/terminationGracePeriodSeconds", json!(60));
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    let ending = tokio::spawn({
        let guest = guest.clone();
        async move { guest.last_phase(50).await }
    });
    guest.delete().await?;
    console.expect("guest: poweroff", Duration::from_secs(30)).await.context("the guest was not asked to power off")?;
    let phase = ending.await??;
    ensure!(phase == "Succeeded", "its last phase is {phase}");
    guest.gone(30).await
}

pub(super) async fn deaf(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest").with("/spec/terminationGracePeriodSeconds", json!(5));
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    console.run("ignore-acpi").await?;
    let ending = tokio::spawn({
        let guest = guest.clone();
        async move { guest.last_phase(50).await }
    });
    guest.delete().await?;
    console
        .expect("guest: shutdown ignored", Duration::from_secs(30))
        .await
        .context("the guest was not asked to power off")?;
    let phase = ending.await??;
    ensure!(phase == "Failed", "its last phase is {phase}");
    guest.gone(30).await
}

pub(super) async fn killed(scene: Scene) -> Result<()> {
    let guest = scene.start(Manifest::kernel("guest").json()).await?;
    guest.login().await?;
    let pid = machine::qemu_of(&scene.namespace, &guest.name).context("its QEMU is not on this machine")?;
    let pid = rustix::process::Pid::from_raw(pid).context("no pid")?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
    guest.reach("Failed", 5).await?;
    pod_ends(&guest, "Failed").await
}

/// The pod of a guest that ended says the same as the guest, or is gone.
async fn pod_ends(guest: &Guest, phase: &str) -> Result<()> {
    wait(&format!("the pod to be {phase}"), 30, || async {
        let Some(pod) = guest.pod().await? else { return Ok(Some(())) };
        Ok((pod["status"]["phase"] == phase).then_some(()))
    })
    .await
}
