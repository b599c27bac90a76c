//! What to do about one guest of this node.
//!
//! ```text
//!                launcher absent            launcher: running        launcher: off
//!   Scheduled ───────────────► start ─────► Running ───────────────► Succeeded or Failed ──► launcher may exit
//!        │                                    │
//!        └── cannot be started: Failed        └── object deleted: power off, killed when the grace period is over
//! ```
//!
//! The handler acts only on objects that name its node, and on launchers only through their pods. A launcher that does not answer
//! is no reason for anything: only its own report, or the end of its pod, is.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::{VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus as Status};
use ferrovirt_handover::Verdict;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::{DomainReport, DomainState, OffReason, PauseReason};
use ferrovirt_reconcile::Plan;
use k8s_openapi::jiff::Timestamp;

use super::{World, report};
use crate::launcher::Command;
use crate::migration::record::Move;
use crate::migration::{progress, source};

/// How long a guest may take to power off when the object does not say.
const DEFAULT_GRACE: i64 = 30;
/// How many characters of a launcher's words about an end are told.
const ROOM_FOR_WORDS: usize = 900;

/// All that a decision depends on.
#[derive(Clone)]
pub struct View {
    /// The object.
    pub vmi: Arc<VirtualMachineInstance>,
    /// Its launcher pod on this node.
    pub pod: Option<Arc<Pod>>,
    /// What the launcher last said; `None`: nothing yet.
    pub report: Option<DomainReport>,
    /// It can be spoken to now.
    pub reachable: bool,
    /// This node.
    pub node: String,
    /// Whether the node's own processor model is known, which guests have that follow their host; `None`: it is being asked for.
    pub host_model: Option<bool>,
    /// Since the progress of a move was last written.
    pub since_progress: Option<Duration>,
    /// The time.
    pub now: Timestamp,
}

/// All that can be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Wire the network, prepare the disks and start the guest.
    Start,
    /// Speak to the launcher.
    Command(Command),
    /// Begin to move the guest to another node.
    BeginMove,
    /// Carry the connections of a move.
    Carry,
    /// Call a move off, for this reason.
    CancelMove(String),
    /// Tell a launcher in doubt how its move ended.
    TellVerdict(String, Verdict),
    /// Tell people.
    Tell {
        /// Something is wrong.
        warning: bool,
        /// A short word.
        reason: &'static str,
        /// What happened.
        message: String,
    },
}

/// The judgement.
pub fn decide(view: &View) -> Plan<Action, Status> {
    let Some(status) = view.vmi.status.as_ref().filter(|status| status.node_name.as_deref() == Some(&*view.node))
    else {
        return Plan::nothing();
    };
    let phase = status.phase.unwrap_or(Phase::Pending);
    match phase {
        Phase::Scheduled | Phase::Running => match Move::from_node(&view.vmi, &view.node) {
            Some(moving) => source::leaving(view, phase, &moving),
            None => staying(view, phase),
        },
        phase if phase.is_final() => after_the_end(view),
        _ => Plan::nothing(),
    }
}

/// A guest that is ours, and does not move.
pub(crate) fn staying(view: &View, phase: Phase) -> Plan<Action, Status> {
    let state = view.report.as_ref().map(|report| &report.state);
    let pod_ended = view.pod.as_deref().and_then(report::last_words);
    match (state, pod_ended) {
        (Some(DomainState::Off(reason)), _) => {
            ended(view, *reason, view.report.as_ref().and_then(|report| report.ending.clone()))
        }
        (Some(DomainState::Paused(PauseReason::PostcopyFailed)), None) => {
            ended(view, OffReason::Crashed, None).then(Action::Command(Command::Kill))
        }
        (_, Some(words)) => ended(view, words.reason, Some(words.message)),
        (Some(DomainState::Running | DomainState::Paused(_) | DomainState::ShuttingDown), None) => alive(view, phase),
        (Some(DomainState::Absent), None)
            if phase == Phase::Scheduled && view.reachable && !is_deleted(view) && is_recorded(view) =>
        {
            Plan::nothing().then(Action::Start)
        }
        _ => Plan::nothing(),
    }
}

