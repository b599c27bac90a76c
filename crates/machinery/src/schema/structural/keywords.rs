//! Where keywords and extensions of a schema may stand, and whether its rules compile.

use serde_json::{Value, json};

use super::{Additional, Node};
use crate::error::FieldError;
use crate::schema::report::{forbidden, go_escaped, invalid, invalid_shown, not_supported, required};
use crate::schema::rules::{check_rule, field_path};
use crate::schema::{Rule, Schema};

/// What the place of a node allows.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// Why there may be no default.
    no_defaults: Option<&'p str>,
    /// Inside of a resource's `apiVersion`, `kind` or `metadata`.
    inside_meta: bool,
    /// The nearest list around whose elements cannot be told apart.
    uncorrelatable: Option<&'p str>,
    is_root: bool,
    /// Rules are compiled here: the schema is sound, and this is no branch of a composition.
    rules: bool,
}

/// Errors about the schema, then errors about its rules.
#[derive(Default)]
struct Errors {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

/// Checks every node; rules are only looked into when the schema is `sound`.
pub(super) fn check(root: &Node<'_>, sound: bool) -> Vec<FieldError> {
    let place = Place { no_defaults: None, inside_meta: false, uncorrelatable: None, is_root: true, rules: sound };
    let mut errors = walk(root, place);
    errors.schema.append(&mut errors.rules);
    errors.schema
}

fn walk(node: &Node<'_>, place: Place<'_>) -> Errors {
    let mut errors = Errors::default();
    let found = &mut errors.schema;
    plain_keywords(node, place, found);
    if node.flag("uniqueItems") {
        let text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.push(forbidden(node.child("uniqueItems"), text));
    }
    let additional = node.additional();
    if !node.properties().is_empty() && !matches!(additional, Additional::None | Additional::Bool(true)) {
        let text = "additionalProperties and properties are mutual exclusive";
        found.push(forbidden(node.child("additionalProperties"), text));
    }
    below(node, place, &additional, &mut errors);
    extensions(node, &mut errors.schema);
    rules(node, place, &mut errors);
    errors
}

fn plain_keywords(node: &Node<'_>, place: Place<'_>, found: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    if !node.kind().is_empty() && !TYPES.contains(&node.kind()) {
        let supported: Vec<Value> = TYPES.map(Value::from).to_vec();
        found.push(not_supported(node.child("type"), &Value::from(node.kind()), &supported));
    }
    if let (Some(_), Some(reason)) = (node.get("default"), place.no_defaults) {
        found.push(forbidden(node.child("default"), format!("must not be set {reason}")));
    }
    for keyword in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let unset = |value: &Value| {
            value.as_str().is_some_and(str::is_empty) && keyword != "$ref"
                || value.as_object().is_some_and(serde_json::Map::is_empty) && keyword != "dependencies"
        };
        if node.get(keyword).is_some_and(|value| !unset(value)) {
            found.push(forbidden(node.child(keyword), format!("{keyword} is not supported")));
        }
    }
    if node.kind() == "null" {
        found.push(forbidden(node.child("type"), "type cannot be set to null, use nullable as an alternative"));
    }
    if node.get("items").is_some_and(Value::is_array) {
        found.push(forbidden(node.child("items"), "items must be a schema object and not an array"));
    }
    if place.inside_meta && node.flag("x-kubernetes-embedded-resource") {
        found.push(forbidden(node.child("x-kubernetes-embedded-resource"), "must not be used inside of resource meta"));
    }
}

fn below(node: &Node<'_>, place: Place<'_>, additional: &Additional<'_>, errors: &mut Errors) {
    let mut add = |node: &Node<'_>, place: Place<'_>| {
        let Errors { mut schema, mut rules } = walk(node, place);
        errors.schema.append(&mut schema);
        errors.rules.append(&mut rules);
    };
    let inner = Place { is_root: false, ..place };
    if let Additional::Schema(values) = additional {
        let reason = Some("inside additionalProperties applying to object metadata");
        add(values, Place { no_defaults: if place.inside_meta { reason } else { place.no_defaults }, ..inner });
    }
    let whole = place.is_root || node.flag("x-kubernetes-embedded-resource");
    for (name, property) in node.properties() {
        if whole && matches!(name, "metadata" | "kind" | "apiVersion") {
            let reason = format!("in top-level {name}");
            let no_defaults = if place.is_root { Some(reason.as_str()) } else { place.no_defaults };
            add(&property, Place { inside_meta: true, no_defaults, ..inner });
        } else {
            add(&property, inner);
        }
    }
    let branches = ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|keyword| node.branches(keyword));
    for branch in node.node("not").into_iter().chain(branches) {
        add(&branch, Place { rules: false, ..inner });
    }
    if let Some(items) = node.items() {
        let same = node.text("x-kubernetes-list-type") == "map";
        let uncorrelatable = place.uncorrelatable.or((!same).then_some(node.path.as_str()));
        add(&items, Place { uncorrelatable, ..inner });
    }
}

