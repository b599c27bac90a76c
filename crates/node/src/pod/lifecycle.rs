//! What to do next for a pod's containers, as a function of what became of them. No IO, no clock.
//!
//! ```text
//! init containers, one after the other        sidecars (init containers that restart always) stay
//!   └─ all done ─> containers, all at once
//!                    └─ all ended for good ─> sidecars stop ─> the pod is finished
//! ```

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::record::{ContainerRecord, Stage};

/// A container that ran this long is not in a crash loop.
pub const HEALTHY: Duration = Duration::from_secs(600);
/// Pause before the third start; it doubles from then on.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// A container with its role and record.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// As written in the pod.
    pub container: &'a Container,
    /// An init container.
    pub init: bool,
    /// What became of it.
    pub record: &'a ContainerRecord,
    /// It runs and its startup probe, if any, was content.
    pub started: bool,
}

impl Member<'_> {
    /// An init container that stays.
    pub fn is_sidecar(&self) -> bool {
        self.init && self.container.restart_policy.as_deref() == Some("Always")
    }

    fn restarts(&self, policy: &str, exit_code: i32) -> bool {
        match (self.init, policy) {
            _ if self.is_sidecar() => true,
            (true, "Never") => false,
            (true, _) => exit_code != 0,
            (false, "Always") => true,
            (false, "OnFailure") => exit_code != 0,
            (false, _) => false,
        }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Next {
    /// Containers to start now, by name.
    pub start: Vec<String>,
    /// Containers that wait after crashes, and until when.
    pub backing_off: Vec<(String, Timestamp)>,
    /// Init containers are done.
    pub initialized: bool,
    /// Nothing will start any more: the pod's last phase.
    pub finished: Option<Finished>,
}

/// The last phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Every container ended with 0.
    Succeeded,
    /// One did not.
    Failed,
}

/// The pause before the next start after `ends` quick ends in a row.
pub fn pause(ends: u32) -> Duration {
    match ends {
        0 | 1 => Duration::ZERO,
        more => FIRST_PAUSE.saturating_mul(1u32.checked_shl(more - 2).unwrap_or(u32::MAX)).min(LONGEST_PAUSE),
    }
}

/// `Always`, `OnFailure` or `Never`.
pub fn restart_policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}

