//! Whether a guest can start: it becomes a pod and a domain on a node that can do all that some node can.

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_api::vmi::InterfaceState;
use ferrovirt_domain::{Accelerator, Claim, HostCpu, NodeFacts, Version};
use ferrovirt_launcher_rpc::network::GuestLink;
use ferrovirt_pods::{LauncherConfig, claims_of, launcher_pod};

/// A node that can do all that some node can.
fn able_node(guest: &VirtualMachineInstance) -> NodeFacts {
    let luns: Vec<&str> = guest
        .spec
        .domain
        .devices
        .disks
        .iter()
        .filter(|disk| disk.lun.is_some())
        .map(|disk| disk.name.as_str())
        .collect();
    let claims = claims_of(guest).map(|(volume, claim)| {
        let mode = if luns.contains(&volume) { VolumeMode::Block } else { VolumeMode::Filesystem };
        (claim.to_owned(), Claim { mode, capacity: 1 << 30, direct_io: true, block_size: Some((512, 4096)) })
    });
    let dedicated = guest.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement);
    NodeFacts {
        accelerator: Accelerator::Kvm,
        vhost_net: true,
        libvirt: Version(11, 10),
        qemu: Version(10, 0),
        claims: claims.collect(),
        cpus: (0..if dedicated { 4200 } else { 0 }).map(|id| HostCpu { id, core: id / 2, node: id % 2 }).collect(),
        ..NodeFacts::default()
    }
}

fn links(guest: &VirtualMachineInstance) -> Vec<GuestLink> {
    let plugged = guest.spec.domain.devices.interfaces.iter().filter(|one| one.state != Some(InterfaceState::Absent));
    let link = |(index, interface): (usize, &ferrovirt_api::vmi::Interface)| GuestLink {
        interface: interface.name.clone(),
        tap: format!("tap{index}"),
        mac: format!("02:00:00:00:00:{index:02x}"),
        mtu: 1500,
        queues: 1,
        pod_interface: format!("eth{index}"),
        pod_addresses: Vec::new(),
        dhcp: None,
    };
    plugged.enumerate().map(link).collect()
}

/// The pod and the domain of a guest; the domain as an older libvirt reads it, where it is not too old.
pub(crate) fn start(guest: &VirtualMachineInstance, cluster: Configuration) -> Result<Option<String>, String> {
    let claims: BTreeMap<String, VolumeMode> = BTreeMap::new();
    let config = LauncherConfig { image: "launcher".to_owned(), cluster, claims, ..LauncherConfig::default() };
    launcher_pod(guest, &config).map_err(|error| format!("no pod: {error}"))?;
    let (node, links) = (able_node(guest), links(guest));
    ferrovirt_domain::domain(guest, &node, &links).map_err(|error| format!("no domain: {error}"))?;
    ferrovirt_domain::disk_tasks(guest, &node, &links).map_err(|error| format!("no disks: {error}"))?;
    let older = NodeFacts { libvirt: Version(9, 0), qemu: Version(7, 2), ..node };
    Ok(ferrovirt_domain::domain(guest, &older, &links).ok().map(|domain| domain.to_xml()))
}
