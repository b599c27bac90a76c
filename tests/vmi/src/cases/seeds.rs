//! cloud-init seeds, as the guest applies them.

use anyhow::{Result, ensure};
use serde_json::json;

use blackbox::manifest::Manifest;
use blackbox::scene::Scene;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1v5p3mCkQ2mWb8q0yKxq4Qf1m0m7a4Yb0h2VQxkq2f suite";

pub(super) async fn no_cloud(scene: Scene) -> Result<()> {
    let user_data = format!(
        "#cloud-config\nhostname: seeded\nuser: alice\npassword: right-one\nchpasswd: {{ expire: false }}\nssh_authorized_keys:\n  - {KEY}\n\
         write_files:\n  - path: /etc/from-seed\n    content: |\n      line one\n      line two\n    permissions: '0640'\n\
         runcmd:\n  - echo $((6 * 7)) > /run/ran\n  - [touch, \"/run/ran too\"]\n"
    );
    let guest = scene.start(Manifest::kernel("guest").user_data(&user_data).json()).await?;
    guest.running().await?;
    let mut console = guest.console().await?;
    ensure!(!console.try_password("alice", "wrong-one").await?, "a wrong password was accepted");
    ensure!(console.try_password("alice", "right-one").await?, "the seed's password was refused");
    console.login().await?;
    for (command, wanted) in [
        ("hostname", "seeded"),
        ("cat /home/alice/.ssh/authorized_keys", KEY),
        ("cat /etc/from-seed", "line one\nline two"),
        ("stat -c %a /etc/from-seed", "640"),
    ] {
        let found = console.run(command).await?;
        ensure!(found == wanted, "`{command}` says {found:?}, not {wanted:?}");
    }
    console.run_until("cat /run/ran", "42", 40).await?;
    console.run_until("ls /run", "ran too", 10).await?;
    let meta = console.run("cat /mnt/cidata/meta-data").await?;
    let id = format!("\"guest.{}\"", scene.namespace);
    ensure!(meta.contains(&id), "the instance id is not {id}: {meta}");
    Ok(())
}

pub(super) async fn secret(scene: Scene) -> Result<()> {
    let secret = |name: &str, key: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: value}});
    scene.create("secrets", &secret("user", "userdata", "#!/bin/sh\necho by script > /run/ran\n")).await?;
    scene.create("secrets", &secret("network", "networkdata", STATIC)).await?;
    let source =
        json!({"cloudInitNoCloud": {"secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "network"}}});
    let guest = scene.start(Manifest::kernel("guest").volume("seed", source).json()).await?;
    let mut console = guest.login().await?;
    console.run_until("report", "10.0.2.77/24", 30).await?;
    console.run_until("cat /run/ran", "by script", 40).await?;
    Ok(())
}

const STATIC: &str = "version: 2\nethernets:\n  eth0:\n    addresses: [10.0.2.77/24]\n    gateway4: 10.0.2.1\n";

pub(super) async fn network_data(scene: Scene) -> Result<()> {
    let source = json!({"cloudInitNoCloud": {"userData": "#cloud-config\n", "networkData": STATIC}});
    let guest = scene.start(Manifest::kernel("guest").volume("seed", source).json()).await?;
    let mut console = guest.login().await?;
    console.run_until("report", "addresses=10.0.2.77/24", 30).await?;
    console.run_until("ip route", "default via 10.0.2.1", 10).await?;
    let (_, lease) = console.attempt("lease").await?;
    ensure!(lease != 0, "the guest asked for a lease although it has a static address");
    Ok(())
}

pub(super) async fn config_drive(scene: Scene) -> Result<()> {
    let source = json!({"cloudInitConfigDrive": {"userData": "#cloud-config\nwrite_files:\n- path: /run/drive\n  content: by drive\n"}});
    let guest = scene.start(Manifest::kernel("guest").volume("seed", source).json()).await?;
    let mut console = guest.login().await?;
    let found = console.run("cat /run/drive").await?;
    ensure!(found == "by drive", "/run/drive has {found:?}");
    let meta = console.run("cat /mnt/config-2/openstack/latest/meta_data.json").await?;
    for part in ["\"instance_id\"", "\"hostname\":\"guest\"", "\"uuid\""] {
        ensure!(meta.contains(part), "no {part} in {meta}");
    }
    Ok(())
}
