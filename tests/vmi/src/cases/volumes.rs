//! Each kind of volume, as the guest sees it.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;

use blackbox::cluster::{GUESTS, is_code, wait};
use blackbox::manifest::{DISK_IMAGE, Manifest, claim};
use blackbox::scene::Scene;

/// Writes a word to the start of a disk and reads it back past the cache.
fn write(device: &str, word: &str) -> String {
    format!("printf %-512s {word} | dd of=/dev/{device} conv=fsync 2>/dev/null && sync")
}

fn read(device: &str) -> String {
    format!("head -c 40 /dev/{device} | tr -d ' \\0'")
}

pub(super) async fn ephemeral_disks(scene: Scene) -> Result<()> {
    let manifest = Manifest::kernel("guest")
        .container_disk("image", DISK_IMAGE)
        .volume("scratch", json!({"emptyDisk": {"capacity": "1Gi"}}))
        .volume_on("slow", json!({"emptyDisk": {"capacity": "64Mi"}}), json!({"disk": {"bus": "scsi"}}))
        .volume_on(
            "fixed",
            json!({"containerDisk": {"image": DISK_IMAGE}}),
            json!({"disk": {"bus": "virtio", "readonly": true}}),
        );
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    let report = console.run("report").await?;
    for line in [
        "disk vda size=67108864 ro=0 serial=image",
        "disk vdb size=1073741824 ro=0 serial=scratch",
        "disk sda size=67108864 ro=0 serial=slow",
        "ro=1 serial=fixed",
    ] {
        ensure!(report.contains(line), "no {line:?} in: {report}");
    }
    console
        .run("mkdir /image && mount -t vfat -o ro /dev/vda1 /image && ls /image/vmlinuz")
        .await
        .context("the image's content")?;
    for device in ["vda", "vdb", "sda"] {
        console.run(&write(device, "written")).await.with_context(|| format!("writing to {device}"))?;
        let seen = console.run(&read(device)).await?;
        ensure!(seen == "written", "{device} has {seen:?}");
    }
    guest.delete().await?;
    guest.gone(60).await?;
    let again = scene.start(Manifest::kernel("guest").container_disk("image", DISK_IMAGE).json()).await?;
    let mut console = again.login().await?;
    let seen = console.run(&read("vda")).await?;
    ensure!(!seen.contains("written"), "what a guest wrote to a container disk outlived it");
    Ok(())
}

pub(super) async fn claim_with_file_system(scene: Scene) -> Result<()> {
    scene.create("persistentvolumeclaims", &claim("data", "128Mi", "Filesystem")).await?;
    let source = json!({"persistentVolumeClaim": {"claimName": "data"}});
    let word = keep(&scene, source.clone(), "kept").await?;
    ensure!(word == "kept", "a new guest finds {word:?} on the claim");
    let copy = json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "data"}}});
    let word = keep(&scene, copy, "lost").await?;
    ensure!(word == "kept", "a copy of the claim starts with {word:?}");
    Ok(())
}

pub(super) async fn claim_with_block_mode(scene: Scene) -> Result<()> {
    scene.create("persistentvolumeclaims", &claim("data", "64Mi", "Block")).await?;
    let word = keep(&scene, json!({"persistentVolumeClaim": {"claimName": "data"}}), "kept").await?;
    ensure!(word == "kept", "a new guest finds {word:?} on the claim");
    Ok(())
}

pub(super) async fn host_disk(scene: Scene) -> Result<()> {
    let path = format!("/var/tmp/{}/disk.img", scene.namespace);
    let source = json!({"hostDisk": {"path": path, "type": "DiskOrCreate", "capacity": "64Mi"}});
    let gates = json!(feature_gates(&scene).await?);
    ensure!(!gates.to_string().contains("\"HostDisk\""), "the cluster allows host disks already: {gates}");
    let manifest = Manifest::kernel("guest").volume("data", source.clone());
    let refused = scene.cluster.create(&scene.path(GUESTS, "virtualmachineinstances"), manifest.json()).await;
    let Err(error) = refused else { anyhow::bail!("a host disk was accepted without its feature gate") };
    ensure!(
        is_code(&error, 422) && format!("{error:#}").contains("HostDisk"),
        "the refusal does not name the gate: {error:#}"
    );
    let mut with_host_disks = gates.as_array().cloned().unwrap_or_default();
    with_host_disks.push(json!("HostDisk"));
    set_feature_gates(&scene, &json!(with_host_disks)).await?;
    let word = async {
        wait("host disks to be allowed", 20, || async {
            let path = format!("{}?dryRun=All", scene.path(GUESTS, "virtualmachineinstances"));
            Ok(scene.cluster.create(&path, manifest.json()).await.is_ok().then_some(()))
        })
        .await?;
        // Another node has other directories.
        let node = scene.cluster.get("/api/v1/nodes").await?["items"][0]["metadata"]["labels"][HOSTNAME].clone();
        keep_on(Manifest::kernel("guest").with("/spec/nodeSelector", json!({HOSTNAME: node})), &scene, source, "kept")
            .await
    };
    let word = word.await;
    set_feature_gates(&scene, &gates).await?;
    let _ = std::fs::remove_dir_all(format!("/var/tmp/{}", scene.namespace));
    ensure!(word? == "kept", "a new guest does not find what the first wrote");
    Ok(())
}

