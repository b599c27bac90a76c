//! The judgement about one move: from a view to a plan. No IO, no clock. The table is drawn in the [module](super)'s page.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::{Condition, ConditionStatus, find_condition};
use ferrovirt_api::migration::{MigrationPhase as Phase, VirtualMachineInstanceMigrationStatus as Status};
use ferrovirt_api::names::{annotations, conditions, finalizers};
use ferrovirt_api::vmi::{MigrationState, VirtualMachineInstancePhase as GuestPhase};
use ferrovirt_pods::{LauncherPod, Move, target_pod};
use ferrovirt_reconcile::controller::{Category, Failure};
use ferrovirt_reconcile::{Note, Plan};
use jiff::Timestamp;

use super::candidate::{self, Obstacle, is_targets};
use super::draft::Draft;
use super::observe::record_of;
use super::{Action, View, act, hand_off, turn};
use crate::vmi::pod_state::{PodState, state_of};
use crate::vmi::unaccounted::Account;

type Decision = Plan<Action, Status>;

/// Seconds that a target pod may find no node.
const UNSCHEDULABLE_SECONDS: u64 = 300;
/// Seconds that a target pod may take to run.
const PENDING_SECONDS: u64 = 900;
/// Finished moves of a guest that are kept.
const HISTORY: usize = 5;
/// How long a phase may last before it is worth a write of its own.
const PATIENCE: Duration = Duration::from_secs(3);
/// Event: an automatic move waits.
const BACKOFF: &str = "MigrationBackoff";
/// Event: no node takes the target pod. Users of KubeVirt look for this word.
const UNSCHEDULABLE: &str = "migrationTargetPodUnschedulable";

/// The plan for a move.
pub fn decide(view: &View) -> Decision {
    let Some(vmi) = view.guest() else { return without_guest(view) };
    if view.phase().is_some_and(Phase::is_final) {
        return after_the_end(view, vmi);
    }
    match record_of(vmi, view.uid()) {
        Some(state) => after_hand_off(view, vmi, state),
        None => before_hand_off(view, vmi),
    }
}

fn is_cancelled(view: &View) -> bool {
    view.migration.metadata.deletion_timestamp.is_some()
}

/// A move without a guest is no record of anything.
fn without_guest(view: &View) -> Decision {
    let sure = Plan::nothing().then(Action::ConfirmNoGuest);
    match is_cancelled(view) {
        true if !is_held(view) => Plan::nothing(),
        true => sure.then(Action::LetGo(view.migration.clone())),
        false => sure.then(Action::DeleteMigration(view.migration.clone())),
    }
}

fn is_held(view: &View) -> bool {
    view.migration.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == finalizers::MIGRATION)
}

/// The pod that was made for this move.
fn target_of(view: &View) -> Option<&Arc<LauncherPod>> {
    view.pods.iter().find(|pod| pod.migration_uid() == Some(view.uid()))
}

/// The pod that the guest runs in.
fn source_of<'a>(view: &'a View, vmi: &VirtualMachineInstance) -> Option<&'a Arc<LauncherPod>> {
    let node = vmi.status.as_ref()?.node_name.as_ref()?;
    let is_there = |pod: &&Arc<LauncherPod>| {
        let on = pod.node_name.as_ref();
        on == Some(node) && pod.migration_uid() != Some(view.uid())
    };
    view.pods.iter().filter(is_there).find(|pod| !pod.has_ended())
}

// ---- before the hand-off ----

fn before_hand_off(view: &View, vmi: &Arc<VirtualMachineInstance>) -> Decision {
    if let Some((reason, message)) = fatal(view, vmi) {
        return fail(view, None, reason, &message);
    }
    if matches!(view.phase(), Some(Phase::PreparingTarget | Phase::TargetReady | Phase::Running)) {
        let message =
            "the guest's status.migrationState does not speak of this migration any more; create another migration";
        return with_first(Action::ConfirmNotHandedOff, fail(view, None, "RecordLost", message));
    }
    let Some(pod) = target_of(view) else { return without_pod(view, vmi) };
    match state_of(pod) {
        PodState::Ended { why } => {
            let message = format!("target pod {} ended before it could take the guest: {why}", name_of(pod));
            fail(view, None, "TargetPodFailed", &message)
        }
        PodState::Running { node } => hand_off(view, vmi, pod, &node),
        PodState::Starting => await_pod(view, pod, ""),
        PodState::Unschedulable { message, .. } => unschedulable(view, vmi, pod, &message),
        PodState::Troubled { reason, message } => await_pod(view, pod, &format!("{reason}: {message}")),
    }
}

