//! The schemas of Kubernetes' own kinds, from k8s-openapi.
//!
//! k8s-openapi describes each type; the facts that it leaves out (how lists merge, defaults) are laid over it from
//! `list_facts.json`. A kind's schema is made when it is first asked for and shares its parts with the others;
//! descriptions stay out of it. JSON for OpenAPI documents is made on demand and not kept.

mod decode;
mod facts;
mod kinds;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

pub use decode::builtin_type_errors;
pub use kinds::{KINDS, Kind};

use crate::schema::meta::untyped;
use crate::schema::{Checks, Schema, Type};

/// Where definitions live in an OpenAPI v3 document.
pub const DEFINITIONS: &str = "#/components/schemas/";

/// Schemas by definition name, each made once.
type Known = HashMap<String, Arc<Schema>>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The built-in kind of that name, if there is one.
pub fn kind(group: &str, version: &str, kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|known| known.kind == kind && known.version == version && known.group == group)
}

/// The schema of a built-in kind's objects.
pub fn schema(group: &str, version: &str, kind: &str) -> Option<Arc<Schema>> {
    let found = self::kind(group, version, kind)?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = found.definition();
    if let Some(schema) = known.get(&name) {
        return Some(Arc::clone(schema));
    }
    Converter::new(&mut known, |generator| {
        (found.describe)(generator);
    })
    .definition(&name)
}

/// The schema of a definition that all kinds share, such as `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`.
pub fn definition(name: &str) -> Option<Arc<Schema>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(schema) = known.get(name) {
        return Some(Arc::clone(schema));
    }
    Converter::new(&mut known, kinds::describe_common).definition(name)
}

/// The definitions of the given kinds, and of all that they refer to, as they stand in `components.schemas`.
///
/// Metadata, options and answers that every API has are always among them. The result is large and made anew by each
/// call.
pub fn definitions<'k>(kinds: impl IntoIterator<Item = &'k Kind>) -> BTreeMap<String, Value> {
    let mut generator = generator();
    kinds::describe_common(&mut generator);
    for kind in kinds {
        (kind.describe)(&mut generator);
    }
    generator
        .take_definitions(true)
        .into_iter()
        .map(|(name, mut definition)| {
            document(&name, &mut definition);
            (name, definition)
        })
        .collect()
}

fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft07();
    settings.definitions_path = DEFINITIONS.trim_start_matches('#').trim_end_matches('/').into();
    settings.transforms.clear();
    settings.into_generator()
}

/// What a definition that is more than plain fields stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Any JSON at all.
    Untyped,
    /// A number or a string; the format tells how Go reads it.
    IntOrString(&'static str),
}

fn special(name: &str) -> Option<Special> {
    Some(match name.rsplit('.').next()? {
        "RawExtension"
        | "FieldsV1"
        | "JSON"
        | "JSONSchemaPropsOrArray"
        | "JSONSchemaPropsOrBool"
        | "JSONSchemaPropsOrStringArray" => Special::Untyped,
        "IntOrString" => Special::IntOrString("int-or-string"),
        "Quantity" => Special::IntOrString("quantity"),
        _ => return None,
    })
}

/// JSONSchemaProps holds itself: so many levels are typed, and below that everything is kept as it is.
const TYPED_LEVELS: usize = 10;

/// Fields that k8s-openapi asks for and the API does not.
fn is_required(definition: &str, field: &str) -> bool {
    const WITH_LOCAL_REFERENCE: [&str; 8] = [
        "ConfigMapEnvSource",
        "ConfigMapKeySelector",
        "ConfigMapProjection",
        "ConfigMapVolumeSource",
        "LocalObjectReference",
        "SecretEnvSource",
        "SecretKeySelector",
        "SecretProjection",
    ];
    match field {
        "metadata" => definition == "io.k8s.api.core.v1.Event",
        "name" => {
            definition.strip_prefix("io.k8s.api.core.v1.").is_none_or(|kind| !WITH_LOCAL_REFERENCE.contains(&kind))
        }
        _ => true,
    }
}

/// Makes [`Schema`]s from the raw definitions of some kinds.
struct Converter<'k> {
    raw: Map<String, Value>,
    known: &'k mut Known,
    /// Definitions being made now: meeting one of them again means that it is recursive.
    open: Vec<String>,
    /// Inner levels of recursive definitions.
    levels: HashMap<(String, usize), Arc<Schema>>,
}

