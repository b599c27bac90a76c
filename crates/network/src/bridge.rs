//! The bridge binding: the guest takes over the hardware address and the IP address of the pod's link, which becomes a port of a bridge.

use std::net::Ipv4Addr;

use ferrovirt_launcher_rpc::network::{DhcpServer, DhcpV4, Route};
use rtnetlink::{LinkBridgePort, LinkUnspec};

use crate::facts::PodLink;
use crate::kernel::{Kernel, Link, NetworkError};
use crate::plan::InterfacePlan;
use crate::resolv::ResolvConf;
use crate::set_up::{dhcp_v4, plug_tap, up};
use crate::{derived_mac, mac_text};

/// The DHCP server's own address: link-local, because no other is free.
const DHCP_SERVER: Ipv4Addr = Ipv4Addr::new(169, 254, 75, 10);

/// Remembers what the link is, builds the bridge and moves the link into it.
pub(crate) async fn build(
    kernel: &Kernel,
    plan: &InterfacePlan,
    pod: &PodLink,
    link: &Link,
) -> Result<(), NetworkError> {
    remember(kernel, plan, pod, link).await?;
    kernel.sysctl("ipv4/ip_unprivileged_port_start", "0").await?;
    // The pod's kernel speaks for the addresses of the bridge only.
    kernel.sysctl("ipv4/conf/all/arp_ignore", "1").await?;
    let bridge = kernel.bridge(&plan.bridge, derived_mac(&[&mac_text(pod.mac), "bridge"]), link.mtu).await?;
    without_ipv6(kernel, &plan.bridge).await?;
    if pod.v4().is_some() {
        kernel.add_address(&bridge, DHCP_SERVER.into(), 32).await?;
    }
    up(kernel, &plan.bridge, &bridge).await?;
    give_away(kernel, plan, pod, link, &bridge).await?;
    believe_the_tap(kernel, plan).await?;
    plug_tap(kernel, plan, &bridge, link.mtu).await
}

async fn remember(kernel: &Kernel, plan: &InterfacePlan, pod: &PodLink, link: &Link) -> Result<(), NetworkError> {
    let alias = pod.alias().ok_or_else(|| NetworkError::TooMuchToRemember(plan.pod_link.clone()))?;
    if link.alias.as_ref() == Some(&alias) {
        return Ok(());
    }
    let change = LinkUnspec::new_with_index(link.index).alias(alias);
    kernel.set(format_args!("note the addresses of {} in its alias", plan.pod_link), change).await
}

/// Takes the link's addresses away and makes it a port. A port that had the guest's hardware address would swallow the guest's packets.
async fn give_away(
    kernel: &Kernel,
    plan: &InterfacePlan,
    pod: &PodLink,
    link: &Link,
    bridge: &Link,
) -> Result<(), NetworkError> {
    without_ipv6(kernel, &plan.pod_link).await?;
    for address in kernel.addresses(link.index).await? {
        kernel.remove_address(address).await?;
    }
    let port_mac = derived_mac(&[&mac_text(pod.mac), "port"]);
    if link.mac == port_mac && link.master == Some(bridge.index) {
        return Ok(());
    }
    let change = LinkUnspec::new_with_index(link.index).address(port_mac.to_vec()).controller(bridge.index).up();
    kernel.set(format_args!("make {} a port of {}", plan.pod_link, plan.bridge), change).await
}

/// Networks whose bridges send packets back to where they came from (`hairpinMode`, which most plugins set) return the guest's own
/// broadcasts. The pod's bridge must not learn from these that the guest is out there: answers to the guest would be dropped.
async fn believe_the_tap(kernel: &Kernel, plan: &InterfacePlan) -> Result<(), NetworkError> {
    let port = kernel.existing(&plan.pod_link).await?;
    if !port.learns {
        return Ok(());
    }
    let change = LinkBridgePort::new(port.index).learning(false);
    kernel.set(format_args!("learn nothing from what comes through {}", plan.pod_link), change).await
}

/// The pod takes no part in the guest's IPv6.
async fn without_ipv6(kernel: &Kernel, link: &str) -> Result<(), NetworkError> {
    match std::fs::exists("/proc/sys/net/ipv6") {
        Ok(true) => kernel.sysctl(&format!("ipv6/conf/{link}/disable_ipv6"), "1").await,
        _ => Ok(()),
    }
}

/// What the guest is told; nothing where the pod's network gives no addresses.
pub(crate) fn dhcp(
    plan: &InterfacePlan,
    pod: &PodLink,
    mtu: u32,
    resolv: &ResolvConf,
    client_mac: String,
) -> Option<DhcpServer> {
    let (defaults, routes): (Vec<Route>, Vec<Route>) = pod.routes.iter().cloned().partition(|it| it.prefix == 0);
    let v4 = DhcpV4 {
        router: defaults.first().map(|route| route.gateway).filter(|gateway| !gateway.is_unspecified()),
        routes,
        ..dhcp_v4(plan, DHCP_SERVER, pod.v4()?, mtu, resolv)
    };
    Some(DhcpServer { device: plan.bridge.clone(), client_mac, v4: Some(v4), v6: None })
}
