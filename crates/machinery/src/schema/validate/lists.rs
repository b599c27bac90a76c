//! Uniqueness in lists that are sets or maps.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::schema::report::{Path, duplicate, invalid};
use crate::schema::{ListType, Schema};

/// Errors for every list below `value` whose elements are not unique as its list type asks.
pub(super) fn duplicates(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, child) in fields {
                if let Some(known) = schema.properties.get(name) {
                    duplicates(known, child, &path.field(name), errors);
                } else if let Some(values) = &schema.additional_properties {
                    duplicates(values, child, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type {
                ListType::Atomic => {}
                ListType::Set => in_set(items, path, errors),
                ListType::Map => in_map(schema, items, path, errors),
            }
            if let Some(element) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    duplicates(element, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// The places where a value is seen for the second time; later ones are not counted again.
fn repeated<'v>(values: impl Iterator<Item = &'v Value>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut repeated = Vec::new();
    for (index, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            repeated.push(index);
        }
    }
    repeated
}

fn in_set(items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for index in repeated(items.iter()) {
        errors.push(duplicate(path.index(index).to_string(), &items[index]));
    }
}

fn in_map(schema: &Schema, items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
        let place = path.index(index).to_string();
        errors.push(invalid(place, &items[index], "must be an object for an array of list-type map"));
        return;
    }
    let keys: Vec<Value> = items.iter().map(|item| Value::Object(keys_of(schema, item))).collect();
    for index in repeated(keys.iter()) {
        errors.push(duplicate(path.index(index).to_string(), &keys[index]));
    }
}

/// The fields of an element that identify it in its list.
pub(super) fn keys_of(schema: &Schema, item: &Value) -> Map<String, Value> {
    let key = |name: &String| item.get(name).map(|value| (name.clone(), value.clone()));
    schema.list_map_keys.iter().filter_map(key).collect()
}
