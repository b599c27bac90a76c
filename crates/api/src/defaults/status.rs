//! The status of a guest that was just created.

use super::Inputs;
use crate::gates;
use crate::kubevirt::Configuration;
use crate::vmi::{
    CpuTopologyStatus, MemoryStatus, PhaseTransitionTimestamp, VirtualMachineInstancePhase, VirtualMachineInstanceSpec,
    VirtualMachineInstanceStatus,
};

/// The user that launchers run as.
pub const LAUNCHER_USER: u64 = 107;

pub(super) fn fresh(
    spec: &VirtualMachineInstanceSpec,
    cluster: &Configuration,
    inputs: &Inputs,
) -> VirtualMachineInstanceStatus {
    let phase = VirtualMachineInstancePhase::Pending;
    let memory = spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone()).map(|guest| MemoryStatus {
        guest_at_boot: Some(guest.clone()),
        guest_current: Some(guest.clone()),
        guest_requested: Some(guest),
        memory_overhead: None,
    });
    let cpu = spec.domain.cpu.as_ref().map(|cpu| CpuTopologyStatus {
        cores: cpu.cores,
        sockets: cpu.sockets,
        threads: cpu.threads,
    });
    VirtualMachineInstanceStatus {
        phase: Some(phase),
        phase_transition_timestamps: vec![PhaseTransitionTimestamp {
            phase: Some(phase),
            phase_transition_timestamp: Some(inputs.now.clone()),
        }],
        runtime_user: Some(if gates::is_on(cluster, gates::ROOT) { 0 } else { LAUNCHER_USER }),
        memory,
        current_cpu_topology: cpu,
        ..VirtualMachineInstanceStatus::default()
    }
}