/// What ends a move before the nodes were told of it.
fn fatal(view: &View, vmi: &VirtualMachineInstance) -> Option<(&'static str, String)> {
    if is_cancelled(view) {
        return Some((
            "Cancelled",
            "the migration was cancelled before it began; the guest stays where it is".to_owned(),
        ));
    }
    let phase = vmi.status.as_ref().and_then(|status| status.phase);
    if phase.is_some_and(GuestPhase::is_final) {
        return Some(("GuestEnded", "the guest has ended; start it first".to_owned()));
    }
    vmi.metadata.deletion_timestamp.is_some().then(|| ("GuestDeleted", "the guest is being deleted".to_owned()))
}

fn without_pod(view: &View, vmi: &Arc<VirtualMachineInstance>) -> Decision {
    if matches!(view.phase(), Some(Phase::Scheduling | Phase::Scheduled)) {
        let message = "the target pod vanished before it could take the guest; create another migration";
        return with_first(Action::ConfirmNoTarget, fail(view, None, "TargetPodVanished", message));
    }
    match candidate::obstacle(&view.migration, vmi, &view.siblings, view.now) {
        Some(Obstacle::Hopeless(reason, message)) => return fail(view, None, reason, &message),
        Some(Obstacle::Abandoned) => {
            // Whoever moved the guest is gone; the nodes end the move and say so.
            let is_told = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
            let plan = wait(view);
            return match is_told.is_some_and(|state| state.abort_requested) {
                true => plan,
                false => with_first(Action::Abort(vmi.clone()), plan),
            };
        }
        Some(Obstacle::Wait(_)) => return wait(view),
        Some(Obstacle::Pause(rest, failures)) => return pause(view, rest, failures),
        None => {}
    }
    if !turn::is_next(&view.queue, view.limits, view.uid()) {
        return wait(view).look_again_after(patience_in_queue(view));
    }
    match source_of(view, vmi) {
        Some(source) => create(view, vmi, source),
        None => wait(view),
    }
}

/// A safety net: who ends wakes those that wait.
fn patience_in_queue(view: &View) -> Duration {
    match turn::priority(&view.migration) {
        100.. => Duration::from_secs(1),
        1.. => Duration::from_secs(3),
        _ => Duration::from_secs(5),
    }
}

fn wait(view: &View) -> Decision {
    let mut draft = Draft::of(view);
    draft.enter(Phase::Pending);
    Plan::nothing().report(draft.status)
}

fn pause(view: &View, rest: Duration, failures: usize) -> Decision {
    let plan = wait(view).look_again_after(rest);
    if view.phase() == Some(Phase::Pending) {
        return plan;
    }
    let message = format!(
        "waiting {} s after {failures} failed automatic migrations of the guest; look at their status.migrationState.failureReason",
        rest.as_secs().max(1)
    );
    with_first(Action::Tell(Note::warning(BACKOFF, message)), plan)
}

fn create(view: &View, vmi: &VirtualMachineInstance, source: &LauncherPod) -> Decision {
    let movement = Move { migration: &view.migration, source, source_node: &view.node_labels };
    match target_pod(vmi, &view.cluster.launcher_config(&view.claims), &movement) {
        Ok(pod) => {
            let mut draft = Draft::of(view);
            draft.enter(Phase::Scheduling).remove(conditions::MIGRATION_REJECTED_BY_QUOTA);
            Plan::nothing().then(Action::CreateTarget(Box::new(pod))).report(draft.status)
        }
        Err(unsupported) => fail(view, None, "FailedCreate", &unsupported.to_string()),
    }
}

/// A target pod that no node takes: whoever waits for the move hears of it long before it is given up.
fn unschedulable(view: &View, vmi: &VirtualMachineInstance, pod: &LauncherPod, message: &str) -> Decision {
    let plan = await_pod(view, pod, message);
    if plan.status.as_ref().and_then(|status| status.phase).is_some_and(Phase::is_final) {
        return plan;
    }
    let (namespace, name) = (vmi.metadata.namespace.as_deref(), vmi.metadata.name.as_deref());
    let told = format!(
        "Migration target pod for VMI [{}/{}] is currently unschedulable: {message}",
        namespace.unwrap_or_default(),
        name.unwrap_or_default()
    );
    with_first(Action::Tell(Note::warning(UNSCHEDULABLE, told)), plan)
}

