//! The judgement about one guest: from a view to a plan. No IO, no clock. The table is drawn in the [module](super)'s page.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::meta::{Condition, ConditionStatus, QosClass, find_condition};
use ferrovirt_api::names::{conditions, finalizers, reasons};
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_pods::{LauncherPod, claims_of, launcher_pod, pod_name};
use ferrovirt_reconcile::controller::Failure;
use ferrovirt_reconcile::{Note, Plan};

use super::conditions::Draft;
use super::hand_over;
use super::moving::{self, LeftBehind};
use super::pod_state::{self, PodState, state_of};
use super::unaccounted::Account;
use super::{Action, Record, View};

type Decision = Plan<Action, Record>;

/// How long a pod may take to start before the guest's object says that it is being placed. Less costs a write for each start,
/// more leaves people wondering.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// The plan for a guest.
pub fn decide(view: &View) -> Decision {
    if view.vmi.metadata.deletion_timestamp.is_some() {
        return leave(view);
    }
    match phase(view) {
        Phase::Pending | Phase::Scheduling => before_hand_over(view),
        Phase::Scheduled | Phase::Running | Phase::Unknown => after_hand_over(view),
        Phase::Succeeded | Phase::Failed => after_the_end(view),
        // A receiver from another cluster is moved on by its migration.
        Phase::WaitingForSync => Plan::nothing(),
    }
}

fn phase(view: &View) -> Phase {
    view.record.status.phase.unwrap_or(Phase::Pending)
}

fn before_hand_over(view: &View) -> Decision {
    let Some(pod) = first_pod(view) else {
        return match phase(view) {
            Phase::Scheduling => pod_vanished(view, Draft::of(view)),
            _ => create(view),
        };
    };
    match state_of(pod) {
        PodState::Ended { why } => ended_early(view, pod, &why),
        PodState::Running { node } => hand_over(view, pod, &node),
        PodState::Starting => wait(view, pod),
        PodState::Unschedulable { reason, message } => {
            let message = with_missing_labels(message, &view.missing_node_labels);
            scheduling(view, pod, Some(&Trouble { condition: conditions::POD_SCHEDULED, reason, message }))
        }
        PodState::Troubled { reason, message } => {
            scheduling(view, pod, Some(&Trouble { condition: conditions::SYNCHRONIZED, reason, message }))
        }
    }
}

/// The pod that the guest starts in: the one with the derived name. Anybody who makes pods can call the guest its owner.
fn first_pod(view: &View) -> Option<&Arc<LauncherPod>> {
    let name = pod_name(&view.vmi);
    view.pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(&name))
}

fn create(view: &View) -> Decision {
    let missing: Vec<&str> = missing_claims(view).collect();
    if !missing.is_empty() {
        let messages = missing.iter().map(|claim| format!("persistentvolumeclaim \"{claim}\" not found"));
        return cannot_create(view, reasons::FAILED_PVC_NOT_FOUND, &messages.collect::<Vec<_>>().join(", "));
    }
    match launcher_pod(&view.vmi, &view.cluster.launcher_config(&view.claims)) {
        Ok(pod) => Plan::nothing().then(Action::CreatePod(Box::new(pod))),
        Err(unsupported) => cannot_create(view, reasons::FAILED_CREATE, &unsupported.to_string()),
    }
}

fn missing_claims(view: &View) -> impl Iterator<Item = &str> {
    view.claims.iter().filter(|(_, claim)| claim.is_none()).map(|(name, _)| name.as_str())
}

/// Stays `Pending` and says why.
fn cannot_create(view: &View, reason: &str, message: &str) -> Decision {
    let mut draft = Draft::of(view);
    hold(&mut draft);
    draft.enter(Phase::Pending);
    draft.set(conditions::SYNCHRONIZED, ConditionStatus::False, reason, message);
    draft.set(conditions::READY, ConditionStatus::False, reasons::POD_NOT_EXISTS, "the launcher pod does not exist");
    let data_volumes = view.vmi.spec.volumes.iter().filter_map(|volume| volume.data_volume.as_ref());
    let unfilled = data_volumes.filter(|data| view.claims.get(&data.name).is_none_or(Option::is_none)).count();
    if unfilled > 0 {
        let message = format!("{unfilled} data volumes have no claim yet");
        draft.set(conditions::DATA_VOLUMES_READY, ConditionStatus::False, reasons::NOT_ALL_DVS_READY, &message);
    }
    report(view, draft, Some(Note::warning(reason, message)), conditions::SYNCHRONIZED)
}

