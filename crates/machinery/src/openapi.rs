//! OpenAPI v3 documents: what `kubectl explain`, client-side apply and field validation read.
//!
//! One document per group version, made from a description of its resources. Built-in kinds take their schemas from
//! [`crate::builtin`], custom ones from their CRD, with `apiVersion`, `kind` and `metadata` put in.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::builtin::{self, DEFINITIONS};
use crate::schema::meta::OBJECT_META;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Where a kind's schema comes from.
#[derive(Clone, Copy, Debug)]
pub enum SchemaSource<'v> {
    /// k8s-openapi knows it.
    BuiltIn,
    /// The `openAPIV3Schema` of a CRD; `None` when the version has none.
    Custom(Option<&'v Value>),
}

/// One resource of a group version.
#[derive(Clone, Debug)]
pub struct ResourceDoc<'v> {
    /// The API group; empty for core.
    pub group: &'v str,
    /// The version.
    pub version: &'v str,
    /// The kind of its objects.
    pub kind: &'v str,
    /// The kind of their lists; empty where there are none.
    pub list_kind: &'v str,
    /// The name in URLs.
    pub plural: &'v str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it: `create`, `delete`, `deletecollection`, `get`, `list`, `patch`, `update`, `watch`.
    pub verbs: &'v [&'v str],
    /// `status`, `scale`, and others.
    pub subresources: Vec<SubresourceDoc<'v>>,
    /// Its schema.
    pub schema: SchemaSource<'v>,
}

/// One subresource.
#[derive(Clone, Debug)]
pub struct SubresourceDoc<'v> {
    /// The last part of its URL.
    pub name: &'v str,
    /// Group, version and kind of its objects, where they differ from the resource's.
    pub kind: Option<(&'v str, &'v str, &'v str)>,
    /// What can be done with it.
    pub verbs: &'v [&'v str],
}

/// The document of a group version.
pub fn group_version_document(resources: &[ResourceDoc<'_>]) -> Value {
    let mut schemas = schemas(resources);
    for resource in resources {
        if let SchemaSource::Custom(schema) = resource.schema {
            let whole = custom_schema(schema, &schemas);
            schemas.insert(resource.definition(), whole);
        }
        if !resource.list_kind.is_empty() {
            schemas.insert(resource.list_definition(), list_schema(resource));
        }
    }
    name_kinds(resources, &mut schemas);
    let mut paths = BTreeMap::new();
    for resource in resources {
        resource.add_paths(&mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {
                "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
            }},
        },
    })
}

/// The name of a kind's definition: `io.k8s.api.core.v1.Pod`, `io.kubevirt.v1.VirtualMachine`.
pub fn definition_name(group: &str, version: &str, kind: &str) -> String {
    match builtin::kind(group, version, kind) {
        Some(known) => known.definition(),
        None => {
            let mut parts: Vec<&str> = group.split('.').rev().collect();
            parts.extend([version, kind]);
            parts.join(".")
        }
    }
}

type Schemas = BTreeMap<String, Value>;

/// The definitions of all built-in kinds that the resources need.
fn schemas(resources: &[ResourceDoc<'_>]) -> Schemas {
    let own = resources.iter().map(|resource| (resource.group, resource.version, resource.kind));
    let others = resources.iter().flat_map(|resource| resource.subresources.iter().filter_map(|sub| sub.kind));
    let kinds = own.chain(others).filter_map(|(group, version, kind)| builtin::kind(group, version, kind));
    let mut schemas = builtin::definitions(kinds);
    schemas.insert(
        format!("{META}.Patch"),
        json!({"type": "object", "description": "The body of a PATCH request; its form is told by the content type."}),
    );
    schemas
}

fn reference(definition: &str) -> Value {
    json!({"$ref": format!("{DEFINITIONS}{definition}")})
}

/// `apiVersion`, `kind` and `metadata` as every object has them, with the texts of a built-in kind.
fn common_fields(schemas: &Schemas) -> Map<String, Value> {
    let text = |field: &str| {
        let options = schemas.get(&format!("{META}.DeleteOptions"));
        options.and_then(|options| options.get("properties")?.get(field)).cloned()
    };
    let mut fields = Map::new();
    for field in ["apiVersion", "kind"] {
        fields.insert(field.to_owned(), text(field).unwrap_or_else(|| json!({"type": "string"})));
    }
    fields.insert(
        "metadata".to_owned(),
        json!({"description": "Name, labels and everything else that all objects have.", "allOf": [reference(OBJECT_META)]}),
    );
    fields
}

fn custom_schema(schema: Option<&Value>, schemas: &Schemas) -> Value {
    let fields = common_fields(schemas);
    let mut whole = match schema {
        Some(schema) => schema.clone(),
        None => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    embed(&mut whole, &fields);
    add_fields(&mut whole, &fields);
    spell_out_int_or_string(&mut whole);
    whole
}

/// Plain OpenAPI readers do not know `x-kubernetes-int-or-string`, so the two types are listed beside it.
fn spell_out_int_or_string(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) && !fields.contains_key("anyOf") {
                fields.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
            }
            fields.values_mut().for_each(spell_out_int_or_string);
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out_int_or_string),
        _ => {}
    }
}

