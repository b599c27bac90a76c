//! Strategic merge patch: a merge patch that knows from the schema which lists merge, and by which key.
//!
//! Directives in the patch say what plain merging cannot:
//!
//! | directive | meaning |
//! |---|---|
//! | `$patch: replace` | in an object: take the rest of the patch as the new object; in a list element: the patch's list is the new list |
//! | `$patch: delete` | in an object: empty it; in a list element: remove the elements with the same merge key |
//! | `$retainKeys: […]` | members that are not listed are removed |
//! | `$deleteFromPrimitiveList/<field>: […]` | scalars to take out of a list |
//! | `$setElementOrder/<field>: […]` | the order that the merged list shall have |
//!
//! Where a field has no schema, objects merge and lists are replaced.

mod order;

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::Schema;

type Object = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_SCALARS: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Applies `patch` to `document`, both objects described by `schema`.
pub fn apply(schema: &Schema, document: Value, patch: Value) -> Result<Value, PatchError> {
    let changes = match patch {
        Value::Object(members) => members,
        Value::Null => Object::new(),
        other => {
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                super::json_type_name(&other)
            )));
        }
    };
    let original = match document {
        Value::Object(members) => members,
        _ => Object::new(),
    };
    merge_object(original, changes, Some(schema)).map(Value::Object)
}

/// The schema of the member `name`.
fn member_schema<'a>(schema: Option<&'a Schema>, name: &str) -> Option<&'a Schema> {
    let schema = schema?;
    schema.properties.get(name).or(schema.additional_properties.as_ref()).map(AsRef::as_ref)
}

fn merge_object(mut original: Object, mut patch: Object, schema: Option<&Schema>) -> Result<Object, PatchError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (name, change) in patch {
        if name.starts_with(DELETE_SCALARS) {
            let field = directive_field(&name, DELETE_SCALARS)?.to_owned();
            delete_scalars(&mut original, field, change, schema)?;
        } else {
            merge_member(&mut original, name, change, schema)?;
        }
    }
    Ok(original)
}

fn merge_member(original: &mut Object, name: String, change: Value, schema: Option<&Schema>) -> Result<(), PatchError> {
    if change.is_null() {
        original.remove(&name);
        return Ok(());
    }
    let schema = member_schema(schema, &name);
    match (original.get_mut(&name).map(Value::take), change) {
        (Some(Value::Object(current)), Value::Object(changes)) => {
            let merged = merge_object(current, changes, schema)?;
            original.insert(name, Value::Object(merged));
        }
        (Some(Value::Array(current)), Value::Array(changes)) => {
            let merged = if schema.is_some_and(|list| list.patch.merge) {
                merge_list(current, changes, schema)?
            } else {
                changes
            };
            original.insert(name, Value::Array(merged));
        }
        (_, mut change) => {
            drop_nulls(&mut change);
            match without_directives(change) {
                Some(value) => original.insert(name, value),
                None => original.remove(&name),
            };
        }
    }
    Ok(())
}

/// `$retainKeys` clears what it does not list; it must list every member that the patch sets.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(listed) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let Value::Array(listed) = listed else { return Err(bad()) };
    let is_listed = |name: &str| listed.iter().any(|key| key.as_str() == Some(name));
    for (name, change) in patch.iter() {
        let is_directive = name.starts_with(DELETE_SCALARS) || name.starts_with(SET_ORDER);
        if !change.is_null() && !is_directive && !is_listed(name) {
            return Err(bad());
        }
    }
    original.retain(|name, _| is_listed(name));
    Ok(())
}

/// Merges every list that comes with a `$setElementOrder` and takes both out of the patch.
fn merge_ordered_lists(original: &mut Object, patch: &mut Object, schema: Option<&Schema>) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let wanted = as_list(patch.remove(&directive).unwrap_or_default())?;
        let field = directive_field(&directive, SET_ORDER)?;
        let list_schema = member_schema(schema, field);
        let key = merge_key(list_schema);
        let current = original.remove(field).map(as_list).transpose()?;
        let changes = patch.remove(field).map(as_list).transpose()?;
        order::check_patch_order(changes.as_deref().unwrap_or_default(), &wanted, key)?;
        if current.is_none() && changes.is_none() {
            continue;
        }
        let before = current.clone().unwrap_or_default();
        element_kind([before.as_slice(), changes.as_deref().unwrap_or_default()])?;
        let merged = match (current, changes) {
            (Some(current), Some(changes)) if list_schema.is_some_and(|list| list.patch.merge) => {
                merge_list(current, changes, list_schema)?
            }
            (Some(_), Some(changes)) => changes,
            (Some(current), None) => current,
            (None, changes) => changes.unwrap_or_default().into_iter().filter_map(without_directives).collect(),
        };
        let merged = order::arrange(merged, &wanted, &before, key)?;
        original.insert(field.to_owned(), Value::Array(merged));
    }
    Ok(())
}

