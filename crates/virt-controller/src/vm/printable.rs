//! A machine's state in one word. The first line that fits wins.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::{Condition, ConditionStatus, find_condition};
use ferrovirt_api::names::{conditions, reasons};
use ferrovirt_api::vm::{PrintableStatus, RunStrategy, StartFailure};
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;

use super::data_volumes::Filling;
use super::observe::Machine;

/// What the word depends on besides the machine itself.
pub(super) struct Facts<'a> {
    /// The machine's guest.
    pub(super) vmi: Option<&'a VirtualMachineInstance>,
    /// When a guest shall run.
    pub(super) strategy: Option<RunStrategy>,
    /// A guest is meant to be there.
    pub(super) is_set_to_start: bool,
    /// How far its data volumes are.
    pub(super) filling: &'a Filling,
    /// Failed starts.
    pub(super) start_failure: Option<&'a StartFailure>,
}

/// The word for a machine.
pub(super) fn status(machine: &Machine, facts: &Facts<'_>) -> PrintableStatus {
    let vmi = facts.vmi;
    let phase = vmi.and_then(|vmi| vmi.status.as_ref()?.phase);
    let is_final = phase.is_some_and(Phase::is_final);
    let is_deleted = vmi.is_some_and(|vmi| vmi.metadata.deletion_timestamp.is_some());
    let fails_with = |reason: &str| vmi.is_some_and(|vmi| is_false(vmi, conditions::SYNCHRONIZED, reason));
    let is_on_its_way = matches!(phase, None | Some(Phase::Pending | Phase::Scheduling | Phase::Scheduled));
    let words = [
        (machine.vm.metadata.deletion_timestamp.is_some(), PrintableStatus::Terminating),
        (is_deleted && !is_final, PrintableStatus::Stopping),
        (vmi.is_some_and(is_moving), PrintableStatus::Migrating),
        (phase == Some(Phase::Running) && vmi.is_some_and(is_paused), PrintableStatus::Paused),
        (phase == Some(Phase::Running), PrintableStatus::Running),
        (fails_with(reasons::FAILED_PVC_NOT_FOUND), PrintableStatus::ErrorPvcNotFound),
        // One that cannot be made at all has failed as well: a machine that waits for it is not just switched off.
        (
            matches!(facts.filling, Filling::Failed { .. } | Filling::Impossible { .. }),
            PrintableStatus::DataVolumeError,
        ),
        (
            vmi.is_some_and(|vmi| is_false(vmi, conditions::POD_SCHEDULED, reasons::UNSCHEDULABLE)),
            PrintableStatus::ErrorUnschedulable,
        ),
        (matches!(facts.filling, Filling::Awaited { .. }), PrintableStatus::Provisioning),
        (facts.is_set_to_start && !is_final && has_unbound_claim(machine), PrintableStatus::WaitingForVolumeBinding),
        (fails_with(reasons::ERR_IMAGE_PULL), PrintableStatus::ErrImagePull),
        (fails_with(reasons::IMAGE_PULL_BACK_OFF), PrintableStatus::ImagePullBackOff),
        (vmi.is_some() && is_on_its_way, PrintableStatus::Starting),
        (is_waiting_for_retry(facts), PrintableStatus::CrashLoopBackOff),
        (vmi.is_none() || is_final, PrintableStatus::Stopped),
    ];
    words.into_iter().find(|(fits, _)| *fits).map_or(PrintableStatus::Unknown, |(_, word)| word)
}

/// Whether a guest is on its way to another node.
pub(super) fn is_moving(vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| state.start_timestamp.is_some() && state.end_timestamp.is_none())
}

fn condition<'a>(vmi: &'a VirtualMachineInstance, r#type: &str) -> Option<&'a Condition> {
    find_condition(&vmi.status.as_ref()?.conditions, r#type)
}

fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    condition(vmi, conditions::PAUSED).is_some_and(Condition::is_true)
}

fn is_false(vmi: &VirtualMachineInstance, r#type: &str, reason: &str) -> bool {
    condition(vmi, r#type).is_some_and(|condition| {
        condition.status == ConditionStatus::False && condition.reason.as_deref() == Some(reason)
    })
}

fn has_unbound_claim(machine: &Machine) -> bool {
    let claims = machine.claims.values().flatten();
    let phases = claims.map(|claim| claim.status.as_ref().and_then(|status| status.phase.as_deref()));
    phases.into_iter().any(|phase| phase != Some("Bound"))
}

fn is_waiting_for_retry(facts: &Facts<'_>) -> bool {
    use RunStrategy::{Always, Once, RerunOnFailure};
    let has_failed = facts.start_failure.and_then(|failure| failure.consecutive_fail_count).unwrap_or(0) > 0;
    let tries_again = matches!(facts.strategy, Some(Always | RerunOnFailure | Once));
    let is_live =
        facts.vmi.is_some_and(|vmi| !vmi.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_final));
    has_failed && tries_again && !is_live
}

#[cfg(test)]
#[path = "printable_tests.rs"]
mod tests;