fn extensions(node: &Node<'_>, found: &mut Vec<FieldError>) {
    let kind = node.kind();
    let of_type = |expected: &str, keyword: &str| {
        let text = format!("must be {expected} if {keyword} is specified");
        match kind {
            "" => required(node.child("type"), text),
            kind => invalid(node.child("type"), &Value::from(kind), text),
        }
    };
    if node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let place = node.child("x-kubernetes-preserve-unknown-fields");
        found.push(invalid(place, &Value::Bool(false), "must be true or undefined"));
    }
    if let Some(map_type) = node.get("x-kubernetes-map-type") {
        if kind != "object" {
            found.push(of_type("object", "x-kubernetes-map-type"));
        }
        if !matches!(map_type.as_str(), Some("atomic" | "granular")) {
            let supported = [json!("atomic"), json!("granular")];
            found.push(not_supported(node.child("x-kubernetes-map-type"), map_type, &supported));
        }
    }
    let keys = node.get("x-kubernetes-list-map-keys").and_then(Value::as_array).filter(|keys| !keys.is_empty());
    let list_type = node.get("x-kubernetes-list-type");
    if let Some(list_type) = list_type {
        if kind != "array" {
            found.push(of_type("array", "x-kubernetes-list-type"));
        } else if list_type == "set" {
            items_of_set(node, found);
        }
        if !matches!(list_type.as_str(), Some("atomic" | "set" | "map")) {
            let supported = [json!("atomic"), json!("set"), json!("map")];
            found.push(not_supported(node.child("x-kubernetes-list-type"), list_type, &supported));
        }
    }
    if keys.is_some() && list_type.is_none_or(|list_type| list_type != "map") {
        let (place, text) =
            (node.child("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        found
            .push(list_type.map_or_else(|| required(place.clone(), text), |found| invalid(place.clone(), found, text)));
    }
    if list_type.is_some_and(|list_type| list_type == "map") {
        list_map(node, keys.map_or(&[], Vec::as_slice), found);
    }
    if let Some(list_type) = list_type.and_then(Value::as_str).filter(|name| matches!(*name, "set" | "map")) {
        identity_of_items(node, list_type, keys.map_or(&[], Vec::as_slice), found);
    }
}

/// Elements of a set are compared as a whole, so they must be owned as a whole.
fn items_of_set(node: &Node<'_>, found: &mut Vec<FieldError>) {
    const TEXT: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let Some(items) = node.items() else { return };
    let list_type = items.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
    match items.kind() {
        "array" if !list_type.is_null() && list_type != "atomic" => {
            found.push(invalid(items.child("x-kubernetes-list-type"), list_type, TEXT));
        }
        "object" if items.text("x-kubernetes-map-type") != "atomic" => {
            // kube-apiserver shows the list type here, too.
            found.push(invalid(items.child("x-kubernetes-map-type"), list_type, TEXT));
        }
        _ => {}
    }
}

fn list_map(node: &Node<'_>, keys: &[Value], found: &mut Vec<FieldError>) {
    let keys_place = node.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        found.push(required(keys_place.clone(), "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = node.items() else {
        if node.get("items").is_none() {
            found.push(required(node.child("items"), "must have a schema if x-kubernetes-list-type is map"));
        }
        return;
    };
    if items.kind() != "object" {
        let text = "must be object if parent array's x-kubernetes-list-type is map";
        found.push(invalid(items.child("type"), &Value::from(items.kind()), text));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        match items.property(key.as_str().unwrap_or_default()) {
            Some(property) if matches!(property.kind(), "array" | "object") => {
                let text = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                found.push(invalid(property.child("type"), &Value::from(items.kind()), text));
            }
            Some(_) => {}
            None => {
                let text = "entries must all be names of item properties";
                found.push(invalid(keys_place.clone(), &json!(keys), text));
            }
        }
        if keys[..index].contains(key) {
            found.push(invalid(keys_place.clone(), &json!(keys), "must not contain duplicate entries"));
        }
    }
}

fn identity_of_items(node: &Node<'_>, list_type: &str, keys: &[Value], found: &mut Vec<FieldError>) {
    let Some(items) = node.items() else { return };
    if items.flag("nullable") {
        let text = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        found.push(forbidden(items.child("nullable"), text));
    }
    if list_type != "map" {
        return;
    }
    let is_required =
        |key: &Value| items.get("required").and_then(Value::as_array).is_some_and(|all| all.contains(key));
    for key in keys {
        let Some(property) = items.property(key.as_str().unwrap_or_default()) else { continue };
        if !is_required(key) && property.get("default").is_none() {
            let text =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            found.push(required(property.child("default"), text));
        }
        if property.flag("nullable") {
            let text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            found.push(forbidden(property.child("nullable"), text));
        }
    }
}

fn rules(node: &Node<'_>, place: Place<'_>, errors: &mut Errors) {
    let Some(Value::Array(raw)) = node.get("x-kubernetes-validations") else { return };
    let schema = Schema::from_json(node.value).ok();
    for (index, rule) in raw.iter().enumerate() {
        let at = format!("{}[{index}]", node.child("x-kubernetes-validations"));
        rule_texts(rule, schema.as_ref(), &at, &mut errors.schema);
    }
    // Errors of the schema come first: rules about a wrong schema say nothing useful.
    if !errors.schema.is_empty() || !place.rules {
        return;
    }
    let Some(schema) = schema else { return };
    for (index, rule) in schema.rules.iter().enumerate() {
        let at = format!("{}[{index}]", node.child("x-kubernetes-validations"));
        compile(rule, &raw[index], &schema, place, &at, &mut errors.rules);
    }
}

fn rule_texts(rule: &Value, schema: Option<&Schema>, at: &str, found: &mut Vec<FieldError>) {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let (source, message) = (text("rule"), text("message"));
    let has_lines = |text: &str| text.contains(['\n', '\r']);
    if source.trim().is_empty() {
        found.push(required(format!("{at}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        found.push(invalid(format!("{at}.message"), &Value::from(message), "must be non-empty if specified"));
    } else if has_lines(message.trim()) {
        found.push(invalid(format!("{at}.message"), &Value::from(message), "must not contain line breaks"));
    } else if has_lines(source.trim()) && message.trim().is_empty() {
        found.push(required(format!("{at}.message"), "message must be specified if rule contains line breaks"));
    }
    let expression = text("messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let words = "messageExpression must be non-empty if specified";
        found.push(required(format!("{at}.messageExpression"), words));
    }
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = rule.get("reason").filter(|reason| !reason.is_null())
        && !reason.as_str().is_some_and(|reason| REASONS.contains(&reason))
    {
        found.push(not_supported(format!("{at}.reason"), reason, &REASONS.map(Value::from)));
    }
    let path = text("fieldPath");
    if path.is_empty() {
        return;
    }
    let mut refuse = |words: &str| found.push(invalid(format!("{at}.fieldPath"), &Value::from(path), words));
    if path.trim().is_empty() {
        refuse("must be non-empty if specified");
    }
    if has_lines(path) {
        refuse("must not contain line breaks");
    }
    if schema.is_some_and(|schema| field_path(path, schema).is_none()) {
        refuse("must be a valid path");
    }
}

fn compile(rule: &Rule, raw: &Value, schema: &Schema, place: Place<'_>, at: &str, found: &mut Vec<FieldError>) {
    let outcome = check_rule(rule, schema, place.is_root);
    if let Some(reason) = &outcome.rule {
        found.push(invalid_shown(format!("{at}.rule"), &as_go_shows(raw), reason));
    }
    if let Some(reason) = &outcome.message_expression {
        found.push(invalid_shown(format!("{at}.messageExpression"), &as_go_shows(raw), reason));
    }
    if outcome.rule.is_some() {
        return;
    }
    if outcome.uses_old_self {
        if let Some(list) = place.uncorrelatable {
            let text = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            found.push(invalid(format!("{at}.rule"), &Value::from(rule.rule.as_str()), text));
        }
    } else if let Some(set) = raw.get("optionalOldSelf").filter(|set| !set.is_null()) {
        found.push(invalid(format!("{at}.optionalOldSelf"), set, "may not be set if oldSelf is not used in rule"));
    }
}

/// A rule as errors show it: with the names and the order of the fields of a Go struct.
fn as_go_shows(rule: &Value) -> String {
    let text = |name: &str| rule.get(name).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| json!(""));
    let optional = |name: &str| rule.get(name).cloned().unwrap_or_default();
    let fields = [
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", optional("reason")),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", optional("optionalOldSelf")),
    ];
    let shown: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    go_escaped(&format!("{{{}}}", shown.join(",")))
}
