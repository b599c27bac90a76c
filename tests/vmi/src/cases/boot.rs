//! Guests come up.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use blackbox::cluster::wait;
use blackbox::guest::{Guest, condition};
use blackbox::manifest::Manifest;
use blackbox::scene::Scene;

pub(super) async fn kernel(scene: Scene) -> Result<()> {
    let guest = scene.start(Manifest::kernel("guest").json()).await?;
    let mut console = guest.login().await?;
    let kernel = console.run("uname -s").await?;
    ensure!(kernel == "Linux", "uname said {kernel:?}");
    console.run_until("report", "addresses=10.0.2.2/24", 30).await?;
    let report = console.run("report").await?;
    ensure!(!report.contains("\ndisk "), "a guest without disks has one: {report}");

    let object = guest.get().await?;
    let status = &object["status"];
    ensure!(condition(&object, "Ready").is_some_and(|ready| ready["status"] == "True"), "not Ready: {status}");
    let phases: Vec<_> =
        array(&status["phaseTransitionTimestamps"]).iter().filter_map(|entry| entry["phase"].as_str()).collect();
    ensure!(phases == ["Pending", "Scheduling", "Scheduled", "Running"], "phases are {phases:?}");
    let pod = guest.pod().await?.context("there is no pod")?;
    ensure!(status["nodeName"] == pod["spec"]["nodeName"], "nodeName is {}", status["nodeName"]);
    let pod_uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    ensure!(status["activePods"][pod_uid] == status["nodeName"], "activePods is {}", status["activePods"]);
    let interface = &status["interfaces"][0];
    ensure!(
        interface["ipAddress"] == pod["status"]["podIP"],
        "the interface is {interface}, the pod's address {}",
        pod["status"]["podIP"]
    );
    ensure!(
        report.contains(interface["mac"].as_str().unwrap_or("no mac")),
        "{interface} is not in the guest: {report}"
    );
    Ok(())
}

pub(super) async fn disk(scene: Scene) -> Result<()> {
    let manifest = Manifest::disk("guest").with("/spec/domain/devices/logSerialConsole", json!(true));
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    let report = console.run("report").await?;
    ensure!(report.contains("disk vda size=67108864 ro=0 serial=root"), "the disk is not as it should be: {report}");
    let (_, efi) = console.attempt("ls -d /sys/firmware/efi").await?;
    ensure!(efi != 0, "a guest with BIOS runs on EFI");
    let volumes = guest.get().await?["status"]["volumeStatus"].clone();
    ensure!(volumes[0]["name"] == "root" && volumes[0]["target"] == "vda", "volumeStatus is {volumes}");
    logged(&guest).await?;
    // What logs the console keeps no pod alive.
    console.send("poweroff -f\n").await?;
    guest.reach("Succeeded", 60).await?;
    wait("the pod to end", 60, || async {
        let pod = guest.pod().await?;
        Ok(pod.is_none_or(|pod| pod["status"]["phase"] == "Succeeded").then_some(()))
    })
    .await
}

/// The log of the container that is there for it has what the guest wrote.
async fn logged(guest: &Guest) -> Result<()> {
    let pod = guest.pod().await?.context("there is no pod")?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let log = format!("{}/{name}/log?container=guest-console-log", guest.scene.path("/api/v1", "pods"));
    wait("the console in the log of guest-console-log", 30, || async {
        let answer = guest.scene.cluster.answer(Method::GET, &log, None).await?;
        Ok(answer.body.as_str().is_some_and(|text| text.contains("login:")).then_some(()))
    })
    .await
}

pub(super) async fn efi(scene: Scene) -> Result<()> {
    let firmware = json!({"bootloader": {"efi": {"secureBoot": false}}});
    let manifest = Manifest::disk("guest")
        .with("/spec/domain/firmware", firmware)
        .with("/spec/domain/memory/guest", json!("256Mi"));
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    console.run("ls -d /sys/firmware/efi/efivars").await.context("the guest does not run on EFI")?;
    Ok(())
}

pub(super) async fn agent(scene: Scene) -> Result<()> {
    let guest =
        scene.start(Manifest::kernel("guest").user_data("#cloud-config\nhostname: told-by-seed\n").json()).await?;
    guest.running().await?;
    guest.condition("AgentConnected", "True", 90).await?;
    let object = wait("the agent's facts in the status", 60, || async {
        let object = guest.get().await?;
        let told = array(&object["status"]["interfaces"]).iter().any(|interface| {
            interface["infoSource"].as_str().is_some_and(|source| source.contains("guest-agent"))
                && interface["interfaceName"] == "eth0"
        });
        Ok((told && object["status"]["guestOSInfo"]["id"] == "ferrovirt-guest").then_some(object))
    })
    .await?;
    let os = &object["status"]["guestOSInfo"];
    ensure!(os["prettyName"] == "Ferrovirt test guest" && os["machine"] == "x86_64", "guestOSInfo is {os}");
    let mut console = guest.login().await?;
    console.run("true").await?;

    let info = guest.subresource(Method::GET, "guestosinfo").await?;
    ensure!(info["hostname"] == "told-by-seed", "guestosinfo is {info}");
    wait("root in the list of users", 60, || async {
        let users = guest.subresource(Method::GET, "userlist").await?;
        Ok(array(&users["items"]).iter().any(|user| user["userName"] == "root").then_some(()))
    })
    .await?;
    wait("the seed in the list of file systems", 60, || async {
        let systems = guest.subresource(Method::GET, "filesystemlist").await?;
        Ok(array(&systems["items"]).iter().any(|system| system["mountPoint"] == "/mnt/cidata").then_some(()))
    })
    .await
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
