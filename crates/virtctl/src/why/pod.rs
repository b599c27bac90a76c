//! The launcher pod: is it placed, are its images and volumes there, does it run?

use serde_json::Value;

use super::object::{condition, list, name, text, time};
use super::snapshot::Snapshot;
use super::verdict::Finding;
use crate::time::human;

/// Reasons for which a container waits and will not get further by itself, and what they mean.
const WAITING: [(&str, &str, &str); 8] = [
    ("ErrImagePull", "an image cannot be fetched", IMAGE),
    ("ImagePullBackOff", "an image cannot be fetched, and the node tries it less and less often", IMAGE),
    ("ErrImageNeverPull", "an image is not on the node, and the pod forbids fetching it", IMAGE),
    ("InvalidImageName", "an image has a name that is none", "correct the image's name in the machine"),
    (
        "CreateContainerConfigError",
        "a container needs a secret or config map that is not there",
        "create what it names",
    ),
    ("CreateContainerError", "a container cannot be made on the node", "look at the node's container runtime"),
    ("RunContainerError", "a container cannot be started on the node", "look at the node's container runtime"),
    ("CrashLoopBackOff", "a container of the pod ends again and again", "look at its log"),
];
const IMAGE: &str = "check the image's name, that the node can reach its registry, and the pull secret; on a local cluster, \
    \"ferrovirt images import FILE\" puts one in place";

/// Warnings of a node that cannot make a pod, and what they mean.
const TROUBLES: [(&str, &str, &str); 5] = [
    (
        "FailedMount",
        "a volume cannot be mounted on the node",
        "check the volume that is named; is it in use on another node?",
    ),
    (
        "FailedAttachVolume",
        "a volume cannot be attached to the node",
        "is it still attached to another node? its storage driver's log says more",
    ),
    ("FailedMapVolume", "a volume cannot be mapped on the node", "check the volume that is named"),
    (
        "FailedCreatePodSandBox",
        "the node cannot make the pod's sandbox and network",
        "look at the node's network plugin and container runtime",
    ),
    ("NetworkNotReady", "the node's network is not ready", "look at the node's network plugin"),
];

/// The pod's state in a word.
pub(super) fn state(pod: &Value) -> String {
    if super::object::is_leaving(pod) {
        return "Terminating".to_owned();
    }
    let waiting = containers(pod).find_map(|container| text(container, "/state/waiting/reason"));
    let waiting = waiting.filter(|reason| WAITING.iter().any(|(known, ..)| known == reason));
    waiting.or_else(|| text(pod, "/status/phase")).unwrap_or("Pending").to_owned()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    list(pod, "/status/initContainerStatuses").chain(list(pod, "/status/containerStatuses"))
}

/// What keeps the pod from running.
pub(super) fn blocker(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let pod = seen.pod()?;
    let object = format!("Pod {}/{}", seen.namespace, name(pod));
    unschedulable(seen, pod, &object)
        .or_else(|| super::node::blocker(seen))
        .or_else(|| waiting(pod, &object))
        .or_else(|| unmade(seen, pod, &object))
        .or_else(|| ended(seen, pod, vmi, &object))
}

/// What keeps a target pod from running.
pub(super) fn trouble(seen: &Snapshot, pod: &Value) -> Option<Finding> {
    let object = format!("Pod {}/{}", seen.namespace, name(pod));
    unschedulable(seen, pod, &object).or_else(|| waiting(pod, &object)).or_else(|| unmade(seen, pod, &object))
}

fn unschedulable(seen: &Snapshot, pod: &Value, object: &str) -> Option<Finding> {
    let scheduled = condition(pod, "PodScheduled").filter(|scheduled| scheduled.is_false());
    if scheduled.is_none() && (text(pod, "/spec/nodeName").is_some() || text(pod, "/status/phase") != Some("Pending")) {
        return None;
    }
    let words = scheduled.map(|scheduled| scheduled.message.to_owned()).filter(|words| !words.is_empty());
    let words = words.or_else(|| seen.warning_words("Pod", name(pod), &["FailedScheduling"]));
    let Some(words) = words else {
        let age = time(pod, "/metadata/creationTimestamp").map_or(0, |made| seen.seconds_since(made));
        let what = format!("its pod has waited {} for the scheduler", human(age));
        let fix = "is the cluster's scheduler running? on a local cluster: \"ferrovirt status\"";
        return Some(Finding::new(object, "SchedulerAway", what, fix));
    };
    Some(Finding::new(object, "Unschedulable", "no node can take it", placement(&words)).says(Some(words)))
}

