//! Reading an object with errors that say where: the path of the field, the value, and what was expected.

use serde_json::Value;

pub use ferrovirt_kubernetes::json::{DecodeError, FromJson};

/// Reads a typed object from JSON that is already parsed.
pub fn decode<T: FromJson>(value: &Value) -> Result<T, DecodeError> {
    T::from_json(value)
}

/// Reads a typed object from JSON text.
pub fn decode_json<T: FromJson>(text: &[u8]) -> Result<T, DecodeError> {
    let value = serde_json::from_slice(text)
        .map_err(|error| DecodeError { path: String::new(), problem: error.to_string() })?;
    decode(&value)
}
