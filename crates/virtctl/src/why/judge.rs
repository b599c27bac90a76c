//! The judgement: VM → its disks → VMI → pod → node → domain → guest → its move to another node. The first part that is not as it should be is the answer.

use super::object::{condition, holds, is_leaving, list, name, text};
use super::snapshot::Snapshot;
use super::verdict::{Finding, Step, Verdict};
use super::{claims, guest, machine, migration, node, pod};

/// Finds what blocks.
pub(super) fn judge(seen: &Snapshot) -> Verdict {
    let kind = if seen.vm.is_some() || seen.vmi.is_none() { "VM" } else { "VMI" };
    Verdict {
        subject: format!("{kind} {}/{}", seen.namespace, seen.name),
        path: path(seen),
        blocker: blocker(seen),
        notes: notes(seen),
    }
}

fn blocker(seen: &Snapshot) -> Option<Finding> {
    if seen.vm.is_none() && seen.vmi.is_none() {
        return Some(missing(seen));
    }
    if let Some(finding) = seen.vm.as_ref().and_then(|vm| machine::leaving(seen, vm)) {
        return Some(finding);
    }
    let Some(vmi) = &seen.vmi else {
        let vm = seen.vm.as_ref()?;
        return machine::off(seen, vm)
            .or_else(|| claims::blocker(seen))
            .or_else(|| machine::failing(seen, vm))
            .or_else(|| Some(machine::untouched(seen, vm)));
    };
    if let Some(finding) = guest::unaccounted(seen, vmi) {
        return Some(finding);
    }
    if let Some(finding) = guest::leaving(seen, vmi).or_else(|| guest::ended(seen, vmi)) {
        return Some(finding);
    }
    match text(vmi, "/status/phase").unwrap_or("Pending") {
        "Running" => {
            node::blocker(seen).or_else(|| guest::running(seen, vmi)).or_else(|| migration::blocker(seen, vmi))
        }
        "Scheduled" => {
            node::blocker(seen).or_else(|| pod::blocker(seen, vmi)).or_else(|| Some(guest::scheduled(seen, vmi)))
        }
        _ => claims::blocker(seen).or_else(|| pod::blocker(seen, vmi)).or_else(|| Some(guest::waiting(seen, vmi))),
    }
}

fn missing(seen: &Snapshot) -> Finding {
    let what = format!("there is no virtual machine of this name in namespace {}", seen.namespace);
    let fix = "\"virtctl get vm -A\" shows all that there are; -n chooses another namespace";
    Finding::new(format!("VirtualMachine {}/{}", seen.namespace, seen.name), "NotFound", what, fix)
}

/// The objects on the way, as far as there are any.
fn path(seen: &Snapshot) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut step = |kind, name: &str, state: String| steps.push(Step { kind, name: name.to_owned(), state });
    if let Some(vm) = &seen.vm {
        step("VM", name(vm), text(vm, "/status/printableStatus").unwrap_or("Unknown").to_owned());
    }
    if let Some(vmi) = &seen.vmi {
        let phase = text(vmi, "/status/phase").unwrap_or("Pending");
        step("VMI", name(vmi), if is_leaving(vmi) { "Terminating".to_owned() } else { phase.to_owned() });
    }
    if let Some(pod) = seen.pod() {
        step("Pod", name(pod), pod::state(pod));
    }
    if let Some(node) = &seen.node {
        let ready = holds(node, "Ready");
        step("Node", name(node), if ready { "Ready" } else { "NotReady" }.to_owned());
    }
    if let Some(vmi) = seen.vmi.as_ref().filter(|vmi| text(vmi, "/status/phase") == Some("Running")) {
        let agent = holds(vmi, "AgentConnected");
        let paused = holds(vmi, "Paused");
        let state = if paused { "Paused" } else { "Running" };
        step("Guest", if agent { "with agent" } else { "without agent" }, state.to_owned());
    }
    steps
}

fn notes(seen: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(vm) = &seen.vm
        && let Some(restart) = condition(vm, "RestartRequired").filter(|restart| restart.is_true())
    {
        let words = restart.words().map(|words| format!(" ({words})")).unwrap_or_default();
        notes.push(format!("changes wait for a restart{words}: virtctl restart {}", seen.name));
    }
    if let Some(vmi) = &seen.vmi {
        notes.extend(migration::notes(seen, vmi));
        if let Some(missing) =
            condition(vmi, "PodUnaccounted").filter(|missing| missing.is_true() && holds(vmi, "Ready"))
        {
            let words = missing.words().unwrap_or_default();
            notes.push(format!("it is not started again before a pod that it has left is accounted for: {words}"));
        }
        if holds(vmi, "SoftwareEmulation") {
            notes.push("its node has no usable /dev/kvm: instructions are emulated, which is slow".to_owned());
        }
    }
    if let Some(node) = seen.node.as_ref().filter(|node| node["spec"]["unschedulable"] == true) {
        notes.push(format!("node {} takes no new pods (it is cordoned)", name(node)));
    }
    let taken =
        seen.pods.iter().filter(|pod| is_leaving(pod)).map(|pod| format!("pod {} is on its way out", name(pod)));
    notes.extend(taken);
    notes.extend(seen.unseen.iter().cloned());
    notes
}

/// The addresses of a guest, for messages.
pub(super) fn addresses(vmi: &serde_json::Value) -> Vec<&str> {
    list(vmi, "/status/interfaces").filter_map(|interface| text(interface, "/ipAddress")).collect()
}
