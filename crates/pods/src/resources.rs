//! CPU, memory, huge pages and devices of the `compute` container.
//!
//! | | request | limit |
//! |---|---|---|
//! | cpu | the guest's, else the cluster's `cpuRequest`, else virtual CPUs / `cpuAllocationRatio` | the guest's |
//! | cpu, dedicated | virtual CPUs, IO threads and the emulator's | the same |
//! | memory | the guest's request, else its limit, else guest memory × 100 / `memoryOvercommit`; plus overhead | the guest's plus overhead |
//! | memory, huge pages | overhead, and what the request has above the guest's memory | like the request when pages are huge and CPUs dedicated |
//! | ephemeral storage | the guest's, plus 50M | the guest's plus 50M |
//! | devices | kvm and vhost-net with hardware virtualisation, tun, vhost-vsock | the same |

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::annotations;
use ferrovirt_api::values::Quantity;
use ferrovirt_api::vmi::{InterfaceModel, IoThreadsPolicy, ResourceRequirements as Wanted};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as PodQuantity;

use crate::{Acceleration, LauncherConfig, Unsupported};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Logs, seeds and sockets of a launcher on the node's disk.
const EPHEMERAL_STORAGE_OVERHEAD: u64 = 50_000_000;
/// Virtual CPUs per requested CPU when the cluster does not say.
const CPU_ALLOCATION_RATIO: i64 = 10;
/// Percent of its request that a guest gets as memory when the cluster does not say.
const MEMORY_OVERCOMMIT: i64 = 100;

pub(crate) const KVM: &str = "devices.kubevirt.io/kvm";
pub(crate) const TUN: &str = "devices.kubevirt.io/tun";
pub(crate) const VHOST_NET: &str = "devices.kubevirt.io/vhost-net";
pub(crate) const VHOST_VSOCK: &str = "devices.kubevirt.io/vhost-vsock";

/// Bytes of memory that the guest sees: what it says, else what its pod asks for.
pub fn guest_memory(vmi: &VirtualMachineInstance) -> Option<u64> {
    let domain = &vmi.spec.domain;
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let resources = domain.resources.as_ref();
    let request = resources.and_then(|resources| resources.requests.get(MEMORY).or(resources.limits.get(MEMORY)));
    guest.or(request).map(bytes).filter(|bytes| *bytes > 0)
}

/// The number of virtual CPUs: the topology's, else as many as the pod asks for.
pub fn vcpus(vmi: &VirtualMachineInstance) -> u32 {
    let domain = &vmi.spec.domain;
    let cpu = domain.cpu.as_ref().filter(|cpu| cpu.cores.or(cpu.sockets).or(cpu.threads).is_some());
    if let Some(topology) = cpu.and_then(|cpu| cpu.topology().ok()) {
        return topology.vcpus();
    }
    let resources = domain.resources.as_ref();
    let asked = resources.and_then(|resources| resources.limits.get(CPU).or(resources.requests.get(CPU)));
    asked.map_or(1, |asked| u32::try_from(asked.value()).unwrap_or(1)).max(1)
}

/// Threads that disks are served by, besides QEMU's main one.
pub(crate) fn io_threads(vmi: &VirtualMachineInstance) -> u32 {
    let domain = &vmi.spec.domain;
    let disks = &domain.devices.disks;
    let dedicated = disks.iter().filter(|disk| disk.dedicated_io_thread == Some(true)).count();
    let dedicated = u32::try_from(dedicated).unwrap_or(u32::MAX);
    match domain.io_threads_policy {
        None => dedicated,
        Some(IoThreadsPolicy::Shared) => dedicated + 1,
        // As many as there are disks to spread, twice the virtual CPUs at most.
        Some(IoThreadsPolicy::Auto) => u32::try_from(disks.len()).unwrap_or(u32::MAX).clamp(1, vcpus(vmi) * 2),
        Some(IoThreadsPolicy::SupplementalPool) => supplemental_threads(vmi),
    }
}

fn supplemental_threads(vmi: &VirtualMachineInstance) -> u32 {
    let threads = vmi.spec.domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    match vmi.spec.domain.io_threads_policy {
        Some(IoThreadsPolicy::SupplementalPool) => threads.unwrap_or(1),
        _ => 0,
    }
}

pub(crate) fn of(
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    overhead: u64,
) -> Result<ResourceRequirements, Unsupported> {
    let wanted = vmi.spec.domain.resources.clone().unwrap_or_default();
    let mut pod = Amounts { requests: wanted.requests.clone(), limits: wanted.limits.clone() };
    set_cpu(&mut pod, vmi, config);
    set_memory(&mut pod, vmi, config, &wanted, overhead)?;
    set_ephemeral_storage(&mut pod);
    for device in devices(vmi, config) {
        pod.both(device, &Quantity::from_millis(1000));
    }
    Ok(pod.rendered())
}

/// Requests and limits while they are put together.
struct Amounts {
    requests: BTreeMap<String, Quantity>,
    limits: BTreeMap<String, Quantity>,
}

impl Amounts {
    fn both(&mut self, name: &str, amount: &Quantity) {
        self.requests.insert(name.to_owned(), amount.clone());
        self.limits.insert(name.to_owned(), amount.clone());
    }

    fn rendered(self) -> ResourceRequirements {
        let render = |amounts: BTreeMap<String, Quantity>| {
            let amounts = amounts.into_iter().map(|(name, amount)| (name, PodQuantity(amount.to_string())));
            Some(amounts.collect::<BTreeMap<_, _>>()).filter(|amounts| !amounts.is_empty())
        };
        ResourceRequirements { requests: render(self.requests), limits: render(self.limits), claims: None }
    }
}

