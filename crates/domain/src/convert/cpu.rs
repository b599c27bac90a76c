//! Processors: how many, which model, on which host CPUs, in which NUMA nodes.

use ferrovirt_api::values::MOST_VCPUS_OF_A_MACHINE;
use ferrovirt_api::vmi::CpuFeaturePolicy;

use super::{Guest, memory};
use crate::facts::HostCpu;
use crate::unsupported::Unsupported;
use crate::xml::cpu::{
    Cell, CellMemory, Cpu, CpuTune, EmulatorPin, Feature, IoThreadPin, Model, NodeMemory, Numa, NumaTune, Topology,
    Vcpu, VcpuPin, VcpuState, Vcpus,
};
use crate::xml::devices::{Iommu, IommuDriver};
use crate::xml::yes_no;

/// CPUs that interrupts reach without remapping.
const MANY_CPUS: u32 = 255;

/// All that a domain says about processors.
pub(super) struct Processors {
    pub(super) vcpu: Vcpu,
    pub(super) vcpus: Option<Vcpus>,
    pub(super) cpu: Cpu,
    pub(super) tune: Option<CpuTune>,
    pub(super) numatune: Option<NumaTune>,
    pub(super) iommu: Option<Iommu>,
    /// More CPUs than interrupts reach without remapping.
    pub(super) many: bool,
}

/// The processors of a guest with so many IO threads.
pub(super) fn processors(guest: &Guest<'_>, io_threads: u32) -> Result<Processors, Unsupported> {
    let now = guest.topology.vcpus();
    if now > MOST_VCPUS_OF_A_MACHINE {
        let why = format!("no machine has more than {MOST_VCPUS_OF_A_MACHINE}");
        return Err(Unsupported::new("spec.domain.cpu", format!("{now} CPUs"), why));
    }
    let many = now > MANY_CPUS;
    if many && !guest.kvm() {
        let why = format!("without KVM a guest has at most {MANY_CPUS} CPUs");
        return Err(Unsupported::new("spec.domain.cpu", format!("{now} CPUs"), why));
    }
    let sockets = sockets_with_headroom(guest);
    let most = sockets * guest.topology.cores() * guest.topology.threads();
    let pinned = pinned(guest)?;
    let cells = cells(guest, &pinned, most)?;
    let iommu = many.then_some(Iommu { model: "intel", driver: IommuDriver { intremap: "on", eim: "on" } });
    Ok(Processors {
        vcpu: Vcpu { placement: "static", current: (most > now).then_some(now), count: most },
        vcpus: (most > now).then(|| plugged(now, most)),
        cpu: Cpu { numa: cells.as_ref().map(|(numa, _)| numa.clone()), ..model(guest, sockets) },
        tune: pinned.map(|pinned| tune(&pinned, io_threads)),
        numatune: cells.and_then(|(_, tune)| tune),
        iommu,
        many,
    })
}

/// Sockets, with those that can be plugged later. Headroom ends where it would need interrupt remapping, which slows down a guest
/// that may never use it.
fn sockets_with_headroom(guest: &Guest<'_>) -> u32 {
    let (now, topology) = (guest.topology.sockets(), guest.topology);
    let most = guest.spec.cpu.as_ref().and_then(|cpu| cpu.max_sockets).unwrap_or(now);
    let per_socket = topology.cores().saturating_mul(topology.threads());
    most.min(MANY_CPUS / per_socket).max(now)
}

/// CPUs that are there at boot stay; the others can come.
fn plugged(now: u32, most: u32) -> Vcpus {
    let state = |id| VcpuState { id, enabled: yes_no(id < now), hotpluggable: yes_no(id >= now) };
    Vcpus { vcpu: (0..most).map(state).collect() }
}

fn model(guest: &Guest<'_>, sockets: u32) -> Cpu {
    let wanted = guest.spec.cpu.as_ref();
    let name = wanted.and_then(|cpu| cpu.model.as_deref()).filter(|name| !name.is_empty()).unwrap_or("host-model");
    let topology = Topology { sockets, cores: guest.topology.cores(), threads: guest.topology.threads() };
    let mut feature: Vec<Feature> = wanted.map_or(&[][..], |cpu| &cpu.features).iter().map(feature).collect();
    let base = match (name, guest.kvm()) {
        ("host-model", true) => Cpu { mode: "host-model", ..Cpu::default() },
        ("host-passthrough", true) => Cpu { mode: "host-passthrough", check: Some("none"), ..Cpu::default() },
        // Emulation has no host to copy: the guest gets all that QEMU can emulate.
        ("host-model" | "host-passthrough", false) => Cpu { mode: "maximum", check: Some("none"), ..Cpu::default() },
        (name, kvm) => {
            // QEMU dropped this feature, the definitions of some models still have it.
            if !feature.iter().any(|feature| feature.name == "mpx") {
                feature.push(Feature { name: "mpx".to_owned(), policy: "disable" });
            }
            let model = Some(Model { fallback: "forbid", name: name.to_owned() });
            // Emulation lacks features of most models; the guest sees the rest.
            let check = (!kvm).then_some("none");
            Cpu { mode: "custom", matching: Some("exact"), check, model, ..Cpu::default() }
        }
    };
    Cpu { topology, feature, ..base }
}

