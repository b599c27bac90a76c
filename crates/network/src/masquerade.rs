//! The masquerade binding: the guest lives in a network of its own behind the pod's address.

use std::net::IpAddr;

use ferrovirt_launcher_rpc::network::{DhcpServer, DhcpV4, DhcpV6};

use crate::facts::PodLink;
use crate::kernel::{Kernel, Link, NetworkError};
use crate::plan::{InterfacePlan, Masquerade};
use crate::resolv::ResolvConf;
use crate::rules::{Families, ruleset};
use crate::set_up::{dhcp_v4, plug_tap, up};
use crate::stable_hash;

/// The gateway's hardware address is the same on every node, so a guest that moves finds it where it was.
const GATEWAY_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0];

/// Builds bridge, tap and rules.
pub(crate) async fn build(
    kernel: &Kernel,
    plan: &InterfacePlan,
    masquerade: &Masquerade,
    pod: &PodLink,
    mtu: u32,
) -> Result<(), NetworkError> {
    let families = families(plan, masquerade, pod)?;
    kernel.sysctl("ipv4/ip_unprivileged_port_start", "0").await?;
    if families.v4 {
        kernel.sysctl("ipv4/ip_forward", "1").await?;
    }
    if families.v6 {
        kernel.sysctl("ipv6/conf/all/forwarding", "1").await?;
    }
    let bridge = kernel.bridge(&plan.bridge, GATEWAY_MAC, mtu).await?;
    if families.v4 {
        // Lets connections to the pod's loopback go on to the guest.
        kernel.sysctl(&format!("ipv4/conf/{}/route_localnet", plan.bridge), "1").await?;
        kernel.add_address(&bridge, masquerade.v4.gateway.into(), masquerade.v4.prefix).await?;
    }
    if families.v6 {
        // The DHCP server answers from the link-local address; nobody else can have it, so it need not be probed for.
        kernel.sysctl(&format!("ipv6/conf/{}/accept_dad", plan.bridge), "0").await?;
        kernel.add_address(&bridge, masquerade.v6.gateway.into(), masquerade.v6.prefix).await?;
    }
    up(kernel, &plan.bridge, &bridge).await?;
    plug_tap(kernel, plan, &bridge, mtu).await?;
    rules(kernel, plan, &bridge, &ruleset(&plan.pod_link, &plan.bridge, masquerade, families)).await
}

/// Rules are not set again when they are there: the bridge's alias says which are.
async fn rules(kernel: &Kernel, plan: &InterfacePlan, bridge: &Link, text: &str) -> Result<(), NetworkError> {
    let alias = format!("ferrovirt rules {:016x}", stable_hash(&[text]));
    if bridge.alias.as_deref() == Some(&alias) {
        return Ok(());
    }
    kernel.rules(text).await?;
    let change = rtnetlink::LinkUnspec::new_with_index(bridge.index).alias(alias);
    kernel.set(format_args!("note on {} that its rules are set", plan.bridge), change).await
}

/// The families that the pod has.
fn families(plan: &InterfacePlan, masquerade: &Masquerade, pod: &PodLink) -> Result<Families, NetworkError> {
    for (address, _) in &pod.addresses {
        let overlap = match address {
            IpAddr::V4(address) => masquerade.v4.contains(*address).then(|| masquerade.v4.to_string()),
            IpAddr::V6(address) => masquerade.v6.contains(*address).then(|| masquerade.v6.to_string()),
        };
        if let Some(guest) = overlap {
            return Err(NetworkError::Overlap { pod: *address, guest });
        }
    }
    let has = |wanted: fn(&IpAddr) -> bool| pod.addresses.iter().any(|(address, _)| wanted(address));
    let families = Families { v4: has(IpAddr::is_ipv4), v6: has(IpAddr::is_ipv6) };
    match families {
        Families { v4: false, v6: false } => Err(NetworkError::NoAddress(plan.pod_link.clone())),
        families => Ok(families),
    }
}

/// What the guest is told.
pub(crate) fn dhcp(
    plan: &InterfacePlan,
    masquerade: &Masquerade,
    pod: &PodLink,
    mtu: u32,
    resolv: &ResolvConf,
    client_mac: String,
) -> DhcpServer {
    let has = |wanted: fn(&IpAddr) -> bool| pod.addresses.iter().any(|(address, _)| wanted(address));
    let v4 = has(IpAddr::is_ipv4).then(|| DhcpV4 {
        router: Some(masquerade.v4.gateway),
        ..dhcp_v4(plan, masquerade.v4.gateway, (masquerade.v4.guest, masquerade.v4.prefix), mtu, resolv)
    });
    let servers = resolv.servers.iter().filter_map(|server| match server {
        IpAddr::V6(server) => Some(*server),
        IpAddr::V4(_) => None,
    });
    let v6 = has(IpAddr::is_ipv6).then(|| DhcpV6 { address: masquerade.v6.guest, dns: servers.collect() });
    DhcpServer { device: plan.bridge.clone(), client_mac, v4, v6 }
}