/// A target pod that does not run yet.
fn await_pod(view: &View, pod: &LauncherPod, trouble: &str) -> Decision {
    let created = pod.metadata.creation_timestamp.as_ref().map_or(view.now, |time| time.0);
    let age = Duration::try_from(view.now.duration_since(created)).unwrap_or_default();
    let is_placed = pod.node_name.is_some();
    let unschedulable = seconds(view, annotations::MIGRATION_UNSCHEDULABLE_TIMEOUT, UNSCHEDULABLE_SECONDS);
    let pending = seconds(view, annotations::MIGRATION_PENDING_TIMEOUT, PENDING_SECONDS);
    let (limit, reason) = match is_placed {
        false if unschedulable <= pending => (unschedulable, "TargetUnschedulable"),
        _ => (pending, "TargetPending"),
    };
    let Some(rest) = limit.checked_sub(age).filter(|rest| !rest.is_zero()) else {
        let what = if is_placed { "did not start on its node" } else { "found no node" };
        let trouble = if trouble.is_empty() { "no reason was given" } else { trouble };
        let message = format!(
            "target pod {} {what} within {} s ({trouble}); the guest stays where it is. Make room on another node, or change what the guest asks of nodes",
            name_of(pod),
            limit.as_secs()
        );
        return fail(view, None, reason, &message);
    };
    let mut draft = Draft::of(view);
    draft.enter(Phase::Scheduling);
    Plan::nothing().report(draft.status).look_again_after(rest)
}

fn seconds(view: &View, annotation: &str, default: u64) -> Duration {
    let given = view.migration.metadata.annotations.as_ref().and_then(|all| all.get(annotation)?.parse().ok());
    Duration::from_secs(given.unwrap_or(default))
}

fn hand_off(view: &View, vmi: &Arc<VirtualMachineInstance>, target: &LauncherPod, node: &str) -> Decision {
    let earlier = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let is_busy = earlier.is_some_and(|state| !candidate::is_settled(vmi, state));
    let phase = vmi.status.as_ref().and_then(|status| status.phase);
    let Some(source) = source_of(view, vmi).filter(|_| phase == Some(GuestPhase::Running) && !is_busy) else {
        // Its object says when that changes, and its end ends this.
        let mut draft = Draft::of(view);
        draft.enter(Phase::Scheduled);
        return Plan::nothing().report(draft.status);
    };
    let record = hand_off::record(view, vmi, source, target, node);
    let mut draft = Draft::of(view);
    draft.enter(Phase::PreparingTarget);
    Plan::nothing().then(Action::HandOff(Box::new(record))).report(draft.status)
}

// ---- after the hand-off ----

fn after_hand_off(view: &View, vmi: &Arc<VirtualMachineInstance>, state: &MigrationState) -> Decision {
    if is_targets(vmi, state) {
        return succeed(view, vmi, state);
    }
    if state.failed {
        let reason = state.failure_reason.as_deref().unwrap_or("the nodes did not say why");
        return match state.abort_requested {
            true => fail(view, Some(state), "Aborted", &format!("the migration was aborted: {reason}")),
            false => fail(view, Some(state), "MigrationFailed", reason),
        };
    }
    let status = vmi.status.as_ref();
    if status.and_then(|status| status.phase).is_some_and(GuestPhase::is_final) {
        let why = status.and_then(|status| status.reason.as_deref()).unwrap_or("it does not say why");
        return fail(view, Some(state), "GuestEnded", &format!("the guest ended while it moved: {why}"));
    }
    let target = target_of(view).filter(|pod| Some(name_of(pod)) == state.target_pod.as_deref());
    let node = state.target_node.as_deref().unwrap_or_default();
    if view.is_target_fenced {
        let reason = format!("node {node}, which the guest moved to, was taken out of service");
        let fenced = Action::ConfirmFenced(node.to_owned());
        return Plan::nothing().then(fenced).then(Action::FailMove { vmi: vmi.clone(), reason });
    }
    if target.is_none() {
        let ledger = status.map(|status| &status.active_pods);
        let account = ledger.map(|ledger| Account::of(vmi, ledger, &view.pods, &view.known)).unwrap_or_default();
        if account.is_missing_on(node) {
            // The guest may run there: its object says so, and what it waits for.
            return under_way(view, vmi, state);
        }
        let reason = "the target pod was deleted, and did not say whether it had run the guest".to_owned();
        return Plan::nothing().then(Action::ConfirmNoTarget).then(Action::FailMove { vmi: vmi.clone(), reason });
    }
    under_way(view, vmi, state)
}