impl<'k> Converter<'k> {
    fn new(known: &'k mut Known, describe: impl FnOnce(&mut SchemaGenerator)) -> Self {
        let mut generator = generator();
        describe(&mut generator);
        Self { raw: generator.take_definitions(true), known, open: Vec::new(), levels: HashMap::new() }
    }

    fn definition(&mut self, name: &str) -> Option<Arc<Schema>> {
        let level = self.open.iter().filter(|open| *open == name).count();
        let made = if level == 0 { self.known.get(name) } else { self.levels.get(&(name.to_owned(), level)) };
        if let Some(schema) = made {
            return Some(Arc::clone(schema));
        }
        if level == TYPED_LEVELS {
            return Some(Arc::new(untyped()));
        }
        let mut schema = match special(name) {
            Some(Special::Untyped) => untyped(),
            Some(Special::IntOrString(format)) => Schema {
                int_or_string: true,
                checks: Some(Box::new(Checks { format: Some(format.to_owned()), ..Checks::default() })),
                ..Schema::default()
            },
            None => self.plain(name)?,
        };
        schema.definition = Some(name.into());
        let schema = Arc::new(schema);
        if level == 0 {
            self.known.insert(name.to_owned(), Arc::clone(&schema));
        } else {
            self.levels.insert((name.to_owned(), level), Arc::clone(&schema));
        }
        Some(schema)
    }

    fn plain(&mut self, name: &str) -> Option<Schema> {
        let raw = self.raw.get(name)?.clone();
        self.open.push(name.to_owned());
        let parsed = Schema::from_json_with(&raw, &mut |target| self.definition(target.strip_prefix(DEFINITIONS)?));
        self.open.pop();
        let mut schema = parsed.ok()?;
        schema.required.retain(|field| is_required(name, field));
        // An object that nothing is said about is a Go struct without fields or a free map; either way it is kept.
        if schema.kind == Type::Object && schema.properties.is_empty() && schema.additional_properties.is_none() {
            schema.preserve_unknown_fields = true;
        }
        for (field, facts) in facts::all().get(name).into_iter().flatten() {
            if field == facts::ITSELF {
                facts.apply(&mut schema);
            } else if let Some(node) = schema.properties.get_mut(field) {
                facts.apply(Arc::make_mut(node));
            }
        }
        Some(schema)
    }
}

/// Turns a definition of k8s-openapi into the form that kube-apiserver publishes.
fn document(name: &str, definition: &mut Value) {
    if let Some(Special::IntOrString(format)) = special(name) {
        let description = definition.get("description").cloned().unwrap_or_default();
        let (kinds, key) = match format {
            "quantity" => (json!([{"type": "string"}, {"type": "number"}]), None),
            format => (json!([{"type": "integer"}, {"type": "string"}]), Some(format)),
        };
        *definition = json!({"description": description, "oneOf": kinds});
        if let (Some(format), Some(map)) = (key, definition.as_object_mut()) {
            map.insert("format".to_owned(), json!(format));
        }
        return;
    }
    let facts = facts::all().get(name);
    let Some(map) = definition.as_object_mut() else { return };
    if name.ends_with(".JSON") {
        map.remove("type");
    }
    if let Some(Value::Array(required)) = map.get_mut("required") {
        required.retain(|field| is_required(name, field.as_str().unwrap_or_default()));
        if required.is_empty() {
            map.remove("required");
        }
    }
    for (field, node) in map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        wrap_reference(node);
        if let Some(facts) = facts.and_then(|facts| facts.get(field)) {
            facts.annotate(node);
        }
    }
    if let Some(facts) = facts.and_then(|facts| facts.get(facts::ITSELF)) {
        facts.annotate(definition);
    }
}

