//! The message of Go's JSON decoder for a value of the wrong type in a built-in kind.

use serde_json::Value;

use crate::schema::Schema;

/// What Go's decoder would say about the first value that does not fit its field; `None` when all fit.
pub fn builtin_type_errors(_schema: &Schema, _value: &Value) -> Option<String> {
    None
}