fn under_way(view: &View, vmi: &Arc<VirtualMachineInstance>, state: &MigrationState) -> Decision {
    let mut draft = Draft::of(view);
    let mut plan = Plan::nothing();
    if is_cancelled(view) {
        if !state.abort_requested {
            plan = plan.then(Action::Abort(vmi.clone()));
        }
        let message = "the nodes were asked to stop the migration";
        draft.set(conditions::MIGRATION_ABORT_REQUESTED, ConditionStatus::True, "AbortRequested", message);
    }
    let phase = match state {
        state if state.start_timestamp.is_some() => Phase::Running,
        state if state.target_node_address.is_some() => Phase::TargetReady,
        _ => Phase::PreparingTarget,
    };
    // Nodes pass this one in no time; only one that does not go on is worth a write.
    let since = draft.since(Phase::PreparingTarget).unwrap_or(view.now);
    if phase == Phase::TargetReady
        && let Some(rest) = rest(PATIENCE, since, view.now)
    {
        return plan.report(draft.status).look_again_after(rest);
    }
    draft.enter(phase);
    plan.report(draft.status)
}

fn rest(patience: Duration, since: Timestamp, now: Timestamp) -> Option<Duration> {
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    patience.checked_sub(waited).filter(|rest| !rest.is_zero())
}

/// The guest is the target's. What the move was made for may have to be plugged first.
fn succeed(view: &View, vmi: &VirtualMachineInstance, state: &MigrationState) -> Decision {
    let holds = |r#type: &str| {
        let conditions = vmi.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        find_condition(conditions, r#type).is_some_and(Condition::is_true)
    };
    let mut draft = Draft::of(view);
    if [conditions::HOT_VCPU_CHANGE, conditions::HOT_MEMORY_CHANGE, conditions::MIGRATION_REQUIRED]
        .into_iter()
        .any(holds)
    {
        draft.enter(Phase::Running);
        return Plan::nothing().report(draft.status);
    }
    draft.enter(Phase::Succeeded).keep(Some(state));
    let node = state.target_node.as_deref().unwrap_or_default();
    let note = Note::normal("SuccessfulMigration", format!("the guest runs on node {node}"));
    Plan::nothing().then(Action::Tell(note)).report(draft.status)
}

// ---- the end ----

/// Ends the move. The guest is where it was, or its own object says what became of it.
fn fail(view: &View, state: Option<&MigrationState>, reason: &str, message: &str) -> Decision {
    let mut draft = Draft::of(view);
    draft.keep(state).fail(view.uid(), reason, message);
    let plan = match target_of(view).filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        Some(pod) => Plan::nothing().then(Action::DeleteTarget(pod.clone())),
        None => Plan::nothing(),
    };
    let plan = plan.then(Action::Tell(Note::warning("FailedMigration", message)));
    // The nodes tell it at the guest, if they knew of the move. Its end and its user's own wish are no news there.
    let vmi = view.guest().filter(|vmi| state.is_none() && fatal(view, vmi).is_none());
    let plan = match vmi {
        Some(vmi) => plan.then(Action::TellGuest(vmi.clone(), act::failed(message))),
        None => plan,
    };
    plan.report(draft.status)
}

fn after_the_end(view: &View, vmi: &VirtualMachineInstance) -> Decision {
    let leftover = target_of(view).filter(|pod| {
        let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
        let is_there = node.is_some() && pod.node_name.as_deref() == node;
        let is_current = is_there && record_of(vmi, view.uid()).is_some();
        view.phase() == Some(Phase::Failed) && !is_current && pod.metadata.deletion_timestamp.is_none()
    });
    if let Some(pod) = leftover {
        return Plan::nothing().then(Action::DeleteTarget(pod.clone()));
    }
    if is_cancelled(view) {
        return match is_held(view) {
            true => Plan::nothing().then(Action::LetGo(view.migration.clone())),
            false => Plan::nothing(),
        };
    }
    let end = |migration| candidate::ended_at(migration).map(|end| (end, migration.metadata.uid.clone()));
    let own = end(&view.migration);
    let newer = view.siblings.iter().filter(|sibling| end(sibling).is_some_and(|other| Some(other) > own)).count();
    match newer >= HISTORY {
        true => Plan::nothing().then(Action::DeleteMigration(view.migration.clone())),
        false => Plan::nothing(),
    }
}

/// What the status says when an action failed.
pub(super) fn after_failure(view: &View, failure: &Failure) -> Option<Status> {
    let message = failure.message();
    let mut draft = Draft::of(view);
    if failure.category() == Category::Forbidden && message.contains("exceeded quota") {
        draft.enter(Phase::Pending);
        draft.set(conditions::MIGRATION_REJECTED_BY_QUOTA, ConditionStatus::True, "ExceededQuota", &message);
        return Some(draft.status);
    }
    if failure.category() == Category::Invalid && view.phase().is_none_or(|phase| phase == Phase::Pending) {
        draft.fail(view.uid(), "FailedCreate", &message);
        return Some(draft.status);
    }
    None
}

fn with_first(action: Action, mut plan: Decision) -> Decision {
    plan.actions.insert(0, action);
    plan
}

fn name_of(pod: &LauncherPod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
