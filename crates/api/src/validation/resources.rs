//! CPU, memory and time: amounts that can be counted and do not contradict each other.

use super::{Cause, Reason};
use crate::vmi::{Cpu, Memory, ResourceRequirements, VirtualMachineInstanceSpec};

/// Less than this cannot hold a guest.
const LEAST_MEMORY: i64 = 1_000_000;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, causes: &mut Vec<Cause>) {
    memory(spec.domain.memory.as_ref(), causes);
    if let Some(resources) = &spec.domain.resources {
        requests(resources, causes);
    }
    if let Some(Err(error)) = spec.domain.cpu.as_ref().map(Cpu::topology) {
        causes.push(Cause::new(Reason::Invalid, "spec.domain.cpu", format!("is too large: {error}")));
    }
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|seconds| *seconds < 0) {
        let problem = format!("is {seconds}: it cannot be negative");
        causes.push(Cause::new(Reason::Invalid, "spec.terminationGracePeriodSeconds", problem));
    }
}

fn memory(memory: Option<&Memory>, causes: &mut Vec<Cause>) {
    const GUEST: &str = "spec.domain.memory.guest";
    let Some(guest) = memory.and_then(|memory| memory.guest.as_ref()) else {
        let problem = "is missing: set it, memory.hugepages or resources.requests.memory";
        causes.push(Cause::new(Reason::Required, GUEST, problem));
        return;
    };
    if guest.value() < LEAST_MEMORY {
        causes.push(Cause::new(Reason::Invalid, GUEST, format!("is {guest}: a guest needs at least 1M")));
    }
    let most = memory.and_then(|memory| memory.max_guest.as_ref()).filter(|most| most.nanos() < guest.nanos());
    if let Some(most) = most {
        let problem = format!("is {most}, less than the {guest} that the guest starts with");
        causes.push(Cause::new(Reason::Invalid, "spec.domain.memory.maxGuest", problem));
    }
}

fn requests(resources: &ResourceRequirements, causes: &mut Vec<Cause>) {
    for (kind, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, amount) in amounts.iter().filter(|(_, amount)| amount.nanos() < 0) {
            let field = format!("spec.domain.resources.{kind}.{name}");
            causes.push(Cause::new(Reason::Invalid, field, format!("is {amount}: it cannot be negative")));
        }
    }
    for (name, request) in &resources.requests {
        if let Some(limit) = resources.limits.get(name).filter(|limit| limit.nanos() < request.nanos()) {
            let problem = format!("is {request}, more than the limit of {limit}");
            causes.push(Cause::new(Reason::Invalid, format!("spec.domain.resources.requests.{name}"), problem));
        }
    }
}
