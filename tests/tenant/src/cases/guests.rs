//! Guests that ask for what is the machine's, or say of themselves what is not so.

use anyhow::{Result, ensure};
use blackbox::cluster::GUESTS;
use blackbox::manifest::Manifest;
use blackbox::scene::Scene;
use blackbox::suite::Case;
use serde_json::{Value, json};

use crate::tenant::{Ask, Role, Tenant};

/// Name, where, what, and a part of the answer.
fn rows() -> Vec<(&'static str, &'static str, Value, &'static str)> {
    vec![
        (
            "host-disk",
            "/spec/volumes",
            json!([{"name": "d", "hostDisk": {"path": "/etc/shadow", "type": "Disk"}}]),
            "hostDisk",
        ),
        ("device", "/spec/domain/devices/hostDevices", json!([{"name": "d", "deviceName": "a/b"}]), "hostDevices"),
        ("gpu", "/spec/domain/devices/gpus", json!([{"name": "d", "deviceName": "a/b"}]), "gpus"),
        (
            "image-path",
            "/spec/volumes",
            json!([{"name": "d", "containerDisk": {"image": "a", "path": "/disk/../../etc/shadow"}}]),
            "path",
        ),
        (
            "kernel-path",
            "/spec/domain/firmware/kernelBoot/container/kernelPath",
            json!("/../../etc/shadow"),
            "kernelPath",
        ),
        (
            "xml-in-mac",
            "/spec/domain/devices/interfaces/0/macAddress",
            json!("02:00:00:00:00:01'/><a b='"),
            "macAddress",
        ),
        ("xml-in-machine", "/spec/domain/machine", json!({"type": "q35'/><a b='"}), "machine"),
        ("xml-in-cpu", "/spec/domain/cpu", json!({"cores": 1, "model": "max'/><a b='"}), "model"),
        ("xml-in-pci", "/spec/domain/devices/interfaces/0/pciAddress", json!("0000:00:01.0'/><a"), "pciAddress"),
    ]
}

/// One case for each row, and those that are not alike.
pub(super) fn all() -> Vec<Case<Scene>> {
    let rows = rows().into_iter().map(|(name, pointer, value, part)| {
        let run = move |scene: Scene| {
            let manifest = Manifest::kernel("guest").with(pointer, value.clone());
            async move {
                let tenant = Tenant::new(scene, Role::Editor).await?;
                let path = format!("{GUESTS}/namespaces/{{ns}}/virtualmachineinstances");
                tenant.refused(&Ask::post(&path, manifest.json()), &[403, 422], part).await
            }
        };
        Case::new(&format!("guest/{name}"), "A guest that asks for what is the machine's is refused.", run)
    });
    let forged = Case::new("guest/forged-status", "What a new guest says of its own state counts for nothing.", forged);
    rows.chain([forged]).collect()
}

async fn forged(scene: Scene) -> Result<()> {
    let tenant = Tenant::new(scene, Role::Editor).await?;
    let status = json!({"phase": "Running", "nodeName": "node1", "activePods": {"forged": "node1"}});
    let manifest =
        Manifest::kernel("guest").with("/spec/nodeSelector", json!({"colour": "green"})).with("/status", status);
    let path = format!("{GUESTS}/namespaces/{{ns}}/virtualmachineinstances");
    let made = tenant.ask(&Ask::post(&path, manifest.json())).await?;
    ensure!(made.code == 201, "the guest was answered with {}: {}", made.code, made.body);
    let there = tenant.scene.cluster.get(&tenant.scene.path(GUESTS, "virtualmachineinstances/guest")).await?;
    let status = &there["status"];
    ensure!(status["phase"] != "Running" && status["activePods"]["forged"].is_null(), "it was believed: {status}");
    Ok(())
}