fn set_cpu(pod: &mut Amounts, vmi: &VirtualMachineInstance, config: &LauncherConfig) {
    if is_dedicated(vmi) {
        let cpus = vcpus(vmi) + supplemental_threads(vmi) + emulator_cpus(vmi);
        pod.both(CPU, &Quantity::from_millis(i64::from(cpus) * 1000));
        return;
    }
    if pod.requests.contains_key(CPU) {
        return;
    }
    let ratio = config.developer().and_then(|developer| developer.cpu_allocation_ratio).filter(|ratio| *ratio > 0);
    let threads = i64::from(vcpus(vmi)) + i64::from(supplemental_threads(vmi));
    let share = Quantity::from_millis((threads * 1000 / ratio.unwrap_or(CPU_ALLOCATION_RATIO)).max(1));
    let request = config.cluster.cpu_request.clone().unwrap_or(share);
    let request = match pod.limits.get(CPU) {
        Some(limit) if *limit < request => limit.clone(),
        _ => request,
    };
    pod.requests.insert(CPU.to_owned(), request);
}

fn is_dedicated(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement)
}

/// CPUs for QEMU's own threads: one when asked for, two when the sum has to be even.
fn emulator_cpus(vmi: &VirtualMachineInstance) -> u32 {
    if !vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.isolate_emulator_thread) {
        return 0;
    }
    let annotations = vmi.metadata.annotations.as_ref();
    let even = annotations.is_some_and(|all| all.contains_key(annotations::EMULATOR_THREAD_EVEN_PARITY));
    let others = vcpus(vmi) + supplemental_threads(vmi);
    if even && others.is_multiple_of(2) { 2 } else { 1 }
}

fn set_memory(
    pod: &mut Amounts,
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    wanted: &Wanted,
    overhead: u64,
) -> Result<(), Unsupported> {
    let missing =
        || Unsupported::new("spec.domain.memory.guest", "is missing; say how much memory the guest has, such as 1Gi");
    let guest = guest_memory(vmi).ok_or_else(missing)?;
    let asked = wanted.requests.get(MEMORY).or(wanted.limits.get(MEMORY)).map(bytes);
    let limit = wanted.limits.get(MEMORY).map(|limit| bytes(limit).saturating_add(overhead));
    let reserved = if wanted.overcommit_guest_overhead { 0 } else { overhead };
    let page_size = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.hugepages.as_ref());
    let page_size = page_size.map(|pages| pages.page_size.as_deref().unwrap_or("2Mi"));
    let request = match page_size {
        Some(page_size) => {
            pod.both(&format!("hugepages-{page_size}"), &Quantity::from_bytes(guest));
            pod.limits.remove(MEMORY);
            asked.unwrap_or(0).saturating_sub(guest).saturating_add(overhead)
        }
        None => asked.unwrap_or_else(|| overcommitted(guest, config)).saturating_add(reserved),
    };
    pod.requests.insert(MEMORY.to_owned(), Quantity::from_bytes(request));
    if is_dedicated(vmi) {
        // Only a pod whose limits equal its requests gets CPUs of its own.
        pod.limits.insert(MEMORY.to_owned(), Quantity::from_bytes(request));
    } else if let (Some(limit), None) = (limit, page_size) {
        pod.limits.insert(MEMORY.to_owned(), Quantity::from_bytes(limit));
    }
    Ok(())
}

fn overcommitted(guest: u64, config: &LauncherConfig) -> u64 {
    let percent = config.developer().and_then(|developer| developer.memory_overcommit).unwrap_or(MEMORY_OVERCOMMIT);
    let percent = u64::try_from(percent).unwrap_or(0).max(1);
    u64::try_from(u128::from(guest) * 100 / u128::from(percent)).unwrap_or(u64::MAX)
}

fn set_ephemeral_storage(pod: &mut Amounts) {
    let overhead = Quantity::from_millis(i64::try_from(EPHEMERAL_STORAGE_OVERHEAD * 1000).unwrap_or(i64::MAX));
    let plus = |amount: &Quantity| amount.checked_add(&overhead).unwrap_or_else(|| amount.clone());
    let request = pod.requests.get(EPHEMERAL_STORAGE).map_or_else(|| overhead.clone(), plus);
    pod.requests.insert(EPHEMERAL_STORAGE.to_owned(), request);
    if let Some(limit) = pod.limits.get(EPHEMERAL_STORAGE).map(plus) {
        pod.limits.insert(EPHEMERAL_STORAGE.to_owned(), limit);
    }
}

/// The devices of the node that the pod needs.
fn devices(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> Vec<&'static str> {
    let hardware = config.acceleration == Acceleration::Hardware;
    let devices = &vmi.spec.domain.devices;
    let is_virtio = |model: Option<InterfaceModel>| model.is_none_or(|model| model == InterfaceModel::Virtio);
    let has_network = !devices.interfaces.is_empty() || devices.autoattach_pod_interface.unwrap_or(true);
    let uses_virtio = match devices.interfaces.as_slice() {
        [] => has_network,
        interfaces => interfaces.iter().any(|interface| is_virtio(interface.model)),
    };
    let rows = [
        (KVM, hardware),
        (TUN, has_network),
        (VHOST_NET, hardware && uses_virtio),
        (VHOST_VSOCK, devices.autoattach_vsock == Some(true)),
    ];
    rows.into_iter().filter(|(_, needed)| *needed).map(|(name, _)| name).collect()
}

fn bytes(amount: &Quantity) -> u64 {
    u64::try_from(amount.value()).unwrap_or(0)
}