/// Something that keeps a pod from starting, and the condition that says so.
struct Trouble {
    condition: &'static str,
    reason: String,
    message: String,
}

/// A pod that is neither up nor in trouble gets a moment before anybody hears of it.
fn wait(view: &View, pod: &LauncherPod) -> Decision {
    let created = pod.metadata.creation_timestamp.as_ref().map_or(view.now, |created| created.0);
    let age = Duration::try_from(view.now.duration_since(created)).unwrap_or_default();
    match PATIENCE.checked_sub(age).filter(|rest| !rest.is_zero()) {
        Some(rest) if phase(view) == Phase::Pending => Plan::nothing().look_again_after(rest),
        _ => scheduling(view, pod, None),
    }
}

fn scheduling(view: &View, pod: &LauncherPod, trouble: Option<&Trouble>) -> Decision {
    let mut draft = Draft::of(view);
    hold(&mut draft);
    let created = pod.metadata.creation_timestamp.clone();
    let since = created.unwrap_or_else(|| draft.now());
    draft.stamp(Phase::Scheduling, since);
    draft.enter(Phase::Scheduling);
    draft.set(
        conditions::READY,
        ConditionStatus::False,
        reasons::GUEST_NOT_RUNNING,
        "the launcher pod has not started yet",
    );
    for condition in [conditions::POD_SCHEDULED, conditions::SYNCHRONIZED] {
        match trouble.filter(|trouble| trouble.condition == condition) {
            Some(trouble) => draft.set(condition, ConditionStatus::False, &trouble.reason, &trouble.message),
            None => draft.remove(condition),
        }
    }
    let pending: Vec<&str> = pending_claims(view).collect();
    match pending.is_empty() {
        true => draft.remove(conditions::PROVISIONING),
        false => {
            let message = format!("waiting for claims to be bound: {}", pending.join(", "));
            draft.set(conditions::PROVISIONING, ConditionStatus::True, "", &message);
        }
    }
    let note = trouble.map(|trouble| Note::warning(&trouble.reason, &trouble.message));
    let condition = trouble.map_or(conditions::SYNCHRONIZED, |trouble| trouble.condition);
    let mut plan = report(view, draft, note, condition);
    if phase(view) == Phase::Pending {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let created = Note::normal("SuccessfulCreate", format!("Created virtual machine pod {name}"));
        plan.actions.insert(0, Action::Tell(created));
    }
    plan
}

fn pending_claims(view: &View) -> impl Iterator<Item = &str> {
    let is_pending = |(_, claim): &(&str, &str)| {
        let claim = view.claims.get(*claim).and_then(Option::as_ref);
        claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Pending")
    };
    claims_of(&view.vmi).filter(is_pending).map(|(_, claim)| claim)
}

fn with_missing_labels(message: String, missing: &[String]) -> String {
    match missing {
        [] => message,
        labels => format!("{message} (no node has the label {})", labels.join(", nor ")),
    }
}

fn hand_over(view: &View, pod: &LauncherPod, node: &str) -> Decision {
    let is_dedicated = view.vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement);
    if is_dedicated && hand_over::qos_class(pod) != Some(QosClass::Guaranteed) {
        let message = "the guest wants processors of its own, but its pod's limits do not equal its requests; \
                       give cpu and memory no requests, or equal limits";
        let reason = reasons::FAILED_GUARANTEE_RESOURCES.to_owned();
        let trouble = Trouble { condition: conditions::SYNCHRONIZED, reason, message: message.to_owned() };
        return scheduling(view, pod, Some(&trouble));
    }
    let mut draft = Draft::of(view);
    draft.record = hand_over::to_node(view, pod, node);
    settle(view, &mut draft);
    hold(&mut draft);
    Plan::nothing().report(draft.record)
}

/// The pod ended before virt-handler was told of the guest: nobody else will say so.
fn ended_early(view: &View, pod: &LauncherPod, why: &str) -> Decision {
    let mut draft = Draft::of(view);
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let message = format!("launcher pod {name} ended before the guest started: {why}");
    draft.enter(Phase::Failed);
    draft.set(conditions::SYNCHRONIZED, ConditionStatus::False, reasons::FAILED_HAND_OVER, &message);
    draft.set(conditions::READY, ConditionStatus::False, reasons::POD_TERMINATING, "the launcher pod has ended");
    draft.remove(conditions::POD_SCHEDULED);
    draft.remove(conditions::PROVISIONING);
    report(view, draft, Some(Note::warning(reasons::FAILED_HAND_OVER, message)), conditions::SYNCHRONIZED)
}

