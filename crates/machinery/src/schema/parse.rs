//! Reads a [`Schema`] from the JSON of an `openAPIV3Schema`.
//!
//! Documentation (`description`, `title`, `example`, `externalDocs`) is left behind on purpose: a schema lives as long
//! as the server, and its text is only needed when OpenAPI documents are written, from the original JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::rules::Compiled;
use super::{Checks, ListType, PatchStrategy, Rule, Schema, Type};

/// How deep a schema may nest; far beyond real ones, and shallow enough for every recursive walk's stack.
pub const MAX_DEPTH: usize = 128;

/// Why a JSON value is not a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A keyword has a value of the wrong JSON type.
    #[error("{path}: must be {expected}")]
    WrongType {
        /// The keyword's place in the schema.
        path: String,
        /// What it should have been.
        expected: &'static str,
    },
    /// A keyword that structural schemas do not have.
    #[error("{path}: {keyword} is not supported")]
    Unsupported {
        /// The place of the schema that has the keyword.
        path: String,
        /// The keyword.
        keyword: &'static str,
    },
    /// A value that is outside of a keyword's closed set.
    #[error("{path}: {value:?} is not known")]
    Unknown {
        /// The keyword's place in the schema.
        path: String,
        /// Its value.
        value: String,
    },
    /// A `$ref` that nothing resolves.
    #[error("{path}: $ref {target:?} does not exist")]
    Unresolved {
        /// The place of the schema that has the reference.
        path: String,
        /// Where it points.
        target: String,
    },
    /// Nested more than [`MAX_DEPTH`] levels.
    #[error("{path}: nested too deeply")]
    TooDeep {
        /// Where the limit was met.
        path: String,
    },
}

/// Keywords of JSON schema that Kubernetes refuses.
pub(crate) const UNSUPPORTED: [&str; 6] =
    ["id", "$schema", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// Finds the schema that a `$ref` names.
pub(crate) type Resolver<'a> = dyn FnMut(&str) -> Option<Arc<Schema>> + 'a;

impl Schema {
    /// Reads the `openAPIV3Schema` of one version of a CRD.
    ///
    /// This is the lenient half of the checks on a CRD: it fails only where no schema can be made. Whether the schema
    /// is one that Kubernetes accepts is told by [`check_structural`](super::structural::check_structural).
    pub fn from_json(value: &Value) -> Result<Self, ParseError> {
        Self::from_json_with(value, &mut |_| None)
    }

    /// Like [`Schema::from_json`], for documents whose nodes refer to each other.
    pub(crate) fn from_json_with(value: &Value, resolve: &mut Resolver<'_>) -> Result<Self, ParseError> {
        Parser { resolve }.node(value, &mut Path::default())
    }
}

/// The place in the schema, grown and shrunk as the walk goes on.
#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    fn text(&self) -> String {
        if self.0.is_empty() { "schema".to_owned() } else { self.0.join(".") }
    }
    fn keyword(&self, keyword: &str) -> String {
        if self.0.is_empty() { keyword.to_owned() } else { format!("{}.{keyword}", self.0.join(".")) }
    }
}

struct Parser<'a, 'b> {
    resolve: &'a mut Resolver<'b>,
}

