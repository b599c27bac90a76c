//! Addresses and traffic. A guest's web server says who it is and who asked; the suite asks from the node's side.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use blackbox::console::Console;
use blackbox::guest::Guest;
use blackbox::manifest::Manifest;
use blackbox::scene::Scene;
use blackbox::web::ask;

pub(super) async fn masquerade(scene: Scene) -> Result<()> {
    let (first, second) = (start(&scene, "first", "masquerade").await?, start(&scene, "second", "masquerade").await?);
    let (mut one, mut two) = (first.login().await?, second.login().await?);
    for console in [&mut one, &mut two] {
        console.run_until("lease", "ip='10.0.2.2'", 30).await?;
        console.run_until("ip route", "default via 10.0.2.1", 10).await?;
    }
    let lease = one.run("lease").await?;
    for option in ["router='10.0.2.1'", "mask='24'", "dns='", "mtu='", "hostname='first'"] {
        ensure!(lease.contains(option), "the lease has no {option}: {lease}");
    }
    talk(&first, &mut one, &second, &mut two).await
}

pub(super) async fn bridge(scene: Scene) -> Result<()> {
    let (first, second) = (start(&scene, "first", "bridge").await?, start(&scene, "second", "bridge").await?);
    let (mut one, mut two) = (first.login().await?, second.login().await?);
    for (guest, console) in [(&first, &mut one), (&second, &mut two)] {
        let address = guest.pod_address_v4().await?;
        console
            .run_until("report", &format!("addresses={address}/"), 30)
            .await
            .context("the guest should have the pod's address")?;
    }
    talk(&first, &mut one, &second, &mut two).await
}

pub(super) async fn own_mac(scene: Scene) -> Result<()> {
    let interfaces = json!([{"name": "default", "bridge": {}, "macAddress": "02:00:5e:00:53:07"}]);
    let manifest = Manifest::kernel("first").with("/spec/domain/devices/interfaces", interfaces);
    let first = scene.start(manifest.json()).await?;
    let second = start(&scene, "second", "masquerade").await?;
    let (mut one, mut two) = (first.login().await?, second.login().await?);
    one.run_until("ip link show eth0", "02:00:5e:00:53:07", 10).await?;
    let address = first.pod_address_v4().await?;
    one.run_until("report", &format!("addresses={address}/"), 30).await.context("its pod's address")?;
    two.run_until("lease", "ip=", 30).await?;
    talk(&first, &mut one, &second, &mut two).await
}

pub(super) async fn stolen(scene: Scene) -> Result<()> {
    let (honest, thief) = (start(&scene, "honest", "masquerade").await?, start(&scene, "thief", "bridge").await?);
    let client = start(&scene, "client", "masquerade").await?;
    let (mut one, mut two, mut asking) = (honest.login().await?, thief.login().await?, client.login().await?);
    for console in [&mut one, &mut two, &mut asking] {
        console.run_until("lease", "ip=", 30).await?;
    }
    one.run("serve").await?;
    two.run("serve").await?;
    let address = honest.pod_address_v4().await?;
    two.run(&format!("ip addr add {address}/24 dev eth0")).await?;
    for _ in 0..3 {
        two.attempt(&format!("arping -U -c 2 -I eth0 {address}")).await?;
        for answer in [
            asking.run(&format!("timeout 10 wget -q -O - http://{address}:8080/")).await.context("a guest asks")?,
            ask(&address, 8080, "/").await.context("the node asks")?,
        ] {
            ensure!(answer == "honest", "{answer:?} answers at the address of another");
        }
    }
    Ok(())
}

