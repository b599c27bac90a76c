//! How objects travel. Lists, maps and flags with an empty default: absent and `null` mean empty, and empty is left out.
//!
//! A derived implementation is compiled once for every format, for every way to read or write one, and again in every
//! crate that does so. With as many types as there are below a VM that was most of a program and of its build. So whole
//! objects are read from one format, parsed JSON, and written through a pointer that hides the format; the code for that
//! is compiled in this crate and in no other.

use serde::Serializer;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::Value;

use ferrovirt_kubernetes::json::FromJson;

/// Reads an object from any format.
pub(crate) fn read<'de, D: Deserializer<'de>, T: FromJson>(deserializer: D) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    T::from_json(&value).map_err(D::Error::custom)
}

/// Writes an object to any format by code that is compiled where the pointer was made.
pub(crate) fn write<S: Serializer>(object: &dyn erased_serde::Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    erased_serde::serialize(object, serializer)
}

/// Reads a field whose `null` means the same as its absence.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether a field need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
