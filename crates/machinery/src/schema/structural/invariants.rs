//! What makes a schema structural: every node has a type, and value checks add nothing to the shape.

use serde_json::{Value, json};

use super::{Additional, Node};
use crate::error::FieldError;
use crate::schema::pattern;
use crate::schema::report::{forbidden, invalid, required};

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All violations, sorted by their text as kube-apiserver sorts them.
pub(super) fn check(root: &Node<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    shape(root, Level::Root, &mut errors);
    completeness(root, root, &root.path, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

fn shape(node: &Node<'_>, level: Level, errors: &mut Vec<FieldError>) {
    match node.items() {
        Some(items) => shape(&items, Level::Item, errors),
        None if node.kind() == "array" => errors.push(required(node.child("items"), "must be specified")),
        None => {}
    }
    for (_, property) in node.properties() {
        shape(&property, Level::Field, errors);
    }
    let additional = node.additional();
    if level == Level::Root && !matches!(additional, Additional::None) {
        errors.push(forbidden(node.child("additionalProperties"), "must not be used at the root"));
    }
    if let Additional::Schema(values) = &additional {
        shape(values, Level::Field, errors);
    }
    let (int_or_string, preserves) =
        (node.flag("x-kubernetes-int-or-string"), node.flag("x-kubernetes-preserve-unknown-fields"));
    let embedded = node.flag("x-kubernetes-embedded-resource");
    for (other, set) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && set {
            let text = "must be false if x-kubernetes-int-or-string is true";
            errors.push(invalid(node.child(other), &Value::Bool(true), text));
        }
    }
    value_checks(node, allows_int_or_string(node), errors);
    node_type(node, level, errors);
    if embedded && !matches!(additional, Additional::None) {
        let text = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(forbidden(node.child("additionalProperties"), text));
    }
    meta_fields(node, level, embedded, errors);
    if embedded && !preserves && node.properties().is_empty() {
        let text =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(required(node.child("properties"), text));
    }
}

fn node_type(node: &Node<'_>, level: Level, errors: &mut Vec<FieldError>) {
    let (kind, place) = (node.kind(), node.child("type"));
    let free = node.flag("x-kubernetes-int-or-string") || node.flag("x-kubernetes-preserve-unknown-fields");
    if node.flag("x-kubernetes-embedded-resource") && kind != "object" {
        let text = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => required(place.clone(), text),
            kind => invalid(place.clone(), &Value::from(kind), text),
        });
    } else if kind.is_empty() && !free {
        errors.push(required(
            place.clone(),
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(invalid(place, &Value::from(kind), "must be object at the root"));
    }
}

/// A whole object's `apiVersion`, `kind` and `metadata` have their types from Kubernetes.
fn meta_fields(node: &Node<'_>, level: Level, embedded: bool, errors: &mut Vec<FieldError>) {
    let whole = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(field) = node.property(name).filter(|field| whole && field.kind() != "string") {
            errors.push(invalid(field.child("type"), &Value::from(field.kind()), "must be string"));
        }
    }
    let Some(metadata) = node.property("metadata") else { return };
    if whole && metadata.kind() != "object" {
        errors.push(invalid(metadata.child("type"), &Value::from(metadata.kind()), "must be object"));
    }
    if level == Level::Root && !restricts_only_names(&metadata) {
        let text = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(forbidden(metadata.path, text));
    }
}

fn restricts_only_names(metadata: &Node<'_>) -> bool {
    let only_names = metadata.properties().iter().all(|(name, _)| matches!(*name, "name" | "generateName"));
    let said = |keyword: &str, value: &Value| match keyword {
        "type" | "default" | "properties" => false,
        _ => match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => true,
        },
    };
    only_names && !metadata.map.iter().any(|(keyword, value)| said(keyword, value))
}

/// Which part of a node's checks may name types, because that is how int-or-string is spelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IntOrString {
    No,
    AnyOf,
    FirstAllOf,
}

fn allows_int_or_string(node: &Node<'_>) -> IntOrString {
    let pattern = json!([{"type": "integer"}, {"type": "string"}]);
    if node.get("anyOf") == Some(&pattern) {
        IntOrString::AnyOf
    } else if node.get("allOf").and_then(|all| all.get(0)).and_then(|first| first.get("anyOf")) == Some(&pattern) {
        IntOrString::FirstAllOf
    } else {
        IntOrString::No
    }
}

