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
