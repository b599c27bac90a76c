//! The instance: before it runs, while it runs, and how it ended.

use serde_json::Value;

use super::judge::addresses;
use super::object::{condition, holds, is_leaving, list, name, text, time};
use super::snapshot::Snapshot;
use super::verdict::Finding;
use crate::time::human;

/// A guest has its address within this time, if it ever has.
const ADDRESS_PATIENCE: i64 = 60;

fn object(seen: &Snapshot) -> String {
    format!("VirtualMachineInstance {}/{}", seen.namespace, seen.name)
}

/// When the guest entered its present phase.
fn seconds_in_phase(seen: &Snapshot, vmi: &Value) -> Option<i64> {
    let phase = text(vmi, "/status/phase")?;
    let entered = list(vmi, "/status/phaseTransitionTimestamps").filter(|entry| entry["phase"] == phase).last()?;
    time(entered, "/phaseTransitionTimestamp").map(|at| seen.seconds_since(at))
}

/// A pod of it vanished, and something of it may run: nothing else is started meanwhile.
pub(super) fn unaccounted(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    // One that serves has left that pod behind.
    let missing = condition(vmi, "PodUnaccounted").filter(|missing| missing.is_true() && !holds(vmi, "Ready"))?;
    let what = "a pod of it was deleted without its node's word, and its guest may still run there; no other is started before that is sure";
    let fix = format!(
        "bring the node and its virt-handler back: it says so by itself. If the node is dead, switch it off for certain, and say so: \
         \"kubectl taint node NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute\", or, if the node is no longer in the \
         cluster, \"virtctl vouch vm {}\"",
        seen.name
    );
    Some(Finding::new(object(seen), "PodUnaccounted", what, fix).says(missing.words()))
}