fn value_checks(node: &Node<'_>, exception: IntOrString, errors: &mut Vec<FieldError>) {
    if exception != IntOrString::AnyOf {
        for branch in node.branches("anyOf") {
            nested(&branch, IntOrString::No, errors);
        }
    }
    for (index, branch) in node.branches("allOf").iter().enumerate() {
        let first = exception == IntOrString::FirstAllOf && index == 0;
        nested(branch, if first { IntOrString::AnyOf } else { IntOrString::No }, errors);
    }
    for branch in node.branches("oneOf") {
        nested(&branch, IntOrString::No, errors);
    }
    if let Some(branch) = node.node("not") {
        nested(&branch, IntOrString::No, errors);
    }
    let expression = node.text("pattern");
    if !expression.is_empty()
        && let Err(reason) = pattern::compiled(expression)
    {
        let text = format!(
            "must be a valid regular expression, but isn't: error parsing regexp: {}: `{expression}`",
            pattern::in_words_of_go(&reason)
        );
        errors.push(invalid(node.child("pattern"), &Value::from(expression), text));
    }
}

/// A schema inside of `allOf`, `anyOf`, `oneOf` or `not` may only check values.
fn nested(node: &Node<'_>, exception: IntOrString, errors: &mut Vec<FieldError>) {
    value_checks(node, exception, errors);
    if let Some(items) = node.items() {
        nested(&items, IntOrString::No, errors);
    }
    for (_, property) in node.properties() {
        nested(&property, IntOrString::No, errors);
    }
    const EMPTY: &str = "must be empty to be structural";
    const FALSE: &str = "must be false to be structural";
    const UNDEFINED: &str = "must be undefined to be structural";
    let mut forbid = |keyword: &str, set: bool, text: &str| {
        if set {
            errors.push(forbidden(node.child(keyword), text));
        }
    };
    let has_elements = |keyword: &str| node.get(keyword).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    forbid("type", !node.kind().is_empty(), EMPTY);
    let additional = !matches!(node.additional(), Additional::None | Additional::Bool(false));
    forbid("additionalProperties", additional, UNDEFINED);
    forbid("default", node.get("default").is_some(), UNDEFINED);
    forbid("title", !node.text("title").is_empty(), EMPTY);
    forbid("description", !node.text("description").is_empty(), EMPTY);
    for keyword in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        forbid(keyword, node.flag(keyword), FALSE);
    }
    forbid("x-kubernetes-list-map-keys", has_elements("x-kubernetes-list-map-keys"), EMPTY);
    forbid("x-kubernetes-list-type", node.get("x-kubernetes-list-type").is_some(), UNDEFINED);
    forbid("x-kubernetes-map-type", node.get("x-kubernetes-map-type").is_some(), UNDEFINED);
    forbid("x-kubernetes-validations", has_elements("x-kubernetes-validations"), EMPTY);
    if let Some(metadata) = node.property("metadata") {
        errors.push(forbidden(metadata.path, "must not be specified in a nested context"));
    }
}

/// What the root's compositions check must exist in the root's own shape.
fn completeness(checks: &Node<'_>, shape: &Node<'_>, place: &str, errors: &mut Vec<FieldError>) {
    let branches = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|keyword| checks.branches(keyword));
    for branch in checks.node("not").into_iter().chain(branches) {
        branch_completeness(&branch, Some(shape), place, errors);
    }
}

fn branch_completeness(branch: &Node<'_>, shape: Option<&Node<'_>>, place: &str, errors: &mut Vec<FieldError>) {
    let Some(shape) = shape else {
        errors.push(required(place, format!("because it is defined in {}", branch.path)));
        return;
    };
    completeness(branch, shape, place, errors);
    if let Some(items) = branch.items() {
        branch_completeness(&items, shape.items().as_ref(), &format!("{place}.items"), errors);
    }
    for (name, property) in branch.properties() {
        let place = format!("{place}.properties[{name}]");
        branch_completeness(&property, shape.property(name).as_ref(), &place, errors);
    }
}
