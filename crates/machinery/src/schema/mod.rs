//! The one schema type that every kind has, built-in or custom: what fields exist, how lists merge, what values pass.
//!
//! A [`Schema`] is a tree of shared nodes. Custom resources get theirs from a CRD's `openAPIV3Schema`, built-in kinds
//! from k8s-openapi (see [`crate::builtin`]). Pruning, defaulting, validation, strategic merge and server-side apply all walk
//! this tree, so a rule about a field is known in one place.

mod default;
pub mod meta;
pub mod parse;
pub(crate) mod pattern;
mod prune;
mod report;
pub(crate) mod rules;
pub mod structural;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// One node of a structural schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// The JSON type that a value must have.
    pub kind: Type,
    /// `null` is a value of its own (otherwise a `null` is dropped or defaulted).
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`: fields that the schema does not name are kept.
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`: the object has its own `apiVersion`, `kind` and `metadata`.
    pub embedded_resource: bool,
    /// Named fields of an object.
    pub properties: BTreeMap<String, Arc<Schema>>,
    /// The schema of the values of a map.
    pub additional_properties: Option<Arc<Schema>>,
    /// The schema of the elements of a list.
    pub items: Option<Arc<Schema>>,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// The value that a missing field gets.
    pub default: Option<Value>,
    /// How a list merges under server-side apply.
    pub list_type: ListType,
    /// The fields that identify an element of a [`ListType::Map`].
    pub list_map_keys: Vec<String>,
    /// An object that is replaced as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic_map: bool,
    /// How a strategic merge patch treats the field; `None` means replace for lists, merge for objects.
    pub patch: PatchStrategy,
    /// Constraints on values that have nothing to do with the tree's shape; absent on most nodes.
    pub checks: Option<Box<Checks>>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
    /// The OpenAPI name of the definition that this node is, for built-in kinds: `io.k8s.api.core.v1.PodSpec`.
    pub definition: Option<Arc<str>>,
    /// Whether this node or one below has rules; set by the parser, so that objects without rules cost nothing.
    pub(crate) rules_below: bool,
}

/// JSON types; `Any` is an untyped node (`preserve_unknown_fields`, `int_or_string`, raw JSON).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// No `type` given.
    #[default]
    Any,
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Owned and replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each owned by itself.
    Set,
    /// Objects identified by `list_map_keys`.
    Map,
}

/// `x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`, for built-in kinds only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// `merge`: a list is merged by `merge_key` (or as a set when there is none).
    pub merge: bool,
    /// `retainKeys`: keys that the patch does not list are removed from the object.
    pub retain_keys: bool,
    /// The field that identifies an element.
    pub merge_key: Option<String>,
}

/// Value validations of JSON schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checks {
    /// `format`; only the formats that Kubernetes knows are enforced.
    pub format: Option<String>,
    /// `enum`
    pub one_of_values: Vec<Value>,
    /// `pattern`
    pub pattern: Option<String>,
    /// `minimum`, with whether it is exclusive.
    pub minimum: Option<(f64, bool)>,
    /// `maximum`, with whether it is exclusive.
    pub maximum: Option<(f64, bool)>,
    /// `multipleOf`
    pub multiple_of: Option<f64>,
    /// `minLength`
    pub min_length: Option<u64>,
    /// `maxLength`
    pub max_length: Option<u64>,
    /// `minItems`
    pub min_items: Option<u64>,
    /// `maxItems`
    pub max_items: Option<u64>,
    /// `uniqueItems`
    pub unique_items: bool,
    /// `minProperties`
    pub min_properties: Option<u64>,
    /// `maxProperties`
    pub max_properties: Option<u64>,
    /// `allOf`
    pub all_of: Vec<Schema>,
    /// `anyOf`
    pub any_of: Vec<Schema>,
    /// `oneOf`
    pub one_of: Vec<Schema>,
    /// `not`
    pub not: Option<Box<Schema>>,
}

/// One CEL rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// The expression; it must evaluate to true.
    pub rule: String,
    /// What to say when it is false.
    pub message: Option<String>,
    /// An expression that makes the message.
    pub message_expression: Option<String>,
    /// `FieldValueInvalid` (default), `FieldValueForbidden`, `FieldValueRequired`, `FieldValueDuplicate`.
    pub reason: Option<String>,
    /// The field that the error names, relative to the rule's place.
    pub field_path: Option<String>,
    /// Run a transition rule on creation too.
    pub optional_old_self: bool,
    /// The rule's programs, made when it first runs.
    pub(crate) compiled: rules::Compiled,
}
