//! What a guest asks for and cannot have, said so that its owner knows which line to change.

use std::fmt;

/// A part of a guest's specification that cannot become virtual hardware on this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {value}: {why}")]
pub struct Unsupported {
    /// The field, from the object's root: `spec.domain.cpu.model`.
    pub path: String,
    /// What it says.
    pub value: String,
    /// Why that is not possible, and what is.
    pub why: String,
}

impl Unsupported {
    /// A field, its value and the reason.
    pub(crate) fn new(path: impl Into<String>, value: impl fmt::Display, why: impl Into<String>) -> Self {
        Self { path: path.into(), value: value.to_string(), why: why.into() }
    }

    /// A field that nothing here implements.
    pub(crate) fn yet(path: impl Into<String>, value: impl fmt::Display) -> Self {
        Self::new(path, value, "not supported yet")
    }
}