fn add_fields(node: &mut Value, fields: &Map<String, Value>) {
    let Some(map) = node.as_object_mut() else { return };
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.extend(fields.clone());
    }
}

/// Puts the common fields into every embedded resource too.
fn embed(node: &mut Value, fields: &Map<String, Value>) {
    let Some(map) = node.as_object_mut() else { return };
    for child in map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        embed(child, fields);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(keyword) {
            embed(child, fields);
        }
    }
    if map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        add_fields(node, fields);
    }
}

fn list_schema(resource: &ResourceDoc<'_>) -> Value {
    json!({
        "description": format!("A list of {}.", resource.plural),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": "The group and version of the list.", "type": "string"},
            "kind": {"description": "The kind of the list.", "type": "string"},
            "items": {
                "description": format!("The {} that were found.", resource.plural),
                "type": "array",
                "items": reference(&resource.definition()),
            },
            "metadata": {
                "description": "The revision of the list, and how to go on with the next page.",
                "allOf": [reference(&format!("{META}.ListMeta"))],
            },
        },
    })
}

/// Says of each definition which kinds it describes.
fn name_kinds(resources: &[ResourceDoc<'_>], schemas: &mut Schemas) {
    let mut name = |definition: String, group: &str, version: &str, kind: &str| {
        if let Some(Value::Object(schema)) = schemas.get_mut(&definition) {
            let kinds = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
            let named = json!({"group": group, "kind": kind, "version": version});
            if let Value::Array(kinds) = kinds
                && !kinds.contains(&named)
            {
                kinds.push(named);
            }
        }
    };
    for resource in resources {
        name(resource.definition(), resource.group, resource.version, resource.kind);
        name(resource.list_definition(), resource.group, resource.version, resource.list_kind);
        for shared in ["DeleteOptions", "WatchEvent"] {
            name(format!("{META}.{shared}"), resource.group, resource.version, shared);
        }
        for (group, version, kind) in resource.subresources.iter().filter_map(|sub| sub.kind) {
            name(definition_name(group, version, kind), group, version, kind);
        }
    }
    name(format!("{META}.Status"), "", "v1", "Status");
}

/// One operation of a path, before it becomes JSON.
struct Operation<'o> {
    action: &'o str,
    id: String,
    kind: (&'o str, &'o str, &'o str),
    parameters: &'o [&'o str],
    /// Media types and definition of the request's body.
    body: Option<(&'o [&'o str], String)>,
    answer: String,
    created: bool,
}

const JSON_TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCH_TYPES: [&str; 3] =
    ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
const STRATEGIC_PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const PATCH: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: [&str; 4] = ["dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"];
const LIST: [&str; 10] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

