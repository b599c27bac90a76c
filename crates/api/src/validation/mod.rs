//! What is refused when an object is written: every cause with its field, all of them at once.
//!
//! Checked so far is what later steps rely on to be safe: names that become paths and device names, references between
//! lists, sources and bindings that exclude each other, amounts that can be counted. Everything here runs after the
//! defaults.

mod devices;
mod names;
mod networks;
mod resources;

use crate::kubevirt::Configuration;
use crate::names::labels;
use crate::string_enum::string_enum;
use crate::vmi::VirtualMachineInstance;

string_enum! {
    /// The kind of a [`Cause`], as `details.causes[].reason` of a refusal spells it.
    pub enum Reason {
        /// The value is not allowed.
        Invalid = "FieldValueInvalid",
        /// The value is missing.
        Required = "FieldValueRequired",
        /// The value names something that does not exist.
        NotFound = "FieldValueNotFound",
        /// The value is not one of a closed set.
        NotSupported = "FieldValueNotSupported",
        /// Another element has the same value.
        Duplicate = "FieldValueDuplicate",
    }
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Its kind.
    pub reason: Reason,
    /// Where, such as `spec.volumes[1].name`.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Cause {
    fn new(reason: Reason, field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        let field = field.into();
        let message = format!("{field} {problem}");
        Self { reason, field, message }
    }
}

/// Everything that is wrong with a guest.
#[must_use]
pub fn check_vmi(vmi: &VirtualMachineInstance, cluster: &Configuration) -> Vec<Cause> {
    let mut causes = Vec::new();
    names::check(&vmi.spec, &mut causes);
    resources::check(&vmi.spec, &mut causes);
    devices::check(&vmi.spec, cluster, &mut causes);
    networks::check(&vmi.spec, cluster, &mut causes);
    causes
}

/// Everything that is wrong with a guest that somebody creates; `component` when that is one of us, who may set the system's labels.
#[must_use]
pub fn check_new_vmi(vmi: &VirtualMachineInstance, cluster: &Configuration, component: bool) -> Vec<Cause> {
    let mut causes = check_vmi(vmi, cluster);
    if !component {
        reserved_labels(None, vmi, &mut causes);
    }
    causes
}

/// Everything that is wrong with a change to a guest.
#[must_use]
pub fn check_vmi_update(old: &VirtualMachineInstance, new: &VirtualMachineInstance, component: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    if component {
        return causes;
    }
    reserved_labels(Some(old), new, &mut causes);
    if new.spec != old.spec {
        let message =
            "update of VMI object is restricted: change the VirtualMachine, or delete this and create another";
        causes.push(Cause { reason: Reason::NotSupported, field: "spec".to_owned(), message: message.to_owned() });
    }
    causes
}

/// Advice for the author of a guest.
#[must_use]
pub fn warnings(_cluster: &Configuration, _spec: &crate::vmi::VirtualMachineInstanceSpec) -> Vec<String> {
    Vec::new()
}

/// Labels through which components find what is theirs.
const RESERVED_LABELS: [&str; 6] = [
    labels::CREATED_BY,
    labels::MIGRATION_JOB,
    labels::NODE_NAME,
    labels::MIGRATION_TARGET_NODE_NAME,
    labels::NODE_SCHEDULABLE,
    labels::INSTALL_STRATEGY,
];

fn reserved_labels(old: Option<&VirtualMachineInstance>, new: &VirtualMachineInstance, causes: &mut Vec<Cause>) {
    let label = |vmi: Option<&VirtualMachineInstance>, name: &str| {
        vmi.and_then(|vmi| vmi.metadata.labels.as_ref()?.get(name)).cloned()
    };
    for name in RESERVED_LABELS.into_iter().filter(|name| label(old, name) != label(Some(new), name)) {
        let field = format!("metadata.labels.{name}");
        causes.push(Cause::new(Reason::NotSupported, field, "is set by the system: leave it as it is"));
    }
}

/// The causes as one sentence: the first ten, and how many more there are.
#[must_use]
pub fn summary(causes: &[Cause]) -> String {
    const SHOWN: usize = 10;
    let messages: Vec<&str> = causes.iter().take(SHOWN).map(|cause| cause.message.as_str()).collect();
    let more = causes.len().saturating_sub(SHOWN);
    if more == 0 { messages.join(", ") } else { format!("{}, and {more} more", messages.join(", ")) }
}

#[cfg(test)]
mod tests;