impl Parser<'_, '_> {
    fn node(&mut self, value: &Value, path: &mut Path) -> Result<Schema, ParseError> {
        let Value::Object(map) = value else {
            return Err(ParseError::WrongType { path: path.text(), expected: "an object" });
        };
        if path.0.len() > MAX_DEPTH {
            return Err(ParseError::TooDeep { path: path.text() });
        }
        if let Some(target) = text(map, "$ref", path)? {
            return match (self.resolve)(&target) {
                Some(found) => Ok(Schema::clone(&found)),
                None => Err(ParseError::Unresolved { path: path.text(), target }),
            };
        }
        for keyword in UNSUPPORTED {
            if map.get(keyword).is_some_and(|found| !found.is_null()) {
                return Err(ParseError::Unsupported { path: path.text(), keyword });
            }
        }
        let mut schema = Schema {
            kind: kind(map, path)?,
            nullable: flag(map, "nullable", path)?,
            int_or_string: flag(map, "x-kubernetes-int-or-string", path)?,
            preserve_unknown_fields: flag(map, "x-kubernetes-preserve-unknown-fields", path)?,
            embedded_resource: flag(map, "x-kubernetes-embedded-resource", path)?,
            properties: self.properties(map, path)?,
            additional_properties: self.additional_properties(map, path)?,
            items: self.items(map, path)?,
            required: texts(map, "required", path)?,
            default: map.get("default").filter(|default| !default.is_null()).cloned(),
            list_type: list_type(map, path)?,
            list_map_keys: texts(map, "x-kubernetes-list-map-keys", path)?,
            atomic_map: text(map, "x-kubernetes-map-type", path)?.as_deref() == Some("atomic"),
            patch: patch_strategy(map, path)?,
            checks: self.checks(map, path)?,
            rules: rules(map, path)?,
            definition: None,
            rules_below: false,
        };
        let below = schema.properties.values().chain(&schema.items).chain(&schema.additional_properties);
        schema.rules_below = !schema.rules.is_empty() || below.into_iter().any(|child| child.rules_below);
        Ok(schema)
    }

    fn child(&mut self, value: &Value, path: &mut Path, step: String) -> Result<Arc<Schema>, ParseError> {
        // A plain reference shares the node that it names.
        if let Some(Value::String(target)) = value.get("$ref")
            && let Some(found) = (self.resolve)(target)
        {
            return Ok(found);
        }
        path.0.push(step);
        let child = self.node(value, path)?;
        path.0.pop();
        Ok(Arc::new(child))
    }

    fn properties(
        &mut self,
        map: &Map<String, Value>,
        path: &mut Path,
    ) -> Result<BTreeMap<String, Arc<Schema>>, ParseError> {
        match map.get("properties") {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(properties)) => properties
                .iter()
                .map(|(name, value)| Ok((name.clone(), self.child(value, path, format!("properties[{name}]"))?)))
                .collect(),
            Some(_) => Err(ParseError::WrongType { path: path.keyword("properties"), expected: "an object" }),
        }
    }

    fn additional_properties(
        &mut self,
        map: &Map<String, Value>,
        path: &mut Path,
    ) -> Result<Option<Arc<Schema>>, ParseError> {
        match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => Ok(None),
            // Any value, but what is inside of it is not specified and so is pruned, as kube-apiserver does.
            Some(Value::Bool(true)) => Ok(Some(Arc::new(Schema::default()))),
            Some(value) => self.child(value, path, "additionalProperties".to_owned()).map(Some),
        }
    }

    fn items(&mut self, map: &Map<String, Value>, path: &mut Path) -> Result<Option<Arc<Schema>>, ParseError> {
        match map.get("items") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => self.child(value, path, "items".to_owned()).map(Some),
        }
    }

    fn checks(&mut self, map: &Map<String, Value>, path: &mut Path) -> Result<Option<Box<Checks>>, ParseError> {
        let checks = Checks {
            format: text(map, "format", path)?.filter(|format| !format.is_empty()),
            one_of_values: list(map, "enum", path)?.to_vec(),
            pattern: text(map, "pattern", path)?.filter(|pattern| !pattern.is_empty()),
            minimum: bound(map, "minimum", "exclusiveMinimum", path)?,
            maximum: bound(map, "maximum", "exclusiveMaximum", path)?,
            multiple_of: number(map, "multipleOf", path)?,
            min_length: count(map, "minLength", path)?,
            max_length: count(map, "maxLength", path)?,
            min_items: count(map, "minItems", path)?,
            max_items: count(map, "maxItems", path)?,
            unique_items: flag(map, "uniqueItems", path)?,
            min_properties: count(map, "minProperties", path)?,
            max_properties: count(map, "maxProperties", path)?,
            all_of: self.branches(map, "allOf", path)?,
            any_of: self.branches(map, "anyOf", path)?,
            one_of: self.branches(map, "oneOf", path)?,
            not: match map.get("not") {
                None | Some(Value::Null) => None,
                Some(value) => Some(Box::new(Schema::clone(&*self.child(value, path, "not".to_owned())?))),
            },
        };
        Ok((checks != Checks::default()).then(|| Box::new(checks)))
    }

    fn branches(
        &mut self,
        map: &Map<String, Value>,
        keyword: &'static str,
        path: &mut Path,
    ) -> Result<Vec<Schema>, ParseError> {
        list(map, keyword, path)?
            .iter()
            .enumerate()
            .map(|(index, value)| Ok(Schema::clone(&*self.child(value, path, format!("{keyword}[{index}]"))?)))
            .collect()
    }
}

