//! The machine itself: is it meant to run, and does its controller do its part?

use serde_json::Value;

use super::object::{condition, is_leaving, list, text, time};
use super::snapshot::Snapshot;
use super::verdict::Finding;
use crate::time::human;

/// A machine without an instance is looked at by its controller within moments.
const MOMENT: i64 = 15;

fn object(seen: &Snapshot) -> String {
    format!("VirtualMachine {}/{}", seen.namespace, seen.name)
}

/// `spec.runStrategy`, or what `spec.running` means.
fn strategy(vm: &Value) -> &str {
    let running = || if vm["spec"]["running"] == true { "Always" } else { "Halted" };
    text(vm, "/spec/runStrategy").unwrap_or_else(running)
}

/// It is being deleted.
pub(super) fn leaving(seen: &Snapshot, vm: &Value) -> Option<Finding> {
    if !is_leaving(vm) {
        return None;
    }
    // Whatever holds the guest holds the machine.
    if let Some(vmi) = seen.vmi.as_ref() {
        return super::guest::unaccounted(seen, vmi).or_else(|| super::guest::leaving(seen, vmi)).or_else(|| {
            let what = "it is being deleted, and waits for its guest to be deleted first";
            let fix = "virt-controller deletes the guest: is it running? \"ferrovirt status\", or \"kubectl get pods -n kubevirt\"";
            Some(Finding::new(object(seen), "Deleting", what, fix))
        });
    }
    let holders: Vec<&str> = list(vm, "/metadata/finalizers").filter_map(Value::as_str).collect();
    let what = format!("it is being deleted, and finalizers hold it: {}", holders.join(", "));
    let foreign = holders.iter().find(|holder| !holder.contains("kubevirt.io/") && !holder.starts_with("foreground"));
    let fix = match foreign {
        Some(holder) => format!("whoever put \"{holder}\" there has to take it away; look at that controller's log"),
        None => {
            "virt-controller takes them away: is it running? \"ferrovirt status\", or \"kubectl get pods -n kubevirt\""
                .to_owned()
        }
    };
    Some(Finding::new(object(seen), "HeldByFinalizers", what, fix))
}

/// It is not meant to run.
pub(super) fn off(seen: &Snapshot, vm: &Value) -> Option<Finding> {
    let start = format!("virtctl start {} -n {}", seen.name, seen.namespace);
    let requests = list(vm, "/status/stateChangeRequests").any(|request| request["action"] == "Start");
    match strategy(vm) {
        "Halted" => Some(Finding::new(object(seen), "Halted", "it is switched off (runStrategy Halted)", start)),
        "Manual" if !requests => {
            let what = "it is off, and starts only when it is told to (runStrategy Manual)";
            Some(Finding::new(object(seen), "NotStarted", what, start))
        }
        "RerunOnFailure" if !requests && seen.vm.as_ref().is_some_and(has_run) && !fails(vm) => {
            let what =
                "its guest shut itself down, and it starts again only after a failure (runStrategy RerunOnFailure)";
            Some(Finding::new(object(seen), "ShutDown", what, start))
        }
        "WaitAsReceiver" => {
            let what = "it waits for a guest that another cluster sends (runStrategy WaitAsReceiver)";
            Some(Finding::new(object(seen), "WaitingForReceiver", what, "start the migration in the other cluster"))
        }
        _ => None,
    }
}

fn has_run(vm: &Value) -> bool {
    text(vm, "/status/printableStatus") == Some("Stopped")
}

fn fails(vm: &Value) -> bool {
    vm.pointer("/status/startFailure/consecutiveFailCount").and_then(Value::as_u64).unwrap_or(0) > 0
}

/// Its starts fail.
pub(super) fn failing(seen: &Snapshot, vm: &Value) -> Option<Finding> {
    if let Some(failure) = condition(vm, "Failure").filter(|failure| failure.is_true()) {
        return Some(refused(seen, failure.reason, failure.words()));
    }
    if let Some(recovery) = condition(vm, "ManualRecoveryRequired").filter(|recovery| recovery.is_true()) {
        let what = "moving its volumes broke half way, and it is not started until somebody has looked";
        let fix = "point spec.template.spec.volumes back at the volumes of before, then start it";
        return Some(Finding::new(object(seen), "ManualRecoveryRequired", what, fix).says(recovery.words()));
    }
    let failure = &vm["status"]["startFailure"];
    let count = failure["consecutiveFailCount"].as_u64().filter(|count| *count > 0)?;
    let next = time(failure, "/retryAfterTimestamp").map(|at| -seen.seconds_since(at));
    let next = match next {
        Some(seconds) if seconds > 0 => format!("the next try is in {}", human(seconds)),
        _ => "the next try is due".to_owned(),
    };
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times in a row") };
    let what = format!("its guest failed {times} before it ever ran; {next}");
    let fix = format!(
        "repair the cause; \"virtctl stop {0}\" ends the tries, and \"virtctl start {0}\" after it tries at once",
        seen.name
    );
    let evidence = seen.warning_words("VirtualMachineInstance", &seen.name, &[]);
    Some(Finding::new(object(seen), "CrashLoopBackOff", what, fix).says(evidence))
}

/// The controller could not do what the machine asks for.
fn refused(seen: &Snapshot, reason: &str, words: Option<String>) -> Finding {
    let said = words.clone().unwrap_or_default();
    let (reason, what, fix) = if said.contains("not supported yet") {
        let fix = "take the named field out of spec.template, or use what is supported; \"virtctl validate -f FILE\" checks without a cluster";
        ("NotSupported", "its guest asks for something that is not supported", fix)
    } else if said.contains("exceeded quota") {
        let fix = "free something in the namespace, or have its ResourceQuota raised";
        ("QuotaExceeded", "its guest does not fit into the quota of the namespace", fix)
    } else if matches!(reason, "FailedFindInstancetype" | "FailedFindPreference") {
        let fix = "create the instancetype or preference that spec names, or name one that is there";
        ("InstancetypeMissing", "its instancetype or preference is not there", fix)
    } else if reason == "FailedDelete" {
        ("FailedDelete", "its old guest cannot be deleted", "see what the server says; virt-controller tries again")
    } else {
        let fix = "correct the machine where it is named; virt-controller tries again by itself";
        ("FailedCreate", "its guest cannot be created", fix)
    };
    Finding::new(object(seen), reason, what, fix).says(words)
}

/// Nothing is wrong with the machine, but nobody acts.
pub(super) fn untouched(seen: &Snapshot, vm: &Value) -> Finding {
    let age = time(vm, "/metadata/creationTimestamp").map_or(0, |made| seen.seconds_since(made));
    if age < MOMENT {
        let fix = format!("wait a moment, and look again: \"virtctl why {}\"", seen.name);
        return Finding::new(object(seen), "Starting", "its guest is about to be created", fix);
    }
    let what = "it is meant to run, and its controller has not created its guest";
    let fix =
        "is virt-controller running? \"ferrovirt status\", or \"kubectl get pods -n kubevirt\"; its log says more";
    let evidence = seen.warning_words("VirtualMachine", &seen.name, &[]);
    Finding::new(object(seen), "ControllerAway", what, fix).says(evidence)
}
