//! What k8s-openapi does not say about fields: list types, keys, patch strategies, defaults.
//!
//! `list_facts.json` holds only what differs from the plain case, as `tests/reference/list_facts.py` writes it from
//! the OpenAPI documents of kube-apiserver.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::schema::{Checks, ListType, PatchStrategy, Schema};

/// The facts of one field, or of a whole definition.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Facts {
    pub(super) list_type: Option<String>,
    pub(super) keys: Vec<String>,
    pub(super) merge_key: Option<String>,
    pub(super) strategy: Option<String>,
    /// `false` where a field is granular although its definition is atomic.
    pub(super) atomic: Option<bool>,
    pub(super) default: Option<Value>,
    #[serde(rename = "enum")]
    pub(super) one_of: Vec<Value>,
}

/// The key under which a definition's own facts are found.
pub(super) const ITSELF: &str = ".";

/// Facts by field of one definition.
pub(super) type DefinitionFacts = BTreeMap<String, Facts>;

/// All facts, by definition.
pub(super) fn all() -> &'static BTreeMap<String, DefinitionFacts> {
    static FACTS: LazyLock<BTreeMap<String, DefinitionFacts>> =
        LazyLock::new(|| serde_json::from_str(include_str!("list_facts.json")).unwrap_or_default());
    &FACTS
}

impl Facts {
    /// Lays the facts over a schema node.
    pub(super) fn apply(&self, schema: &mut Schema) {
        match self.list_type.as_deref() {
            Some("set") => schema.list_type = ListType::Set,
            Some("map") => schema.list_type = ListType::Map,
            _ => {}
        }
        schema.list_map_keys.clone_from(&self.keys);
        schema.atomic_map = self.atomic.unwrap_or(schema.atomic_map);
        if let Some(default) = &self.default {
            schema.default = Some(default.clone());
        }
        let strategy = self.strategy.as_deref().unwrap_or_default();
        schema.patch = PatchStrategy {
            merge: strategy.split(',').any(|word| word == "merge"),
            retain_keys: strategy.split(',').any(|word| word == "retainKeys"),
            merge_key: self.merge_key.clone(),
        };
        if !self.one_of.is_empty() {
            let checks = schema.checks.get_or_insert_with(Box::<Checks>::default);
            checks.one_of_values.clone_from(&self.one_of);
        }
    }

    /// Lays the facts over the JSON of a schema node.
    pub(super) fn annotate(&self, node: &mut Value) {
        let Value::Object(map) = node else { return };
        let mut put = |keyword: &str, value: Value| map.insert(keyword.to_owned(), value);
        if let Some(list_type) = &self.list_type {
            put("x-kubernetes-list-type", json!(list_type));
        }
        if !self.keys.is_empty() {
            put("x-kubernetes-list-map-keys", json!(self.keys));
        }
        if let Some(strategy) = &self.strategy {
            put("x-kubernetes-patch-strategy", json!(strategy));
        }
        if let Some(merge_key) = &self.merge_key {
            put("x-kubernetes-patch-merge-key", json!(merge_key));
        }
        if let Some(atomic) = self.atomic {
            put("x-kubernetes-map-type", json!(if atomic { "atomic" } else { "granular" }));
        }
        if let Some(default) = &self.default {
            put("default", default.clone());
        }
        if !self.one_of.is_empty() {
            put("enum", json!(self.one_of));
        }
    }
}