/// Nobody is left to say how the guest ended, once it is certain that nothing of it runs.
fn pod_vanished(view: &View, mut draft: Draft) -> Decision {
    let account = settle(view, &mut draft);
    if !account.missing.is_empty() {
        return await_word(view, draft);
    }
    let message = "the launcher pod vanished; somebody deleted it, or its node is gone";
    draft.enter(Phase::Failed);
    draft.set(conditions::READY, ConditionStatus::False, reasons::POD_NOT_EXISTS, message);
    draft.remove(conditions::POD_SCHEDULED);
    draft.remove(conditions::PROVISIONING);
    draft.record.status.reason = Some(reasons::POD_NOT_EXISTS.to_owned());
    draft.record.status.active_pods.retain(|uid, _| !account.fenced.contains_key(uid));
    let note = Note::warning(reasons::POD_NOT_EXISTS, message);
    confirm_settled(view, &account).then(Action::Tell(note)).report(draft.record)
}

fn account(view: &View) -> Account {
    Account::of(&view.vmi, &view.record.status.active_pods, &view.pods, &view.known)
}

/// Strikes out of the ledger what is certain to have ended; asks and says so where something is missing.
fn settle(view: &View, draft: &mut Draft) -> Account {
    let account = account(view);
    draft.record.status.active_pods.retain(|uid, _| !account.settled.contains(uid));
    tell_missing(view, draft, &account);
    account
}

fn tell_missing(view: &View, draft: &mut Draft, account: &Account) {
    draft.record.asked_node = account.asked().cloned();
    if account.missing.is_empty() {
        return draft.remove(conditions::POD_UNACCOUNTED);
    }
    let message = account.message(view.vmi.metadata.name.as_deref().unwrap_or_default());
    draft.set(conditions::POD_UNACCOUNTED, ConditionStatus::True, reasons::POD_NOT_EXISTS, &message);
}

/// The pods are gone, and something of them may run: the guest's object stays as it is until somebody knows.
fn await_word(view: &View, mut draft: Draft) -> Decision {
    update_ready(view, &mut draft);
    let plan = with_news_of_missing(view, &draft);
    plan.report(draft.record)
}

/// That a pod is missing is told once, and not on the word of a cache.
fn with_news_of_missing(view: &View, draft: &Draft) -> Decision {
    let before = find_condition(&view.record.status.conditions, conditions::POD_UNACCOUNTED);
    match draft.get(conditions::POD_UNACCOUNTED) {
        Some(missing) if Some(said(missing)) != before.map(said) => {
            let message = missing.message.clone().unwrap_or_default();
            confirm_gone(view).then(Action::Tell(Note::warning(conditions::POD_UNACCOUNTED, message)))
        }
        _ => Plan::nothing(),
    }
}

/// What cannot be taken back follows: pods that have no object in the cache have none, and fenced nodes are fenced.
fn confirm_settled(view: &View, account: &Account) -> Decision {
    with_fence(confirm_gone(view), account)
}

fn with_fence(plan: Decision, account: &Account) -> Decision {
    let mut nodes: Vec<String> = account.fenced.values().cloned().collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() { plan } else { plan.then(Action::ConfirmFenced(nodes)) }
}

fn confirm_gone(view: &View) -> Decision {
    let owner = view.vmi.metadata.uid.clone().unwrap_or_default();
    let pods = moving::names(&view.vmi, &view.record.status, &view.pods);
    Plan::nothing().then(Action::ConfirmGone { pods, owner })
}

