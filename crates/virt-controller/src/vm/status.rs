//! A machine's status: its guest's facts, its own, and the one word for both.

use ferrovirt_api::meta::{Condition, ConditionStatus, find_condition};
use ferrovirt_api::names::{conditions, reasons};
use ferrovirt_api::vm::{
    PrintableStatus, RunStrategy, StartFailure, StateChangeRequest, VirtualMachineStatus, VolumeSnapshotStatus,
};
use ferrovirt_api::vmi::Volume;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use ferrovirt_pods::claims_of_volumes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::data_volumes::Filling;
use super::live::{Drift, generation_of};
use super::observe::Machine;
use super::printable::{self, Facts};
use crate::conditions::{set, whole_seconds};

/// Conditions that are the machine's own; all others repeat its guest's.
const OWN: [&str; 4] =
    [conditions::READY, conditions::FAILURE, conditions::RESTART_REQUIRED, conditions::MANUAL_RECOVERY_REQUIRED];

/// Something that keeps a machine from being what it should be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trouble {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What was judged, for the status to tell.
pub(super) struct Judgement<'a> {
    /// The machine's guest.
    pub(super) vmi: Option<&'a VirtualMachineInstance>,
    /// When a guest shall run.
    pub(super) strategy: Option<RunStrategy>,
    /// A guest is meant to be there.
    pub(super) is_set_to_start: bool,
    /// Requests that are left.
    pub(super) requests: Vec<StateChangeRequest>,
    /// Failed starts.
    pub(super) start_failure: Option<StartFailure>,
    /// How far its data volumes are.
    pub(super) filling: Filling,
    /// How far the machine has moved on from its guest.
    pub(super) drift: Drift,
    /// What is in the way.
    pub(super) trouble: Option<Trouble>,
}

/// The status that tells it.
pub(super) fn status(machine: &Machine, judgement: &Judgement<'_>) -> VirtualMachineStatus {
    let vmi = judgement.vmi;
    let mut status = machine.status.clone();
    status.created = vmi.is_some();
    status.ready = vmi.and_then(ready_of).is_some_and(Condition::is_true);
    if let Some(vmi) = vmi {
        status.observed_generation = generation_of(vmi);
        status.desired_generation = machine.vm.metadata.generation;
    }
    status.run_strategy = recorded_strategy(machine, judgement);
    status.state_change_requests.clone_from(&judgement.requests);
    status.start_failure.clone_from(&judgement.start_failure);
    status.volume_snapshot_statuses = snapshot_statuses(&machine.vm);
    update_conditions(&mut status.conditions, &whole_seconds(machine.now), judgement);
    status.printable_status = Some(printable::status(machine, &facts(judgement)));
    status
}

/// Whether each volume can be in a snapshot: none can, so far.
fn snapshot_statuses(vm: &VirtualMachine) -> Vec<VolumeSnapshotStatus> {
    let volumes = &vm.spec.template.spec.volumes;
    let status = |volume: &Volume| {
        let has_claim = claims_of_volumes(std::slice::from_ref(volume)).next().is_some();
        let reason =
            if has_claim { "snapshots of claims are not supported yet" } else { "only claims can be in a snapshot" };
        VolumeSnapshotStatus { name: volume.name.clone(), enabled: false, reason: Some(reason.to_owned()) }
    };
    volumes.iter().map(status).collect()
}

fn facts<'a>(judgement: &'a Judgement<'_>) -> Facts<'a> {
    Facts {
        vmi: judgement.vmi,
        strategy: judgement.strategy,
        is_set_to_start: judgement.is_set_to_start,
        filling: &judgement.filling,
        start_failure: judgement.start_failure.as_ref(),
    }
}

/// The strategy under which a guest was last seen. Without a guest, one that would start a guest because it is new is not written
/// down yet: a crash right after would make it look old.
fn recorded_strategy(machine: &Machine, judgement: &Judgement<'_>) -> Option<RunStrategy> {
    let before = machine.status.run_strategy;
    let Some(strategy) = judgement.strategy else { return before };
    match (before, judgement.vmi) {
        (_, Some(_)) => Some(strategy),
        (None, None) => None,
        (Some(_), None) if strategy == RunStrategy::RerunOnFailure => before,
        (Some(_), None) => Some(strategy),
    }
}

