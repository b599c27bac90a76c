//! Small helpers to fill in values that a client left out.

use serde_json::{Value, json};

/// Sets a field of an object unless it is there.
pub(super) fn field(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Value::Object(map) = object
        && map.get(name).is_none_or(Value::is_null)
    {
        map.insert(name.to_owned(), value.into());
    }
}

/// The object in a field, made when it is missing.
pub(super) fn child<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    if !object[name].is_object() {
        object[name] = json!({});
    }
    &mut object[name]
}

/// The object in a field, when it is there.
pub(super) fn existing<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    object.get_mut(name).filter(|value| value.is_object())
}

/// The elements of a list, when it is there.
pub(super) fn each<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Removes a field.
pub(super) fn remove(object: &mut Value, name: &str) {
    if let Value::Object(map) = object {
        map.remove(name);
    }
}
