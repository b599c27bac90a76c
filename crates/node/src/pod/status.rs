//! The pod's status as a kubelet reports it, from what became of its containers. No IO, no clock.

use std::net::IpAddr;

use ferrovirt_kubernetes::Pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, ImageVolumeStatus, PodCondition, PodIP, PodSpec, PodStatus, VolumeMountStatus, VolumeStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::lifecycle::{Finished, Next};
use super::record::{ContainerRecord, Stage, Termination};
use crate::oci::{resources, security};

/// Prefix of container ids in a status: which runtime made them.
const RUNTIME: &str = "crun://";

/// Why a container is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: Option<String>,
}

impl Waiting {
    /// A reason with its sentence.
    pub fn new(reason: &str, message: impl Into<Option<String>>) -> Self {
        Self { reason: reason.to_owned(), message: message.into() }
    }
}

/// One container as it is now.
#[derive(Debug, Clone)]
pub struct ContainerFacts<'a> {
    /// As written in the pod.
    pub container: &'a Container,
    /// An init container.
    pub init: bool,
    /// What became of it.
    pub record: &'a ContainerRecord,
    /// Why it does not run, when it does not.
    pub waiting: Option<&'a Waiting>,
    /// Its startup probe, if any, was content.
    pub started: bool,
    /// Its readiness probe, if any, is content.
    pub ready: bool,
}

/// Everything a status tells about.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The pod as last seen.
    pub pod: &'a Pod,
    /// Its containers, init containers first.
    pub containers: &'a [ContainerFacts<'a>],
    /// What comes next.
    pub next: &'a Next,
    /// The node's addresses.
    pub host_addresses: &'a [IpAddr],
    /// The pod's addresses, once it has some.
    pub pod_addresses: &'a [IpAddr],
    /// When the node took the pod up.
    pub start_time: Timestamp,
    /// A reason and message for the whole pod.
    pub rejected: Option<&'a (String, String)>,
    /// Now.
    pub now: Timestamp,
}

/// The status.
pub fn compute(facts: &Facts<'_>) -> PodStatus {
    let phase = phase(facts);
    let list = |init: bool| -> Vec<ContainerStatus> {
        let of_kind = facts.containers.iter().filter(|container| container.init == init);
        of_kind.map(|container| container_status(container, facts.next)).collect()
    };
    let (init, regular) = (list(true), list(false));
    let old = facts.pod.status.clone().unwrap_or_default();
    PodStatus {
        conditions: Some(conditions(facts, phase, &regular)),
        phase: Some(phase.to_owned()),
        reason: facts.rejected.map(|(reason, _)| reason.clone()),
        message: facts.rejected.map(|(_, message)| message.clone()),
        host_ip: facts.host_addresses.first().map(ToString::to_string),
        host_ips: some(facts.host_addresses.iter().map(|ip| HostIP { ip: ip.to_string() }).collect()),
        pod_ip: facts.pod_addresses.first().map(ToString::to_string).or(old.pod_ip),
        pod_ips: some(facts.pod_addresses.iter().map(|ip| PodIP { ip: ip.to_string() }).collect()).or(old.pod_ips),
        start_time: old.start_time.or(Some(Time(facts.start_time))),
        init_container_statuses: some(init),
        container_statuses: some(regular),
        qos_class: facts.pod.spec.as_ref().map(|spec| resources::quality(spec).to_owned()),
        observed_generation: facts.pod.metadata.generation,
        ..PodStatus::default()
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    Some(list).filter(|list| !list.is_empty())
}

/// Whether a phase is the last one.
pub fn is_final(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn phase(facts: &Facts<'_>) -> &'static str {
    if facts.rejected.is_some() {
        return "Failed";
    }
    match facts.next.finished {
        Some(Finished::Succeeded) => return "Succeeded",
        Some(Finished::Failed) => return "Failed",
        None => {}
    }
    let regular = facts.containers.iter().filter(|container| !container.init);
    let mut begun = regular.map(|container| {
        !matches!(container.record.stage, Stage::New | Stage::Creating) || container.record.previous.is_some()
    });
    if facts.next.initialized && begun.all(|begun| begun) { "Running" } else { "Pending" }
}

fn terminated(end: &Termination) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(format!("{RUNTIME}{}", end.id)).filter(|_| !end.id.is_empty()),
            exit_code: end.exit_code,
            finished_at: Some(Time(end.finished_at)),
            message: end.message.clone(),
            reason: Some(end.reason.clone()),
            signal: None,
            started_at: end.started_at.map(Time),
        }),
        ..ContainerState::default()
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    }
}