pub(super) async fn policies(scene: Scene) -> Result<()> {
    let mut guests = Vec::new();
    for name in ["closed", "friend", "stranger"] {
        guests.push(start(&scene, name, "masquerade").await?);
    }
    let (mut closed, mut friend, mut stranger) =
        (guests[0].login().await?, guests[1].login().await?, guests[2].login().await?);
    for console in [&mut closed, &mut friend, &mut stranger] {
        console.run_until("lease", "ip=", 30).await?;
    }
    closed.run("serve").await?;
    let address = guests[0].pod_address_v4().await?;
    let asked = format!("timeout 5 wget -q -O - http://{address}:8080/ || echo nobody");
    for console in [&mut friend, &mut stranger] {
        console.run_until(&asked, "closed", 30).await.context("without a policy")?;
    }
    let pods = |name: &str| json!({"podSelector": {"matchLabels": {"vm.kubevirt.io/name": name}}});
    let mut policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"},
        "spec": {"podSelector": pods("closed")["podSelector"], "ingress": [
            {"from": [pods("friend")], "ports": [{"port": 8000, "endPort": 8080}]},
        ]},
    });
    let path = scene.path("/apis/networking.k8s.io/v1", "networkpolicies");
    scene.cluster.create(&path, &policy).await?;
    stranger.run_until(&asked, "nobody", 30).await.context("a stranger with a policy")?;
    friend.run_until(&asked, "closed", 30).await.context("a friend with a policy")?;
    ask(&address, 8080, "/").await.context("the node with a policy")?;
    policy["spec"]["ingress"] = json!([]);
    scene.cluster.patch(&format!("{path}/closed"), &json!({"spec": policy["spec"]})).await?;
    friend.run_until(&asked, "nobody", 30).await.context("a friend after it was let in no more")?;
    scene.cluster.delete(&format!("{path}/closed")).await?;
    for console in [&mut friend, &mut stranger] {
        console.run_until(&asked, "closed", 30).await.context("after the policy")?;
    }
    Ok(())
}

pub(super) async fn ports(scene: Scene) -> Result<()> {
    let ports = json!([{"name": "web", "port": 8080}]);
    let manifest = Manifest::kernel("guest").with("/spec/domain/devices/interfaces/0/ports", ports);
    let guest = scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    console.run_until("lease", "ip=", 30).await?;
    for port in ["8080", "9090"] {
        console.run(&format!("serve {port}")).await?;
    }
    let address = guest.pod_address_v4().await?;
    ask(&address, 8080, "/").await?;
    ensure!(ask(&address, 9090, "/").await.is_err(), "port 9090 is not in the list and answers");
    Ok(())
}

pub(super) async fn ipv6(scene: Scene) -> Result<()> {
    let guest = start(&scene, "guest", "masquerade").await?;
    let mut console = guest.login().await?;
    let Some(address) = guest.pod_address(true).await? else {
        println!("note    network/ipv6: pods of this cluster have no IPv6 address");
        return Ok(());
    };
    console.run_until("report", "fd10:0:2::2/", 40).await.context("the guest got no address by DHCPv6")?;
    console.run("ip -6 route add fd10:0:2::/120 dev eth0; ip -6 route add default via fd10:0:2::1").await?;
    console.run("serve").await?;
    let name = ask(&address, 8080, "/").await?;
    ensure!(name == "guest", "the guest calls itself {name:?}");
    Ok(())
}

async fn start(scene: &Scene, name: &str, binding: &str) -> Result<Guest> {
    let interfaces = json!([{"name": "default", binding: {}}]);
    let manifest = Manifest::kernel(name).with("/spec/domain/devices/interfaces", interfaces);
    scene.start(manifest.json()).await
}

/// Node to guest, guest to guest, guest to node.
async fn talk(first: &Guest, one: &mut Console, second: &Guest, two: &mut Console) -> Result<()> {
    one.run("serve").await?;
    two.run("serve").await?;
    for guest in [first, second] {
        let name = ask(&guest.pod_address_v4().await?, 8080, "/").await.context("node to guest")?;
        ensure!(name == guest.name, "{} calls itself {name:?}", guest.name);
    }
    let (address, caller) = (first.pod_address_v4().await?, second.pod_address_v4().await?);
    let name = two.run(&format!("timeout 10 wget -q -O - http://{address}:8080/")).await.context("guest to guest")?;
    ensure!(name == "first", "guest to guest: {name:?} answered");
    let seen = two.run(&format!("timeout 10 wget -q -O - http://{address}:8080/cgi-bin/who")).await?;
    let seen = seen.trim_matches(['[', ']']).trim_start_matches("::ffff:");
    ensure!(seen == caller, "the guest was asked by {seen}, not {caller}");
    let node = first.get().await?["status"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let node = first.scene.cluster.get(&format!("/api/v1/nodes/{node}")).await?;
    let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let internal =
        addresses.iter().find(|address| address["type"] == "InternalIP").context("the node has no address")?;
    let internal = internal["address"].as_str().unwrap_or_default();
    one.run(&format!("ping -c 2 -W 5 {internal}")).await.context("guest to node")?;
    Ok(())
}