impl ResourceDoc<'_> {
    fn definition(&self) -> String {
        definition_name(self.group, self.version, self.kind)
    }

    /// Lists are defined beside the kind that they list.
    fn list_definition(&self) -> String {
        let definition = self.definition();
        let package = definition.strip_suffix(self.kind).unwrap_or_default();
        format!("{package}{}", self.list_kind)
    }

    fn own_kind(&self) -> (&str, &str, &str) {
        (self.group, self.version, self.kind)
    }

    fn add_paths(&self, paths: &mut BTreeMap<String, Value>) {
        let root = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        let scope = if self.namespaced { "/namespaces/{namespace}" } else { "" };
        let all = format!("{root}/{}", self.plural);
        let collection = format!("{root}{scope}/{}", self.plural);
        let mut add = |path: String, operations: Vec<(&str, Operation<'_>)>| {
            if !operations.is_empty() {
                let item = path_item(&path, operations);
                paths.insert(path, item);
            }
        };
        add(collection.clone(), self.on_collection());
        add(format!("{collection}/{{name}}"), self.on_object());
        if self.namespaced && self.verbs.contains(&"list") {
            let operation = self.operation("list", "list", "ForAllNamespaces", &LIST, self.list_definition());
            add(all, vec![("get", operation)]);
        }
        for sub in &self.subresources {
            add(format!("{collection}/{{name}}/{}", sub.name), self.on_subresource(sub));
        }
    }

    fn on_collection(&self) -> Vec<(&'static str, Operation<'_>)> {
        let mut operations = Vec::new();
        for verb in self.verbs {
            operations.push(match *verb {
                "list" => ("get", self.operation("list", "list", "", &LIST, self.list_definition())),
                "create" => ("post", self.writing("post", "create", self.definition(), "")),
                "deletecollection" => {
                    let status = format!("{META}.Status");
                    ("delete", self.operation("deletecollection", "deleteCollection", "", &LIST, status))
                }
                _ => continue,
            });
        }
        operations
    }

    fn on_object(&self) -> Vec<(&'static str, Operation<'_>)> {
        let mut operations = Vec::new();
        for verb in self.verbs {
            operations.push(match *verb {
                "get" => ("get", self.operation("get", "read", "", &[], self.definition())),
                "update" => ("put", self.writing("put", "replace", self.definition(), "")),
                "patch" => ("patch", self.patching(self.definition(), "")),
                "delete" => {
                    let mut operation = self.operation("delete", "delete", "", &DELETE, format!("{META}.Status"));
                    operation.body = Some((&JSON_TYPES, format!("{META}.DeleteOptions")));
                    ("delete", operation)
                }
                _ => continue,
            });
        }
        operations
    }

    fn on_subresource<'s>(&'s self, sub: &SubresourceDoc<'s>) -> Vec<(&'static str, Operation<'s>)> {
        let kind = sub.kind.unwrap_or_else(|| self.own_kind());
        let definition = definition_name(kind.0, kind.1, kind.2);
        let suffix = capitalised(sub.name);
        let mut operations = Vec::new();
        for verb in sub.verbs {
            let (method, mut operation) = match *verb {
                "get" => ("get", self.operation("get", "read", &suffix, &[], definition.clone())),
                "update" => ("put", self.writing("put", "replace", definition.clone(), &suffix)),
                "patch" => ("patch", self.patching(definition.clone(), &suffix)),
                "create" => ("post", self.writing("post", "create", definition.clone(), &suffix)),
                _ => continue,
            };
            operation.kind = kind;
            operations.push((method, operation));
        }
        operations
    }

    fn operation<'o>(
        &'o self,
        action: &'o str,
        verb: &str,
        suffix: &str,
        parameters: &'o [&'o str],
        answer: String,
    ) -> Operation<'o> {
        let group = match self.group {
            "" => "Core".to_owned(),
            group => capitalised(group.trim_end_matches(".k8s.io")),
        };
        let scope = if self.namespaced && suffix != "ForAllNamespaces" { "Namespaced" } else { "" };
        let id = format!("{verb}{group}{}{scope}{}{suffix}", capitalised(self.version), self.kind);
        Operation { action, id, kind: self.own_kind(), parameters, body: None, answer, created: false }
    }

    fn writing<'o>(&'o self, action: &'o str, verb: &str, definition: String, suffix: &str) -> Operation<'o> {
        let mut operation = self.operation(action, verb, suffix, &WRITE, definition.clone());
        operation.body = Some((&JSON_TYPES, definition));
        operation.created = true;
        operation
    }

    fn patching<'o>(&'o self, definition: String, suffix: &str) -> Operation<'o> {
        let types: &[&str] = match self.schema {
            SchemaSource::BuiltIn => &STRATEGIC_PATCH_TYPES,
            SchemaSource::Custom(_) => &PATCH_TYPES,
        };
        let mut operation = self.operation("patch", "patch", suffix, &PATCH, definition);
        operation.body = Some((types, format!("{META}.Patch")));
        operation.created = matches!(self.schema, SchemaSource::BuiltIn);
        operation
    }
}

