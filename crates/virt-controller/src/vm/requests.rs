//! Requests to start and stop that wait in a machine's status: which one counts, and which are served.
//!
//! - Only the **first** is looked at.
//! - A stop names the guest that it is meant for. It is served when that guest is gone; meant for another guest, it is too.
//! - A start is served when there is a live guest. A guest that was made because of a request carries a
//!   [mark](annotations::START_REQUEST), so that a start whose guest has ended already is not served twice.
//! - A machine that is halted is started by changing its strategy; the one request that does so is a paused start. Any other start is
//!   the rest of a restart that a stop has overtaken, and is dropped.
//! - The start that the controller asks for itself, after a failure, names the guest that failed: that one cannot serve it.
//!
//! What is taken from the list has to be true: whoever takes something away on the word of a cache may lose a request. So the plan
//! that does it [reads the guest](super::Action::ConfirmGuest) first.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::annotations;
use ferrovirt_api::vm::{RunStrategy, StateChangeAction, StateChangeRequest};

use super::strategy::{Life, Wish};

/// The key of a start's data that asks for a guest which waits to be unpaused.
const PAUSED: &str = "paused";
/// The key of a start's data that names the guest whose failure it makes good.
const FAILED_GUEST: &str = "failedGuest";

/// The requests that are left when those at the head that are served are gone.
pub(super) fn unserved<'a>(
    requests: &'a [StateChangeRequest],
    strategy: RunStrategy,
    vmi: Option<&VirtualMachineInstance>,
) -> &'a [StateChangeRequest] {
    let served = requests.iter().take_while(|request| is_served(request, strategy, vmi)).count();
    &requests[served..]
}

fn is_served(request: &StateChangeRequest, strategy: RunStrategy, vmi: Option<&VirtualMachineInstance>) -> bool {
    if request.action == StateChangeAction::Start && strategy == RunStrategy::Halted && !is_paused(request) {
        return true;
    }
    let Some(vmi) = vmi else { return request.action == StateChangeAction::Stop };
    match request.action {
        StateChangeAction::Stop => request.uid.is_none() || request.uid != vmi.metadata.uid,
        StateChangeAction::Start if request.data.get(FAILED_GUEST) == vmi.metadata.uid.as_ref() => false,
        StateChangeAction::Start => match Life::of(Some(vmi)) {
            Life::Live => true,
            Life::Succeeded | Life::Failed | Life::Leaving => is_marked(vmi),
            Life::Absent => false,
        },
    }
}

fn is_marked(vmi: &VirtualMachineInstance) -> bool {
    vmi.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::START_REQUEST))
}

/// What the first request wants of the guest that there is.
pub(super) fn wish(requests: &[StateChangeRequest]) -> Wish {
    match requests.first().map(|request| request.action) {
        None => Wish::None,
        Some(StateChangeAction::Start) => Wish::Start,
        Some(StateChangeAction::Stop) => Wish::Stop,
    }
}

/// Whether the first request is a start, and wants the guest to wait until it is unpaused.
pub(super) fn starts_paused(requests: &[StateChangeRequest]) -> bool {
    requests.first().is_some_and(|request| request.action == StateChangeAction::Start && is_paused(request))
}

fn is_paused(request: &StateChangeRequest) -> bool {
    request.data.get(PAUSED).is_some_and(|value| value == "true")
}

