//! Guests to convert: one file for each group of the specification.

use std::path::{Path, PathBuf};

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::{InterfaceModel, InterfaceState};
use ferrovirt_domain::{Accelerator, Claim, HostCpu, NodeFacts, Version};
use ferrovirt_launcher_rpc::network::GuestLink;

/// A guest with the facts of the node that it runs on.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) vmi: VirtualMachineInstance,
    pub(crate) facts: NodeFacts,
    pub(crate) links: Vec<GuestLink>,
}

/// The samples in `tests/samples`, by name.
pub(crate) fn all() -> Vec<Sample> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

/// One sample.
pub(crate) fn named(name: &str) -> Sample {
    all().into_iter().find(|sample| sample.name == name).unwrap_or_else(|| panic!("no sample {name}"))
}

fn read(file: &Path) -> Sample {
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(file).unwrap();
    let vmi = guest(&text);
    Sample { facts: facts(&name), links: links(&vmi), name, vmi }
}

/// A guest from YAML, with the identity that an API server would give it.
pub(crate) fn guest(yaml: &str) -> VirtualMachineInstance {
    let mut vmi: VirtualMachineInstance =
        serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
    let metadata = &mut vmi.metadata;
    metadata.name.get_or_insert("sample".to_owned());
    metadata.namespace.get_or_insert("default".to_owned());
    metadata.uid.get_or_insert("5c7a1f0e-3b1d-4c57-9d57-7a0c2f6f4d11".to_owned());
    vmi
}

/// Samples whose name starts with `kvm` or `newer` run on such a node, the others on Debian 12 without KVM.
fn facts(name: &str) -> NodeFacts {
    let mut facts = NodeFacts::default();
    facts.claims.insert("files".to_owned(), Claim::filesystem(10 << 30));
    facts.claims.insert("device".to_owned(), Claim { block_size: Some((512, 4096)), ..Claim::block(10 << 30) });
    if name.starts_with("kvm") || name.starts_with("newer") {
        facts.accelerator = Accelerator::Kvm;
        facts.vhost_net = true;
        // Two nodes with two cores of two threads each, numbered as hosts do.
        facts.cpus = (0..8).map(|id| HostCpu { id, core: id % 4, node: (id % 4) / 2 }).collect();
    }
    if name.starts_with("newer") {
        (facts.libvirt, facts.qemu) = (Version(11, 10), Version(10, 0));
    }
    facts
}

/// The link of each interface that is plugged.
pub(crate) fn links(vmi: &VirtualMachineInstance) -> Vec<GuestLink> {
    let plugged = vmi.spec.domain.devices.interfaces.iter().filter(|one| one.state != Some(InterfaceState::Absent));
    let multiqueue = vmi.spec.domain.devices.network_interface_multiqueue == Some(true);
    plugged
        .enumerate()
        .map(|(index, interface)| GuestLink {
            interface: interface.name.clone(),
            tap: format!("tap{index}"),
            mac: interface
                .mac_address
                .as_ref()
                .map_or_else(|| format!("02:00:00:00:00:{index:02x}"), ToString::to_string),
            mtu: 1500,
            queues: if multiqueue && matches!(interface.model, None | Some(InterfaceModel::Virtio)) { 2 } else { 1 },
            pod_interface: format!("eth{index}"),
            pod_addresses: Vec::new(),
            dhcp: None,
        })
        .collect()
}
