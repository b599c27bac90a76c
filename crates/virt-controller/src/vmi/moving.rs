//! What a move means for a guest's pods: which of them it may be in, and which it has left behind. Pure.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::conditions;
use ferrovirt_api::vmi::{MigrationMode, MigrationState, VirtualMachineInstanceStatus as Status};
use ferrovirt_pods::{LauncherPod, pod_name};
use jiff::Timestamp;

use super::pod_state;

/// How long a source that has given its guest away may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(60);

fn node_of(pod: &LauncherPod) -> Option<&str> {
    pod.node_name.as_deref()
}

/// Whether the guest has moved: it names the target's node.
fn has_moved(status: &Status, state: &MigrationState) -> bool {
    status.node_name.is_some() && status.node_name == state.target_node
}

/// Whether a move was handed to the nodes and has not ended: the guest may be in either pod.
pub(super) fn is_open(status: &Status) -> bool {
    let state = status.migration_state.as_ref();
    state.is_some_and(|state| !state.failed && !state.completed && !has_moved(status, state))
}

/// Whether the guest can have come to the pod: it is no target that no node was told of, on whatever node that is.
fn is_told_of(status: &Status, pod: &LauncherPod) -> bool {
    let handed_off = status.migration_state.as_ref().and_then(|state| state.migration_uid.as_deref());
    let is_recorded = pod.metadata.uid.as_ref().is_some_and(|uid| status.active_pods.contains_key(uid));
    is_recorded || pod.migration_uid().is_none_or(|uid| Some(uid) == handed_off)
}

/// Pods that the guest may be in, as far as its object says, while no move is open.
pub(super) fn homes<'a>(
    status: &'a Status,
    pods: &'a [Arc<LauncherPod>],
) -> impl Iterator<Item = &'a Arc<LauncherPod>> {
    let state = status.migration_state.as_ref().filter(|state| has_moved(status, state));
    let left = state.and_then(|state| state.source_pod.as_deref());
    pods.iter().filter(move |pod| {
        let is_there = status.node_name.is_some() && node_of(pod) == status.node_name.as_deref();
        let is_left = left.is_some() && pod.metadata.name.as_deref() == left;
        (is_there && is_told_of(status, pod)) || (pod.migration_uid().is_none() && !is_left)
    })
}

/// Pods that count as the guest's: not a target that no node was told of yet.
pub(super) fn involved(status: &Status, pods: &[Arc<LauncherPod>]) -> Vec<Arc<LauncherPod>> {
    pods.iter().filter(|pod| is_told_of(status, pod)).cloned().collect()
}

/// The names that the guest's pod may have, besides those that are in sight.
pub(super) fn names(vmi: &VirtualMachineInstance, status: &Status, pods: &[Arc<LauncherPod>]) -> Vec<String> {
    let state = status.migration_state.as_ref();
    let recorded = state.into_iter().flat_map(|state| [&state.source_pod, &state.target_pod]).flatten().cloned();
    let mut names: Vec<String> = std::iter::once(pod_name(vmi)).chain(recorded).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| pods.iter().all(|pod| pod.metadata.name.as_ref() != Some(name)));
    names
}

/// Whether the pod waits for its guest with a readiness gate that nobody has opened.
pub(super) fn is_gated(pod: &LauncherPod) -> bool {
    pod.waits_for_guest && pod_state::condition(pod, conditions::POD_UNPAUSED).is_none_or(|gate| gate.status != "True")
}

/// The pod whose readiness gate can be opened: the guest runs in it, and Services send nothing to the pod that it has left. They may
/// do so a little longer while the target fetches memory from there: a part of the traffic is better than none.
pub(super) fn arrived<'a>(status: &Status, pods: &'a [Arc<LauncherPod>]) -> Option<&'a Arc<LauncherPod>> {
    let is_there = |pod: &LauncherPod| status.node_name.is_some() && node_of(pod) == status.node_name.as_deref();
    let state = status.migration_state.as_ref();
    let serves = |pod: &Arc<LauncherPod>| {
        !pod.has_ended()
            && pod.metadata.deletion_timestamp.is_none()
            && pod_state::condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
    };
    let is_fetching = state.is_some_and(|state| state.mode == Some(MigrationMode::PostCopy));
    if !is_fetching && pods.iter().any(|pod| !is_there(pod) && serves(pod)) {
        return None;
    }
    pods.iter().find(|pod| {
        is_there(pod)
            && is_gated(pod)
            && pod.metadata.deletion_timestamp.is_none()
            && !pod.has_ended()
            && state.is_some_and(|state| has_moved(status, state) && state.target_pod == pod.metadata.name)
    })
}

/// The pod that the guest has left.
#[derive(Debug, PartialEq)]
pub(super) enum LeftBehind<'a> {
    /// There is none, or it is on its way out.
    Nothing,
    /// It can go.
    Over(&'a Arc<LauncherPod>),
    /// It gets this long to end by itself.
    Ending(Duration),
}

/// A source ends by itself when it has heard that the target runs the guest. One that has not, because its handler is gone, is ended;
/// but never while the target may still fetch memory from it.
pub(super) fn left_behind<'a>(status: &Status, pods: &'a [Arc<LauncherPod>], now: Timestamp) -> LeftBehind<'a> {
    let Some(state) = status.migration_state.as_ref().filter(|state| has_moved(status, state)) else {
        return LeftBehind::Nothing;
    };
    let is_left = |pod: &&Arc<LauncherPod>| {
        pod.metadata.name.is_some()
            && pod.metadata.name == state.source_pod
            && node_of(pod) != status.node_name.as_deref()
            && pod.metadata.deletion_timestamp.is_none()
    };
    let Some(pod) = pods.iter().find(is_left) else { return LeftBehind::Nothing };
    if pod.has_ended() {
        return LeftBehind::Over(pod);
    }
    if state.mode == Some(MigrationMode::PostCopy) {
        return LeftBehind::Nothing;
    }
    let end = state.end_timestamp.as_ref().map_or(now, |end| end.0);
    let waited = Duration::try_from(now.duration_since(end)).unwrap_or_default();
    match PATIENCE.checked_sub(waited).filter(|rest| !rest.is_zero()) {
        Some(rest) => LeftBehind::Ending(rest),
        None => LeftBehind::Over(pod),
    }
}
