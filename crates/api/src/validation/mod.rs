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
