//! From the JSON schema of a type to a structural schema.
//!
//! Kubernetes wants every node typed in place: no references, no alternatives that are really "or nothing", no formats
//! that it does not know. Everything here is a rewrite of one node, applied from the root down.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// How much the schema says to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptions {
    /// All fields are described.
    Keep,
    /// None are; for versions that exist only to be read.
    Drop,
}

/// The structural schema of a type.
#[must_use]
pub fn structural_schema<T: JsonSchema>(descriptions: Descriptions) -> Value {
    let generator: SchemaGenerator = SchemaSettings::draft2020_12().into_generator();
    let root = generator.into_root_schema_for::<T>().to_value();
    let definitions = root.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    let rewriter = Rewriter { definitions: &definitions, descriptions };
    let foreign = false;
    Value::Object(rewriter.node(&root, foreign))
}

/// Types of Kubernetes that are owned as a whole under server-side apply.
const ATOMIC_OBJECTS: [&str; 8] = [
    "io.k8s.api.core.v1.LocalObjectReference",
    "io.k8s.api.core.v1.NodeSelector",
    "io.k8s.api.core.v1.NodeSelectorTerm",
    "io.k8s.api.core.v1.ObjectFieldSelector",
    "io.k8s.api.core.v1.ResourceFieldSelector",
    "io.k8s.api.core.v1.TypedLocalObjectReference",
    "io.k8s.api.core.v1.SecretKeySelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
];

/// Keywords that pass through as they are.
const KEPT: [&str; 20] = [
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "required",
    "nullable",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
    "minProperties",
    "maxProperties",
    "multipleOf",
];

#[derive(Clone, Copy)]
struct Rewriter<'a> {
    definitions: &'a Map<String, Value>,
    descriptions: Descriptions,
}

