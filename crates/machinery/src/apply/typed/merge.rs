//! An applied configuration merged into the live object. Nothing is removed here.

use serde_json::{Map, Value};

use super::super::path::PathElement;
use super::super::shape::{Shape, item_element, item_schema, member_schema, shape};
use crate::schema::Schema;

/// `live` with everything that `applied` sets.
pub fn merge(schema: Option<&Schema>, live: &Value, applied: &Value) -> Value {
    match (shape(schema, live), live, shape(schema, applied), applied) {
        (Shape::Object, Value::Object(live), Shape::Object, Value::Object(applied)) => {
            Value::Object(merge_members(schema, live, applied))
        }
        (shape @ (Shape::Set | Shape::Keyed(_)), Value::Array(live), _, Value::Array(applied)) => {
            Value::Array(merge_items(schema, shape, live, applied))
        }
        // Applying null to a container says nothing about what is in it.
        (Shape::Object | Shape::Set | Shape::Keyed(_), live, _, Value::Null) if !is_empty(live) => live.clone(),
        _ => applied.clone(),
    }
}

fn is_empty(container: &Value) -> bool {
    container.as_object().is_some_and(Map::is_empty) || container.as_array().is_some_and(Vec::is_empty)
}

fn merge_members(
    schema: Option<&Schema>,
    live: &Map<String, Value>,
    applied: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = live.clone();
    for (name, value) in applied {
        match merged.get_mut(name) {
            Some(current) => {
                let value = merge(member_schema(schema, name), current, value);
                *current = value;
            }
            None => {
                merged.insert(name.clone(), value.clone());
            }
        }
    }
    merged
}

/// Applied elements come in the applied order; live elements keep their places around them.
fn merge_items(schema: Option<&Schema>, shape: Shape<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let items = item_schema(schema);
    let name = |item: &Value| item_element(shape, items, item).ok();
    let live_names: Vec<Option<PathElement>> = live.iter().map(name).collect();
    let applied_names: Vec<Option<PathElement>> = applied.iter().map(name).collect();
    let is_applied = |name: &Option<PathElement>| applied_names.contains(name);
    let take = |index: usize| {
        let name = &applied_names[index];
        let mut matching = live_names.iter().zip(live).filter(|(other, _)| *other == name).map(|(_, item)| item);
        match (matching.next(), matching.next()) {
            (Some(current), None) => merge(items, current, &applied[index]),
            // With two of a name there is no telling which one is meant: the applied one replaces both.
            _ => applied[index].clone(),
        }
    };

    // The elements that both have, in the applied order: how far in the live list we may go.
    let mut shared = applied_names.iter().filter(|name| live_names.contains(name)).peekable();
    let mut taken: Vec<&Option<PathElement>> = Vec::with_capacity(applied.len());
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    let (mut left, mut right) = (0, 0);
    while left < live.len() || right < applied.len() {
        if left < live.len() && right < applied.len() {
            let name = &live_names[left];
            if *name == applied_names[right] {
                merged.push(take(right));
                taken.push(name);
                shared.next();
                left += 1;
                right += 1;
                continue;
            }
            if is_applied(name) && shared.peek().is_some_and(|next| *next != name) {
                // Its turn comes when the applied list gets there.
                left += 1;
                continue;
            }
        }
        if left < live.len() {
            let name = &live_names[left];
            if !is_applied(name) {
                merged.push(live[left].clone());
                left += 1;
                continue;
            }
            if taken.contains(&name) {
                left += 1;
            }
        }
        if right < applied.len() {
            let name = &applied_names[right];
            merged.push(take(right));
            taken.push(name);
            shared.next_if(|next| *next == name);
            right += 1;
        }
    }
    merged
}
