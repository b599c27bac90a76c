//! What is wrong with one field: the unit that validation reports and that `Status.details.causes` lists.

use std::fmt;

/// The machine-readable kind of a [`FieldError`]; the name is `causes[].reason` on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// The value is not allowed.
    Invalid,
    /// The value is missing.
    Required,
    /// The value is not one of a closed set.
    NotSupported,
    /// The value may not be given here.
    Forbidden,
    /// Another element has the same value.
    Duplicate,
    /// The value names something that does not exist.
    NotFound,
    /// The value is longer than allowed.
    TooLong,
    /// The list has more elements than allowed.
    TooMany,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// Something failed on our side.
    Internal,
}

impl FieldErrorKind {
    /// `causes[].reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }
}

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What kind of thing.
    pub kind: FieldErrorKind,
    /// Where, as Kubernetes writes it: `spec.containers[0].name`, `metadata.labels`; empty for the whole object.
    pub path: String,
    /// `causes[].message`, without the path: `Invalid value: "x": must be …`.
    pub message: String,
}

impl FieldError {
    /// An error of `kind` at `path` with a ready message.
    pub fn new(kind: FieldErrorKind, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, path: path.into(), message: message.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.path.is_empty() { "<nil>" } else { &self.path }, self.message)
    }
}

impl std::error::Error for FieldError {}