/// The guest is virt-handler's. What is left to say here is whether its pod serves, and which pods there are.
fn after_hand_over(view: &View) -> Decision {
    let mut draft = Draft::of(view);
    let is_open = moving::is_open(&draft.record.status);
    if moving::homes(&draft.record.status, &view.pods).next().is_none() {
        if !is_open || view.pods.is_empty() {
            return pod_vanished(view, draft);
        }
        // The target may have the guest. Its handler says so, once it is asked for the end of the move.
        if let Some(state) = &mut draft.record.status.migration_state {
            state.abort_requested = true;
        }
    }
    update_ready(view, &mut draft);
    update_eviction(view, &mut draft);
    let account = account(view);
    tell_missing(view, &mut draft, &account);
    let known = &draft.record.status.active_pods;
    let mut active = known.clone();
    // A node that is fenced may be let back later, and then nobody knows any more.
    active.retain(|uid, _| !account.settled.contains(uid) && !account.fenced.contains_key(uid));
    active.extend(hand_over::active_pods(&moving::involved(&draft.record.status, &view.pods)));
    // A pod that has ended is no news worth a write: the guest's end will say so. After a move nothing else would.
    let has_moved = draft.record.status.migration_state.is_some() && !is_open;
    if active.keys().any(|uid| !known.contains_key(uid))
        || ((has_moved || !account.fenced.is_empty()) && active != *known)
    {
        draft.record.status.active_pods = active;
    }
    let mut plan = with_fence(with_news_of_missing(view, &draft), &account).report(draft.record);
    if let Some(pod) = moving::arrived(&view.record.status, &view.pods) {
        plan = plan.then(Action::OpenGate(pod.clone()));
    }
    match moving::left_behind(&view.record.status, &view.pods, view.now) {
        LeftBehind::Nothing => plan,
        LeftBehind::Ending(rest) => plan.look_again_after(rest),
        LeftBehind::Over(pod) => plan.then(Action::DeleteSource(pod.clone())),
    }
}

/// A guest that was asked to leave its node says so, and why it does not, if it cannot.
fn update_eviction(view: &View, draft: &mut Draft) {
    let is_marked = view.record.status.evacuation_node_name.as_ref().is_some_and(|node| !node.is_empty());
    if !is_marked {
        return draft.remove(conditions::EVICTION_REQUESTED);
    }
    let stuck = find_condition(&view.record.status.conditions, conditions::LIVE_MIGRATABLE);
    let stuck = stuck.filter(|movable| movable.status == ConditionStatus::False);
    let message = stuck.map_or_else(String::new, |stuck| {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        format!(
            "the guest cannot move: {}: {}; stop it, or change what keeps it",
            text(&stuck.reason),
            text(&stuck.message)
        )
    });
    draft.set(conditions::EVICTION_REQUESTED, ConditionStatus::True, reasons::EVICTION_REQUESTED, &message);
}

/// The guest has ended. What was seen of its pods is written down: who saw it may not be there when the object is deleted.
fn after_the_end(view: &View) -> Decision {
    let mut draft = Draft::of(view);
    let account = account(view);
    let in_sight = |uid: &String| view.pods.iter().any(|pod| pod.metadata.uid.as_ref() == Some(uid));
    let is_certain =
        |uid: &String| account.fenced.contains_key(uid) || (account.settled.contains(uid) && !in_sight(uid));
    draft.record.status.active_pods.retain(|uid, _| !is_certain(uid));
    update_ready(view, &mut draft);
    with_fence(Plan::nothing(), &account).report(draft.record)
}

/// Sets `Ready` when its value is wrong. Of a running guest the reason counts too; before and after, one `False` is like another.
fn update_ready(view: &View, draft: &mut Draft) {
    let (status, reason, message) = readiness(view);
    let is_running = phase(view) == Phase::Running;
    let is_right = match draft.get(conditions::READY) {
        Some(ready) => {
            let same_reason = ready.reason.as_deref().unwrap_or_default() == reason;
            ready.status == status && (same_reason || !is_running || status == ConditionStatus::True)
        }
        None => !is_running,
    };
    if !is_right {
        draft.set(conditions::READY, status, &reason, &message);
    }
}

/// Whether the guest serves: as its pod does, once it runs.
fn readiness(view: &View) -> (ConditionStatus, String, String) {
    let no = |reason: &str, message: &str| (ConditionStatus::False, reason.to_owned(), message.to_owned());
    let Some(pod) = current_pod(view) else {
        return no(reasons::POD_NOT_EXISTS, "the launcher pod does not exist");
    };
    if pod.metadata.deletion_timestamp.is_some() || pod.has_ended() {
        return no(reasons::POD_TERMINATING, "the launcher pod is on its way out");
    }
    let is_paused = find_condition(&view.record.status.conditions, conditions::PAUSED).is_some_and(Condition::is_true);
    if phase(view) != Phase::Running || is_paused {
        return no(reasons::GUEST_NOT_RUNNING, "the guest does not run");
    }
    // A gate that is about to be opened says nothing about the guest.
    let containers = pod_state::condition(pod, "ContainersReady").filter(|_| moving::is_gated(pod));
    match containers.or_else(|| pod_state::condition(pod, "Ready")) {
        Some(ready) => (
            ready.status.parse().unwrap_or(ConditionStatus::Unknown),
            ready.reason.clone().unwrap_or_default(),
            ready.message.clone().unwrap_or_default(),
        ),
        None => no(reasons::POD_CONDITION_MISSING, "the launcher pod does not say whether it is ready"),
    }
}

