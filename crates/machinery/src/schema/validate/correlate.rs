//! Finds the old value of each part of an object under update: what has not changed may stay invalid.

use serde_json::Value;

use super::lists::keys_of;
use crate::schema::{ListType, Schema};

/// The old counterpart of a value.
#[derive(Clone, Copy)]
pub(crate) struct Old<'o> {
    /// What the value was.
    pub(crate) value: &'o Value,
    /// The schema that tells how parts belong together.
    schema: &'o Schema,
}

impl<'o> Old<'o> {
    pub(crate) fn new(value: &'o Value, schema: &'o Schema) -> Self {
        Self { value, schema }
    }

    /// The old value of a field that is in both objects.
    pub(crate) fn field(self, name: &str) -> Option<Old<'o>> {
        let value = self.value.as_object()?.get(name)?;
        Some(Old { value, schema: self.schema.field(name)? })
    }

    /// The old value of an element, for lists whose elements have an identity.
    pub(crate) fn element(self, item: &Value) -> Option<Old<'o>> {
        let items = self.value.as_array()?;
        if self.schema.list_type != ListType::Map {
            return None;
        }
        let keys = keys_of(self.schema, item);
        let value = items.iter().find(|old| keys_of(self.schema, old) == keys)?;
        Some(Old { value, schema: self.schema.items.as_deref()? })
    }

    /// Whether `new` is the same. Elements of map lists may have changed their order; fields that the schema does not
    /// know make objects differ.
    pub(crate) fn is(self, new: &Value) -> bool {
        match (self.value, new) {
            (Value::Array(old), Value::Array(new)) if old.len() != new.len() => false,
            (Value::Array(old), Value::Array(new)) if self.schema.list_type != ListType::Map => old == new,
            (Value::Array(_), Value::Array(new)) => {
                new.iter().all(|item| self.element(item).is_some_and(|old| old.is(item)))
            }
            (Value::Object(old), Value::Object(new)) => {
                old.len() == new.len()
                    && new.iter().all(|(name, child)| self.field(name).is_some_and(|old| old.is(child)))
            }
            (old, new) => old == new,
        }
    }
}
