//! Tells whether a CRD's schema is one that Kubernetes accepts, with its messages.
//!
//! Three groups of checks, in kube-apiserver's order: the schema is structural ([`invariants`]), its defaults are
//! valid, and its keywords and extensions are used where they mean something ([`keywords`]). They read the raw JSON,
//! because much of what is forbidden has no place in a [`Schema`].

mod invariants;
mod keywords;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::report::{forbidden, invalid};
use super::{Schema, rules};
use crate::error::FieldError;
use crate::schema::parse::{MAX_DEPTH, UNSUPPORTED};

/// Checks the `openAPIV3Schema` of one version of a CRD.
///
/// `path` is where errors are found: kube-apiserver says `spec.validation.openAPIV3Schema` when all versions have the
/// same schema, and `spec.versions[0].schema.openAPIV3Schema` otherwise.
pub fn check_structural(schema: &Value, path: &str, status_subresource: bool) -> Vec<FieldError> {
    let Some(root) = Node::new(schema, path.to_owned()) else {
        return vec![invalid(path, schema, "must be an object")];
    };
    if let Some(deep) = too_deep(schema, path, 0) {
        return vec![forbidden(deep, "nested too deeply")];
    }
    let mut errors = Vec::new();
    if status_subresource {
        root_with_status(&root, &mut errors);
    }
    if root.flag("nullable") {
        errors.push(forbidden(root.child("nullable"), "nullable cannot be true at the root"));
    }
    // A schema that cannot even be read says so below, keyword by keyword.
    let mut sound = !has_unsupported(&root);
    if sound {
        let mut found = invariants::check(&root);
        if found.is_empty()
            && let Ok(parsed) = Schema::from_json(schema)
        {
            found = defaults(&parsed, path);
        }
        sound = found.is_empty();
        errors.append(&mut found);
    }
    errors.append(&mut keywords::check(&root, sound));
    if errors.is_empty()
        && let Err(error) = Schema::from_json(schema)
    {
        errors.push(invalid(path, &Value::from(""), error.to_string()));
    }
    errors
}

/// One schema of the raw document.
#[derive(Clone, Debug)]
struct Node<'v> {
    map: &'v Map<String, Value>,
    value: &'v Value,
    path: String,
}

/// `additionalProperties`, which may be a schema or a boolean.
enum Additional<'v> {
    None,
    Bool(bool),
    Schema(Node<'v>),
}

impl<'v> Node<'v> {
    fn new(value: &'v Value, path: String) -> Option<Self> {
        value.as_object().map(|map| Self { map, value, path })
    }

    /// The path of a keyword.
    fn child(&self, keyword: &str) -> String {
        format!("{}.{keyword}", self.path)
    }

    fn get(&self, keyword: &str) -> Option<&'v Value> {
        self.map.get(keyword).filter(|value| !value.is_null())
    }

    fn flag(&self, keyword: &str) -> bool {
        self.get(keyword).and_then(Value::as_bool).unwrap_or_default()
    }

    fn text(&self, keyword: &str) -> &'v str {
        self.get(keyword).and_then(Value::as_str).unwrap_or_default()
    }

    fn kind(&self) -> &'v str {
        self.text("type")
    }

    fn node(&self, keyword: &str) -> Option<Node<'v>> {
        Node::new(self.get(keyword)?, self.child(keyword))
    }

    fn items(&self) -> Option<Node<'v>> {
        self.node("items")
    }

    fn property(&self, name: &str) -> Option<Node<'v>> {
        Node::new(self.get("properties")?.get(name)?, format!("{}.properties[{name}]", self.path))
    }

    fn properties(&self) -> Vec<(&'v str, Node<'v>)> {
        let Some(Value::Object(properties)) = self.get("properties") else { return Vec::new() };
        let node = |(name, value): (&'v String, &'v Value)| {
            Some((name.as_str(), Node::new(value, format!("{}.properties[{name}]", self.path))?))
        };
        properties.iter().filter_map(node).collect()
    }

    fn additional(&self) -> Additional<'v> {
        match self.get("additionalProperties") {
            None => Additional::None,
            Some(Value::Bool(allowed)) => Additional::Bool(*allowed),
            Some(_) => self.node("additionalProperties").map_or(Additional::None, Additional::Schema),
        }
    }

    /// The branches of `allOf`, `anyOf` or `oneOf`.
    fn branches(&self, keyword: &str) -> Vec<Node<'v>> {
        let Some(Value::Array(branches)) = self.get(keyword) else { return Vec::new() };
        let node = |(index, value)| Node::new(value, format!("{}.{keyword}[{index}]", self.path));
        branches.iter().enumerate().filter_map(node).collect()
    }

    /// Every schema directly inside of this one.
    fn inside(&self) -> Vec<Node<'v>> {
        let mut all: Vec<_> = self.properties().into_iter().map(|(_, node)| node).collect();
        all.extend(self.items());
        all.extend(self.node("not"));
        if let Additional::Schema(node) = self.additional() {
            all.push(node);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            all.append(&mut self.branches(keyword));
        }
        all
    }
}