fn ready_of(vmi: &VirtualMachineInstance) -> Option<&Condition> {
    find_condition(&vmi.status.as_ref()?.conditions, conditions::READY)
}

fn update_conditions(all: &mut Vec<Condition>, now: &Time, judgement: &Judgement<'_>) {
    match judgement.vmi.map(ready_of) {
        None => {
            let message = "the machine has no guest";
            set(all, now, conditions::READY, ConditionStatus::False, reasons::VMI_NOT_EXISTS, message);
        }
        Some(None) => {
            let message = "the guest does not say whether it is ready";
            set(all, now, conditions::READY, ConditionStatus::False, reasons::VMI_CONDITION_MISSING, message);
        }
        Some(Some(ready)) => repeat(all, ready),
    }
    mirror(all, judgement.vmi);
    match &judgement.filling {
        Filling::Awaited { message, .. } | Filling::Failed { message } if judgement.vmi.is_none() => {
            set(all, now, conditions::DATA_VOLUMES_READY, ConditionStatus::False, reasons::NOT_ALL_DVS_READY, message);
        }
        _ => {}
    }
    match &judgement.drift {
        Drift::NeedsRestart(fields) => {
            let message = format!("the guest was started before these changed, restart it to apply them: {fields}");
            set(all, now, conditions::RESTART_REQUIRED, ConditionStatus::True, "", &message);
        }
        Drift::None | Drift::Followed(_) => all.retain(|condition| condition.r#type != conditions::RESTART_REQUIRED),
        Drift::Unknown => {}
    }
    fail(all, now, judgement.trouble.as_ref());
}

/// Says what is in the way, or that nothing is.
pub(super) fn fail(all: &mut Vec<Condition>, now: &Time, trouble: Option<&Trouble>) {
    match trouble {
        Some(Trouble { reason, message }) => {
            set(all, now, conditions::FAILURE, ConditionStatus::True, reason, message);
        }
        None => all.retain(|condition| condition.r#type != conditions::FAILURE),
    }
}

/// Repeats the guest's conditions, and drops those that it does not have any more.
fn mirror(all: &mut Vec<Condition>, vmi: Option<&VirtualMachineInstance>) {
    let of_guest =
        vmi.and_then(|vmi| vmi.status.as_ref()).map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_own = |condition: &Condition| OWN.contains(&condition.r#type.as_str());
    all.retain(|condition| is_own(condition) || find_condition(of_guest, &condition.r#type).is_some());
    of_guest.iter().filter(|condition| !is_own(condition)).for_each(|condition| repeat(all, condition));
}

/// Repeats a condition, times included; one that says the same already is left alone.
fn repeat(all: &mut Vec<Condition>, condition: &Condition) {
    let said = |condition: &Condition| (condition.status, condition.reason.clone(), condition.message.clone());
    match all.iter_mut().find(|old| old.r#type == condition.r#type) {
        Some(old) if said(old) == said(condition) => {}
        Some(old) => old.clone_from(condition),
        None => all.push(condition.clone()),
    }
}

/// Whether a status differs from the one before only in what a smooth start brings along by itself: that there is a guest, and that
/// it is not ready yet.
pub(super) fn is_only_progress(before: &VirtualMachineStatus, after: &VirtualMachineStatus) -> bool {
    let without_progress = |status: &VirtualMachineStatus| VirtualMachineStatus {
        created: false,
        printable_status: None,
        run_strategy: None,
        observed_generation: None,
        desired_generation: None,
        volume_snapshot_statuses: Vec::new(),
        conditions: status
            .conditions
            .iter()
            .filter(|condition| condition.r#type != conditions::READY)
            .cloned()
            .collect(),
        ..status.clone()
    };
    let is_on_its_way =
        matches!(after.printable_status, Some(PrintableStatus::Starting | PrintableStatus::WaitingForVolumeBinding));
    is_on_its_way && before.ready == after.ready && without_progress(before) == without_progress(after)
}

/// Whether two statuses agree in what has to be written down before anything is taken away: requests, failed starts, and the
/// strategy under which the guest was seen.
pub(super) fn has_same_ledger(before: &VirtualMachineStatus, after: &VirtualMachineStatus) -> bool {
    before.state_change_requests == after.state_change_requests
        && before.start_failure == after.start_failure
        && before.run_strategy == after.run_strategy
}