/// It is being deleted.
pub(super) fn leaving(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let asked = time(vmi, "/metadata/deletionTimestamp").filter(|_| is_leaving(vmi))?;
    let is_over = matches!(text(vmi, "/status/phase"), Some("Succeeded" | "Failed"));
    if !is_over && let Some(finding) = super::node::blocker(seen) {
        return Some(finding);
    }
    let since = seen.seconds_since(asked);
    if !is_over {
        let grace = seen.spec().and_then(|spec| spec["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
        let left = grace - since;
        let what = if left > 0 {
            format!("its guest was asked to shut down; it is switched off in {} if it does not", human(left))
        } else {
            format!("its guest should have been switched off {} ago", human(-left))
        };
        let fix = format!("wait, or cut the power: \"virtctl stop {} --force --grace-period=0\"", seen.name);
        return Some(Finding::new(object(seen), "Stopping", what, fix));
    }
    if let Some(pod) = seen.pods.first() {
        let what = format!("its guest has ended, and pod {} has not left yet", name(pod));
        let fix = "the node ends the pod; if it stays, look at the node's kubelet or runtime";
        return Some(Finding::new(object(seen), "PodLeaving", what, fix));
    }
    let holders: Vec<&str> = list(vmi, "/metadata/finalizers").filter_map(Value::as_str).collect();
    let what = format!("it is being deleted, and finalizers hold it: {}", holders.join(", "));
    let fix =
        "virt-controller takes its own away: is it running? \"ferrovirt status\", or \"kubectl get pods -n kubevirt\"";
    Some(Finding::new(object(seen), "HeldByFinalizers", what, fix))
}

/// It has ended.
pub(super) fn ended(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    match text(vmi, "/status/phase")? {
        "Succeeded" => {
            let what = "its guest shut itself down";
            let fix = format!("start it again: virtctl start {}", seen.name);
            Some(Finding::new(object(seen), "ShutDown", what, fix))
        }
        "Failed" => {
            // A machine that tries again knows when.
            let again = seen.vm.as_ref().and_then(|vm| super::machine::failing(seen, vm));
            Some(failed(seen, vmi, again.as_ref()))
        }
        _ => None,
    }
}

fn failed(seen: &Snapshot, vmi: &Value, again: Option<&Finding>) -> Finding {
    let told = condition(vmi, "Synchronized").filter(|told| told.is_false()).and_then(super::object::Condition::words);
    let words = told
        .or_else(|| seen.warning_words("VirtualMachineInstance", &seen.name, &[]))
        .or_else(|| seen.pod().and_then(super::pod::last_words));
    let said = words.clone().unwrap_or_default().to_lowercase();
    let (reason, what, fix): (_, _, String) = if said.contains("panic") {
        let fix = format!(
            "follow its serial console from boot until it happens again: virtctl console --log --follow {}",
            seen.name
        );
        ("GuestPanicked", "its guest's operating system panicked", fix)
    } else if text(vmi, "/status/reason") == Some("PodNotExists") || said.contains("pod") && said.contains("deleted") {
        let fix =
            "find out who deleted the pod (an eviction, a drain, a person): \"virtctl get events\" tells".to_owned();
        ("PodVanished", "its pod was taken away under it", fix)
    } else if text(vmi, "/status/reason") == Some("NodeUnresponsive") {
        ("NodeDead", "its node died", "look at the node before the guest is started elsewhere".to_owned())
    } else {
        let fix = format!("repair the cause; if it does not start again by itself: virtctl start {}", seen.name);
        ("GuestFailed", "its guest failed", fix)
    };
    let what = match again {
        Some(again) if again.reason == "CrashLoopBackOff" => again.what.clone(),
        _ => what.to_owned(),
    };
    Finding::new(object(seen), reason, what, fix).says(words)
}

/// It has no pod yet, or its pod is in order and has not been handed over.
pub(super) fn waiting(seen: &Snapshot, vmi: &Value) -> Finding {
    if let Some(told) = condition(vmi, "Synchronized").filter(|told| told.is_false()) {
        return unsynchronized(seen, told.reason, told.words());
    }
    let age = time(vmi, "/metadata/creationTimestamp").map_or(0, |made| seen.seconds_since(made));
    let (reason, what, fix) = match seen.pod() {
        None if age > 15 => (
            "ControllerAway",
            format!("it was created {} ago, and virt-controller has not made its pod", human(age)),
            "is virt-controller running? \"ferrovirt status\", or \"kubectl get pods -n kubevirt\"",
        ),
        None => ("Starting", "its pod is about to be made".to_owned(), "wait a moment, and look again"),
        Some(_) => (
            "Starting",
            format!("its pod is being started, since {}", human(age)),
            "wait a moment, and look again; \"virtctl get events\" shows what the node does",
        ),
    };
    Finding::new(object(seen), reason, what, fix)
}

/// A component could not do its part, and says so.
fn unsynchronized(seen: &Snapshot, reason: &str, words: Option<String>) -> Finding {
    let said = words.clone().unwrap_or_default();
    let (reason, what, fix) = match reason {
        "FailedPvcNotFound" => {
            ("ClaimMissing", "a claim that it names is not there", "create the claim, or name one that is there")
        }
        _ if said.contains("not supported") => {
            let fix = "take the named field out of the machine; \"virtctl validate -f FILE\" checks without a cluster";
            ("NotSupported", "it asks for something that is not supported", fix)
        }
        _ if said.contains("exceeded quota") => {
            let fix = "free something in the namespace, or have its ResourceQuota raised";
            ("QuotaExceeded", "its pod does not fit into the quota of the namespace", fix)
        }
        "FailedGuaranteeResources" => {
            let fix = "give requests and limits the same values, or leave dedicatedCpuPlacement out";
            ("FailedGuaranteeResources", "it wants processors of its own, and its pod does not get them", fix)
        }
        "FailedCreate" | "FailedHandOver" => (
            "FailedCreate",
            "its pod cannot be created",
            "correct the machine where it is named; virt-controller tries again by itself",
        ),
        _ => (
            "NotSynchronized",
            "it cannot be brought to the wanted state",
            "correct what is named; it is tried again by itself",
        ),
    };
    Finding::new(object(seen), reason, what, fix).says(words)
}

/// Its pod runs, and the node's virt-handler has it.
pub(super) fn scheduled(seen: &Snapshot, vmi: &Value) -> Finding {
    let Some(told) = condition(vmi, "Synchronized").filter(|told| told.is_false()) else {
        let since = seconds_in_phase(seen, vmi).unwrap_or(0);
        let what = format!("its node is starting it, since {}", human(since));
        let fix = "wait a moment; if it stays, virt-handler's log on that node says more";
        return Finding::new(object(seen), "Starting", what, fix);
    };
    let said = told.message.to_lowercase();
    let (reason, what, fix) = if ["image", "qcow2", "disk"].iter().any(|sign| said.contains(sign)) {
        let fix =
            "check the disk that is named: is it a disk image, whole, and of a format that is supported (raw, qcow2)?";
        ("BrokenDisk", "its node cannot start it: a disk cannot be used", fix)
    } else if said.contains("not supported") {
        (
            "NotSupported",
            "it asks for something that its node does not support",
            "take the named field out of the machine",
        )
    } else {
        ("StartFailed", "its node cannot start it", "correct what is named; it is tried again by itself")
    };
    Finding::new(object(seen), reason, what, fix).says(told.words())
}

/// It runs: does it run well?
pub(super) fn running(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    paused(seen, vmi)
        .or_else(|| out_of_sync(seen, vmi))
        .or_else(|| unready(seen, vmi))
        .or_else(|| without_address(seen, vmi))
}

fn paused(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let paused = condition(vmi, "Paused").filter(|paused| paused.is_true())?;
    let go_on = format!("virtctl unpause vm {}", seen.name);
    let finding = match paused.reason {
        "PausedIOError" => {
            let what = "QEMU stopped it because a disk could not be read or written";
            let fix = format!("is the storage full or gone? repair it, then: {go_on}");
            Finding::new(object(seen), "PausedIOError", what, fix).says(paused.words())
        }
        "PausedByMigrationMonitor" => {
            let fix = "wait for the migration, or cancel it: virtctl migrate-cancel".to_owned() + " " + &seen.name;
            Finding::new(object(seen), "PausedByMigration", "it is held still while it moves", fix)
        }
        _ => Finding::new(object(seen), "Paused", "somebody paused it", go_on),
    };
    Some(finding)
}

fn out_of_sync(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let told = condition(vmi, "Synchronized").filter(|told| told.is_false())?;
    let what = "it runs, and its node cannot bring it to the wanted state";
    Some(
        Finding::new(object(seen), "NotSynchronized", what, "correct what is named; it is tried again by itself")
            .says(told.words()),
    )
}

/// The probes that go through the guest's agent.
fn wants_agent(seen: &Snapshot) -> bool {
    let spec = seen.spec();
    let through_agent = |probe: &Value| probe["guestAgentPing"].is_object() || probe["exec"].is_object();
    spec.is_some_and(|spec| through_agent(&spec["readinessProbe"]) || through_agent(&spec["livenessProbe"]))
}

fn unready(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let agent = holds(vmi, "AgentConnected");
    if wants_agent(seen) && !agent {
        let what = "a probe asks the guest's agent, and no agent is connected";
        let fix =
            "install and start qemu-guest-agent in the guest, or use a probe that needs none (tcpSocket, httpGet)";
        return Some(Finding::new(object(seen), "AgentMissing", what, fix));
    }
    let ready = condition(vmi, "Ready").filter(|ready| ready.is_false())?;
    let pod = seen.pod().map(name).unwrap_or_default();
    let words = seen.warning_words("Pod", pod, &["Unhealthy"]).or_else(|| ready.words());
    let has_probe = seen.spec().is_some_and(|spec| spec["readinessProbe"].is_object());
    let (what, fix) = if has_probe {
        (
            "it runs, and its readiness probe fails",
            "does the service that the probe asks for run in the guest? virtctl console shows",
        )
    } else {
        ("it runs, and its pod is not ready", "look at the pod's containers")
    };
    Some(Finding::new(object(seen), "NotReady", what, fix).says(words))
}

fn without_address(seen: &Snapshot, vmi: &Value) -> Option<Finding> {
    let has_network = seen.spec().is_some_and(|spec| list(spec, "/networks").next().is_some());
    let is_fresh = seconds_in_phase(seen, vmi).is_none_or(|seconds| seconds < ADDRESS_PATIENCE);
    if !has_network || is_fresh || !addresses(vmi).is_empty() {
        return None;
    }
    let what = "it runs, and has no address on any network";
    let fix = "does the guest ask for one with DHCP? \"virtctl console\" shows; without an agent, addresses of secondary networks are \
        not known";
    Some(Finding::new(object(seen), "NoAddress", what, fix))
}