fn wrong<T>(keyword: &str, path: &Path, expected: &'static str) -> Result<T, ParseError> {
    Err(ParseError::WrongType { path: path.keyword(keyword), expected })
}

fn flag(map: &Map<String, Value>, keyword: &str, path: &Path) -> Result<bool, ParseError> {
    match map.get(keyword) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => wrong(keyword, path, "a boolean"),
    }
}

fn text(map: &Map<String, Value>, keyword: &str, path: &Path) -> Result<Option<String>, ParseError> {
    match map.get(keyword) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(value)) => Ok(Some(value.clone())),
        Some(_) => wrong(keyword, path, "a string"),
    }
}

fn list<'v>(map: &'v Map<String, Value>, keyword: &str, path: &Path) -> Result<&'v [Value], ParseError> {
    match map.get(keyword) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(values)) => Ok(values),
        Some(_) => wrong(keyword, path, "a list"),
    }
}

fn texts(map: &Map<String, Value>, keyword: &str, path: &Path) -> Result<Vec<String>, ParseError> {
    list(map, keyword, path)?
        .iter()
        .map(|value| match value {
            Value::String(value) => Ok(value.clone()),
            _ => wrong(keyword, path, "a list of strings"),
        })
        .collect()
}

fn number(map: &Map<String, Value>, keyword: &str, path: &Path) -> Result<Option<f64>, ParseError> {
    match map.get(keyword) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(value)) => Ok(value.as_f64()),
        Some(_) => wrong(keyword, path, "a number"),
    }
}

fn bound(
    map: &Map<String, Value>,
    keyword: &str,
    exclusive: &str,
    path: &Path,
) -> Result<Option<(f64, bool)>, ParseError> {
    let exclusive = flag(map, exclusive, path)?;
    Ok(number(map, keyword, path)?.map(|limit| (limit, exclusive)))
}

/// A limit on a length. Negative ones are as good as none for a minimum and can never be met for a maximum; both read
/// as zero.
fn count(map: &Map<String, Value>, keyword: &str, path: &Path) -> Result<Option<u64>, ParseError> {
    match map.get(keyword) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(value)) => match value.as_u64() {
            Some(count) => Ok(Some(count)),
            None if value.as_i64().is_some() => Ok(Some(0)),
            None => wrong(keyword, path, "an integer"),
        },
        Some(_) => wrong(keyword, path, "an integer"),
    }
}

fn kind(map: &Map<String, Value>, path: &Path) -> Result<Type, ParseError> {
    let name = text(map, "type", path)?.unwrap_or_default();
    Type::from_name(&name).ok_or_else(|| ParseError::Unknown { path: path.keyword("type"), value: name })
}

fn list_type(map: &Map<String, Value>, path: &Path) -> Result<ListType, ParseError> {
    const KEYWORD: &str = "x-kubernetes-list-type";
    match text(map, KEYWORD, path)?.as_deref() {
        None | Some("atomic") => Ok(ListType::Atomic),
        Some("set") => Ok(ListType::Set),
        Some("map") => Ok(ListType::Map),
        Some(other) => Err(ParseError::Unknown { path: path.keyword(KEYWORD), value: other.to_owned() }),
    }
}

fn patch_strategy(map: &Map<String, Value>, path: &Path) -> Result<PatchStrategy, ParseError> {
    let strategy = text(map, "x-kubernetes-patch-strategy", path)?.unwrap_or_default();
    Ok(PatchStrategy {
        merge: strategy.split(',').any(|word| word == "merge"),
        retain_keys: strategy.split(',').any(|word| word == "retainKeys"),
        merge_key: text(map, "x-kubernetes-patch-merge-key", path)?,
    })
}

