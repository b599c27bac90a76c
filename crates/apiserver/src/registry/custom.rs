//! Custom kinds: a CRD becomes one [`Resource`] per served version.

use std::sync::Arc;

use ferrovirt_machinery::names::NameRule;
use ferrovirt_machinery::schema::Schema;
use ferrovirt_machinery::table::{JsonPath, Printer};
use serde_json::Value;

use super::{Generation, Resource, Rules, Subresource, compare_versions, join_api_version};
use crate::strategy;

const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

/// What only custom kinds have.
pub struct Custom {
    /// Name of the CRD.
    pub crd_name: String,
    /// What objects look like.
    pub schema: Arc<Schema>,
    /// The same with `metadata` typed.
    pub typed_schema: Arc<Schema>,
    /// Printer columns.
    pub printer: Printer,
    /// `selectableFields`: the selector's name and where the value is.
    pub selectable: Vec<(String, JsonPath)>,
    /// Paths of the scale subresource.
    pub scale: Option<ScalePaths>,
    /// Sent as a warning with every answer of a deprecated version.
    pub deprecation: Option<String>,
    /// Objects written at or before this revision may lack defaults that the schema has now.
    pub schema_revision: u64,
    /// The schema has defaults at all.
    pub has_defaults: bool,
    /// The stored version's schema, when it is another one than this version's: what it does not know is not kept.
    pub storage_schema: Option<Arc<Schema>>,
    /// Generation of the CRD.
    pub generation: i64,
    /// No new objects while the CRD is being deleted.
    pub terminating: bool,
}

/// Where a custom kind keeps its replica counts.
#[derive(Debug, Clone)]
pub struct ScalePaths {
    /// JSON pointer of the wanted number.
    pub spec: String,
    /// JSON pointer of the seen number.
    pub status: String,
    /// JSON pointer of the selector in string form.
    pub selector: Option<String>,
}

/// A CRD version whose schema cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("CustomResourceDefinition {crd}, version {version}: {why}")]
pub struct CustomError {
    crd: String,
    version: String,
    why: String,
}

/// Makes the served resources of an accepted CRD. `revision` is the one at which its schemas took effect.
pub fn resources(crd: &Value, revision: u64) -> Result<Vec<Resource>, CustomError> {
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    versions.iter().filter(|version| version["served"] == true).map(|version| build(crd, version, revision)).collect()
}

