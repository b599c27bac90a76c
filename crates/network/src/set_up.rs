//! Making a plan true: a thread in the pod's network namespace that looks, changes what differs, and reports.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};

use ferrovirt_launcher_rpc::network::{DhcpV4, GuestLink};
use rtnetlink::LinkUnspec;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::facts::PodLink;
use crate::kernel::{Kernel, Link, NetworkError, Permission, is_global, of};
use crate::plan::{Binding, InterfacePlan};
use crate::resolv::ResolvConf;
use crate::{bridge, mac_text, masquerade};

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The guest's network cards, in the order of the plans.
    pub links: Vec<GuestLink>,
}

/// Builds the guest's network in the pod's network namespace, or finishes what was begun. Changes nothing where all is done.
pub async fn set_up(netns: OwnedFd, plans: &[InterfacePlan], resolv: &ResolvConf) -> Result<State, NetworkError> {
    Ok(within(netns, plans.to_vec(), resolv.clone(), Box::new(|_| Ok(()))).await?.0)
}

/// The same, asking before each change; also tells how many there were.
pub(crate) async fn within(
    netns: OwnedFd,
    plans: Vec<InterfacePlan>,
    resolv: ResolvConf,
    permission: Permission,
) -> Result<(State, usize), NetworkError> {
    let (answer, answered) = oneshot::channel();
    let work = move || {
        let result = enter(netns).map_err(NetworkError::Enter).and_then(|runtime| {
            runtime.block_on(async {
                let kernel = Kernel::connect(permission).map_err(NetworkError::Enter)?;
                let state = build_all(&kernel, &plans, &resolv).await?;
                Ok((state, kernel.changes.get()))
            })
        });
        if answer.send(result).is_err() {
            tracing::debug!("nobody waits for this pod's network any more");
        }
    };
    // A thread of its own: entering a namespace is for ever, and a thread of a shared runtime would take its other tasks along.
    std::thread::Builder::new().name("pod-network".to_owned()).spawn(work).map_err(NetworkError::Enter)?;
    answered.await.map_err(|_| NetworkError::Died)?
}

fn enter(netns: OwnedFd) -> io::Result<tokio::runtime::Runtime> {
    move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
    drop(netns); // an open handle would keep the namespace alive
    tokio::runtime::Builder::new_current_thread().enable_io().build()
}

async fn build_all(kernel: &Kernel, plans: &[InterfacePlan], resolv: &ResolvConf) -> Result<State, NetworkError> {
    let mut state = State::default();
    for plan in plans {
        state.links.push(build(kernel, plan, resolv).await?);
    }
    Ok(state)
}

async fn build(kernel: &Kernel, plan: &InterfacePlan, resolv: &ResolvConf) -> Result<GuestLink, NetworkError> {
    let link = kernel.existing(&plan.pod_link).await?;
    let pod = pod_link(kernel, &link).await?;
    let mac = mac_text(plan.mac.as_ref().map_or(pod.mac, ferrovirt_api::values::MacAddress::octets));
    let dhcp = match &plan.binding {
        Binding::Masquerade(masquerade) => {
            masquerade::build(kernel, plan, masquerade, &pod, link.mtu).await?;
            Some(masquerade::dhcp(plan, masquerade, &pod, link.mtu, resolv, mac.clone()))
        }
        Binding::Bridge => {
            bridge::build(kernel, plan, &pod, &link).await?;
            bridge::dhcp(plan, &pod, link.mtu, resolv, mac.clone())
        }
    };
    Ok(GuestLink {
        interface: plan.interface.clone(),
        tap: plan.tap.clone(),
        mac,
        mtu: link.mtu,
        queues: plan.queues,
        pod_interface: plan.pod_link.clone(),
        pod_addresses: pod.addresses.iter().map(|(address, _)| *address).collect(),
        dhcp,
    })
}

/// The pod's link as it was made: from memory if it has been taken over, else as it is.
async fn pod_link(kernel: &Kernel, link: &Link) -> Result<PodLink, NetworkError> {
    let remembered = link.alias.as_deref().and_then(|alias| alias.parse().ok());
    if let Some(remembered) = remembered {
        return Ok(remembered);
    }
    let addresses = kernel.addresses(link.index).await?;
    let addresses = addresses.iter().filter(|address| is_global(address)).filter_map(of).collect();
    Ok(PodLink { mac: link.mac, addresses, routes: kernel.routes(link.index).await? })
}

/// Switches a link on.
pub(crate) async fn up(kernel: &Kernel, name: &str, link: &Link) -> Result<(), NetworkError> {
    if link.up {
        return Ok(());
    }
    kernel.set(format_args!("switch {name} on"), LinkUnspec::new_with_index(link.index).up()).await
}

/// Makes the tap device and plugs it into the bridge.
pub(crate) async fn plug_tap(
    kernel: &Kernel,
    plan: &InterfacePlan,
    bridge: &Link,
    mtu: u32,
) -> Result<(), NetworkError> {
    let tap = kernel.tap(&plan.tap, plan.queues).await?;
    if tap.up && tap.mtu == mtu && tap.master == Some(bridge.index) {
        return Ok(());
    }
    let change = LinkUnspec::new_with_index(tap.index).mtu(mtu).controller(bridge.index).up();
    kernel.set(format_args!("plug {} into {}", plan.tap, plan.bridge), change).await
}

/// The parts of a lease that do not depend on the binding.
pub(crate) fn dhcp_v4(
    plan: &InterfacePlan,
    server: Ipv4Addr,
    (address, prefix): (Ipv4Addr, u8),
    mtu: u32,
    resolv: &ResolvConf,
) -> DhcpV4 {
    let servers = resolv.servers.iter().filter_map(|server| match server {
        IpAddr::V4(server) => Some(*server),
        IpAddr::V6(_) => None,
    });
    let settings = &plan.dhcp;
    DhcpV4 {
        server,
        address,
        prefix,
        router: None,
        routes: Vec::new(),
        dns: servers.collect(),
        search: resolv.search_for(settings.subdomain.as_deref(), &settings.namespace),
        mtu: u16::try_from(mtu).ok(),
        hostname: Some(settings.hostname.clone()).filter(|name| !name.is_empty()),
        ntp: settings.ntp.clone(),
        tftp_server: settings.tftp_server.clone(),
        boot_file: settings.boot_file.clone(),
        private: settings.private.clone(),
    }
}