fn rules(map: &Map<String, Value>, path: &Path) -> Result<Vec<Rule>, ParseError> {
    const KEYWORD: &str = "x-kubernetes-validations";
    list(map, KEYWORD, path)?
        .iter()
        .map(|value| {
            let Value::Object(rule) = value else { return wrong(KEYWORD, path, "a list of objects") };
            Ok(Rule {
                rule: text(rule, "rule", path)?.unwrap_or_default(),
                message: text(rule, "message", path)?.filter(|message| !message.is_empty()),
                message_expression: text(rule, "messageExpression", path)?.filter(|text| !text.is_empty()),
                reason: text(rule, "reason", path)?.filter(|reason| !reason.is_empty()),
                field_path: text(rule, "fieldPath", path)?.filter(|path| !path.is_empty()),
                optional_old_self: flag(rule, "optionalOldSelf", path)?,
                compiled: Compiled::default(),
            })
        })
        .collect()
}

impl Type {
    /// The type that `type:` names; the empty name is [`Type::Any`].
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "" => Self::Any,
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// The name that `type:` has; empty for [`Type::Any`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_keyword_is_read() {
        let schema = Schema::from_json(&json!({
            "type": "object", "description": "left behind", "required": ["a"], "maxProperties": 3,
            "properties": {
                "a": {"type": "integer", "format": "int32", "minimum": 1, "exclusiveMinimum": true, "default": 5},
                "l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                      "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
                "m": {"type": "object", "additionalProperties": {"type": "string", "nullable": true},
                      "x-kubernetes-map-type": "atomic"},
                "p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "r": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                      "x-kubernetes-embedded-resource": true}
            },
            "x-kubernetes-validations": [{"rule": "self.a > 1", "message": "no", "optionalOldSelf": true}]
        }))
        .expect("parses");
        assert_eq!(schema.required, ["a"]);
        assert_eq!(schema.checks.as_ref().and_then(|checks| checks.max_properties), Some(3));
        let a = &schema.properties["a"];
        assert_eq!(a.default, Some(json!(5)));
        assert_eq!(a.checks.as_ref().and_then(|checks| checks.minimum), Some((1.0, true)));
        assert_eq!(schema.properties["l"].list_type, ListType::Map);
        assert_eq!(schema.properties["l"].list_map_keys, ["k"]);
        assert!(schema.properties["m"].atomic_map);
        assert!(schema.properties["m"].additional_properties.as_ref().expect("a map").nullable);
        assert!(schema.properties["p"].int_or_string);
        assert!(schema.properties["r"].embedded_resource && schema.properties["r"].preserve_unknown_fields);
        assert!(schema.rules[0].optional_old_self);
    }

    #[test]
    fn errors_name_the_place() {
        let at = |schema: Value| Schema::from_json(&schema).expect_err("refused").to_string();
        assert_eq!(at(json!(5)), "schema: must be an object");
        assert_eq!(at(json!({"type": 5})), "type: must be a string");
        assert_eq!(at(json!({"type": "strnig"})), r#"type: "strnig" is not known"#);
        assert_eq!(at(json!({"properties": {"a": {"nullable": 1}}})), "properties[a].nullable: must be a boolean");
        assert_eq!(at(json!({"items": {"definitions": {}}})), "items: definitions is not supported");
        assert_eq!(at(json!({"items": {"$ref": "#/x"}})), r##"items: $ref "#/x" does not exist"##);
        assert_eq!(
            at(json!({"allOf": [{"x-kubernetes-list-type": "bag"}]})),
            r#"allOf[0].x-kubernetes-list-type: "bag" is not known"#
        );
        let mut deep = json!({});
        for _ in 0..=MAX_DEPTH {
            deep = json!({"items": deep});
        }
        assert!(at(deep).ends_with("nested too deeply"));
    }

    prop_compose! {
        fn keyword()(index in 0usize..12) -> String {
            ["type", "items", "properties", "enum", "minimum", "maxLength", "required", "default", "allOf", "not",
             "x-kubernetes-validations", "additionalProperties"][index].to_owned()
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop_oneof![Just("object"), Just("array"), Just("x")].prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keyword(), inner, 0..5).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn arbitrary_json_never_panics(value in any_json()) {
            let _ = Schema::from_json(&value);
        }
    }
}