/// A `$ref` must stand alone in OpenAPI 3.0; what is said beside it moves out.
fn wrap_reference(node: &mut Value) {
    if let Some(map) = node.as_object_mut()
        && map.len() > 1
        && let Some(target) = map.remove("$ref")
    {
        map.insert("allOf".to_owned(), json!([{"$ref": target}]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ListType;

    #[test]
    fn every_kind_has_a_schema_with_metadata() {
        for kind in KINDS {
            let schema = schema(kind.group, kind.version, kind.kind).unwrap_or_else(|| panic!("{kind:?}"));
            assert!(schema.properties.contains_key("metadata"), "{kind:?}");
            assert!(schema.properties["metadata"].properties.contains_key("ownerReferences"), "{kind:?}");
        }
        assert!(schema("", "v1", "Nothing").is_none());
    }

    #[test]
    fn each_fact_lands_on_an_existing_field() {
        let documents = definitions(KINDS);
        assert!(facts::all().len() > 100, "the facts were read");
        for (name, fields) in facts::all() {
            // Kinds that we do not serve share documents with those that we do.
            let Some(definition) = documents.get(name) else { continue };
            for field in fields.keys().filter(|field| *field != facts::ITSELF) {
                assert!(definition["properties"].get(field).is_some(), "{name}: {field}");
            }
        }
        let unused: Vec<_> = facts::all().keys().filter(|name| !documents.contains_key(*name)).collect();
        assert!(unused.len() < 12, "facts without a definition: {unused:?}");
    }

    #[test]
    fn facts_shape_the_schema() {
        let pod = schema("", "v1", "Pod").expect("a pod");
        let containers = &pod.properties["spec"].properties["containers"];
        assert_eq!(containers.list_type, ListType::Map);
        assert_eq!(containers.list_map_keys, ["name"]);
        assert!(containers.patch.merge);
        assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
        let ports = &containers.items.as_ref().expect("items").properties["ports"];
        assert_eq!(ports.list_map_keys, ["containerPort", "protocol"]);
        assert_eq!(ports.items.as_ref().expect("items").properties["protocol"].default, Some(json!("TCP")));
        assert!(pod.properties["spec"].properties["nodeSelector"].atomic_map);
        let volume = schema("", "v1", "PersistentVolume").expect("a volume");
        assert!(!volume.properties["spec"].properties["claimRef"].atomic_map, "granular there");
        let deployment = schema("apps", "v1", "Deployment").expect("a deployment");
        assert!(deployment.properties["spec"].properties["strategy"].patch.retain_keys);
        assert!(deployment.properties["spec"].properties["selector"].atomic_map);
    }

    #[test]
    fn definitions_are_shared() {
        let pod = schema("", "v1", "Pod").expect("a pod");
        let deployment = schema("apps", "v1", "Deployment").expect("a deployment");
        let template = &deployment.properties["spec"].properties["template"];
        assert!(Arc::ptr_eq(&pod.properties["spec"], &template.properties["spec"]));
    }

    #[test]
    fn numbers_and_raw_json_survive_pruning() {
        let schema = schema("", "v1", "Pod").expect("a pod");
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "managedFields": [
                {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:x": {}}}}]},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"port": 80}}}]}});
        let before = pod.clone();
        schema.prune(&mut pod, true);
        assert_eq!(pod, before);
        assert!(schema.unknown_fields(&pod).is_empty());
        assert_eq!(schema.unknown_fields(&json!({"spec": {"containers": [{"nam": "c"}]}})), ["spec.containers[0].nam"]);
    }

    #[test]
    fn recursive_schemas_end() {
        let crd = schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("a crd");
        let version = crd.properties["spec"].properties["versions"].items.as_ref().expect("items");
        let root = &version.properties["schema"].properties["openAPIV3Schema"];
        assert!(root.properties.contains_key("x-kubernetes-validations"));
        let mut inner = root;
        for _ in 0..TYPED_LEVELS {
            assert!(!inner.preserve_unknown_fields);
            inner = &inner.properties["not"];
        }
        assert!(inner.preserve_unknown_fields && inner.properties.is_empty());
        assert_eq!(
            crd.unknown_fields(&json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {
                "properties": {"a": {"properties": {"b": {"tpye": "string"}}}}}}}]}})),
            ["spec.versions[0].schema.openAPIV3Schema.properties.a.properties.b.tpye"]
        );
    }

    #[test]
    fn documents_have_the_published_form() {
        let documents = definitions(kind("apps", "v1", "Deployment"));
        let spec = &documents["io.k8s.api.apps.v1.DeploymentSpec"];
        assert_eq!(
            spec["properties"]["strategy"]["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"
        );
        assert_eq!(spec["properties"]["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
        assert_eq!(documents["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"], "int-or-string");
        assert!(documents["io.k8s.api.apps.v1.Deployment"].get("required").is_none());
    }
}
