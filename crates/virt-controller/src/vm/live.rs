//! How far a machine has moved on since its guest was started, and what of it the living guest can follow.
//!
//! The revision of the start says what the machine was. Node selector, affinity and tolerations are handed on to the guest, which
//! uses them at its next move; with `vmRolloutStrategy: Stage`, and for everything else, the machine says `RestartRequired` and names
//! the fields. While a restart is required nothing is handed on, so that a guest is never a mixture that nobody has asked for.

use ferrovirt_api::names::annotations;
use ferrovirt_api::vm::VirtualMachineSpec;
use ferrovirt_api::vmi::VirtualMachineInstanceSpec;
use ferrovirt_api::{ToJson, VirtualMachineInstance, decode};
use serde_json::{Value, json};

use super::observe::Machine;
use super::printable::is_moving;
use super::strategy::Life;
use crate::patch::difference;

/// Fields that a message lists at most.
const MOST_FIELDS: usize = 5;

/// The difference between a machine and its guest.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Drift {
    /// There is none, or none that a restart would change.
    None,
    /// Nobody can tell: what the guest was started from is not known (yet).
    Unknown,
    /// A living guest can follow: the merge patch for it.
    Followed(Value),
    /// A restart is needed, because of these fields.
    NeedsRestart(String),
}

/// Compares the machine with what its living guest was started from.
pub(super) fn drift(machine: &Machine, vmi: &VirtualMachineInstance) -> Drift {
    if Life::of(Some(vmi)) != Life::Live {
        return Drift::None;
    }
    let Some(started) = started_from(machine, vmi) else { return Drift::Unknown };
    let wanted = &machine.vm.spec.template.spec;
    let mut comparable = started.template.spec.clone();
    if let (Some(old), Some(new)) = (&mut comparable.domain.firmware, &wanted.domain.firmware)
        && vmi.spec.domain.firmware.as_ref().is_some_and(|firmware| firmware.uuid == new.uuid)
    {
        old.uuid.clone_from(&new.uuid);
    }
    // The guest's own labels and annotations stay as they were at its start, so it does not follow a template that changed there.
    let metadata = |spec: &VirtualMachineSpec| {
        let metadata = spec.template.metadata.clone().unwrap_or_default();
        (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default())
    };
    let is_template_unchanged = comparable == *wanted && metadata(&started) == metadata(&machine.vm.spec);
    if machine.updates_live() {
        comparable.node_selector.clone_from(&wanted.node_selector);
        comparable.affinity.clone_from(&wanted.affinity);
        comparable.tolerations.clone_from(&wanted.tolerations);
    }
    let fields = changed_fields(&comparable, wanted);
    if !fields.is_empty() {
        return Drift::NeedsRestart(listed(&fields));
    }
    let mut patch = json!({});
    if is_template_unchanged && generation_of(vmi) != Some(machine.generation()) {
        let generation = machine.generation().to_string();
        patch["metadata"]["annotations"] = json!({ annotations::VM_GENERATION: generation });
    }
    if machine.updates_live()
        && !is_moving(vmi)
        && let Some(spec) = placement_patch(&vmi.spec, wanted)
    {
        patch["spec"] = spec;
    }
    if patch == json!({}) { Drift::None } else { Drift::Followed(patch) }
}

/// The generation of the machine that a guest follows.
pub(super) fn generation_of(vmi: &VirtualMachineInstance) -> Option<i64> {
    vmi.metadata.annotations.as_ref()?.get(annotations::VM_GENERATION)?.parse().ok()
}

fn started_from(machine: &Machine, vmi: &VirtualMachineInstance) -> Option<VirtualMachineSpec> {
    let name = vmi.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
    let revision = machine.revisions.iter().find(|revision| revision.metadata.name.as_deref() == Some(name))?;
    decode(revision.data.as_ref()?.0.get("spec")?).ok()
}

fn placement_patch(old: &VirtualMachineInstanceSpec, new: &VirtualMachineInstanceSpec) -> Option<Value> {
    let placement = |spec: &VirtualMachineInstanceSpec| json!({"nodeSelector": spec.node_selector, "affinity": spec.affinity, "tolerations": spec.tolerations});
    difference(&placement(old), &placement(new))
}

/// The paths in which two guests differ, down to the member; lists count as a whole.
fn changed_fields(old: &VirtualMachineInstanceSpec, new: &VirtualMachineInstanceSpec) -> Vec<String> {
    if old == new {
        return Vec::new();
    }
    let json = |spec: &VirtualMachineInstanceSpec| spec.to_json().unwrap_or_default();
    let mut fields = Vec::new();
    collect("spec.template.spec", &json(old), &json(new), &mut fields);
    fields
}

fn collect(path: &str, old: &Value, new: &Value, fields: &mut Vec<String>) {
    if old == new {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return fields.push(path.to_owned());
    };
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let (old, new) = (old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null));
        collect(&format!("{path}.{key}"), old, new, fields);
    }
}

fn listed(fields: &[String]) -> String {
    let first = fields[..fields.len().min(MOST_FIELDS)].join(", ");
    match fields.len().saturating_sub(MOST_FIELDS) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