fn delete_scalars(
    original: &mut Object,
    field: String,
    change: Value,
    schema: Option<&Schema>,
) -> Result<(), PatchError> {
    if change.is_null() {
        original.remove(&field);
        return Ok(());
    }
    let (Some(Value::Array(current)), Value::Array(unwanted)) = (original.get_mut(&field), change) else {
        // There is no such list: nothing to delete.
        return Ok(());
    };
    if current.is_empty() && unwanted.is_empty() {
        return Ok(());
    }
    if element_kind([current.as_slice(), &unwanted])? == ElementKind::Object {
        let merged = merge_list(std::mem::take(current), unwanted, member_schema(schema, &field))?;
        original.insert(field, Value::Array(merged));
    } else {
        current.retain(|item| !unwanted.contains(item));
    }
    Ok(())
}

/// Merges two lists whose schema says `merge`: objects by key, scalars as a set.
fn merge_list(original: Vec<Value>, patch: Vec<Value>, schema: Option<&Schema>) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if element_kind([&original, &patch])? == ElementKind::Object {
        let key = merge_key(schema)
            .ok_or_else(|| PatchError::Unclassified("cannot merge lists without merge key for struct".to_owned()))?;
        return merge_objects_by_key(original, patch, key, schema.and_then(|list| list.items.as_deref()));
    }
    let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
    for item in original.iter().chain(&patch) {
        if !merged.contains(item) {
            merged.push(item.clone());
        }
    }
    order::arrange(merged, &patch, &original, None)
}

fn merge_objects_by_key(
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    element: Option<&Schema>,
) -> Result<Vec<Value>, PatchError> {
    let (original, patch) = apply_element_directives(original, patch, key)?;
    let mut merged = original.clone();
    for change in &patch {
        let Value::Object(change) = change else { return Err(bad_type("map[string]interface {}", change)) };
        let wanted = change.get(key).ok_or_else(|| no_merge_key(change, key))?;
        match merged.iter_mut().find(|item| item.get(key) == Some(wanted)) {
            Some(item) => {
                if let Value::Object(current) = item.take() {
                    *item = Value::Object(merge_object(current, change.clone(), element)?);
                }
            }
            None => merged.push(Value::Object(change.clone())),
        }
    }
    order::arrange(merged, &patch, &original, Some(key))
}

/// Runs the `$patch` elements of a list patch and returns what is left of both lists.
fn apply_element_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for element in patch {
        let Value::Object(members) = &element else { return Err(bad_type("map[string]interface {}", &element)) };
        match members.get(DIRECTIVE) {
            None => plain.push(element),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let unwanted = members.get(key).ok_or_else(|| no_merge_key(members, key))?;
                    original.retain(|item| item.get(key) != Some(unwanted));
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    return Err(PatchError::Unclassified("merging lists cannot yet be specified in the patch".into()));
                }
                _ => return Err(unknown_directive(directive, members)),
            },
        }
    }
    Ok(if replace { (plain, Vec::new()) } else { (original, plain) })
}

fn merge_key(list: Option<&Schema>) -> Option<&str> {
    list.and_then(|list| list.patch.merge_key.as_deref())
}

fn directive_field<'a>(name: &'a str, prefix: &str) -> Result<&'a str, PatchError> {
    match name.split_once('/') {
        Some((before, field)) if before == prefix => Ok(field),
        _ if prefix == DELETE_SCALARS => Err(PatchError::Malformed("invalid patch format of primitive list".into())),
        _ => Err(PatchError::Malformed("invalid patch format of setElementOrder list".into())),
    }
}

/// A value that is new cannot merge with anything: objects that carry a directive vanish.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => Some(Value::Object(
            members.into_iter().filter_map(|(name, member)| Some((name, without_directives(member)?))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElementKind {
    Object,
    Scalar,
}

/// The kind that all elements of the lists share.
fn element_kind(lists: [&[Value]; 2]) -> Result<ElementKind, PatchError> {
    let mut elements = lists.iter().flat_map(|list| list.iter());
    let first =
        elements.next().ok_or_else(|| PatchError::Unclassified("no elements in any of the given slices".into()))?;
    if first.is_array() {
        return Err(PatchError::rejected("lists of lists are not supported"));
    }
    if elements.any(|element| go_type(element) != go_type(first)) {
        let shown: Vec<String> = lists.iter().map(|list| go_list(list)).collect();
        return Err(PatchError::Unclassified(format!("list element types are not identical: [{}]", shown.join(" "))));
    }
    Ok(if first.is_object() { ElementKind::Object } else { ElementKind::Scalar })
}

fn as_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

fn bad_type(expected: &str, found: &Value) -> PatchError {
    PatchError::Unclassified(format!("expected a {expected}, but received a {}", go_type(found)))
}

fn no_merge_key(members: &Object, key: &str) -> PatchError {
    PatchError::Unclassified(format!("map: {} does not contain declared merge key: {key}", go_map(members)))
}

fn unknown_directive(directive: &Value, members: &Object) -> PatchError {
    PatchError::Unclassified(format!("unknown patch type: {} in map: {}", go_value(directive), go_map(members)))
}

/// Messages show values the way Go prints them, because that is what clients know.
fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => go_list(items),
        Value::Object(members) => go_map(members),
        scalar => scalar.to_string(),
    }
}

fn go_list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" "))
}

fn go_map(members: &Object) -> String {
    let shown: Vec<String> = members.iter().map(|(name, member)| format!("{name}:{}", go_value(member))).collect();
    format!("map[{}]", shown.join(" "))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests;