fn container_status(facts: &ContainerFacts<'_>, next: &Next) -> ContainerStatus {
    let record = facts.record;
    let backing_off = next.backing_off.iter().any(|(name, _)| *name == facts.container.name);
    let (state, before) = match &record.stage {
        Stage::Running { started_at, .. } => {
            let running = ContainerStateRunning { started_at: Some(Time(*started_at)) };
            (ContainerState { running: Some(running), ..ContainerState::default() }, record.previous.as_ref())
        }
        Stage::Ended(end) if backing_off => {
            let message = format!("back-off restarting failed container {}", facts.container.name);
            (waiting("CrashLoopBackOff", Some(message)), Some(end))
        }
        Stage::Ended(end) => match facts.waiting {
            Some(reason) => (waiting(&reason.reason, reason.message.clone()), Some(end)),
            None => (terminated(end), record.previous.as_ref()),
        },
        Stage::New | Stage::Creating => {
            let unready = if !facts.init && !next.initialized { "PodInitializing" } else { "ContainerCreating" };
            let state = match facts.waiting {
                Some(reason) => waiting(&reason.reason, reason.message.clone()),
                None => waiting(unready, None),
            };
            (state, record.previous.as_ref())
        }
    };
    let runs = record.is_running();
    let done = facts.init && record.ended().is_some_and(|end| end.exit_code == 0);
    ContainerStatus {
        name: facts.container.name.clone(),
        image: facts.container.image.clone().unwrap_or_default(),
        image_id: record.image_id.clone(),
        container_id: Some(format!("{RUNTIME}{}", record.id)).filter(|_| !record.id.is_empty()),
        ready: (runs && facts.ready) || done,
        started: Some(runs && facts.started),
        restart_count: i32::try_from(record.attempt).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: Some(before.map(terminated).unwrap_or_default()),
        volume_mounts: Some(image_mounts(facts.container, record)).filter(|mounts| !mounts.is_empty()),
        ..ContainerStatus::default()
    }
}

/// Mounts of images, with the image that each turned out to be: a tag may mean another one tomorrow.
fn image_mounts(container: &Container, record: &ContainerRecord) -> Vec<VolumeMountStatus> {
    let mounts = container.volume_mounts.iter().flatten().filter_map(|mount| {
        let image = ImageVolumeStatus { image_ref: record.volume_images.get(&mount.name)?.clone() };
        Some(VolumeMountStatus {
            mount_path: mount.mount_path.clone(),
            name: mount.name.clone(),
            read_only: Some(true),
            recursive_read_only: Some("Disabled".to_owned()),
            volume_status: Some(VolumeStatus { image: Some(image) }),
        })
    });
    mounts.collect()
}

/// A condition's value and, when it is not true, why.
type Verdict = (bool, Option<(&'static str, Option<String>)>);

fn conditions(facts: &Facts<'_>, phase: &str, regular: &[ContainerStatus]) -> Vec<PodCondition> {
    let unready: Vec<&str> = regular.iter().filter(|status| !status.ready).map(|status| status.name.as_str()).collect();
    let network = !facts.pod_addresses.is_empty() && !is_final(Some(phase));
    let initialized: Verdict = if facts.next.initialized || phase == "Succeeded" {
        (true, (phase == "Succeeded").then_some(("PodCompleted", None)))
    } else {
        let open = facts
            .containers
            .iter()
            .filter(|container| container.init && container.record.ended().is_none_or(|end| end.exit_code != 0));
        let names: Vec<&str> = open.map(|container| container.container.name.as_str()).collect();
        let message = format!("containers with incomplete status: [{}]", names.join(" "));
        (false, Some(("ContainersNotInitialized", Some(message))))
    };
    let containers: Verdict = match phase {
        "Succeeded" => (false, Some(("PodCompleted", None))),
        "Failed" => (false, Some(("PodFailed", None))),
        _ if unready.is_empty() => (true, None),
        _ => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (false, Some(("ContainersNotReady", Some(message))))
        }
    };
    let gates = open_gates(facts.pod);
    let ready: Verdict = match &containers {
        (true, _) if !gates.is_empty() => {
            let message = format!("the status of pod readiness gate {:?} is not \"True\"", gates[0]);
            (false, Some(("ReadinessGatesNotReady", Some(message))))
        }
        other => other.clone(),
    };
    let own = [
        ("PodReadyToStartContainers", (network, None)),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers),
    ];
    let old = facts.pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut all: Vec<PodCondition> =
        own.into_iter().map(|(kind, verdict)| condition(kind, verdict, &old, facts)).collect();
    // Others have conditions of their own: the scheduler, whoever opens readiness gates.
    all.extend(old.into_iter().filter(|condition| !OWN.contains(&condition.type_.as_str())));
    if !all.iter().any(|condition| condition.type_ == "PodScheduled") {
        all.push(condition("PodScheduled", (true, None), &[], facts));
    }
    all
}

