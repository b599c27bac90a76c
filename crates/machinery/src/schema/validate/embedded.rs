//! `apiVersion`, `kind` and `metadata` of resources inside of other resources.

use serde_json::Value;

use crate::error::FieldError;
use crate::names;
use crate::schema::Schema;
use crate::schema::report::{Path, invalid, required};

/// Checks every embedded resource below `value`; the root itself is no embedded resource here.
pub(super) fn check(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if schema.embedded_resource && !path.is_root() {
                resource(value, path, errors);
            }
            for (name, child) in fields {
                if let Some(known) = schema.properties.get(name) {
                    check(known, child, &path.field(name), errors);
                } else if let Some(values) = &schema.additional_properties {
                    check(values, child, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Some(element) = &schema.items {
                    check(element, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Checks one resource's own fields.
pub(super) fn resource(value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let api_version = path.field("apiVersion").to_string();
    match value.get("apiVersion") {
        None => errors.push(required(api_version, "")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(invalid(api_version, &Value::from(""), "must not be empty"));
        }
        Some(Value::String(text)) if text.matches('/').count() > 1 => {
            let reason = format!("unexpected GroupVersion string: {text}");
            errors.push(invalid(api_version, &Value::from(text.as_str()), reason));
        }
        Some(Value::String(_)) => {}
        Some(other) => errors.push(invalid(api_version, other, "must be a string")),
    }
    let kind = path.field("kind").to_string();
    match value.get("kind") {
        None => errors.push(required(kind, "")),
        Some(Value::String(text)) if text.is_empty() => {
            errors.push(invalid(kind, &Value::from(""), "must not be empty"));
        }
        Some(Value::String(text)) => {
            let problems = names::dns_1035_label(&text.to_lowercase());
            if !problems.is_empty() {
                let reason = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
                errors.push(invalid(kind, &Value::from(text.as_str()), reason));
            }
        }
        Some(other) => errors.push(invalid(kind, other, "must be a string")),
    }
    if let Some(meta) = value.get("metadata") {
        metadata(meta, &path.field("metadata"), errors);
    }
}

fn metadata(meta: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !meta.is_object() {
        errors.push(invalid(path.to_string(), meta, "must be an object"));
        return;
    }
    let mut meta = meta.clone();
    // A resource inside of another one needs no name.
    let unnamed = meta.get("name").and_then(Value::as_str).is_none_or(str::is_empty);
    if unnamed && let Some(fields) = meta.as_object_mut() {
        fields.insert("name".to_owned(), Value::from("fakename"));
    }
    let namespaced = meta.get("namespace").and_then(Value::as_str).is_some_and(|namespace| !namespace.is_empty());
    errors.extend(names::validate_object_meta(&meta, namespaced, names::NameRule::PathSegment, &path.to_string()));
}
