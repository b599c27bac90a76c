//! What a launcher pod's status means for its guest.

use ferrovirt_api::names::reasons;
use ferrovirt_launcher_rpc::messages::FinalWords;
use ferrovirt_pods::{COMPUTE, LauncherPod};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodCondition, PodStatus};

/// Waiting reasons that pass by themselves, unless there is something to say about them.
const PATIENT_REASONS: [&str; 3] = ["ContainerCreating", "PodInitializing", ""];

/// A launcher pod before its guest was handed over.
#[derive(Debug, PartialEq)]
pub(crate) enum PodState {
    /// On its way: nothing to tell.
    Starting,
    /// No node takes it.
    Unschedulable {
        /// The scheduler's word.
        reason: String,
        /// The scheduler's sentence.
        message: String,
    },
    /// On a node, and something fails there that may pass.
    Troubled {
        /// The node's word, such as `ErrImagePull`.
        reason: String,
        /// The node's sentence.
        message: String,
    },
    /// The launcher runs on this node.
    Running {
        /// The node.
        node: String,
    },
    /// It ended, or is on its way out.
    Ended {
        /// Why, for people.
        why: String,
    },
}

pub(crate) fn state_of(pod: &LauncherPod) -> PodState {
    let default = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&default);
    if pod.has_ended() || pod.metadata.deletion_timestamp.is_some() {
        return PodState::Ended { why: last_words(pod, status) };
    }
    let node = pod.node_name.clone().filter(|node| !node.is_empty());
    let Some(node) = node else { return unplaced(status) };
    if let Some((reason, message)) = trouble(status) {
        return PodState::Troubled { reason, message };
    }
    if is_running(status) { PodState::Running { node } } else { PodState::Starting }
}

/// The pod's condition of a type.
pub(crate) fn condition<'a>(pod: &'a LauncherPod, r#type: &str) -> Option<&'a PodCondition> {
    find(pod.status.as_ref()?, r#type)
}

fn find<'a>(status: &'a PodStatus, r#type: &str) -> Option<&'a PodCondition> {
    status.conditions.as_ref()?.iter().find(|condition| condition.type_ == r#type)
}

fn unplaced(status: &PodStatus) -> PodState {
    match find(status, "PodScheduled") {
        Some(scheduled) if scheduled.status == "False" => PodState::Unschedulable {
            reason: scheduled.reason.clone().unwrap_or_else(|| reasons::UNSCHEDULABLE.to_owned()),
            message: scheduled.message.clone().unwrap_or_default(),
        },
        _ => PodState::Starting,
    }
}

/// The first container that waits for something that does not pass by itself.
fn trouble(status: &PodStatus) -> Option<(String, String)> {
    let waiting = containers(status).filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    let is_patient = |reason: &Option<String>| PATIENT_REASONS.contains(&reason.as_deref().unwrap_or_default());
    let has_words = |message: &Option<String>| message.as_ref().is_some_and(|message| !message.is_empty());
    let mut troubled = waiting.filter(|waiting| !is_patient(&waiting.reason) || has_words(&waiting.message));
    let waiting = troubled.next()?;
    Some((waiting.reason.clone().unwrap_or_default(), waiting.message.clone().unwrap_or_default()))
}

fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.init_container_statuses.iter().chain(&status.container_statuses).flatten()
}

/// The launcher runs, and everything next to it is ready. Whether the launcher is *ready* does not matter: its readiness probe asks
/// the guest, which does not run before it is handed over.
fn is_running(status: &PodStatus) -> bool {
    let is_up = |container: &ContainerStatus| match container.name.as_str() {
        COMPUTE => container.state.as_ref().is_some_and(|state| state.running.is_some()),
        _ => container.ready,
    };
    let mut statuses = status.container_statuses.iter().flatten();
    status.phase.as_deref() == Some("Running")
        && statuses.clone().any(|container| container.name == COMPUTE)
        && statuses.all(is_up)
}

/// Why a pod ended, from whoever knows best: the launcher's last words, the container's exit, the pod's own reason.
fn last_words(pod: &LauncherPod, status: &PodStatus) -> String {
    let terminated = containers(status).filter(|container| container.name == COMPUTE);
    let terminated = terminated.filter_map(|container| container.state.as_ref()?.terminated.as_ref()).next();
    if let Some(terminated) = terminated {
        return exit("virt-launcher", terminated);
    }
    match (status.reason.as_deref(), status.message.as_deref()) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(reason), None) => reason.to_owned(),
        (None, Some(message)) => message.to_owned(),
        (None, None) if pod.metadata.deletion_timestamp.is_some() => "it was deleted".to_owned(),
        (None, None) => failed_before(status).unwrap_or_else(|| "its launcher ended".to_owned()),
    }
}

/// What had to be done before the launcher could start, and was not. What goes on after its end comes back.
fn failed_before(status: &PodStatus) -> Option<String> {
    let mut ended = status.init_container_statuses.iter().flatten().filter_map(|container| {
        Some((&container.name, container.state.as_ref()?.terminated.as_ref().filter(|end| end.exit_code != 0)?))
    });
    ended.next().map(|(name, terminated)| exit(&format!("container {name}"), terminated))
}

