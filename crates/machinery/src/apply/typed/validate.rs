//! Checks that an applied configuration can be merged at all: known fields, right types, elements that can be told
//! apart.

use std::fmt;

use serde_json::{Map, Value};

use super::super::path::PathElement;
use super::super::shape::{Shape, item_element, item_schema, member_schema, shape};
use crate::quote::go_quote;
use crate::schema::{Schema, Type};

/// All that is wrong with a configuration: where, and what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeErrors(pub Vec<(String, String)>);

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = self.0.len() != 1;
        if many {
            f.write_str("errors:")?;
        }
        for (path, message) in &self.0 {
            f.write_str(if many { "\n  " } else { "" })?;
            if !path.is_empty() {
                write!(f, "{path}: ")?;
            }
            f.write_str(message)?;
        }
        Ok(())
    }
}

impl std::error::Error for TypeErrors {}

/// Checks a configuration; `null` is a value of every type.
pub fn validate(schema: Option<&Schema>, value: &Value) -> Result<(), TypeErrors> {
    let mut errors = TypeErrors::default();
    check(schema, value, &mut String::new(), &mut errors);
    if errors.0.is_empty() { Ok(()) } else { Err(errors) }
}

fn check(schema: Option<&Schema>, value: &Value, path: &mut String, errors: &mut TypeErrors) {
    let Some(node) = schema else { return };
    if let Some(message) = wrong_type(node, value) {
        errors.0.push((path.clone(), message));
        return;
    }
    match (value, shape(schema, value)) {
        (Value::Object(members), _) => check_members(node, members, path, errors),
        (Value::Array(items), shape) => check_items(node, items, shape, path, errors),
        _ => {}
    }
}

fn check_members(schema: &Schema, members: &Map<String, Value>, path: &mut String, errors: &mut TypeErrors) {
    let is_open = schema.properties.is_empty() || schema.preserve_unknown_fields || schema.embedded_resource;
    for (name, member) in members {
        let member_schema = member_schema(Some(schema), name);
        let length = path.len();
        path.push('.');
        path.push_str(name);
        if member_schema.is_none() && !is_open {
            errors.0.push((path.clone(), "field not declared in schema".into()));
            path.truncate(length);
            return;
        }
        check(member_schema, member, path, errors);
        path.truncate(length);
    }
}

fn check_items(schema: &Schema, items: &[Value], shape: Shape<'_>, path: &mut String, errors: &mut TypeErrors) {
    let item_schema = item_schema(Some(schema));
    let mut seen: Vec<PathElement> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let element = match shape {
            Shape::Set | Shape::Keyed(_) => match item_element(shape, item_schema, item) {
                Ok(element) => element,
                Err(error) => {
                    errors.0.push((path.clone(), format!("element {index}: {error}")));
                    return;
                }
            },
            _ => PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)),
        };
        match seen.binary_search(&element) {
            Ok(_) => errors.0.push((path.clone(), format!("duplicate entries for key {element}"))),
            Err(place) => seen.insert(place, element.clone()),
        }
        let length = path.len();
        path.push_str(&element.to_string());
        check(item_schema, item, path, errors);
        path.truncate(length);
    }
}

/// What kube-apiserver says about a value of the wrong JSON type.
fn wrong_type(schema: &Schema, value: &Value) -> Option<String> {
    if value.is_null() || schema.int_or_string {
        return None;
    }
    // Texts with a format, such as times, are not checked here.
    let has_format = schema
        .checks
        .as_ref()
        .is_some_and(|checks| checks.format.as_deref().is_some_and(|format| !format.is_empty() && format != "byte"));
    match schema.kind {
        Type::Any => None,
        Type::Object => (!value.is_object()).then(|| format!("expected map, got {}", go_struct(value))),
        Type::Array => (!value.is_array()).then(|| format!("expected list, got {}", go_struct(value))),
        Type::String if has_format => {
            (value.is_object() || value.is_array()).then(|| format!("expected any scalar, got {}", go_struct(value)))
        }
        Type::String => (!value.is_string())
            .then(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_literal(value))),
        Type::Integer | Type::Number => {
            (!value.is_number()).then(|| format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Type::Boolean => (!value.is_boolean()).then(|| format!("expected boolean, got {}", go_struct(value))),
    }
}

fn go_struct(value: &Value) -> String {
    format!("&{{{}}}", go_plain(value))
}

fn go_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_plain).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let shown: Vec<String> =
                members.iter().map(|(name, member)| format!("{name}:{}", go_plain(member))).collect();
            format!("map[{}]", shown.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

fn go_literal(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => go_quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(go_literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let shown: Vec<String> =
                members.iter().map(|(name, member)| format!("{}:{}", go_quote(name), go_literal(member))).collect();
            format!("map[string]interface {{}}{{{}}}", shown.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
