//! The three patch formats that change an object given only what is different: JSON patch, merge patch and strategic
//! merge patch. Server-side apply is not a patch in this sense and lives in [`crate::apply`].
//!
//! Every function here is pure: it takes the object and a parsed patch and returns the new object. Errors know the HTTP
//! status that kube-apiserver answers with.

pub mod json;
pub mod merge;
pub mod strategic;

use serde_json::Value;

/// Why a patch was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself has the wrong shape: 400.
    #[error("{0}")]
    Malformed(String),
    /// More operations than a server is willing to run: 413.
    #[error(
        "Request entity too large: The allowed maximum operations in a JSON patch is {}, got {count}",
        json::MAX_OPERATIONS
    )]
    TooManyOperations {
        /// How many operations the patch has.
        count: usize,
    },
    /// The patch is well formed but cannot be applied to this object: 422. Clients only ever see the fixed sentence;
    /// `detail` is for logs.
    #[error("the server rejected our request due to an error in our request")]
    Rejected {
        /// What went wrong.
        detail: String,
    },
    /// A mistake in a strategic merge patch that kube-apiserver does not classify: 500.
    #[error("{0}")]
    Unclassified(String),
}

impl PatchError {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TooManyOperations { .. } => 413,
            Self::Rejected { .. } => 422,
            Self::Unclassified(_) => 500,
        }
    }

    /// `Status.reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "BadRequest",
            Self::TooManyOperations { .. } => "RequestEntityTooLarge",
            Self::Rejected { .. } => "Invalid",
            Self::Unclassified(_) => "",
        }
    }

    fn rejected(detail: impl Into<String>) -> Self {
        Self::Rejected { detail: detail.into() }
    }
}

/// What Go's JSON decoder calls a value in `cannot unmarshal … into`.
fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