/// `rbac.authorization` becomes `RbacAuthorization`.
fn capitalised(text: &str) -> String {
    text.split(['.', '-', '/'])
        .flat_map(|part| {
            let mut chars = part.chars();
            chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>())
        })
        .collect()
}

fn path_item(path: &str, operations: Vec<(&str, Operation<'_>)>) -> Value {
    let mut item = Map::new();
    let in_path = |name: &str, what: &str| {
        json!({"name": name, "in": "path", "required": true, "description": what,
               "schema": {"type": "string", "uniqueItems": true}})
    };
    let mut parameters = Vec::new();
    if path.contains("{name}") {
        parameters.push(in_path("name", "The object's name."));
    }
    if path.contains("{namespace}") {
        parameters.push(in_path("namespace", "The object's namespace."));
    }
    parameters.push(parameter("pretty"));
    item.insert("parameters".to_owned(), json!(parameters));
    for (method, operation) in operations {
        item.insert(method.to_owned(), operation.to_json());
    }
    Value::Object(item)
}

impl Operation<'_> {
    fn to_json(&self) -> Value {
        let content = |types: &[&str], definition: &str| -> Value {
            types.iter().map(|media| ((*media).to_owned(), json!({"schema": reference(definition)}))).collect()
        };
        let (group, version, kind) = self.kind;
        let mut responses = json!({
            "200": {"description": "OK", "content": content(&JSON_TYPES, &self.answer)},
            "401": {"description": "Unauthorized"},
        });
        if self.created {
            responses["201"] = json!({"description": "Created", "content": content(&JSON_TYPES, &self.answer)});
        }
        let mut operation = json!({
            "operationId": self.id,
            "parameters": self.parameters.iter().map(|name| parameter(name)).collect::<Vec<_>>(),
            "responses": responses,
            "x-kubernetes-action": self.action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        if let Some((types, definition)) = &self.body {
            // A deletion needs no body.
            let required = self.action != "delete";
            operation["requestBody"] = json!({"content": content(types, definition), "required": required});
        }
        operation
    }
}

fn parameter(name: &str) -> Value {
    let (kind, what) = match name {
        "allowWatchBookmarks" => ("boolean", "Let a watch tell its progress with bookmarks."),
        "continue" => ("string", "The token of the next page, from the answer with the page before."),
        "dryRun" => ("string", "`All`: go through every step but do not store anything."),
        "fieldManager" => ("string", "Who makes this change, as managedFields will say."),
        "fieldSelector" => ("string", "Only objects whose fields match."),
        "fieldValidation" => ("string", "What to do with unknown and repeated fields: `Ignore`, `Warn` or `Strict`."),
        "force" => ("boolean", "Take over fields that other managers own; for server-side apply only."),
        "gracePeriodSeconds" => ("integer", "How long the object has to end, in seconds."),
        "labelSelector" => ("string", "Only objects whose labels match."),
        "limit" => ("integer", "The most objects that a page may have."),
        "orphanDependents" => ("boolean", "Deprecated: use propagationPolicy."),
        "pretty" => ("string", "`true`: indent the answer."),
        "propagationPolicy" => ("string", "What becomes of dependents: `Orphan`, `Background` or `Foreground`."),
        "resourceVersion" => ("string", "The revision that the answer may come from."),
        "resourceVersionMatch" => ("string", "How resourceVersion is meant: `Exact` or `NotOlderThan`."),
        "sendInitialEvents" => ("boolean", "Begin a watch with the present objects."),
        "timeoutSeconds" => ("integer", "How long a list or watch may take."),
        "watch" => ("boolean", "Stream changes instead of listing."),
        _ => ("string", ""),
    };
    json!({"name": name, "in": "query", "description": what, "schema": {"type": kind, "uniqueItems": true}})
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

    fn pods() -> ResourceDoc<'static> {
        ResourceDoc {
            group: "",
            version: "v1",
            kind: "Pod",
            list_kind: "PodList",
            plural: "pods",
            namespaced: true,
            verbs: &ALL,
            subresources: vec![
                SubresourceDoc { name: "status", kind: None, verbs: &["get", "patch", "update"] },
                SubresourceDoc { name: "eviction", kind: Some(("policy", "v1", "Eviction")), verbs: &["create"] },
            ],
            schema: SchemaSource::BuiltIn,
        }
    }

    fn machines(schema: &Value) -> ResourceDoc<'_> {
        ResourceDoc {
            group: "kubevirt.io",
            version: "v1",
            kind: "VirtualMachine",
            list_kind: "VirtualMachineList",
            plural: "virtualmachines",
            namespaced: true,
            verbs: &ALL,
            subresources: vec![SubresourceDoc {
                name: "scale",
                kind: Some(("autoscaling", "v1", "Scale")),
                verbs: &["get"],
            }],
            schema: SchemaSource::Custom(Some(schema)),
        }
    }

    /// Every `$ref` of a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(target)) = map.get("$ref") {
                    found.push(target.clone());
                }
                map.values().for_each(|child| references(child, found));
            }
            Value::Array(items) => items.iter().for_each(|child| references(child, found)),
            _ => {}
        }
    }

    fn assert_whole(document: &Value) {
        let mut found = Vec::new();
        references(document, &mut found);
        assert!(!found.is_empty());
        for target in found {
            let name = target.strip_prefix(DEFINITIONS).expect("a definition of this document");
            assert!(document["components"]["schemas"].get(name).is_some(), "{target}");
        }
    }

    #[test]
    fn kubectl_finds_what_it_looks_for() {
        let document = group_version_document(&[pods()]);
        assert_whole(&document);
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
        assert_eq!(patch["x-kubernetes-action"], "patch");
        assert_eq!(patch["operationId"], "patchCoreV1NamespacedPod");
        let names: Vec<_> = patch["parameters"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
        let pod = &document["components"]["schemas"]["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "kind": "Pod", "version": "v1"}]));
        let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(spec["x-kubernetes-patch-merge-key"], "name");
        let list = &document["components"]["schemas"]["io.k8s.api.core.v1.PodList"];
        assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "PodList");
        let eviction = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/eviction"]["post"];
        assert_eq!(eviction["x-kubernetes-group-version-kind"]["group"], "policy");
        assert!(document["paths"].get("/api/v1/pods").is_some());
    }

    #[test]
    fn custom_kinds_get_the_common_fields() {
        let schema = json!({"type": "object", "description": "A machine.", "properties": {
            "metadata": {"type": "object"}, "spec": {"type": "object", "properties": {
                "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true}}}}});
        let document = group_version_document(&[machines(&schema)]);
        assert_whole(&document);
        let machine = &document["components"]["schemas"]["io.kubevirt.v1.VirtualMachine"];
        assert_eq!(machine["description"], "A machine.");
        assert_eq!(machine["properties"]["metadata"]["allOf"][0]["$ref"], format!("{DEFINITIONS}{OBJECT_META}"));
        assert!(machine["properties"]["spec"]["properties"]["template"]["properties"]["kind"].is_object());
        assert_eq!(machine["x-kubernetes-group-version-kind"][0]["kind"], "VirtualMachine");
        let path = "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}";
        let patch = &document["paths"][path]["patch"];
        assert_eq!(patch["operationId"], "patchKubevirtIoV1NamespacedVirtualMachine");
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
        let scale = &document["paths"][format!("{path}/scale")]["get"];
        assert_eq!(scale["x-kubernetes-group-version-kind"]["kind"], "Scale");
        assert_eq!(definition_name("snapshot.kubevirt.io", "v1beta1", "X"), "io.kubevirt.snapshot.v1beta1.X");
    }

    #[test]
    fn every_group_version_makes_a_whole_document() {
        let plurals: Vec<String> = builtin::KINDS.iter().map(|kind| kind.kind.to_lowercase()).collect();
        let lists: Vec<String> = builtin::KINDS.iter().map(|kind| format!("{}List", kind.kind)).collect();
        let mut by_version: BTreeMap<(&str, &str), Vec<ResourceDoc<'_>>> = BTreeMap::new();
        for (index, kind) in builtin::KINDS.iter().enumerate() {
            by_version.entry((kind.group, kind.version)).or_default().push(ResourceDoc {
                group: kind.group,
                version: kind.version,
                kind: kind.kind,
                list_kind: &lists[index],
                plural: &plurals[index],
                namespaced: false,
                verbs: &ALL,
                subresources: Vec::new(),
                schema: SchemaSource::BuiltIn,
            });
        }
        assert!(by_version.len() > 18);
        for resources in by_version.values() {
            assert_whole(&group_version_document(resources));
        }
    }
}
