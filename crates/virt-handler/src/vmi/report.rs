//! What a launcher reports becomes what the object says.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::{ConditionStatus, find_condition};
use ferrovirt_api::names::{conditions as kinds, labels, reasons};
use ferrovirt_api::vmi::{
    GuestOsInfo, InterfaceStatus, Machine, MigrationTransport, PhaseTransitionTimestamp,
    VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus as Status, VolumePhase, VolumeStatus,
};
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::{
    AgentInterface, DomainInterface, DomainReport, DomainState, FinalWords, OffReason, PauseReason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::conditions::{Wanted, clear, set, set_while};
use super::migratable;

/// The phase that a state of the domain means; `None` leaves the phase as it is.
pub(super) fn phase(vmi: &VirtualMachineInstance, state: &DomainState) -> Option<Phase> {
    match state {
        DomainState::Absent | DomainState::Starting | DomainState::Off(OffReason::Migrated) => None,
        DomainState::Paused(PauseReason::PostcopyFailed) => Some(Phase::Failed),
        DomainState::Running | DomainState::Paused(_) | DomainState::ShuttingDown => Some(Phase::Running),
        DomainState::Off(OffReason::Shutdown | OffReason::Saved) => Some(Phase::Succeeded),
        DomainState::Off(OffReason::Destroyed) if is_stopped_by_force(vmi) => Some(Phase::Succeeded),
        DomainState::Off(_) => Some(Phase::Failed),
    }
}

/// Without ACPI, or without patience, killing is the way to stop a guest.
fn is_stopped_by_force(vmi: &VirtualMachineInstance) -> bool {
    let acpi = vmi.spec.domain.features.as_ref().and_then(|features| features.acpi);
    acpi.is_some_and(|acpi| !acpi.is_on()) || vmi.spec.termination_grace_period_seconds == Some(0)
}

/// The last words of a launcher that has ended, if it has.
pub(crate) fn last_words(pod: &Pod) -> Option<FinalWords> {
    let status = pod.status.as_ref().filter(|status| ferrovirt_pods::has_ended(status))?;
    let compute =
        status.container_statuses.iter().flatten().find(|container| container.name == ferrovirt_pods::COMPUTE);
    let ended = compute.and_then(|compute| compute.state.as_ref()?.terminated.as_ref());
    let words = ended.and_then(|ended| serde_json::from_str(ended.message.as_deref()?).ok());
    Some(words.unwrap_or_else(|| {
        let code = ended.map_or("an unknown code".to_owned(), |ended| format!("code {}", ended.exit_code));
        let message = format!("the launcher ended with {code} and without a word");
        FinalWords { reason: OffReason::Crashed, message, migration: None }
    }))
}

/// Moves to a phase and notes when.
pub(super) fn enter(status: &mut Status, phase: Phase, now: Timestamp) {
    if status.phase == Some(phase) {
        return;
    }
    status.phase = Some(phase);
    status
        .phase_transition_timestamps
        .push(PhaseTransitionTimestamp { phase: Some(phase), phase_transition_timestamp: Some(Time(now)) });
}

/// The status of a guest that its launcher reports alive.
pub(crate) fn alive(
    vmi: &VirtualMachineInstance,
    pod: Option<&Pod>,
    report: &DomainReport,
    host_model: Option<bool>,
    now: Timestamp,
) -> Status {
    let mut status = vmi.status.clone().unwrap_or_default();
    enter(&mut status, Phase::Running, now);
    clear(&mut status.conditions, kinds::SYNCHRONIZED);
    state_conditions(&mut status, pod, report, now);
    // Emulation has no host to follow, and who has moved follows the node that it started on, which its pod remembers.
    let follows_host = !report.emulated && !pod.is_some_and(is_of_a_move) && migratable::follows_host_model(vmi);
    migration(&mut status, vmi, if follows_host { host_model } else { Some(true) }, now);
    status.machine = report.machine_type.clone().map(|kind| Machine { r#type: Some(kind) }).or(status.machine);
    status.interfaces = interfaces(vmi, pod, report, &status.interfaces);
    status.volume_status = volumes(vmi, report, &status.volume_status);
    agent(&mut status, report, now);
    status
}

fn state_conditions(status: &mut Status, pod: Option<&Pod>, report: &DomainReport, now: Timestamp) {
    let paused = match report.state {
        DomainState::Paused(reason) => Some(pause(reason)),
        _ => None,
    };
    let list = &mut status.conditions;
    match paused {
        Some((reason, message)) => {
            let paused = Wanted {
                kind: kinds::PAUSED,
                status: ConditionStatus::True,
                reason: Some(reason),
                message: Some(message),
            };
            set(list, &paused, now);
            let message = "Guest VM is not reported as running";
            set(list, &Wanted::fails(kinds::READY, reasons::GUEST_NOT_RUNNING, message), now);
        }
        None => {
            clear(list, kinds::PAUSED);
            if pod.is_some_and(is_ready) {
                set(list, &Wanted::holds(kinds::READY), now);
            }
        }
    }
    let message = "The guest's instructions are emulated: the node has no usable /dev/kvm";
    let emulation = Wanted { message: Some(message), ..Wanted::holds(kinds::SOFTWARE_EMULATION) };
    set_while(list, report.emulated, &emulation, now);
}

fn pause(reason: PauseReason) -> (&'static str, &'static str) {
    match reason {
        PauseReason::IoError => (reasons::PAUSED_IO_ERROR, "VMI was paused, low-level IO error detected"),
        PauseReason::Migration => (reasons::PAUSED_BY_MIGRATION_MONITOR, "VMI was paused by the migration monitor"),
        _ => (reasons::PAUSED_BY_USER, "VMI was paused by user"),
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_of_a_move(pod: &Pod) -> bool {
    pod.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::MIGRATION_JOB))
}

fn migration(status: &mut Status, vmi: &VirtualMachineInstance, host_model: Option<bool>, now: Timestamp) {
    let (method, obstacle) = migratable::judge(vmi, host_model != Some(false));
    status.migration_method = Some(method);
    status.migration_transport = Some(MigrationTransport::Unix);
    if host_model.is_none() && obstacle.is_none() {
        // What was said before stays; it is looked at again when the answer is there.
        return;
    }
    match &obstacle {
        Some((reason, message)) => {
            set(&mut status.conditions, &Wanted::fails(kinds::LIVE_MIGRATABLE, reason, message), now);
        }
        None => set(&mut status.conditions, &Wanted::holds(kinds::LIVE_MIGRATABLE), now),
    }
    let storage = match obstacle {
        Some((reason, message)) if reason != reasons::DISKS_NOT_MIGRATABLE => Some((reason, message)),
        _ => None,
    };
    match &storage {
        Some((reason, message)) => {
            set(&mut status.conditions, &Wanted::fails(kinds::STORAGE_LIVE_MIGRATABLE, reason, message), now);
        }
        None => set(&mut status.conditions, &Wanted::holds(kinds::STORAGE_LIVE_MIGRATABLE), now),
    }
}

fn agent(status: &mut Status, report: &DomainReport, now: Timestamp) {
    let agent = &report.agent;
    set_while(&mut status.conditions, agent.connected, &Wanted::holds(kinds::AGENT_CONNECTED), now);
    status.fs_freeze_status = agent.frozen.then(|| "frozen".to_owned());
    status.guest_os_info = agent.os.as_ref().filter(|_| agent.connected).map(|os| {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        GuestOsInfo {
            name: text(&os.name),
            kernel_release: text(&os.kernel_release),
            version: text(&os.version),
            pretty_name: text(&os.pretty_name),
            version_id: text(&os.version_id),
            kernel_version: text(&os.kernel_version),
            machine: text(&os.machine),
            id: text(&os.id),
        }
    });
}

/// Interfaces in the order of the spec, then those that only the agent knows.
fn interfaces(
    vmi: &VirtualMachineInstance,
    pod: Option<&Pod>,
    report: &DomainReport,
    before: &[InterfaceStatus],
) -> Vec<InterfaceStatus> {
    let mut shown = Vec::new();
    for interface in &vmi.spec.domain.devices.interfaces {
        let known = before.iter().find(|status| status.name.as_deref() == Some(&interface.name));
        let domain = report.interfaces.iter().find(|candidate| candidate.name == interface.name);
        let mac = domain.map(|domain| domain.mac.to_lowercase());
        let agent = report.agent.interfaces.iter().find(|agent| Some(agent.mac.to_lowercase()) == mac);
        let on_pod_network =
            vmi.spec.networks.iter().any(|network| network.name == interface.name && network.pod.is_some());
        let addresses = match (on_pod_network, agent) {
            (true, _) => pod.map(pod_addresses).unwrap_or_default(),
            (false, Some(agent)) => agent_addresses(agent),
            (false, None) => Vec::new(),
        };
        shown.push(interface_status(&interface.name, known, domain, agent, addresses));
    }
    let known: Vec<String> = report.interfaces.iter().map(|interface| interface.mac.to_lowercase()).collect();
    let strangers = report.agent.interfaces.iter().filter(|agent| agent.name != "lo");
    shown.extend(strangers.filter(|agent| !known.contains(&agent.mac.to_lowercase())).map(stranger));
    shown
}

fn interface_status(
    name: &str,
    known: Option<&InterfaceStatus>,
    domain: Option<&DomainInterface>,
    agent: Option<&AgentInterface>,
    addresses: Vec<String>,
) -> InterfaceStatus {
    let sources = [domain.map(|_| "domain"), agent.map(|_| "guest-agent")];
    let sources: Vec<_> = sources.into_iter().flatten().collect();
    InterfaceStatus {
        name: Some(name.to_owned()),
        ip_address: addresses.first().cloned(),
        ip_addresses: addresses,
        mac: domain.map(|domain| domain.mac.clone()).or_else(|| known?.mac.clone()),
        pod_interface_name: known
            .and_then(|known| known.pod_interface_name.clone())
            .or_else(|| Some("eth0".to_owned())),
        interface_name: agent.map(|agent| agent.name.clone()),
        info_source: (!sources.is_empty()).then(|| sources.join(", ")),
        queue_count: domain.and_then(|domain| i32::try_from(domain.queues).ok()),
        link_state: domain.map(|domain| if domain.link_up { "up" } else { "down" }.to_owned()),
    }
}

fn stranger(agent: &AgentInterface) -> InterfaceStatus {
    let addresses = agent_addresses(agent);
    InterfaceStatus {
        ip_address: addresses.first().cloned(),
        ip_addresses: addresses,
        mac: (!agent.mac.is_empty()).then(|| agent.mac.clone()),
        interface_name: Some(agent.name.clone()),
        info_source: Some("guest-agent".to_owned()),
        ..InterfaceStatus::default()
    }
}

fn agent_addresses(agent: &AgentInterface) -> Vec<String> {
    agent.addresses.iter().filter(|address| !address.to_lowercase().starts_with("fe80:")).cloned().collect()
}

fn pod_addresses(pod: &Pod) -> Vec<String> {
    let addresses = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    addresses.into_iter().map(|address| address.ip.clone()).collect()
}

/// Every volume with the name that the guest gives its disk.
fn volumes(vmi: &VirtualMachineInstance, report: &DomainReport, before: &[VolumeStatus]) -> Vec<VolumeStatus> {
    let disks = vmi.spec.volumes.iter().filter_map(|volume| {
        let target = report.disks.iter().find(|(name, _)| *name == volume.name)?.1.clone();
        let known = before.iter().find(|status| status.name == volume.name).cloned();
        let hotplugged = known.as_ref().is_some_and(|known| known.hotplug_volume.is_some());
        let mut status = known.unwrap_or_default();
        status.name.clone_from(&volume.name);
        status.target = target;
        if hotplugged {
            status.phase = Some(VolumePhase::Ready);
        }
        Some(status)
    });
    let mut shown: Vec<VolumeStatus> = disks.collect();
    let rest = before.iter().filter(|status| !shown.iter().any(|shown| shown.name == status.name));
    let rest: Vec<_> = rest.cloned().collect();
    shown.extend(rest);
    shown
}

/// The status of a guest that has ended.
pub(crate) fn ended(vmi: &VirtualMachineInstance, phase: Phase, now: Timestamp) -> Status {
    let mut status = vmi.status.clone().unwrap_or_default();
    enter(&mut status, phase, now);
    for kind in [kinds::PAUSED, kinds::AGENT_CONNECTED] {
        clear(&mut status.conditions, kind);
    }
    let message = "Guest VM is not reported as running";
    if find_condition(&status.conditions, kinds::READY).is_some() {
        set(&mut status.conditions, &Wanted::fails(kinds::READY, reasons::GUEST_NOT_RUNNING, message), now);
    }
    status
}

/// Why the guest cannot be started, where that was not said before.
pub(super) fn news_of_failure(before: Option<&Status>, after: &Status) -> Option<String> {
    let words = |status: &Status| {
        let failed = find_condition(&status.conditions, kinds::SYNCHRONIZED).filter(|condition| !condition.is_true());
        failed.and_then(|condition| condition.message.clone())
    };
    words(after).filter(|message| before.and_then(words).as_ref() != Some(message))
}

/// The status after a failed attempt to start. One that would fail again ends the guest.
pub(super) fn start_failed(vmi: &VirtualMachineInstance, message: &str, hopeless: bool, now: Timestamp) -> Status {
    let mut status = vmi.status.clone().unwrap_or_default();
    let wanted = Wanted::fails(kinds::SYNCHRONIZED, super::SYNC_FAILED, message);
    set(&mut status.conditions, &wanted, now);
    if hopeless {
        enter(&mut status, Phase::Failed, now);
    }
    status
}
