//! Objects seen through their schema: which fields they have, what changed between two, one merged into another, and
//! fields taken out.

mod compare;
mod merge;
mod remove;
mod validate;

use serde_json::Value;

pub use compare::{Comparison, compare};
pub use merge::merge;
pub use remove::remove;
pub use validate::{TypeErrors, validate};

use super::fields::FieldSet;
use super::path::PathElement;
use super::shape::{Shape, is_named, item_element, item_schema, member_schema, shape};
use crate::schema::Schema;

/// The fields that an applied configuration names: its leaves, every element of a list that merges, every member of a
/// free map.
pub fn field_set(schema: Option<&Schema>, value: &Value) -> FieldSet {
    below(schema, value).1
}

/// Whether the value itself counts as a field, and what is below it.
fn below(schema: Option<&Schema>, value: &Value) -> (bool, FieldSet) {
    let mut set = FieldSet::new();
    let shape = shape(schema, value);
    match (shape, value) {
        (Shape::Object, Value::Object(members)) => {
            for (name, member) in members {
                let (leaf, children) = below(member_schema(schema, name), member);
                let empty = member.as_object().is_some_and(serde_json::Map::is_empty);
                set.graft(PathElement::field(name), leaf || empty || !is_named(schema, name), children);
            }
            (false, set)
        }
        (Shape::Set | Shape::Keyed(_), Value::Array(items)) => {
            let element_schema = item_schema(schema);
            let elements: Vec<_> = items.iter().map(|item| item_element(shape, element_schema, item).ok()).collect();
            for (element, item) in elements.iter().zip(items) {
                let Some(element) = element else { continue };
                // Elements that appear twice are owned together, without what is in them.
                let times = elements.iter().filter(|other| other.as_ref() == Some(element)).count();
                let children = if times > 1 { FieldSet::new() } else { below(element_schema, item).1 };
                set.graft(element.clone(), true, children);
            }
            (false, set)
        }
        _ => (true, set),
    }
}