/// The place where a document nests deeper than we care to follow.
fn too_deep(value: &Value, path: &str, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH * 2 {
        return Some(path.to_owned());
    }
    match value {
        Value::Object(map) => map.values().find_map(|child| too_deep(child, path, depth + 1)),
        Value::Array(items) => items.iter().find_map(|child| too_deep(child, path, depth + 1)),
        _ => None,
    }
}

fn has_unsupported(node: &Node<'_>) -> bool {
    let unset =
        |value: &Value| value.as_str().is_some_and(str::is_empty) || value.as_object().is_some_and(Map::is_empty);
    let used = |keyword: &&str| node.get(keyword).is_some_and(|value| !unset(value));
    UNSUPPORTED.iter().any(used)
        || used(&"$ref")
        || node.get("items").is_some_and(Value::is_array)
        || node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false))
        || node.inside().iter().any(has_unsupported)
}

/// With a status subresource only those keywords may stand at the root that do not reach into `status` from outside.
fn root_with_status(root: &Node<'_>, errors: &mut Vec<FieldError>) {
    const ALLOWED: [(&str, &str); 22] = [
        ("Description", "description"),
        ("Type", "type"),
        ("Format", "format"),
        ("Title", "title"),
        ("Maximum", "maximum"),
        ("ExclusiveMaximum", "exclusiveMaximum"),
        ("Minimum", "minimum"),
        ("ExclusiveMinimum", "exclusiveMinimum"),
        ("MaxLength", "maxLength"),
        ("MinLength", "minLength"),
        ("Pattern", "pattern"),
        ("MaxItems", "maxItems"),
        ("MinItems", "minItems"),
        ("UniqueItems", "uniqueItems"),
        ("MultipleOf", "multipleOf"),
        ("Required", "required"),
        ("Items", "items"),
        ("Properties", "properties"),
        ("ExternalDocs", "externalDocs"),
        ("Example", "example"),
        ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields"),
        ("XValidations", "x-kubernetes-validations"),
    ];
    if !root.kind().is_empty() && root.kind() != "object" {
        const ONLY: &str =
            r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        errors.push(invalid(root.child("type"), &Value::from(root.kind()), ONLY));
        return;
    }
    let set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    if root.map.iter().any(|(keyword, value)| set(value) && !ALLOWED.iter().any(|(_, allowed)| allowed == keyword)) {
        let names: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
        let text = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        errors.push(invalid(root.path.as_str(), root.value, text));
    }
}

/// Checks that every default is a value that its own schema accepts.
fn defaults(root: &Schema, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    defaults_below(root, path, true, &mut errors);
    errors
}

fn defaults_below(schema: &Schema, path: &str, whole: bool, errors: &mut Vec<FieldError>) {
    let whole = whole || schema.embedded_resource;
    if let Some(default) = &schema.default {
        let mut found = default_errors(schema, default, whole);
        for error in &mut found {
            let separator = if error.path.is_empty() || error.path.starts_with('[') { "" } else { "." };
            error.path = format!("{path}.default{separator}{}", error.path);
        }
        errors.append(&mut found);
    }
    if let Some(items) = &schema.items {
        defaults_below(items, &format!("{path}.items"), false, errors);
    }
    for (name, property) in &schema.properties {
        // Defaults of a resource's own metadata are judged by other rules.
        if !(whole && super::meta::is_meta_field(name)) {
            defaults_below(property, &format!("{path}.properties[{name}]"), false, errors);
        }
    }
}

fn default_errors(schema: &Schema, default: &Value, whole: bool) -> Vec<FieldError> {
    let mut pruned = default.clone();
    schema.prune(&mut pruned, whole);
    let mut errors = Vec::new();
    if pruned != *default {
        errors.push(invalid("", default, "must not have unknown fields"));
    }
    let mut found = super::validate::embedded_errors(schema, default, whole);
    if found.is_empty() {
        found = schema.validate_values(default, None);
    }
    if found.is_empty() {
        rules::check_value(schema, default, Some(default), &mut found);
    }
    if found.is_empty() {
        rules::check_value(schema, default, None, &mut found);
    }
    errors.append(&mut found);
    errors
}
