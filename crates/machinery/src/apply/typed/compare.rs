//! What changed between two objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::fields::FieldSet;
use super::super::path::PathElement;
use super::super::shape::{Shape, always_present, empty_object, item_element, item_schema, member_schema, shape};
use crate::schema::Schema;

/// The fields that differ; no field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only in the new object.
    pub added: FieldSet,
    /// In both, with different values.
    pub modified: FieldSet,
    /// Only in the old object.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether nothing changed.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Forgets changes at or below the given fields.
    pub fn without(self, fields: &FieldSet) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            added: self.added.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            removed: self.removed.recursive_difference(fields),
        }
    }
}

/// Compares two objects of the schema. `old` is `None` when the object is being created.
pub fn compare(schema: Option<&Schema>, old: Option<&Value>, new: &Value) -> Comparison {
    let mut walk = Walk { path: Vec::new(), result: Comparison::default() };
    let old = old.unwrap_or_else(|| empty_object());
    if old != new {
        walk.value(schema, Some(old), Some(new));
    }
    walk.result
}

struct Walk {
    path: Vec<PathElement>,
    result: Comparison,
}

impl Walk {
    /// Compares what is at the current path; the two sides differ.
    fn value(&mut self, schema: Option<&Schema>, old: Option<&Value>, new: Option<&Value>) {
        let old_shape = old.map_or(Shape::Leaf, |value| shape(schema, value));
        let new_shape = new.map_or(Shape::Leaf, |value| shape(schema, value));
        // Empty containers are values of their own: {} is not the same as nothing.
        if is_empty(old) && is_empty(new) {
            return self.leaf(old, new);
        }
        let old_inside = inside(old, old_shape);
        let new_inside = inside(new, new_shape);
        match (old_inside, new_inside) {
            (Inside::Nothing, Inside::Nothing) => return self.leaf(old, new),
            (Inside::Object(old), Inside::Object(new)) => self.members(schema, Some(old), Some(new)),
            (Inside::List(old), Inside::List(new)) => self.items(schema, old_shape, old, new),
            (before, after) => {
                self.only(schema, old_shape, before, true);
                self.only(schema, new_shape, after, false);
                // One side is a leaf that is not null: the field changed as a whole, too.
                let replaced = old.is_some_and(|value| is_opaque(value, old_shape))
                    || new.is_some_and(|value| is_opaque(value, new_shape));
                if replaced {
                    return self.leaf(old, new);
                }
            }
        }
        if old.is_none() {
            self.result.added.insert(&self.path);
        } else if new.is_none() {
            self.result.removed.insert(&self.path);
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.result.added.insert(&self.path),
            (_, None) => self.result.removed.insert(&self.path),
            (Some(old), Some(new)) if old != new => self.result.modified.insert(&self.path),
            _ => {}
        }
    }

    /// What is inside of a container that the other side does not have.
    fn only(&mut self, schema: Option<&Schema>, shape: Shape<'_>, inside: Inside<'_>, is_old: bool) {
        match inside {
            Inside::Nothing => {}
            Inside::Object(members) if is_old => self.members(schema, Some(members), None),
            Inside::Object(members) => self.members(schema, None, Some(members)),
            Inside::List(items) if is_old => self.items(schema, shape, items, &[]),
            Inside::List(items) => self.items(schema, shape, &[], items),
        }
    }

    fn step(&mut self, element: PathElement, schema: Option<&Schema>, old: Option<&Value>, new: Option<&Value>) {
        self.path.push(element);
        self.value(schema, old, new);
        self.path.pop();
    }

    fn members(&mut self, schema: Option<&Schema>, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>) {
        let facts = always_present(schema);
        // In typed objects a member that is not there and one that is null are the same.
        let is_typed = schema.is_some_and(|node| node.definition.is_some());
        let implied = |name: &str, there: bool, other: Option<&Value>| -> Option<&'static Value> {
            let null = is_typed && matches!(other, Some(Value::Null));
            let value = facts.and_then(|facts| facts.get(name)).or_else(|| null.then_some(&Value::Null));
            value.filter(|_| there)
        };
        let compare = |walk: &mut Self, name: &str, before: Option<&Value>, after: Option<&Value>| {
            let (before, after) = (
                before.or_else(|| implied(name, old.is_some(), after)),
                after.or_else(|| implied(name, new.is_some(), before)),
            );
            if before != after {
                walk.step(PathElement::field(name), member_schema(schema, name), before, after);
            }
        };
        for (name, before) in old.into_iter().flatten() {
            compare(self, name, Some(before), new.and_then(|members| members.get(name)));
        }
        for (name, after) in new.into_iter().flatten() {
            if old.is_none_or(|members| !members.contains_key(name)) {
                compare(self, name, None, Some(after));
            }
        }
        // A struct that comes or goes brings along what it always has.
        if old.is_none() || new.is_none() {
            let there = old.or(new);
            for name in facts.into_iter().flat_map(Map::keys) {
                if there.is_some_and(|members| !members.contains_key(name)) {
                    compare(self, name, None, None);
                }
            }
        }
    }

    fn items(&mut self, schema: Option<&Schema>, shape: Shape<'_>, old: &[Value], new: &[Value]) {
        let items = item_schema(schema);
        let mut found: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(element) = item_element(shape, items, item) {
                found.entry(element).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(element) = item_element(shape, items, item) {
                found.entry(element).or_default().1.push(item);
            }
        }
        for (element, (before, after)) in found {
            self.same_element(items, element, &before, &after);
        }
    }

    /// Elements that appear twice are compared as one unit.
    fn same_element(&mut self, items: Option<&Schema>, element: PathElement, before: &[&Value], after: &[&Value]) {
        if before == after {
            return;
        }
        self.path.push(element);
        match (before, after) {
            ([] | [_], [] | [_]) => self.value(items, before.first().copied(), after.first().copied()),
            ([_, _, ..], [_, _, ..]) => self.result.modified.insert(&self.path),
            ([_, _, ..], _) => {
                if let Some(after) = after.first() {
                    self.value(items, None, Some(after));
                }
                self.result.removed.insert(&self.path);
            }
            (_, [_, _, ..]) => {
                if let Some(before) = before.first() {
                    self.value(items, Some(before), None);
                }
                self.result.added.insert(&self.path);
            }
        }
        self.path.pop();
    }
}

/// What can be walked into.
#[derive(Clone, Copy)]
enum Inside<'v> {
    Nothing,
    Object(&'v Map<String, Value>),
    List(&'v [Value]),
}

fn inside<'v>(value: Option<&'v Value>, shape: Shape<'_>) -> Inside<'v> {
    match (value, shape) {
        (Some(Value::Object(members)), Shape::Object) => Inside::Object(members),
        (Some(Value::Array(items)), Shape::Set | Shape::Keyed(_)) => Inside::List(items),
        _ => Inside::Nothing,
    }
}

/// A value that is owned as a whole and is not `null`, which stands for an empty container as well.
fn is_opaque(value: &Value, shape: Shape<'_>) -> bool {
    shape == Shape::Leaf && !value.is_null()
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(members)) => members.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}