/// The label with a node's own name.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The object with the cluster's settings.
const SETTINGS: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";

async fn feature_gates(scene: &Scene) -> Result<serde_json::Value> {
    let settings = scene.cluster.get(SETTINGS).await?;
    Ok(settings["spec"]["configuration"]["developerConfiguration"]["featureGates"].clone())
}

async fn set_feature_gates(scene: &Scene, gates: &serde_json::Value) -> Result<()> {
    let patch = json!({"spec": {"configuration": {"developerConfiguration": {"featureGates": gates}}}});
    scene.cluster.ask(Method::PATCH, SETTINGS, Some(&patch)).await.map(|_| ())
}

/// One guest writes a word to the volume, a second one says what it finds.
async fn keep(scene: &Scene, source: serde_json::Value, word: &str) -> Result<String> {
    keep_on(Manifest::kernel("guest"), scene, source, word).await
}

async fn keep_on(guest: Manifest, scene: &Scene, source: serde_json::Value, word: &str) -> Result<String> {
    let manifest = guest.volume("data", source);
    let first = scene.start(manifest.json()).await?;
    let mut console = first.login().await?;
    let report = console.run("report").await?;
    ensure!(report.contains("serial=data"), "the volume is not there: {report}");
    console.run(&write("vda", word)).await?;
    drop(console);
    first.delete().await?;
    first.gone(60).await?;
    let second = scene.start(manifest.json()).await?;
    let mut console = second.login().await?;
    let found = console.run(&read("vda")).await?;
    drop(console);
    second.delete().await?;
    second.gone(60).await?;
    Ok(found)
}

pub(super) async fn config(scene: Scene) -> Result<()> {
    let named = |kind: &str, name: &str, data: serde_json::Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": data});
    scene
        .create("configmaps", &named("ConfigMap", "settings", json!({"a-rather-long-file-name.conf": "answer=42"})))
        .await?;
    scene.create("secrets", &named("Secret", "keys", json!({"token": "c2VjcmV0"}))).await?;
    scene.create("configmaps", &named("ConfigMap", "windows", json!({"Autounattend.xml": "<unattend/>"}))).await?;
    let cdrom = || json!({"cdrom": {"bus": "scsi"}});
    let fields = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    let manifest = Manifest::kernel("guest")
        .with("/metadata/labels", json!({"colour": "green"}))
        .volume("map", json!({"configMap": {"name": "settings"}}))
        .volume("secret", json!({"secret": {"secretName": "keys", "volumeLabel": "keys"}}))
        .volume("account", json!({"serviceAccount": {"serviceAccountName": "default"}}))
        .volume("facts", json!({"downwardAPI": {"fields": fields, "volumeLabel": "facts"}}))
        .volume_on("answers", json!({"sysprep": {"configMap": {"name": "windows"}}}), cdrom());
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    let listing = console.run("report; ls -R /mnt").await?;
    let expected = [
        ("cat /mnt/cfgdata*/a-rather-long-file-name.conf", "answer=42"),
        ("cat /mnt/keys/token", "secret"),
        ("cat /mnt/cfgdata*/namespace", scene.namespace.as_str()),
        ("head -c 3 /mnt/cfgdata*/token", "eyJ"),
        ("grep colour /mnt/facts/labels", "colour=\"green\""),
        ("cat /mnt/unattendCD/Autounattend.xml", "<unattend/>"),
    ];
    for (command, wanted) in expected {
        let (found, _) = console.attempt(command).await?;
        ensure!(found == wanted, "`{command}` says {found:?}, not {wanted:?}; there is: {listing}");
    }
    Ok(())
}