/// The pod on the node that owns the guest.
fn current_pod(view: &View) -> Option<&Arc<LauncherPod>> {
    let node = view.record.status.node_name.as_deref();
    let is_there = |pod: &&Arc<LauncherPod>| pod.node_name.as_deref() == node;
    // Of several, the one that lives.
    let mut there: Vec<_> = view.pods.iter().filter(|_| node.is_some()).filter(is_there).collect();
    there.sort_by_key(|pod| pod.has_ended());
    there.first().copied().or_else(|| first_pod(view))
}

/// A deleted guest: its pods first, then its finalizer.
fn leave(view: &View) -> Decision {
    let mut draft = Draft::of(view);
    if view.pods.is_empty() {
        let account = settle(view, &mut draft);
        return match account.missing.is_empty() {
            true => let_go(view, draft, &account),
            false => await_word(view, draft),
        };
    }
    tell_missing(view, &mut draft, &account(view));
    update_ready(view, &mut draft);
    let staying = view.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let plan = staying.fold(Plan::nothing(), |plan, pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let note = Note::normal("SuccessfulDelete", format!("Deleted virtual machine pod {name}"));
        plan.then(Action::DeletePod(pod.clone())).then(Action::Tell(note))
    });
    plan.report(draft.record)
}

/// No pod is left, and nothing of one runs: the guest has ended, and nothing holds its object any more.
fn let_go(view: &View, mut draft: Draft, account: &Account) -> Decision {
    let is_ours = |finalizer: &String| [finalizers::VMI, finalizers::VMI_OLD].contains(&finalizer.as_str());
    if !draft.record.finalizers.iter().any(is_ours) {
        return Plan::nothing();
    }
    draft.record.finalizers.retain(|finalizer| !is_ours(finalizer));
    if !phase(view).is_final() {
        draft.enter(Phase::Failed);
        draft.record.status.active_pods.clear();
        let message = "the guest was deleted and its launcher pod is gone";
        draft.set(conditions::READY, ConditionStatus::False, reasons::POD_NOT_EXISTS, message);
    }
    confirm_settled(view, account).report(draft.record)
}

/// What the record says when an action failed.
pub(super) fn after_failure(view: &View, failure: &Failure) -> Option<Record> {
    let is_leaving = view.vmi.metadata.deletion_timestamp.is_some();
    let is_ours = is_leaving || matches!(phase(view), Phase::Pending | Phase::Scheduling);
    if failure.category().is_quiet() || !is_ours {
        return None;
    }
    let reason = if is_leaving { reasons::FAILED_DELETE } else { reasons::FAILED_CREATE };
    let mut draft = Draft::of(view);
    draft.set(conditions::SYNCHRONIZED, ConditionStatus::False, reason, &failure.message());
    if view.pods.is_empty() {
        draft.set(
            conditions::READY,
            ConditionStatus::False,
            reasons::POD_NOT_EXISTS,
            "the launcher pod does not exist",
        );
    }
    Some(draft.record)
}

/// Keeps the object until this controller has let go of it, also when nobody did at its creation.
fn hold(draft: &mut Draft) {
    let held = &mut draft.record.finalizers;
    if !held.iter().any(|finalizer| finalizer == finalizers::VMI || finalizer == finalizers::VMI_OLD) {
        held.push(finalizers::VMI.to_owned());
    }
}

/// Reports the draft; the note goes with a `condition` that says something new, once.
fn report(view: &View, draft: Draft, note: Option<Note>, condition: &str) -> Decision {
    let before = find_condition(&view.record.status.conditions, condition);
    let is_news = draft.get(condition).map(said) != before.map(said);
    let plan = Plan::nothing().report(draft.record);
    match note.filter(|_| is_news) {
        Some(note) => plan.then(Action::Tell(note)),
        None => plan,
    }
}

fn said(condition: &Condition) -> (ConditionStatus, Option<String>, Option<String>) {
    (condition.status, condition.reason.clone(), condition.message.clone())
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
