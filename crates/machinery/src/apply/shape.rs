//! What the schema says about ownership at one place: is this value owned as a whole, by member or by element.
//!
//! Where the schema says nothing, objects are owned by member and lists as a whole.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::path::PathElement;
use crate::schema::meta::object_meta;
use crate::schema::{ListType, Schema, Type};

/// How a value is owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape<'s> {
    /// As a whole: scalars, atomic objects and lists.
    Leaf,
    /// Member by member.
    Object,
    /// Element by element, found by value.
    Set,
    /// Element by element, found by the values of these fields.
    Keyed(&'s [String]),
}

/// The shape of `value`; `null` is a leaf.
pub(super) fn shape<'s>(schema: Option<&'s Schema>, value: &Value) -> Shape<'s> {
    match value {
        Value::Object(_) => match schema {
            Some(node) if node.atomic_map || is_raw_extension(node) => Shape::Leaf,
            Some(node) if !matches!(node.kind, Type::Object | Type::Any) => Shape::Leaf,
            _ => Shape::Object,
        },
        Value::Array(_) => match schema {
            Some(node) if matches!(node.kind, Type::Array | Type::Any) => match node.list_type {
                ListType::Atomic => Shape::Leaf,
                ListType::Set => Shape::Set,
                ListType::Map => Shape::Keyed(&node.list_map_keys),
            },
            _ => Shape::Leaf,
        },
        _ => Shape::Leaf,
    }
}

fn is_raw_extension(schema: &Schema) -> bool {
    schema.definition.as_deref() == Some("io.k8s.apimachinery.pkg.runtime.RawExtension")
}

/// The schema of the member `name` of an object.
pub(super) fn member_schema<'s>(schema: Option<&'s Schema>, name: &str) -> Option<&'s Schema> {
    let schema = schema?;
    if let Some(member) = schema.properties.get(name) {
        return Some(member);
    }
    if schema.embedded_resource && name == "metadata" {
        return Some(object_meta());
    }
    schema.additional_properties.as_deref()
}

/// The schema of a list's elements.
pub(super) fn item_schema(schema: Option<&Schema>) -> Option<&Schema> {
    schema.and_then(|list| list.items.as_deref())
}

/// Whether the schema names the member, as opposed to allowing any name. Named members are not owned for being there:
/// only what is below them counts.
pub(super) fn is_named(schema: Option<&Schema>, name: &str) -> bool {
    schema.is_some_and(|node| {
        node.properties.contains_key(name)
            || (node.embedded_resource && matches!(name, "metadata" | "apiVersion" | "kind"))
    })
}

/// Why an element of a list cannot be told from the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// `null` in a list of objects.
    #[error("associative list with keys may not have a null element")]
    NullInKeyedList,
    /// A scalar in a list of objects.
    #[error("associative list with keys may not have non-map elements")]
    NotAnObject,
    /// None of the key fields is there.
    #[error(
        "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
        .0.iter().map(|key| crate::quote::go_quote(key)).collect::<Vec<_>>().join(" ")
    )]
    NoKeys(Vec<String>),
    /// An object in a set.
    #[error("associative list without keys has an element that's a map type")]
    ObjectInSet,
    /// A list in a set.
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    /// `null` in a set.
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// The path element of one element of a list with that shape.
pub(super) fn item_element(shape: Shape<'_>, items: Option<&Schema>, item: &Value) -> Result<PathElement, ItemError> {
    match shape {
        Shape::Keyed(keys) => keyed_element(keys, items, item),
        _ => match item {
            Value::Object(_) => Err(ItemError::ObjectInSet),
            Value::Array(_) => Err(ItemError::ListInSet),
            Value::Null => Err(ItemError::NullInSet),
            scalar => Ok(PathElement::Value(scalar.clone())),
        },
    }
}

fn keyed_element(keys: &[String], items: Option<&Schema>, item: &Value) -> Result<PathElement, ItemError> {
    let members = match item {
        Value::Object(members) => members,
        Value::Null => return Err(ItemError::NullInKeyedList),
        _ => return Err(ItemError::NotAnObject),
    };
    let mut fields = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(value) = members.get(key).cloned().or_else(|| key_default(items?, key)) {
            fields.push((key.clone(), value));
        }
    }
    if fields.is_empty() {
        return Err(ItemError::NoKeys(keys.to_vec()));
    }
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(PathElement::Key(fields))
}

/// The value of a key field that is not there. Required fields of built-in kinds have the zero value of their Go type,
/// so that a forgotten name is reported by validation and not here.
fn key_default(items: &Schema, key: &str) -> Option<Value> {
    let field = items.properties.get(key)?;
    if field.default.is_some() {
        return field.default.clone();
    }
    let is_required = items.definition.is_some() && items.required.iter().any(|name| name == key);
    match field.kind {
        Type::String if is_required => Some(Value::from("")),
        Type::Integer if is_required => Some(Value::from(0)),
        _ => None,
    }
}

/// An object without members.
pub(super) fn empty_object() -> &'static Value {
    static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
    &EMPTY
}

/// Members that kube-apiserver's typed objects of a built-in definition always have, with the values that they have
/// when nobody has set them: Go structs that are not pointers are `{}`, required lists and pointers `null`, required
/// texts empty. Whoever creates an object does not add them, so they are not owned for being there. The list comes from
/// `default` and `required` in kube-apiserver's OpenAPI documents.
pub(super) fn always_present(schema: Option<&Schema>) -> Option<&'static Map<String, Value>> {
    static FACTS: LazyLock<BTreeMap<String, Map<String, Value>>> =
        LazyLock::new(|| serde_json::from_str(include_str!("always_present.json")).unwrap_or_default());
    FACTS.get(schema?.definition.as_deref()?)
}