fn feature(feature: &ferrovirt_api::vmi::CpuFeature) -> Feature {
    Feature { name: feature.name.clone(), policy: feature.policy.unwrap_or(CpuFeaturePolicy::Require).as_str() }
}

/// The guest's NUMA nodes follow the host's.
pub(super) fn numa_passthrough(guest: &Guest<'_>) -> bool {
    let numa = guest.spec.cpu.as_ref().and_then(|cpu| cpu.numa.as_ref());
    guest.dedicated() && numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}

/// Host CPUs of the guest's CPUs, in order, and of everything else.
struct Pinned {
    vcpus: Vec<HostCpu>,
    others: Vec<u32>,
}

/// Each virtual CPU gets the next host CPU. Host CPUs are ordered by node and core, and a guest's threads are numbered first, so
/// threads of one guest core are threads of one host core.
fn pinned(guest: &Guest<'_>) -> Result<Option<Pinned>, Unsupported> {
    let Some(cpu) = guest.spec.cpu.as_ref().filter(|cpu| cpu.dedicated_cpu_placement) else {
        return Ok(None);
    };
    let mut host = guest.facts.cpus.clone();
    host.sort_by_key(|cpu| (cpu.node, cpu.core, cpu.id));
    let wanted = usize::try_from(guest.topology.vcpus()).unwrap_or(usize::MAX);
    let emulator = usize::from(cpu.isolate_emulator_thread);
    if host.len() < wanted.saturating_add(emulator) {
        let why = format!("{} CPUs are needed and the launcher was given {}", wanted + emulator, host.len());
        return Err(Unsupported::new("spec.domain.cpu.dedicatedCpuPlacement", true, why));
    }
    let spare = host.split_off(wanted);
    let others = if cpu.isolate_emulator_thread { &spare } else { &host };
    let others = others.iter().map(|cpu| cpu.id).collect();
    Ok(Some(Pinned { vcpus: host, others }))
}

fn tune(pinned: &Pinned, io_threads: u32) -> CpuTune {
    let others = list(&pinned.others);
    let pins = pinned.vcpus.iter().zip(0..);
    CpuTune {
        vcpupin: pins.map(|(cpu, vcpu)| VcpuPin { vcpu, cpuset: cpu.id.to_string() }).collect(),
        emulatorpin: Some(EmulatorPin { cpuset: others.clone() }),
        iothreadpin: (1..=io_threads).map(|iothread| IoThreadPin { iothread, cpuset: others.clone() }).collect(),
    }
}

/// NUMA nodes of the guest: those of its host CPUs, or one that plugged memory can belong to.
fn cells(
    guest: &Guest<'_>,
    pinned: &Option<Pinned>,
    most: u32,
) -> Result<Option<(Numa, Option<NumaTune>)>, Unsupported> {
    let cell = |id, cpus, bytes: u64| Cell { id, cpus, memory: bytes.div_ceil(1024), unit: "KiB" };
    let Some(pinned) = pinned.as_ref().filter(|_| numa_passthrough(guest)) else {
        let all = if most == 1 { "0".to_owned() } else { format!("0-{}", most - 1) };
        let one = memory::pluggable(guest)?.map(|_| (Numa { cell: vec![cell(0, all, guest.memory)] }, None));
        return Ok(one);
    };
    let mut nodes: Vec<u32> = pinned.vcpus.iter().map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let page = memory::page_size(guest.spec)?.unwrap_or(4096);
    let count = nodes.len() as u64;
    let share = guest.memory / page / count * page;
    let (mut numa, mut memnode) = (Vec::new(), Vec::new());
    for (&node, id) in nodes.iter().zip(0..) {
        let on_node = pinned.vcpus.iter().zip(0..).filter(|(cpu, _)| cpu.node == node);
        let mut cpus: Vec<u32> = on_node.map(|(_, vcpu)| vcpu).collect();
        // CPUs that come later belong to the first node.
        cpus.extend(if id == 0 { guest.topology.vcpus()..most } else { 0..0 });
        let bytes = if id == 0 { guest.memory - share * (count - 1) } else { share };
        numa.push(cell(id, list(&cpus), bytes));
        memnode.push(CellMemory { cell: id, mode: "strict", nodeset: node.to_string() });
    }
    let tune = NumaTune { memory: NodeMemory { mode: "strict", nodeset: list(&nodes) }, memnode };
    Ok(Some((Numa { cell: numa }, Some(tune))))
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