fn build(crd: &Value, version: &Value, revision: u64) -> Result<Resource, CustomError> {
    let spec = &crd["spec"];
    let names = if crd["status"]["acceptedNames"]["kind"].is_string() {
        &crd["status"]["acceptedNames"]
    } else {
        &spec["names"]
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural, kind) = (text(&spec["group"]), text(&names["plural"]), text(&names["kind"]));
    let version_name = text(&version["name"]);
    let custom = custom(crd, version, revision)?;
    let has_status = version["subresources"]["status"].is_object();
    let mut subresources = Vec::new();
    if has_status {
        subresources.push(Subresource {
            name: "status".into(),
            kind: kind.clone(),
            group_version: None,
            verbs: STATUS_VERBS,
        });
    }
    if custom.scale.is_some() {
        subresources.push(Subresource {
            name: "scale".into(),
            kind: "Scale".into(),
            group_version: Some(("autoscaling".into(), "v1".into())),
            verbs: STATUS_VERBS,
        });
    }
    let stored = spec["versions"].as_array().into_iter().flatten().find(|v| v["storage"] == true);
    let storage_version = stored.map_or_else(|| version_name.clone(), |v| text(&v["name"]));
    Ok(Resource {
        storage: Arc::from(format!("{group}/{plural}")),
        storage_api_version: join_api_version(&group, &storage_version).into(),
        singular: names["singular"].as_str().map_or_else(|| kind.to_lowercase(), str::to_owned),
        list_kind: names["listKind"].as_str().map_or_else(|| format!("{kind}List"), str::to_owned),
        short_names: strings(&names["shortNames"]),
        categories: strings(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        group: group.into(),
        version: version_name.into(),
        plural: plural.into(),
        kind: kind.into(),
        verbs: VERBS,
        subresources,
        rules: Rules {
            names: NameRule::DnsSubdomain,
            generation: Generation::Content,
            create_on_update: false,
            unconditional_update: false,
            returns_deleted: false,
            has_status,
        },
        strategy: &strategy::PLAIN,
        custom: Some(Arc::new(custom)),
    })
}

fn custom(crd: &Value, version: &Value, revision: u64) -> Result<Custom, CustomError> {
    let crd_name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let fail = |why: String| CustomError {
        crd: crd_name.clone(),
        version: version["name"].as_str().unwrap_or_default().to_owned(),
        why,
    };
    let schema = Schema::from_json(&version["schema"]["openAPIV3Schema"]).map_err(|error| fail(error.to_string()))?;
    let mut schema = schema;
    if crd["spec"]["preserveUnknownFields"] == true {
        schema.preserve_unknown_fields = true;
    }
    let printer = Printer::custom(&version["additionalPrinterColumns"]).map_err(|error| fail(error.to_string()))?;
    let mut selectable = Vec::new();
    for field in version["selectableFields"].as_array().into_iter().flatten() {
        let path = field["jsonPath"].as_str().unwrap_or_default();
        let compiled = JsonPath::compile(path).map_err(|error| fail(error.to_string()))?;
        selectable.push((path.trim_start_matches('.').to_owned(), compiled));
    }
    let scale = version["subresources"]["scale"].as_object().map(|scale| ScalePaths {
        spec: pointer(&scale["specReplicasPath"]),
        status: pointer(&scale["statusReplicasPath"]),
        selector: scale.get("labelSelectorPath").map(pointer).filter(|path| !path.is_empty()),
    });
    let deprecation = (version["deprecated"] == true).then(|| {
        let default = || {
            let spec = &crd["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let advice = successor(crd, version).unwrap_or_default();
            format!(
                "{}/{} {} is deprecated{advice}",
                text(&spec["group"]),
                text(&version["name"]),
                text(&spec["names"]["kind"])
            )
        };
        version["deprecationWarning"].as_str().map_or_else(default, str::to_owned)
    });
    Ok(Custom {
        has_defaults: has_defaults(&schema),
        typed_schema: Arc::new(schema.with_object_meta()),
        schema: Arc::new(schema),
        printer,
        selectable,
        scale,
        deprecation,
        schema_revision: revision,
        storage_schema: storage_schema(crd, version),
        generation: crd["metadata"]["generation"].as_i64().unwrap_or(0),
        terminating: crd["metadata"]["deletionTimestamp"].is_string(),
        crd_name,
    })
}

fn storage_schema(crd: &Value, version: &Value) -> Option<Arc<Schema>> {
    let stored = crd["spec"]["versions"].as_array()?.iter().find(|version| version["storage"] == true)?;
    if stored["name"] == version["name"] {
        return None;
    }
    let theirs = Schema::from_json(&stored["schema"]["openAPIV3Schema"]).ok()?;
    let ours = Schema::from_json(&version["schema"]["openAPIV3Schema"]).ok()?;
    (theirs != ours).then(|| Arc::new(theirs))
}

/// What to use instead of a deprecated version: the best one that is served and not deprecated.
fn successor(crd: &Value, version: &Value) -> Option<String> {
    let mut better: Vec<&str> = crd["spec"]["versions"]
        .as_array()?
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .filter_map(|other| other["name"].as_str())
        .filter(|name| compare_versions(name, version["name"].as_str().unwrap_or_default()).is_gt())
        .collect();
    better.sort_by(|a, b| compare_versions(b, a));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    better
        .first()
        .map(|name| format!("; use {}/{name} {}", text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["kind"])))
}

/// `.spec.replicas` → `/spec/replicas`.
fn pointer(path: &Value) -> String {
    path.as_str().unwrap_or_default().replace('.', "/")
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has_defaults(schema: &Schema) -> bool {
    schema.default.is_some()
        || schema.properties.values().any(|child| has_defaults(child))
        || schema.items.as_deref().is_some_and(has_defaults)
        || schema.additional_properties.as_deref().is_some_and(has_defaults)
}
