//! Failed starts in a row, and how long the next one waits.
//!
//! A start failed when its guest ended without ever having run, unless somebody had deleted the guest: then the end was wanted.
//! The n-th failure in a row makes the next start wait for 10 s × n², and up to half as long again so that machines which failed
//! together do not come back together; never longer than five minutes. The first guest that runs ends the row.

use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vm::{RunStrategy, StartFailure};
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::strategy::Life;

/// The first wait, and the factor of all later ones.
const BASE_SECONDS: u64 = 10;
/// The longest wait.
const MAX_SECONDS: u64 = 300;

/// The row of failures after a look at the guest.
pub(super) fn update(
    before: Option<&StartFailure>,
    strategy: RunStrategy,
    vmi: Option<&VirtualMachineInstance>,
    machine_uid: &str,
    now: Timestamp,
) -> Option<StartFailure> {
    let starts_by_itself = matches!(strategy, RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once);
    if !starts_by_itself || vmi.is_some_and(has_run) {
        return None;
    }
    let failed = vmi.filter(|vmi| Life::of(Some(vmi)).has_ended());
    let Some(uid) = failed.and_then(|vmi| vmi.metadata.uid.clone()) else { return before.cloned() };
    if before.is_some_and(|before| before.last_failed_vmi_uid.as_ref() == Some(&uid)) {
        return before.cloned();
    }
    let count = before.and_then(|before| before.consecutive_fail_count).unwrap_or(0).max(0).saturating_add(1);
    let retry_after = now.checked_add(delay(machine_uid, count)).unwrap_or(now);
    Some(StartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmi_uid: Some(uid),
        retry_after_timestamp: Some(Time(Timestamp::from_second(retry_after.as_second()).unwrap_or(retry_after))),
    })
}

/// How much longer the next start has to wait.
pub(super) fn rest(failure: Option<&StartFailure>, now: Timestamp) -> Option<Duration> {
    let until = failure?.retry_after_timestamp.as_ref()?.0;
    Duration::try_from(until.duration_since(now)).ok().filter(|rest| !rest.is_zero())
}

fn has_run(vmi: &VirtualMachineInstance) -> bool {
    let stamps = vmi.status.iter().flat_map(|status| &status.phase_transition_timestamps);
    stamps.into_iter().any(|stamp| stamp.phase == Some(Phase::Running))
        || vmi.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Running))
}

/// The wait after the n-th failure. The same machine and number always wait equally long: deciding takes no dice.
fn delay(machine_uid: &str, count: i64) -> Duration {
    let count = u64::try_from(count).unwrap_or(1).max(1);
    let base = BASE_SECONDS.saturating_mul(count.saturating_mul(count));
    let seed = machine_uid.bytes().chain(count.to_le_bytes());
    let hash =
        seed.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let jitter = (hash >> 32) % (base / 2 + 1);
    Duration::from_secs(base.saturating_add(jitter).min(MAX_SECONDS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MACHINE: &str = "0a1b";

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn guest(uid: &str, phase: &str, ran: bool) -> VirtualMachineInstance {
        let stamps = if ran { json!([{"phase": "Running"}]) } else { json!([]) };
        let status = json!({"phase": phase, "phaseTransitionTimestamps": stamps});
        serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"domain": {"devices": {}}}, "status": status}))
            .unwrap()
    }

    fn after(before: Option<&StartFailure>, vmi: &VirtualMachineInstance) -> Option<StartFailure> {
        update(before, RunStrategy::Always, Some(vmi), MACHINE, now())
    }

    #[test]
    fn waits_grow_with_the_square_and_stay_in_their_bounds() {
        for (count, least) in [(1, 10), (2, 40), (3, 90), (4, 160), (5, 250)] {
            for machine in ["a", "b", "c", "d"] {
                let wait = delay(machine, count).as_secs();
                assert!((least..=(least + least / 2).min(300)).contains(&wait), "{machine} {count}: {wait}");
            }
        }
        assert_eq!(delay("a", 6).as_secs(), 300);
        assert_eq!(delay("a", i64::MAX).as_secs(), 300);
        assert_eq!(delay("a", 3), delay("a", 3), "no dice");
        let waits: std::collections::BTreeSet<_> = (0..20).map(|machine| delay(&machine.to_string(), 3)).collect();
        assert!(waits.len() > 5, "machines that fail together come back apart: {waits:?}");
    }

    #[test]
    fn each_failed_guest_counts_once() {
        let first = after(None, &guest("a", "Failed", false)).unwrap();
        assert_eq!((first.consecutive_fail_count, first.last_failed_vmi_uid.as_deref()), (Some(1), Some("a")));
        let rest = rest(Some(&first), now()).unwrap();
        assert!((10..=15).contains(&rest.as_secs()), "{rest:?}");
        assert_eq!(after(Some(&first), &guest("a", "Failed", false)).as_ref(), Some(&first));
        assert_eq!(after(Some(&first), &guest("b", "Pending", false)).as_ref(), Some(&first), "still on its way");
        let second = after(Some(&first), &guest("b", "Succeeded", false)).unwrap();
        assert_eq!(second.consecutive_fail_count, Some(2));
    }

    #[test]
    fn a_guest_that_ran_ends_the_row() {
        let row = after(None, &guest("a", "Failed", false));
        assert_eq!(after(row.as_ref(), &guest("b", "Running", true)), None);
        assert_eq!(after(None, &guest("b", "Failed", true)), None);
    }

    #[test]
    fn other_strategies_and_wanted_ends_do_not_count() {
        let failed = guest("a", "Failed", false);
        assert_eq!(update(None, RunStrategy::Manual, Some(&failed), MACHINE, now()), None);
        let row = after(None, &failed);
        assert_eq!(update(row.as_ref(), RunStrategy::Halted, None, MACHINE, now()), None);
        assert_eq!(update(row.as_ref(), RunStrategy::Once, None, MACHINE, now()), row);
        let mut deleted = guest("b", "Failed", false);
        deleted.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(after(None, &deleted), None);
    }

    #[test]
    fn waiting_ends() {
        let row = after(None, &guest("a", "Failed", false));
        let later = now() + Duration::from_secs(20);
        assert_eq!(rest(row.as_ref(), later), None);
        assert_eq!(rest(None, now()), None);
    }
}