/// What to do about the scheduler's words.
fn placement(words: &str) -> String {
    let advice = [
        ("Insufficient memory", "ask for less memory, stop another machine, or add a node"),
        ("Insufficient cpu", "ask for less cpu, stop another machine, or add a node"),
        ("Insufficient devices.kubevirt.io", "is virt-handler running on the nodes? it offers that device"),
        ("Insufficient", "ask for less of what is missing, or add a node that has it"),
        (
            "node affinity",
            "make nodeSelector and affinity match the labels of a node: \"virtctl get nodes --show-labels\"",
        ),
        (
            "node selector",
            "make nodeSelector and affinity match the labels of a node: \"virtctl get nodes --show-labels\"",
        ),
        ("taint", "let the machine tolerate the taint, or take the taint off a node"),
        ("unschedulable", "let a node take pods again: kubectl uncordon NODE"),
        ("volume node affinity", "the storage is bound to a node that does not fit: free that node, or move the data"),
        ("persistentvolumeclaim", "create the claim that is named, or name one that is there"),
        ("anti-affinity", "another machine keeps this one away: add a node, or relax the rule"),
        ("no nodes available", "no node has joined the cluster: on a local cluster, \"ferrovirt up\" adds one"),
    ];
    let lower = words.to_lowercase();
    let found: Vec<&str> =
        advice.iter().filter(|(sign, _)| lower.contains(&sign.to_lowercase())).map(|(_, fix)| *fix).take(1).collect();
    found.first().map_or_else(
        || "change what the scheduler names, in the machine or in the nodes".to_owned(),
        |fix| (*fix).to_owned(),
    )
}

fn waiting(pod: &Value, object: &str) -> Option<Finding> {
    containers(pod).find_map(|container| {
        let waiting = container.pointer("/state/waiting")?;
        let (reason, what, fix) = WAITING.iter().find(|(known, ..)| waiting["reason"] == *known)?;
        let words = text(waiting, "/message").unwrap_or_default();
        let (owner, image) =
            (text(container, "/name").unwrap_or_default(), text(container, "/image").unwrap_or_default());
        // The image may be that of a volume, and then the message names it.
        let what = if words.contains("image \"") {
            (*what).to_owned()
        } else {
            format!("{what} (container {owner}, image {image})")
        };
        Some(Finding::new(object, reason, what, *fix).says(Some(words.to_owned())))
    })
}

/// A pod with a node whose containers do not come to be.
fn unmade(seen: &Snapshot, pod: &Value, object: &str) -> Option<Finding> {
    if text(pod, "/status/phase") != Some("Pending") {
        return None;
    }
    let reasons = TROUBLES.map(|(reason, ..)| reason);
    let event = seen.warning("Pod", name(pod), &reasons)?;
    let (reason, what, fix) = TROUBLES.iter().find(|(known, ..)| event["reason"] == *known)?;
    Some(Finding::new(object, reason, *what, *fix).says(text(event, "/message").map(str::to_owned)))
}

fn ended(seen: &Snapshot, pod: &Value, vmi: &Value, object: &str) -> Option<Finding> {
    if !matches!(text(pod, "/status/phase"), Some("Failed" | "Succeeded")) {
        return None;
    }
    if text(pod, "/status/reason") == Some("Evicted") {
        let fix =
            "the node ran short of something: give the machine requests that match its use, or the node more room";
        let words = text(pod, "/status/message").map(str::to_owned);
        return Some(Finding::new(object, "Evicted", "the node threw the pod out", fix).says(words));
    }
    let what = "the pod has ended while the guest's object says that it lives";
    let fix = format!("\"kubectl logs -n {} {} -c compute\" tells how it ended", seen.namespace, name(pod));
    let words = last_words(pod).or_else(|| seen.warning_words("VirtualMachineInstance", name(vmi), &[]));
    Some(Finding::new(object, "PodEnded", what, fix).says(words))
}

/// What the launcher left behind: JSON with a message, or any text.
pub(super) fn last_words(pod: &Value) -> Option<String> {
    let ended = containers(pod)
        .find(|container| container["name"] == "compute")
        .and_then(|container| container.pointer("/state/terminated"))?;
    if let Some(words) = text(ended, "/message") {
        let parsed: Value = serde_json::from_str(words).unwrap_or_default();
        return Some(text(&parsed, "/message").unwrap_or(words).to_owned());
    }
    let code = ended["exitCode"].as_i64().unwrap_or_default();
    let killed =
        if text(ended, "/reason") == Some("OOMKilled") { ": the kernel killed it for want of memory" } else { "" };
    Some(format!("the launcher ended with code {code}{killed}"))
}
