//! Documents that are almost right: a sound one with a few random changes gets further than random text.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

/// Names and values that mean something somewhere.
pub const WORDS: &[&str] = &[
    "",
    "a",
    "b",
    "c",
    "name",
    "namespace",
    "metadata",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "kind",
    "apiVersion",
    "managedFields",
    "fieldsV1",
    "f:spec",
    "f:containers",
    "k:{\"name\":\"c\"}",
    "v:\"x\"",
    "i:0",
    ".",
    "f:",
    "spec",
    "status",
    "containers",
    "initContainers",
    "image",
    "ports",
    "containerPort",
    "protocol",
    "TCP",
    "volumes",
    "hostPath",
    "path",
    "tolerations",
    "key",
    "operator",
    "resources",
    "requests",
    "limits",
    "cpu",
    "memory",
    "1Gi",
    "500m",
    "1e400",
    "-1",
    "domain",
    "devices",
    "disks",
    "networks",
    "template",
    "replicas",
    "selector",
    "matchLabels",
    "matchExpressions",
    "values",
    "In",
    "$patch",
    "replace",
    "delete",
    "merge",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "op",
    "add",
    "remove",
    "test",
    "move",
    "copy",
    "from",
    "value",
    "/spec/containers/0",
    "/spec/containers/-",
    "/metadata/labels/a~1b",
    "/",
    "default",
    "Apply",
    "Update",
    "2026-01-01T00:00:00Z",
    "creationTimestamp",
    "deletionTimestamp",
    "generateName",
    "schema",
    "openAPIV3Schema",
    "properties",
    "type",
    "object",
    "array",
    "string",
    "integer",
    "items",
    "x-kubernetes-list-type",
    "map",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "rule",
    "self.a == oldSelf.a",
    "pattern",
    "^(a+)+$",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "enum",
    "default",
    "nullable",
    "format",
];

/// Random choices from the bytes of an input.
pub struct Source<'a>(Unstructured<'a>);

impl<'a> Source<'a> {
    /// Choices from an input.
    pub fn new(input: &'a [u8]) -> Self {
        Self(Unstructured::new(input))
    }

    /// One of several.
    pub fn choose<T: Clone>(&mut self, from: &[T]) -> Result<T> {
        self.0.choose(from).cloned()
    }

    /// The document with up to eight changes.
    pub fn edited(&mut self, document: &Value) -> Result<Value> {
        let mut document = document.clone();
        for _ in 0..self.0.int_in_range(0..=8)? {
            self.edit(&mut document)?;
        }
        Ok(document)
    }

    fn edit(&mut self, value: &mut Value) -> Result<()> {
        let deeper = self.0.ratio(3, 4)?;
        match value {
            Value::Object(map) if deeper && !map.is_empty() => {
                let at = self.0.choose_index(map.len())?;
                map.values_mut().nth(at).map_or(Ok(()), |child| self.edit(child))
            }
            Value::Array(list) if deeper && !list.is_empty() => {
                let at = self.0.choose_index(list.len())?;
                self.edit(&mut list[at])
            }
            Value::Object(map) if self.0.ratio(2, 3)? => self.edit_object(map),
            Value::Array(list) if self.0.ratio(2, 3)? => self.edit_list(list),
            other => {
                *other = self.leaf()?;
                Ok(())
            }
        }
    }

    fn edit_object(&mut self, map: &mut Map<String, Value>) -> Result<()> {
        if self.0.ratio(1, 2)? || map.is_empty() {
            let (key, value) = (self.choose(WORDS)?, self.leaf()?);
            map.insert(key.to_owned(), value);
            return Ok(());
        }
        let at = self.0.choose_index(map.len())?;
        let key = map.keys().nth(at).cloned().unwrap_or_default();
        let value = map.remove(&key).unwrap_or_default();
        if self.0.ratio(1, 2)? {
            map.insert(self.choose(WORDS)?.to_owned(), value);
        }
        Ok(())
    }

    fn edit_list(&mut self, list: &mut Vec<Value>) -> Result<()> {
        if list.is_empty() {
            list.push(self.leaf()?);
            return Ok(());
        }
        let (one, other) = (self.0.choose_index(list.len())?, self.0.choose_index(list.len())?);
        match self.0.int_in_range(0..=3)? {
            0 => list.push(list[one].clone()),
            1 => list.swap(one, other),
            2 => drop(list.remove(one)),
            _ => list.push(self.leaf()?),
        }
        Ok(())
    }

    fn leaf(&mut self) -> Result<Value> {
        Ok(match self.0.int_in_range(0..=7)? {
            0 => Value::Null,
            1 => self.0.arbitrary::<bool>()?.into(),
            2 => self.choose(&[0, 1, -1, 80, i64::MAX, i64::MIN])?.into(),
            3 => json!({}),
            4 => json!([]),
            5 => json!(0.5),
            6 => {
                let (key, word) = (self.choose(WORDS)?, self.choose(WORDS)?);
                let mut map = Map::new();
                map.insert(key.to_owned(), word.into());
                Value::Object(map)
            }
            _ => self.choose(WORDS)?.into(),
        })
    }
}