/// What the launcher says is shown, and nothing is done.
pub(crate) fn shown(view: &View) -> Plan<Action, Status> {
    match &view.report {
        Some(report) if matches!(report.state, DomainState::Absent | DomainState::Starting) => Plan::nothing(),
        Some(report) => {
            let mut status = report::alive(&view.vmi, view.pod.as_deref(), report, view.host_model, view.now);
            if let Some(state) = status.migration_state.as_mut().filter(|state| state.target_node == status.node_name) {
                progress::conclude(state, report.migration.as_ref());
            }
            Plan::nothing().report(status)
        }
        None => Plan::nothing(),
    }
}

fn alive(view: &View, phase: Phase) -> Plan<Action, Status> {
    let Some(report) = &view.report else { return Plan::nothing() };
    let mut plan = shown(view);
    if phase == Phase::Scheduled {
        plan = plan.then(tell("Started", "VirtualMachineInstance started."));
    }
    if is_deleted(view) && view.reachable {
        // Also to a guest that is on its way: its time may have been cut, and asked again the launcher only takes a nearer deadline.
        let command = match grace(view) {
            0 => Command::Kill,
            grace_seconds => Command::Shutdown { grace_seconds },
        };
        plan = plan.then(Action::Command(command));
        if report.state != DomainState::ShuttingDown {
            plan = plan.then(tell("ShuttingDown", "Signaled Graceful Shutdown"));
        }
    }
    plan
}

/// The guest has ended.
pub(crate) fn ended(view: &View, reason: OffReason, message: Option<String>) -> Plan<Action, Status> {
    let Some(phase) = report::phase(&view.vmi, &DomainState::Off(reason)) else { return Plan::nothing() };
    let (warning, text) = match reason {
        OffReason::Crashed => (true, "The VirtualMachineInstance crashed."),
        OffReason::Panicked => (true, "The guest's kernel panicked."),
        OffReason::Failed => (true, "The VirtualMachineInstance could not be started."),
        _ if phase == Phase::Failed => (true, "The VirtualMachineInstance was killed when its grace period was over."),
        _ => (false, "The VirtualMachineInstance was shut down."),
    };
    // They are a launcher's, and QEMU's.
    let message =
        message.map(|words| words.chars().filter(|c| !c.is_control()).take(ROOM_FOR_WORDS).collect::<String>());
    let text = message.filter(|message| !message.is_empty()).map_or(text.to_owned(), |more| format!("{text} {more}"));
    let mut plan = Plan::nothing().then(Action::Tell { warning, reason: "Stopped", message: text });
    if is_deleted(view) && reason == OffReason::Destroyed {
        // KubeVirt's word for a deletion that was not obeyed, which scripts wait for.
        plan = plan.then(tell("Deleted", "Signaled Deletion"));
    }
    plan.report(report::ended(&view.vmi, phase, view.now))
}

/// The object says that the guest has ended: nothing holds the launcher any longer, and one that never started its guest ends too.
fn after_the_end(view: &View) -> Plan<Action, Status> {
    match &view.report {
        Some(report) if view.reachable => match report.state {
            DomainState::Off(_) => Plan::nothing().then(Action::Command(Command::Done)),
            _ => Plan::nothing().then(Action::Command(Command::Kill)),
        },
        _ => Plan::nothing(),
    }
}

fn tell(reason: &'static str, message: &str) -> Action {
    Action::Tell { warning: false, reason, message: message.to_owned() }
}

fn is_recorded(view: &View) -> bool {
    view.pod.as_deref().is_some_and(|pod| World::is_recorded(&view.vmi, pod))
}

fn is_deleted(view: &View) -> bool {
    view.vmi.metadata.deletion_timestamp.is_some()
}

fn grace(view: &View) -> u64 {
    let grace = view.vmi.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE);
    u64::try_from(grace).unwrap_or_default()
}