const OWN: [&str; 4] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];

fn condition(kind: &str, (value, why): Verdict, old: &[PodCondition], facts: &Facts<'_>) -> PodCondition {
    let status = if value { "True" } else { "False" };
    let before = old.iter().find(|condition| condition.type_ == kind && condition.status == status);
    let (reason, message) = why.map_or((None, None), |(reason, message)| (Some(reason.to_owned()), message));
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason,
        message,
        last_transition_time: before
            .and_then(|condition| condition.last_transition_time.clone())
            .or(Some(Time(facts.now))),
        observed_generation: facts.pod.metadata.generation,
        ..PodCondition::default()
    }
}

/// Readiness gates that nobody opened.
fn open_gates(pod: &Pod) -> Vec<String> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let open: Vec<&str> =
        conditions.filter(|condition| condition.status == "True").map(|condition| condition.type_.as_str()).collect();
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    gates.map(|gate| gate.condition_type.clone()).filter(|gate| !open.contains(&gate.as_str())).collect()
}

/// What this node does not do for anybody, and says so.
pub fn unsupported(spec: &PodSpec) -> Option<String> {
    let asked = [
        (spec.host_network == Some(true), "hostNetwork"),
        (spec.host_pid == Some(true), "hostPID"),
        (spec.host_ipc == Some(true), "hostIPC"),
        (spec.host_users == Some(false), "hostUsers: false"),
        (spec.share_process_namespace == Some(true), "shareProcessNamespace"),
        (spec.active_deadline_seconds.is_some(), "activeDeadlineSeconds"),
        (spec.runtime_class_name.as_deref().is_some_and(|name| !name.is_empty()), "runtimeClassName"),
    ];
    if let Some((_, field)) = asked.iter().find(|(asked, _)| *asked) {
        return Some(format!("this node runs no pods with {field}"));
    }
    if let Some(name) = security::excessive_sysctl(spec) {
        return Some(format!("sysctl {name}: this node sets none that others would notice"));
    }
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    for container in containers {
        if let Some(name) = security::excessive_capability(container) {
            return Some(format!("container {}: this node gives no container the capability {name}", container.name));
        }
        let privileged = container.security_context.as_ref().and_then(|context| context.privileged) == Some(true);
        if privileged {
            return Some(format!("container {}: this node runs no privileged containers", container.name));
        }
        if container.lifecycle.as_ref().is_some_and(|hooks| hooks.post_start.is_some() || hooks.pre_stop.is_some()) {
            return Some(format!("container {}: this node runs no lifecycle hooks", container.name));
        }
        let mut mounts = container.volume_mounts.iter().flatten();
        if mounts.any(|mount| mount.mount_propagation.as_deref() == Some("Bidirectional")) {
            return Some(format!("container {}: this node takes no mounts from containers", container.name));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::process::ProcessIdentity;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn running() -> Stage {
        Stage::Running { process: ProcessIdentity { pid: 1, start_ticks: 1, boot: String::new() }, started_at: at(10) }
    }

    fn ended(exit_code: i32) -> Stage {
        Stage::Ended(Termination {
            exit_code,
            reason: "Error".to_owned(),
            message: None,
            started_at: Some(at(10)),
            finished_at: at(20),
            id: "u-main-0".to_owned(),
        })
    }

    /// The status of a pod with one container in this state, as JSON.
    fn status(pod: serde_json::Value, stage: Stage, waiting: Option<&Waiting>, next: &Next) -> serde_json::Value {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let record = ContainerRecord { stage, id: "u-main-0".to_owned(), ..ContainerRecord::default() };
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let containers =
            [ContainerFacts { container, init: false, record: &record, waiting, started: true, ready: true }];
        let facts = Facts {
            pod: &pod,
            containers: &containers,
            next,
            host_addresses: &["192.0.2.1".parse().unwrap()],
            pod_addresses: &["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            start_time: at(5),
            rejected: None,
            now: at(30),
        };
        json!(compute(&facts))
    }

    fn pod(extra: serde_json::Value) -> serde_json::Value {
        let mut pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "i"}]}});
        json_merge(&mut pod, extra);
        pod
    }

    fn json_merge(into: &mut serde_json::Value, from: serde_json::Value) {
        match (into, from) {
            (serde_json::Value::Object(into), serde_json::Value::Object(from)) => {
                for (key, value) in from {
                    json_merge(into.entry(key).or_insert(serde_json::Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    #[test]
    fn a_running_pod() {
        let next = Next { initialized: true, ..Next::default() };
        insta::assert_json_snapshot!(status(pod(json!({})), running(), None, &next));
    }

    #[test]
    fn an_image_that_is_mounted_is_named_by_its_digest() {
        let container = json!({"name": "main", "volumeMounts": [
            {"name": "disk", "mountPath": "/disk"}, {"name": "scratch", "mountPath": "/scratch"},
        ]});
        let record = ContainerRecord {
            volume_images: [("disk".to_owned(), "registry.example/disk@sha256:ab".to_owned())].into(),
            ..ContainerRecord::default()
        };
        let mounts = image_mounts(&serde_json::from_value(container).unwrap(), &record);
        let expected = json!([{
            "name": "disk", "mountPath": "/disk", "readOnly": true, "recursiveReadOnly": "Disabled",
            "volumeStatus": {"image": {"imageRef": "registry.example/disk@sha256:ab"}},
        }]);
        assert_eq!(serde_json::to_value(mounts).unwrap(), expected);
    }

    #[test]
    fn a_finished_pod() {
        let next = Next { initialized: true, finished: Some(Finished::Failed), ..Next::default() };
        insta::assert_json_snapshot!(status(pod(json!({})), ended(7), None, &next));
    }

    #[test]
    fn waiting_and_crashing_containers_say_so() {
        let next = Next { initialized: true, ..Next::default() };
        let pulling =
            status(pod(json!({})), Stage::New, Some(&Waiting::new("ErrImagePull", "no such image".to_owned())), &next);
        assert_eq!(pulling["phase"], "Pending");
        assert_eq!(pulling["containerStatuses"][0]["state"]["waiting"]["reason"], "ErrImagePull");
        let next = Next { backing_off: vec![("main".to_owned(), at(40))], ..next };
        let crashing = status(pod(json!({})), ended(1), None, &next);
        assert_eq!(crashing["phase"], "Running");
        assert_eq!(crashing["containerStatuses"][0]["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(crashing["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
    }

    #[test]
    fn conditions_of_others_and_times_of_old_ones_stay() {
        let old = json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
            {"type": "example.com/own", "status": "Unknown"},
        ]}});
        let next = Next { initialized: true, ..Next::default() };
        let made = status(pod(old), running(), None, &next);
        let condition =
            |kind: &str| made["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap().clone();
        assert_eq!(condition("Ready")["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(condition("ContainersReady")["lastTransitionTime"], "1970-01-01T00:00:30Z");
        assert_eq!(condition("example.com/own")["status"], "Unknown");
        assert_eq!(made["conditions"].as_array().unwrap().len(), 6);
    }

    #[test]
    fn readiness_gates_hold_a_pod_back() {
        let gated = pod(json!({"spec": {"readinessGates": [{"conditionType": "example.com/gate"}]}}));
        let next = Next { initialized: true, ..Next::default() };
        let made = status(gated, running(), None, &next);
        let ready = made["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ReadinessGatesNotReady")));
    }

    #[test]
    fn what_only_a_general_kubelet_does_is_refused() {
        let spec = |value| serde_json::from_value::<PodSpec>(value).unwrap();
        assert_eq!(unsupported(&spec(json!({"containers": []}))), None);
        assert!(unsupported(&spec(json!({"containers": [], "hostPID": true}))).unwrap().contains("hostPID"));
        let privileged = json!({"containers": [{"name": "a", "securityContext": {"privileged": true}}]});
        assert!(unsupported(&spec(privileged)).unwrap().contains("container a"));
        for kind in ["containers", "initContainers"] {
            let mut powerful = json!({"containers": []});
            powerful[kind] = json!([{"name": "a", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]);
            assert!(unsupported(&spec(powerful)).unwrap().contains("SYS_ADMIN"), "{kind}");
        }
        let sysctls = json!([{"name": "kernel.core_pattern", "value": "x"}]);
        let sysctls = json!({"containers": [], "securityContext": {"sysctls": sysctls}});
        assert!(unsupported(&spec(sysctls)).unwrap().contains("kernel.core_pattern"));
    }
}