fn exit(who: &str, terminated: &ContainerStateTerminated) -> String {
    let message = terminated.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
    let code = format!("{who} ended with exit code {}", terminated.exit_code);
    match message {
        Some(message) => match serde_json::from_str::<FinalWords>(message) {
            Ok(words) => words.message,
            // Anything else is the end of its log; the newest line says most.
            Err(_) => format!("{code}: {}", message.lines().last().unwrap_or(message)),
        },
        None => match terminated.reason.as_deref().filter(|reason| !matches!(*reason, "Error" | "Completed")) {
            Some(reason) => format!("{code}: {reason}"),
            None => code,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(spec: &Value, status: &Value) -> PodState {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": status});
        pod["spec"]["nodeName"] = spec.clone();
        state_of(&serde_json::from_value(pod).unwrap())
    }

    fn compute(state: &Value) -> Value {
        json!({"name": "compute", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    #[test]
    fn a_new_pod_starts() {
        assert_eq!(state(&Value::Null, &json!({"phase": "Pending"})), PodState::Starting);
        assert_eq!(state(&json!("n"), &json!({"phase": "Pending"})), PodState::Starting);
        let creating = compute(&json!({"waiting": {"reason": "ContainerCreating"}}));
        assert_eq!(
            state(&json!("n"), &json!({"phase": "Pending", "containerStatuses": [creating]})),
            PodState::Starting
        );
    }

    #[test]
    fn a_running_launcher_need_not_be_ready_but_its_neighbours_must() {
        let running = compute(&json!({"running": {}}));
        let status = json!({"phase": "Running", "containerStatuses": [running.clone()]});
        assert_eq!(state(&json!("n"), &status), PodState::Running { node: "n".into() });
        let mut neighbour = running.clone();
        neighbour["name"] = json!("helper");
        let status = json!({"phase": "Running", "containerStatuses": [running, neighbour]});
        assert_eq!(state(&json!("n"), &status), PodState::Starting);
        assert_eq!(state(&json!("n"), &json!({"phase": "Running"})), PodState::Starting);
    }

    #[test]
    fn the_schedulers_and_the_nodes_words_are_kept() {
        let unplaced = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]});
        let expected = PodState::Unschedulable { reason: "Unschedulable".into(), message: "full".into() };
        assert_eq!(state(&Value::Null, &unplaced), expected);
        let waiting = compute(&json!({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}));
        let expected = PodState::Troubled { reason: "ErrImagePull".into(), message: "no such image".into() };
        assert_eq!(state(&json!("n"), &json!({"phase": "Pending", "containerStatuses": [waiting]})), expected);
        let waiting =
            compute(&json!({"waiting": {"reason": "ContainerCreating", "message": "secret \"s\" not found"}}));
        let expected =
            PodState::Troubled { reason: "ContainerCreating".into(), message: "secret \"s\" not found".into() };
        assert_eq!(state(&json!("n"), &json!({"phase": "Pending", "containerStatuses": [waiting]})), expected);
    }

    #[test]
    fn an_end_is_explained_by_whoever_knows_best() {
        let ended = |terminated: Value| {
            let container = compute(&json!({"terminated": terminated}));
            match state(&json!("n"), &json!({"phase": "Failed", "containerStatuses": [container]})) {
                PodState::Ended { why } => why,
                other => panic!("{other:?}"),
            }
        };
        // A container that somebody has added runs on.
        let alone = compute(&json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}));
        let added = json!({"phase": "Running", "containerStatuses": [alone, {"name": "mesh", "ready": true}]});
        assert!(matches!(state(&json!("n"), &added), PodState::Ended { .. }));
        let words = r#"{"reason":"failed","message":"libvirt did not start"}"#;
        assert_eq!(ended(json!({"exitCode": 1, "message": words})), "libvirt did not start");
        let log = "first\nlast line\n";
        assert_eq!(ended(json!({"exitCode": 2, "message": log})), "virt-launcher ended with exit code 2: last line");
        assert_eq!(
            ended(json!({"exitCode": 137, "reason": "OOMKilled"})),
            "virt-launcher ended with exit code 137: OOMKilled"
        );
        assert_eq!(ended(json!({"exitCode": 0, "reason": "Completed"})), "virt-launcher ended with exit code 0");
        let mut first = compute(&json!({"terminated": {"exitCode": 1, "message": "no room\n"}}));
        first["name"] = json!("first");
        let failed = json!({"phase": "Failed", "initContainerStatuses": [first]});
        let expected = PodState::Ended { why: "container first ended with exit code 1: no room".into() };
        assert_eq!(state(&json!("n"), &failed), expected);
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"});
        assert_eq!(state(&json!("n"), &evicted), PodState::Ended { why: "Evicted: the node was low on memory".into() });
    }
}