impl Rewriter<'_> {
    /// Rewrites one node; `foreign` nodes come from Kubernetes' own types.
    fn node(&self, schema: &Value, foreign: bool) -> Map<String, Value> {
        let Some(schema) = schema.as_object() else {
            // `true`: anything goes.
            return Map::from_iter([("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true))]);
        };
        let mut node = self.base(schema, foreign);
        self.describe(schema, foreign, &mut node);
        for key in KEPT {
            if let Some(value) = schema.get(key) {
                node.insert(key.to_owned(), value.clone());
            }
        }
        if let Some(Value::Array(words)) = node.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        // A default of the type is what the code falls back to; only what is marked becomes part of the object.
        if let Some(default) = schema.get("x-default") {
            node.insert("default".to_owned(), default.clone());
        }
        self.kind(schema, &mut node);
        self.children(schema, foreign, &mut node);
        node
    }

    /// What the node refers to, resolved, or nothing.
    fn base(&self, schema: &Map<String, Value>, foreign: bool) -> Map<String, Value> {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.definition(reference.trim_start_matches("#/$defs/"));
        }
        let Some(alternatives) = schema.get("anyOf").and_then(Value::as_array) else {
            return Map::new();
        };
        if schema.contains_key("x-kubernetes-int-or-string") {
            return Map::from_iter([("anyOf".to_owned(), Value::Array(alternatives.clone()))]);
        }
        let is_null = |alternative: &&Value| alternative.get("type") == Some(&json!("null"));
        let value = alternatives.iter().find(|alternative| !is_null(alternative));
        value.map(|value| self.node(value, foreign)).unwrap_or_default()
    }

    fn definition(&self, name: &str) -> Map<String, Value> {
        match name {
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" => self.template_metadata(name),
            "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1" => {
                object(json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }))
            }
            "io.k8s.apimachinery.pkg.api.resource.Quantity" => {
                let schema = crate::values::Quantity::json_schema(&mut SchemaGenerator::default());
                schema.as_object().cloned().unwrap_or_default()
            }
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => object(json!({
                "anyOf": [{ "type": "integer" }, { "type": "string" }],
                "minimum": i32::MIN,
                "maximum": i32::MAX,
                "x-kubernetes-int-or-string": true,
            })),
            _ => {
                let Some(definition) = self.definitions.get(name) else {
                    return Map::new();
                };
                let mut node = self.node(definition, name.starts_with("io.k8s."));
                if ATOMIC_OBJECTS.contains(&name) {
                    node.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
                }
                if name == "io.k8s.api.core.v1.LocalObjectReference" {
                    // An empty name stands for none, as everywhere in Kubernetes.
                    node.remove("required");
                    node["properties"]["name"]["default"] = json!("");
                }
                node
            }
        }
    }

    /// The metadata of a template. The API server does not look into it as it does with an object's own, so the schema
    /// has to: labels that are no map of strings would make the object unreadable. Clients in Go write `null` for times.
    fn template_metadata(&self, name: &str) -> Map<String, Value> {
        let definition = self.definitions.get(name).cloned().unwrap_or_default();
        let mut node = Self { descriptions: Descriptions::Drop, ..*self }.node(&definition, true);
        for (_, property) in node.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
            property["nullable"] = json!(true);
        }
        node
    }

    fn describe(&self, schema: &Map<String, Value>, foreign: bool, node: &mut Map<String, Value>) {
        let description = schema.get("description").and_then(Value::as_str);
        match (self.descriptions, description) {
            (Descriptions::Keep, Some(text)) => {
                let text = if foreign { first_sentence(text) } else { text };
                node.insert("description".to_owned(), json!(text));
            }
            (Descriptions::Drop, _) => {
                node.remove("description");
            }
            (Descriptions::Keep, None) => {}
        }
    }

    /// Type and format, in the words that Kubernetes knows.
    fn kind(&self, schema: &Map<String, Value>, node: &mut Map<String, Value>) {
        match schema.get("type") {
            Some(Value::Array(types)) => {
                if let Some(kind) = types.iter().find(|kind| **kind != json!("null")) {
                    node.insert("type".to_owned(), kind.clone());
                }
            }
            Some(kind) => {
                node.insert("type".to_owned(), kind.clone());
            }
            None => {}
        }
        let (format, largest) = match schema.get("format").and_then(Value::as_str) {
            Some("uint8") => ("int32", Some(u32::from(u8::MAX))),
            Some("uint16") => ("int32", Some(u32::from(u16::MAX))),
            Some("uint32") => ("int64", Some(u32::MAX)),
            Some("uint64" | "int64") => ("int64", None),
            Some(known @ ("int32" | "double" | "float" | "date-time" | "byte")) => (known, None),
            _ => return,
        };
        node.insert("format".to_owned(), json!(format));
        if let Some(largest) = largest {
            node.entry("maximum").or_insert(json!(largest));
        }
    }

    fn children(&self, schema: &Map<String, Value>, foreign: bool, node: &mut Map<String, Value>) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let properties = properties.iter().map(|(name, child)| (name.clone(), self.node(child, foreign).into()));
            node.insert("properties".to_owned(), Value::Object(properties.collect()));
        }
        if let Some(items) = schema.get("items") {
            node.insert("items".to_owned(), self.node(items, foreign).into());
            if foreign {
                // None of the lists inside the types that are used here is merged by element.
                node.insert("x-kubernetes-list-type".to_owned(), json!("atomic"));
            }
        }
        if let Some(values @ Value::Object(_)) = schema.get("additionalProperties") {
            node.insert("additionalProperties".to_owned(), self.node(values, foreign).into());
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The first sentence of a description that was written for a manual.
fn first_sentence(text: &str) -> &str {
    const LONGEST: usize = 120;
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split_once(". ").map_or(line, |(sentence, _)| sentence);
    let end = sentence.char_indices().nth(LONGEST).map_or(sentence.len(), |(end, _)| end);
    &sentence[..end]
}
