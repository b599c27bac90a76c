//! How objects travel. Lists, maps and flags with an empty default: absent and `null` mean empty, and empty is left out.
//!
//! A derived implementation is compiled once for every format, and for every way to read or write one. With as many
//! types as there are below a machine that is much of a program. So whole objects go through [`read`] and [`write`], which
//! hide the format behind a pointer: one implementation of each type serves all, for a call through a table per field.

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer};
use serde::{Serialize, Serializer};

/// Reads an object from any format, by code that is the same for all.
pub(crate) fn read<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let mut any_format = <dyn erased_serde::Deserializer<'_>>::erase(deserializer);
    erased_serde::deserialize(&mut any_format).map_err(de::Error::custom)
}

/// Writes an object to any format, by code that is the same for all.
pub(crate) fn write<T: Serialize, S: Serializer>(object: &T, serializer: S) -> Result<S::Ok, S::Error> {
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
