//! Removes the fields that a schema does not name, or lists them.

use serde_json::Value;

use super::Schema;
use super::meta::{is_meta_field, object_meta};

impl Schema {
    /// Removes fields that the schema does not specify.
    ///
    /// With `is_root` the value is a whole object: `apiVersion`, `kind` and `metadata` stay even though the schema says
    /// nothing about them. The same holds for embedded resources. Inside of `metadata` only its real fields stay.
    pub fn prune(&self, value: &mut Value, is_root: bool) {
        let mut walk = Walk { change: Change::Remove, path: String::new(), fields: Vec::new(), metadata: Vec::new() };
        walk.node(value, Some(self), is_root);
    }

    /// The paths of the fields that [`Schema::prune`] would remove from a whole object, as they stand in
    /// `unknown field "spec.foo"`: first those in `metadata`, then the others in order, then those of embedded
    /// resources' metadata.
    pub fn unknown_fields(&self, value: &Value) -> Vec<String> {
        let mut copy = value.clone();
        let mut walk = Walk { change: Change::Record, path: String::new(), fields: Vec::new(), metadata: Vec::new() };
        walk.node(&mut copy, Some(self), true);
        let (mut root, mut embedded): (Vec<_>, Vec<_>) =
            walk.metadata.into_iter().partition(|path| path.starts_with("metadata."));
        root.sort_unstable();
        walk.fields.sort_unstable();
        embedded.sort_unstable();
        root.append(&mut walk.fields);
        root.append(&mut embedded);
        root
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Remove,
    Record,
}

struct Walk {
    change: Change,
    path: String,
    fields: Vec<String>,
    /// Unknown fields of some object's `metadata`.
    metadata: Vec<String>,
}

impl Walk {
    /// Walks one value; without a schema nothing in it is specified.
    fn node(&mut self, value: &mut Value, schema: Option<&Schema>, is_root: bool) {
        match value {
            Value::Array(items) => self.items(items, schema),
            Value::Object(fields) => {
                let whole = is_root || schema.is_some_and(|schema| schema.embedded_resource);
                let mut unknown = Vec::new();
                for (name, child) in fields.iter_mut() {
                    let known = schema.and_then(|schema| schema.properties.get(name));
                    if whole && is_meta_field(name) {
                        if name == "metadata" {
                            self.metadata(child, known.map(AsRef::as_ref));
                        }
                        continue;
                    }
                    let next = known.or_else(|| schema.and_then(|schema| schema.additional_properties.as_ref()));
                    match next {
                        Some(next) => self.below(name, |walk| walk.node(child, Some(next), false)),
                        None if schema.is_some_and(|schema| schema.preserve_unknown_fields) => {}
                        None => unknown.push(name.clone()),
                    }
                }
                for name in unknown {
                    self.unknown(&name);
                    if self.change == Change::Remove {
                        fields.remove(&name);
                    }
                }
            }
            _ => {}
        }
    }

    fn items(&mut self, items: &mut [Value], schema: Option<&Schema>) {
        let element = schema.and_then(|schema| schema.items.as_deref());
        if element.is_none() && schema.is_some_and(|schema| schema.preserve_unknown_fields) {
            return;
        }
        // The elements of a list that keeps unknown fields keep theirs too.
        let keeping = schema.is_some_and(|schema| schema.preserve_unknown_fields).then(|| {
            element.map(|element| Schema { preserve_unknown_fields: true, ..element.clone() }).unwrap_or_default()
        });
        for (index, item) in items.iter_mut().enumerate() {
            let length = self.path.len();
            self.path.push_str(&format!("[{index}]"));
            self.node(item, keeping.as_ref().or(element), false);
            self.path.truncate(length);
        }
    }

    /// Prunes `metadata` to the fields of ObjectMeta, unless the kind is a built-in one that says what it holds.
    fn metadata(&mut self, value: &mut Value, known: Option<&Schema>) {
        let schema = known.filter(|known| known.properties.contains_key("ownerReferences"));
        let schema = schema.unwrap_or_else(|| object_meta());
        let outside = std::mem::take(&mut self.fields);
        self.below("metadata", |walk| walk.node(value, Some(schema), false));
        let inside = std::mem::replace(&mut self.fields, outside);
        self.metadata.extend(inside);
    }

