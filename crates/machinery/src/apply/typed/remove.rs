//! Fields taken out of an object.

use serde_json::{Map, Value};

use super::super::fields::FieldSet;
use super::super::path::PathElement;
use super::super::shape::{Shape, item_element, item_schema, member_schema, shape};
use crate::schema::Schema;

/// Takes the members of `unwanted` out of `value`. A container that loses all that it had stays, empty.
pub fn remove(schema: Option<&Schema>, value: &mut Value, unwanted: &FieldSet) {
    match (shape(schema, value), value) {
        (Shape::Object, Value::Object(members)) => {
            unwanted.for_each(|element, member, below| {
                let PathElement::Field(name) = element else { return };
                if member {
                    members.remove(name);
                } else if let Some(child) = members.get_mut(name) {
                    remove(member_schema(schema, name), child, below);
                }
            });
        }
        (shape @ (Shape::Set | Shape::Keyed(_)), Value::Array(items)) => {
            let item_schema = item_schema(schema);
            items.retain_mut(|item| {
                let Ok(element) = item_element(shape, item_schema, item) else { return true };
                let (member, below) = unwanted.at(&element);
                if let Some(below) = below.filter(|_| !member) {
                    remove(item_schema, item, below);
                }
                !member
            });
        }
        // Owned as a whole, but once owned in parts: the parts are gone.
        (Shape::Leaf, Value::Object(members)) => *members = Map::new(),
        (Shape::Leaf, Value::Array(items)) => items.clear(),
        _ => {}
    }
}
