//! How lists, maps and flags with an empty default travel: absent and `null` mean empty, and empty is left out.

use serde::{Deserialize, Deserializer};

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