    fn below(&mut self, name: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        walk(self);
        self.path.truncate(length);
    }

    fn unknown(&mut self, name: &str) {
        if self.change == Change::Record {
            let separator = if self.path.is_empty() { "" } else { "." };
            self.fields.push(format!("{}{separator}{name}", self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::from_json(&json!({
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {
                    "name": {"type": "string"},
                    "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
                    "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
                        "v": {"type": "string"}}}},
                    "any": {"type": "object", "additionalProperties": true},
                    "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                        "typed": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                    "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                        "spec": {"type": "object", "properties": {"x": {"type": "string"}}}}}
                }}
            }
        }))
        .expect("parses")
    }

    fn pruned(value: Value) -> Value {
        let mut value = value;
        schema().prune(&mut value, true);
        value
    }

    #[test]
    fn unspecified_fields_go() {
        assert_eq!(
            pruned(
                json!({"apiVersion": "v1", "kind": "K", "other": 1, "metadata": {"name": "n", "labels": {"a": "b"}},
                "spec": {"name": "x", "zzz": 1, "list": [{"a": 1, "b": 2}, null], "map": {"k": {"v": "1", "w": "2"}}}})
            ),
            json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}},
                "spec": {"name": "x", "list": [{"a": 1}, null], "map": {"k": {"v": "1"}}}})
        );
    }

    #[test]
    fn preserving_nodes_keep_what_they_do_not_name() {
        assert_eq!(
            pruned(json!({"spec": {"raw": {"free": {"x": [1]}, "typed": {"a": "1", "b": "2"}}}})),
            json!({"spec": {"raw": {"free": {"x": [1]}, "typed": {"a": "1"}}}})
        );
    }

    #[test]
    fn additional_properties_true_keeps_only_leaves() {
        assert_eq!(
            pruned(json!({"spec": {"any": {"leaf": 1, "deep": {"x": 1}}}})),
            json!({"spec": {"any": {"leaf": 1, "deep": {}}}})
        );
    }

    #[test]
    fn embedded_resources_keep_their_metadata() {
        assert_eq!(
            pruned(json!({"spec": {"embedded": {"apiVersion": "v1", "kind": "Pod", "extra": 1,
                "metadata": {"name": "a", "bogus": 1}, "spec": {"x": "1", "y": "2"}}}})),
            json!({"spec": {"embedded": {"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a"}, "spec": {"x": "1"}}}})
        );
    }

    #[test]
    fn a_schema_without_a_root_drops_even_meta_fields() {
        let mut value = json!({"kind": "K", "spec": {}});
        schema().prune(&mut value, false);
        assert_eq!(value, json!({"spec": {}}));
    }

    #[test]
    fn unknown_fields_are_listed_in_the_servers_order() {
        let value = json!({"zzz": 1, "metadata": {"bogus": 1, "name": "n"},
            "spec": {"b": 1, "a": 1, "list": [{"c": 1}], "embedded": {"metadata": {"wrong": 1}}}});
        assert_eq!(
            schema().unknown_fields(&value),
            ["metadata.bogus", "spec.a", "spec.b", "spec.list[0].c", "zzz", "spec.embedded.metadata.wrong"]
        );
    }

    fn any_object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<i64>().prop_map(Value::from), Just(Value::from("s"))];
        let names = prop_oneof![
            Just("spec"),
            Just("metadata"),
            Just("list"),
            Just("map"),
            Just("raw"),
            Just("typed"),
            Just("any"),
            Just("embedded"),
            Just("a"),
            Just("zzz")
        ];
        leaf.prop_recursive(5, 60, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..6)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn pruning_is_idempotent_and_agrees_with_the_list(value in any_object()) {
            let mut once = value.clone();
            schema().prune(&mut once, true);
            let mut twice = once.clone();
            schema().prune(&mut twice, true);
            prop_assert_eq!(&once, &twice);
            prop_assert!(schema().unknown_fields(&once).is_empty());
            prop_assert_eq!(schema().unknown_fields(&value).is_empty(), value == once);
        }
    }
}
