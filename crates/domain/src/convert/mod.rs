//! One file for each group of the specification; this one puts them together.

mod clock;
mod controllers;
mod cpu;
mod devices;
mod disks;
mod features;
mod firmware;
mod interfaces;
mod iothreads;
mod memory;

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::values::CpuTopology;
use ferrovirt_api::vmi::{Cpu, DomainSpec, RebootPolicy};
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::network::GuestLink;
use ferrovirt_launcher_rpc::paths;

use crate::facts::{Accelerator, NodeFacts};
use crate::identity::Identity;
use crate::pci::Places;
use crate::unsupported::Unsupported;
use crate::volumes::{self, Source};
use crate::xml::{Domain, GracePeriod, KubevirtMetadata, Metadata};

const METADATA_NAMESPACE: &str = "http://kubevirt.io";
/// What a guest gets to shut down when it does not say.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Everything that the parts of a domain are made from.
struct Guest<'a> {
    vmi: &'a VirtualMachineInstance,
    spec: &'a DomainSpec,
    facts: &'a NodeFacts,
    links: &'a [GuestLink],
    identity: Identity,
    /// What the guest boots with, in bytes.
    memory: u64,
    topology: CpuTopology,
}

impl<'a> Guest<'a> {
    fn new(vmi: &'a VirtualMachineInstance, facts: &'a NodeFacts, links: &'a [GuestLink]) -> Result<Self, Unsupported> {
        let spec = &vmi.spec.domain;
        let topology = spec.cpu.as_ref().map_or(Ok(CpuTopology::default()), Cpu::topology);
        let topology = topology.map_err(|error| Unsupported::new("spec.domain.cpu", error, "use fewer CPUs"))?;
        Ok(Self { vmi, spec, facts, links, identity: Identity::of(vmi)?, memory: memory::guest(spec)?, topology })
    }

    fn kvm(&self) -> bool {
        self.facts.accelerator == Accelerator::Kvm
    }

    /// Virtio devices speak the old protocol too.
    fn transitional(&self) -> bool {
        self.spec.devices.use_virtio_transitional == Some(true)
    }

    fn virtio_model(&self) -> &'static str {
        if self.transitional() { "virtio-transitional" } else { "virtio-non-transitional" }
    }

    fn annotation(&self, name: &str) -> Option<&'a str> {
        self.vmi.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Host CPUs are reserved for the guest.
    fn dedicated(&self) -> bool {
        self.spec.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement)
    }
}

/// The domain of a guest that asks for nothing that is refused.
pub(crate) fn domain(
    vmi: &VirtualMachineInstance,
    facts: &NodeFacts,
    links: &[GuestLink],
) -> Result<Domain, Unsupported> {
    let guest = Guest::new(vmi, facts, links)?;
    let mut places = Places::new(guest.transitional());
    let interfaces = interfaces::interfaces(&guest, &mut places)?;
    let sources = sources(&guest, None)?;
    let threads = iothreads::plan(&guest)?;
    let disks = disks::disks(&guest, &sources, &threads, &mut places)?;
    let mut devices = devices::devices(&guest, &mut places)?;
    devices.controller = controllers::controllers(&guest, &disks, &devices, &threads, &mut places)?;
    devices.disk = disks;
    devices.interface = interfaces;
    let cpu = cpu::processors(&guest, threads.count())?;
    devices.iommu = cpu.iommu;
    let reboot = if guest.spec.reboot_policy == Some(RebootPolicy::Terminate) { "destroy" } else { "restart" };
    Ok(Domain {
        kind: if guest.kvm() { "kvm" } else { "qemu" },
        name: guest.identity.domain_name(),
        uuid: guest.identity.uuid.clone(),
        metadata: metadata(&guest),
        max_memory: memory::maximum(&guest)?,
        memory: crate::xml::Kibibytes::from_bytes(guest.memory),
        memory_backing: memory::backing(&guest)?,
        vcpu: cpu.vcpu,
        vcpus: cpu.vcpus,
        iothreads: Some(threads.count()).filter(|count| *count > 0),
        cputune: cpu.tune,
        numatune: cpu.numatune,
        sysinfo: firmware::sysinfo(&guest),
        os: firmware::os(&guest)?,
        features: features::features(&guest, cpu.many)?,
        cpu: cpu.cpu,
        clock: clock::clock(&guest)?,
        on_poweroff: "destroy",
        on_reboot: reboot,
        // A panic must end the guest, or nobody would see it.
        on_crash: "destroy",
        devices,
    })
}

fn metadata(guest: &Guest<'_>) -> Metadata {
    let seconds = guest.vmi.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS);
    let (namespace, uid) = (METADATA_NAMESPACE, guest.identity.uid.clone());
    Metadata { kubevirt: KubevirtMetadata { namespace, uid, graceperiod: GracePeriod { seconds } } }
}

/// What the launcher makes or checks: one task for each disk with a volume, and one for the kernel.
pub(crate) fn disk_tasks(
    vmi: &VirtualMachineInstance,
    facts: &NodeFacts,
    links: &[GuestLink],
) -> Result<Vec<DiskTask>, Unsupported> {
    let guest = Guest::new(vmi, facts, links)?;
    let tagged = interfaces::tagged_devices(&guest)?;
    let mut sources = sources(&guest, tagged.as_deref())?;
    let volumes = guest.vmi.spec.volumes.iter();
    let tasks = volumes.filter_map(|volume| sources.remove(volume.name.as_str())).map(|source| source.task);
    Ok(firmware::kernel_task(&guest)?.into_iter().chain(tasks).collect())
}

/// What is behind each disk, by name.
fn sources<'a>(guest: &Guest<'a>, devices: Option<&str>) -> Result<BTreeMap<&'a str, Source>, Unsupported> {
    let mut sources = BTreeMap::new();
    for (index, volume) in guest.vmi.spec.volumes.iter().enumerate() {
        if guest.spec.devices.disks.iter().any(|disk| disk.name == volume.name) {
            sources.insert(volume.name.as_str(), volumes::source(guest.vmi, index, guest.facts, devices)?);
        }
    }
    Ok(sources)
}

/// A file below an image's root, by its absolute path there.
fn in_kernel_image(file: &str, path: &str) -> Result<String, Unsupported> {
    let clean = file.starts_with('/') && file.split('/').skip(1).all(|part| !["", ".", ".."].contains(&part));
    if !clean {
        return Err(Unsupported::new(path, file, "the path in the image must be absolute and without `..`"));
    }
    Ok(format!("{}{file}", paths::kernel_boot()))
}