/// A request to start another guest after one that failed.
pub(super) fn start_after(failed: &VirtualMachineInstance) -> StateChangeRequest {
    let uid = failed.metadata.uid.clone().unwrap_or_default();
    StateChangeRequest { action: StateChangeAction::Start, data: [(FAILED_GUEST.to_owned(), uid)].into(), uid: None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn guest(phase: &str, marked: bool, deleted: bool) -> VirtualMachineInstance {
        let mut vmi: Value =
            json!({"metadata": {"uid": "a"}, "spec": {"domain": {"devices": {}}}, "status": {"phase": phase}});
        if marked {
            vmi["metadata"]["annotations"] = json!({"ferrovirt.io/start-request": "true"});
        }
        if deleted {
            vmi["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
        }
        serde_json::from_value(vmi).unwrap()
    }

    fn stop(uid: Option<&str>) -> StateChangeRequest {
        StateChangeRequest { action: StateChangeAction::Stop, data: [].into(), uid: uid.map(str::to_owned) }
    }

    fn left(requests: &[StateChangeRequest], vmi: Option<&VirtualMachineInstance>) -> usize {
        unserved(requests, RunStrategy::Manual, vmi).len()
    }

    fn start() -> StateChangeRequest {
        StateChangeRequest { action: StateChangeAction::Start, data: [].into(), uid: None }
    }

    #[test]
    fn a_stop_is_served_when_its_guest_is_gone_or_never_was() {
        let running = guest("Running", false, false);
        assert_eq!(left(&[stop(Some("a"))], None), 0);
        assert_eq!(left(&[stop(Some("b"))], Some(&running)), 0, "another guest");
        assert_eq!(left(&[stop(None)], Some(&running)), 0, "nobody's");
        assert_eq!(left(&[stop(Some("a"))], Some(&running)), 1);
        assert_eq!(left(&[stop(Some("a"))], Some(&guest("Running", false, true))), 1, "on its way");
        assert_eq!(left(&[stop(Some("a"))], Some(&guest("Failed", false, false))), 1, "ended, not gone");
    }

    #[test]
    fn a_start_is_served_by_a_living_guest_or_by_the_one_that_it_made() {
        assert_eq!(left(&[start()], None), 1);
        assert_eq!(left(&[start()], Some(&guest("Pending", false, false))), 0);
        assert_eq!(left(&[start()], Some(&guest("Running", false, true))), 1, "the guest before");
        assert_eq!(left(&[start()], Some(&guest("Succeeded", false, false))), 1);
        for (phase, is_deleted) in [("Succeeded", false), ("Failed", false), ("Running", true), ("Failed", true)] {
            assert_eq!(left(&[start()], Some(&guest(phase, true, is_deleted))), 0, "{phase} {is_deleted}");
        }
    }

    #[test]
    fn a_start_after_a_failure_is_for_the_next_guest() {
        let failed = guest("Failed", true, false);
        let again = start_after(&failed);
        assert_eq!(left(std::slice::from_ref(&again), Some(&failed)), 1);
        assert_eq!(left(std::slice::from_ref(&again), Some(&guest("Failed", true, true))), 1);
        let mut next = guest("Succeeded", true, false);
        next.metadata.uid = Some("b".to_owned());
        assert_eq!(left(&[again], Some(&next)), 0);
    }

    #[test]
    fn a_restart_is_served_step_by_step() {
        let restart = [stop(Some("a")), start()];
        let old = guest("Running", false, false);
        assert_eq!((left(&restart, Some(&old)), wish(&restart)), (2, Wish::Stop));
        let rest = unserved(&restart, RunStrategy::Manual, None);
        assert_eq!((rest.len(), wish(rest)), (1, Wish::Start));
        let mut new = guest("Pending", true, false);
        new.metadata.uid = Some("b".to_owned());
        assert_eq!(left(&restart, Some(&new)), 0, "both at once");
    }

    #[test]
    fn a_stop_overtakes_the_rest_of_a_restart() {
        let paused = StateChangeRequest { data: [("paused".to_owned(), "true".to_owned())].into(), ..start() };
        assert_eq!(unserved(&[stop(Some("a")), start()], RunStrategy::Halted, None).len(), 0);
        assert_eq!(unserved(&[paused], RunStrategy::Halted, None).len(), 1);
    }

    #[test]
    fn paused_is_a_matter_of_the_first_start() {
        let paused = StateChangeRequest { data: [("paused".to_owned(), "true".to_owned())].into(), ..start() };
        assert!(starts_paused(std::slice::from_ref(&paused)));
        assert!(!starts_paused(&[start(), paused.clone()]));
        assert!(!starts_paused(&[StateChangeRequest { data: [].into(), ..paused }]));
        assert!(!starts_paused(&[]));
    }
}
