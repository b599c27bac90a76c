//! CPU and memory: what the guest sees, what its pod asks for, and how far both can grow while it runs.

use crate::kubevirt::{Configuration, VmRolloutStrategy};
use crate::values::{MOST_MEMORY_OF_A_MACHINE, Quantity};
use crate::vmi::{Architecture, Cpu, DomainSpec, VirtualMachineInstanceSpec};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
/// The cluster setting that means "nothing special": the launcher pod's own default.
const USUAL_CPU_REQUEST_MILLIS: i64 = 100;
/// How many times its size at start a guest can grow.
const GROWTH: u32 = 4;
/// More virtual CPUs than this are not prepared for growth.
const MOST_VCPUS: u32 = 512;
/// Memory is plugged in whole blocks of this size.
const PLUG_UNIT: i64 = 2 << 20;
const GIBIBYTE: i64 = 1 << 30;

pub(super) fn fill(spec: &mut VirtualMachineInstanceSpec, cluster: &Configuration, architecture: Architecture) {
    let domain = &mut spec.domain;
    requests(domain, cluster);
    guest_memory(domain);
    cpu(domain, cluster, architecture);
    let live = cluster.vm_rollout_strategy.is_none_or(|strategy| strategy == VmRolloutStrategy::LiveUpdate);
    if live && architecture != Architecture::Arm64 {
        most_sockets(domain, cluster);
    }
    if live && architecture == Architecture::Amd64 {
        most_memory(domain, cluster);
    }
}

fn requests(domain: &mut DomainSpec, cluster: &Configuration) {
    let dedicated = domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement);
    let resources = domain.resources.get_or_insert_default();
    if resources.requests.contains_key(CPU) {
        return;
    }
    let usual = Quantity::from_millis(USUAL_CPU_REQUEST_MILLIS);
    let wished = cluster.cpu_request.as_ref().filter(|request| !dedicated && request.nanos() != usual.nanos());
    if let Some(request) = resources.limits.get(CPU).or(wished) {
        resources.requests.insert(CPU.to_owned(), request.clone());
    }
}

/// The guest sees what its pod asks for, or one huge page, when nothing else is said.
fn guest_memory(domain: &mut DomainSpec) {
    let asked = domain.resources.as_ref().and_then(|resources| {
        let amount = |map: &std::collections::BTreeMap<String, Quantity>| {
            map.get(MEMORY).filter(|amount| !amount.is_zero()).cloned()
        };
        amount(&resources.requests).or_else(|| amount(&resources.limits))
    });
    let page = domain.memory.as_ref().and_then(|memory| memory.hugepages.as_ref()?.page_size.as_deref()?.parse().ok());
    let Some(amount) = asked.or(page) else { return };
    domain.memory.get_or_insert_default().guest.get_or_insert(amount);
}

fn cpu(domain: &mut DomainSpec, cluster: &Configuration, architecture: Architecture) {
    let pod = domain.resources.as_ref().and_then(|resources| {
        let amount = resources.limits.get(CPU).or_else(|| resources.requests.get(CPU))?;
        u32::try_from(amount.value()).ok().filter(|sockets| *sockets > 0)
    });
    let cpu = domain.cpu.get_or_insert_default();
    if [cpu.sockets, cpu.cores, cpu.threads].iter().all(|count| count.is_none_or(|count| count == 0)) {
        cpu.sockets = pod;
    }
    for count in [&mut cpu.sockets, &mut cpu.cores, &mut cpu.threads] {
        if count.is_none_or(|count| count == 0) {
            *count = Some(1);
        }
    }
    if cpu.model.as_ref().is_none_or(String::is_empty) {
        let host = if architecture == Architecture::Arm64 { "host-passthrough" } else { "host-model" };
        let wished = cluster.cpu_model.as_ref().filter(|model| !model.is_empty());
        cpu.model = Some(wished.cloned().unwrap_or_else(|| host.to_owned()));
    }
}

/// Room for more sockets. A guest that is larger than the bound keeps its size and cannot grow.
fn most_sockets(domain: &mut DomainSpec, cluster: &Configuration) {
    let Some(cpu) = &mut domain.cpu else { return };
    let Ok(topology) = cpu.topology() else { return };
    if cpu.max_sockets.is_some_and(|most| most > 0) {
        return;
    }
    let settings = cluster.live_update_configuration.as_ref();
    let ratio = settings.and_then(|settings| settings.max_hotplug_ratio).unwrap_or(GROWTH);
    let wished = settings.and_then(|settings| settings.max_cpu_sockets).filter(|most| *most > 0);
    let most = wished.unwrap_or_else(|| topology.sockets().saturating_mul(ratio));
    let per_socket = topology.vcpus() / topology.sockets();
    cpu.max_sockets = Some(most.min(MOST_VCPUS / per_socket).max(topology.sockets()));
}

/// Room for more memory, where it can be plugged at all.
fn most_memory(domain: &mut DomainSpec, cluster: &Configuration) {
    let fixed = domain.launch_security.is_some() || domain.cpu.as_ref().is_some_and(is_tied_to_host);
    let Some(memory) = domain.memory.as_mut().filter(|_| !fixed) else { return };
    let (Some(guest), None) = (&memory.guest, &memory.max_guest) else { return };
    let page = memory.hugepages.as_ref().and_then(|hugepages| hugepages.page_size.as_deref());
    let unit =
        page.and_then(|page| page.parse::<Quantity>().ok()).map_or(PLUG_UNIT, |page| page.value().max(PLUG_UNIT));
    let settings = cluster.live_update_configuration.as_ref();
    let ratio = settings.and_then(|settings| settings.max_hotplug_ratio).unwrap_or(GROWTH);
    let wished = settings.and_then(|settings| settings.max_guest.clone());
    let Some(most) = wished.or_else(|| guest.checked_mul(i64::from(ratio))) else { return };
    let whole = |amount: &Quantity| amount.value() % unit == 0;
    let exists = most.value() <= MOST_MEMORY_OF_A_MACHINE;
    if exists && guest.value() >= GIBIBYTE && most.nanos() >= guest.nanos() && whole(guest) && whole(&most) {
        memory.max_guest = Some(most);
    }
}

/// Real-time guests and those that mirror the host's NUMA nodes keep the memory that they start with.
fn is_tied_to_host(cpu: &Cpu) -> bool {
    cpu.realtime.is_some() || cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}
