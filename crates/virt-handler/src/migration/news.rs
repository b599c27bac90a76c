//! What people are told about a move: the difference between two records of it.

use ferrovirt_api::vmi::{MigrationState, VirtualMachineInstanceStatus as Status};
use ferrovirt_reconcile::Note;

/// The events that follow from writing `after` over `before`.
pub(crate) fn news(before: Option<&Status>, after: Option<&Status>) -> Option<Note> {
    let state = |status: Option<&Status>| status.and_then(|status| status.migration_state.clone()).unwrap_or_default();
    let (before, after) = (state(before), state(after));
    let is_new = |fact: fn(&MigrationState) -> bool| fact(&after) && !fact(&before);
    let target = after.target_node.as_deref().unwrap_or("another node");
    if is_new(|state| state.completed && !state.failed) {
        return Some(Note::normal("Migrated", format!("The VirtualMachineInstance migrated to node {target}.")));
    }
    if is_new(|state| state.failed) {
        let reason = after.failure_reason.as_deref().unwrap_or("no reason is known");
        let message = format!("The migration of the VirtualMachineInstance to node {target} failed: {reason}.");
        return Some(Note::warning("Migrated", message));
    }
    if is_new(|state| state.start_timestamp.is_some()) {
        return Some(Note::normal("Migrating", format!("VirtualMachineInstance is migrating to node {target}.")));
    }
    if is_new(|state| state.target_node_address.is_some()) {
        return Some(Note::normal("PreparingTarget", format!("Node {target} is ready to receive the guest.")));
    }
    None
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    type Step = fn(&mut MigrationState);

    fn status(change: Step) -> Status {
        let mut state = MigrationState { target_node: Some("node2".into()), ..MigrationState::default() };
        change(&mut state);
        Status { migration_state: Some(Box::new(state)), ..Status::default() }
    }

    #[test]
    fn each_step_is_told_once() {
        let steps: [(Step, &str); 4] = [
            (|state| state.target_node_address = Some("10.0.0.2".into()), "PreparingTarget"),
            (|state| state.start_timestamp = Some(Time(Timestamp::UNIX_EPOCH)), "Migrating"),
            (|state| state.completed = true, "Migrated"),
            (|state| state.failed = true, "Migrated"),
        ];
        for (step, reason) in steps {
            let (before, after) = (status(|_| {}), status(step));
            assert_eq!(news(Some(&before), Some(&after)).unwrap().reason, reason);
            assert!(news(Some(&after), Some(&after)).is_none(), "{reason}");
        }
        assert!(news(None, Some(&Status::default())).is_none());
    }
}
