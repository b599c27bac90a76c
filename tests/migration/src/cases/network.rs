//! Moved guests and the network.

use anyhow::{Context, Result, bail};
use blackbox::manifest::Manifest;
use blackbox::web;
use serde_json::json;

use crate::stage::Stage;

/// Asks the DHCP server of the new pod again.
const RENEW: &str = "udhcpc -i eth0 -q -n -t 10 -T 1 -s /lib/guest/lease.sh >/dev/null 2>&1";

pub(super) async fn masquerade(stage: Stage) -> Result<()> {
    let guest = stage.scene.start(Manifest::kernel("walker").json()).await?;
    let other = stage.scene.start(Manifest::kernel("other").json()).await?;
    let mut there = other.login().await?;
    there.run("serve 80").await?;
    let mut console = guest.login().await?;
    console.run("serve 80").await?;
    guest.condition("LiveMigratable", "True", 30).await?;
    let before = guest.address().await?;
    guest.moved().await?;
    let after = guest.address().await?;
    if after == before {
        bail!("the new pod has the address of the old one: {after}");
    }
    // At once: the object has only just said that the guest is here.
    web::ask(&after, 80, "/cgi-bin/who").await.context("at its new pod's address")?;
    let told = guest.get().await?["status"]["interfaces"][0].clone();
    if told["ipAddress"] != after.as_str() {
        bail!("its object says another address than its pod's {after}: {told}");
    }
    let mut console = guest.console().await?;
    console.resume().await?;
    let seen = console.run(&format!("wget -q -O - http://{}/cgi-bin/who", other.address().await?)).await?;
    if !seen.contains(&after) {
        bail!("outside, it is seen as {seen:?}, not as its new pod {after}");
    }
    console.run(RENEW).await.context("renewing its lease")?;
    console.run(&format!("wget -q -O - http://{}/cgi-bin/who", other.address().await?)).await?;
    web::ask(&after, 80, "/").await.context("after it renewed its lease").map(drop)
}

pub(super) async fn bridge(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("walker")
        .with("/spec/domain/devices/interfaces", json!([{"name": "default", "bridge": {}}]))
        .with("/metadata/annotations", json!({"kubevirt.io/allow-pod-bridge-network-live-migration": "true"}));
    let guest = stage.scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    console.run("serve 80").await?;
    guest.condition("LiveMigratable", "True", 30).await?;
    guest.moved().await?;
    let after = guest.address().await?;
    let mut console = guest.console().await?;
    console.resume().await?;
    console.run("ip -4 addr flush dev eth0").await?;
    console.run(RENEW).await.context("asking for its new address")?;
    let shown = console.run("report").await?;
    if !shown.contains(&format!("{after}/")) {
        bail!("the guest did not get the address {after} of its new pod: {shown}");
    }
    web::ask(&after, 80, "/").await.context("at its new address").map(drop)
}
