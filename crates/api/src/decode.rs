//! Reading an object with errors that say where: the path of the field, the value, and what was expected.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Why a document is not the object that it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", prefix(path))]
pub struct DecodeError {
    /// The field, such as `spec.template.spec.domain.devices.disks[0].disk.bus`; empty for the document itself.
    pub path: String,
    /// What is wrong with its value.
    pub problem: String,
}

fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

impl From<serde_path_to_error::Error<serde_json::Error>> for DecodeError {
    fn from(error: serde_path_to_error::Error<serde_json::Error>) -> Self {
        let path = error.path().to_string();
        // serde_path_to_error writes "." for the root and "?" where it lost track.
        let path = if path == "." || path == "?" { String::new() } else { path };
        Self { path, problem: error.into_inner().to_string() }
    }
}

/// Reads a typed object from JSON that is already parsed.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    Ok(serde_path_to_error::deserialize(value)?)
}

/// Reads a typed object from JSON text.
pub fn decode_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, DecodeError> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)?;
    deserializer.end().map_err(|error| DecodeError { path: String::new(), problem: error.to_string() })?;
    Ok(value)
}