/// Decides.
pub fn next(policy: &str, members: &[Member<'_>], now: Timestamp) -> Next {
    let mut next = Next::default();
    for member in members.iter().filter(|member| member.init) {
        match &member.record.stage {
            Stage::Ended(end) if !member.is_sidecar() && end.exit_code == 0 => {}
            Stage::Ended(end) if !member.restarts(policy, end.exit_code) => {
                next.finished = Some(Finished::Failed);
                return next;
            }
            Stage::Running { .. } if member.is_sidecar() && member.started => {}
            Stage::Running { .. } => return next,
            // A sidecar that ended comes back, but what was started after it goes on.
            Stage::Ended(_) if member.is_sidecar() => start_or_wait(member, now, &mut next),
            Stage::New | Stage::Creating | Stage::Ended(_) => {
                start_or_wait(member, now, &mut next);
                return next;
            }
        }
    }
    next.initialized = true;
    let mut open = false;
    let mut failed = false;
    for member in members.iter().filter(|member| !member.init) {
        match &member.record.stage {
            Stage::Ended(end) if !member.restarts(policy, end.exit_code) => failed |= end.exit_code != 0,
            Stage::Running { .. } => open = true,
            Stage::New | Stage::Creating | Stage::Ended(_) => {
                open = true;
                start_or_wait(member, now, &mut next);
            }
        }
    }
    if !open {
        next.start.clear();
        next.backing_off.clear();
        next.finished = Some(if failed { Finished::Failed } else { Finished::Succeeded });
    }
    next
}

fn start_or_wait(member: &Member<'_>, now: Timestamp, next: &mut Next) {
    let name = member.container.name.clone();
    let Some(end) = member.record.ended() else {
        next.start.push(name);
        return;
    };
    let until = end.finished_at.checked_add(pause(member.record.quick_ends)).unwrap_or(Timestamp::MAX);
    if until <= now { next.start.push(name) } else { next.backing_off.push((name, until)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::record::Termination;
    use crate::process::ProcessIdentity;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn running() -> ContainerRecord {
        let process = ProcessIdentity { pid: 1, start_ticks: 1, boot: String::new() };
        ContainerRecord { stage: Stage::Running { process, started_at: at(0) }, ..ContainerRecord::default() }
    }

    fn ended(exit_code: i32, quick_ends: u32) -> ContainerRecord {
        let end = Termination {
            exit_code,
            reason: String::new(),
            message: None,
            started_at: None,
            finished_at: at(100),
            id: String::new(),
        };
        ContainerRecord { stage: Stage::Ended(end), quick_ends, ..ContainerRecord::default() }
    }

    /// Names say the role: `i…` init, `s…` sidecar, else a container.
    fn decide(policy: &str, members: &[(&str, ContainerRecord)], now: i64) -> Next {
        let containers: Vec<Container> = members
            .iter()
            .map(|(name, _)| Container {
                name: (*name).to_owned(),
                restart_policy: name.starts_with('s').then(|| "Always".to_owned()),
                ..Container::default()
            })
            .collect();
        let members: Vec<Member<'_>> = containers
            .iter()
            .zip(members)
            .map(|(container, (name, record))| Member {
                container,
                init: name.starts_with(['i', 's']),
                record,
                started: record.is_running(),
            })
            .collect();
        next(policy, &members, at(now))
    }

    #[test]
    fn init_containers_run_one_after_the_other() {
        let new = ContainerRecord::default;
        assert_eq!(decide("Always", &[("i1", new()), ("i2", new()), ("a", new())], 0).start, ["i1"]);
        let second = decide("Always", &[("i1", ended(0, 0)), ("i2", running()), ("a", new())], 0);
        assert_eq!(second, Next::default());
        let done = decide("Always", &[("i1", ended(0, 0)), ("s2", running()), ("a", new()), ("b", new())], 0);
        assert!(done.initialized);
        assert_eq!(done.start, ["a", "b"]);
    }

    #[test]
    fn a_failed_init_container_ends_a_pod_that_never_restarts() {
        let failed = [("i1", ended(1, 1)), ("a", ContainerRecord::default())];
        assert_eq!(decide("Never", &failed, 200).finished, Some(Finished::Failed));
        assert_eq!(decide("OnFailure", &failed, 200).start, ["i1"]);
    }

    #[test]
    fn policies_restart_what_they_say() {
        assert_eq!(decide("Always", &[("a", ended(0, 1))], 200).start, ["a"]);
        assert_eq!(decide("OnFailure", &[("a", ended(1, 1))], 200).start, ["a"]);
        assert_eq!(decide("OnFailure", &[("a", ended(0, 1))], 200).finished, Some(Finished::Succeeded));
        assert_eq!(decide("Never", &[("a", ended(1, 1))], 200).finished, Some(Finished::Failed));
        assert_eq!(decide("Never", &[("a", ended(0, 1)), ("b", running())], 200).finished, None);
        assert_eq!(decide("Never", &[("s", ended(1, 1)), ("a", ended(0, 1))], 200).finished, Some(Finished::Succeeded));
    }

    #[test]
    fn crash_loops_slow_down() {
        assert_eq!(decide("Always", &[("a", ended(1, 3))], 110).backing_off, [("a".to_owned(), at(120))]);
        assert_eq!(decide("Always", &[("a", ended(1, 3))], 120).start, ["a"]);
        let pauses: Vec<u64> = [0, 1, 2, 3, 6, 7, 99].map(pause).iter().map(Duration::as_secs).collect();
        assert_eq!(pauses, [0, 0, 10, 20, 160, 300, 300]);
    }
}
