//! Checks of CustomResourceDefinitions: names, versions, schemas, subresources and what may not change.

use std::collections::HashSet;

use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use ferrovirt_machinery::names;
use ferrovirt_machinery::schema::structural::check_structural;
use ferrovirt_machinery::table::JsonPath;
use serde_json::{Value, json};

use super::{immutable, invalid, required};

/// What is wrong with a CRD.
pub(super) fn validate(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let mut errors = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let expected = format!("{plural}.{group}");
    if crd["metadata"]["name"] != expected.as_str() {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(invalid("metadata.name", &crd["metadata"]["name"], why));
    }
    if group.is_empty() {
        errors.push(required("spec.group", ""));
    } else if names::dns_subdomain(&group).is_empty() && group.split('.').count() < 2 {
        errors.push(invalid("spec.group", &spec["group"], "should be a domain with at least one dot"));
    } else {
        errors.extend(names::dns_subdomain(&group).iter().map(|why| invalid("spec.group", &spec["group"], why)));
    }
    match spec["scope"].as_str() {
        Some("Namespaced" | "Cluster") => {}
        None | Some("") => errors.push(required("spec.scope", "")),
        Some(_) => errors.push(super::unsupported("spec.scope", &spec["scope"], &["Cluster", "Namespaced"])),
    }
    errors.extend(versions(spec));
    errors.extend(kind_names(&spec["names"]));
    errors.extend(protected_group(crd, &group));
    errors
}

fn versions(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.is_empty() {
        errors.push(required("spec.versions", ""));
        return errors;
    }
    let mut seen = HashSet::new();
    for (index, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        for why in names::dns_1035_label(name) {
            errors.push(invalid(format!("{at}.name"), &json!(name), &why));
        }
        if !seen.insert(name) {
            errors.push(FieldError::new(
                FieldErrorKind::Duplicate,
                format!("{at}.name"),
                format!("Duplicate value: \"{name}\""),
            ));
        }
        errors.extend(version_errors(version, &at));
    }
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::new(
            FieldErrorKind::Invalid,
            "spec.versions",
            format!("Invalid value: {}: {why}", go_versions(versions)),
        ));
    }
    errors
}

/// Go prints the whole list; the names are what matters to a reader.
fn go_versions(versions: &[Value]) -> Value {
    versions.iter().map(|version| version["name"].clone()).collect()
}

fn version_errors(version: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let schema = &version["schema"]["openAPIV3Schema"];
    let has_status = version["subresources"]["status"].is_object();
    if schema.is_null() {
        errors.push(required(format!("{at}.schema.openAPIV3Schema"), "schemas are required"));
    } else {
        errors.extend(check_structural(schema, &format!("{at}.schema.openAPIV3Schema"), has_status));
    }
    for (index, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        let at = format!("{at}.additionalPrinterColumns[{index}]");
        if column["name"].as_str().is_none_or(str::is_empty) {
            errors.push(required(format!("{at}.name"), ""));
        }
        const TYPES: &[&str] = &["integer", "number", "string", "boolean", "date"];
        match column["type"].as_str() {
            None | Some("") => {
                errors.push(required(format!("{at}.type"), "must be one of boolean,date,integer,number,string"));
            }
            Some(kind) if !TYPES.contains(&kind) => {
                errors.push(invalid(
                    format!("{at}.type"),
                    &column["type"],
                    "must be one of boolean,date,integer,number,string",
                ));
            }
            Some(_) => {}
        }
        match column["jsonPath"].as_str() {
            None | Some("") => errors.push(required(format!("{at}.jsonPath"), "")),
            Some(path) => {
                if let Err(error) = JsonPath::compile(path) {
                    errors.push(invalid(format!("{at}.jsonPath"), &column["jsonPath"], &error.to_string()));
                }
            }
        }
    }
    errors.extend(scale(&version["subresources"]["scale"], &format!("{at}.subresources.scale")));
    errors
}

fn scale(scale: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !scale.is_object() {
        return errors;
    }
    for (name, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = scale[name].as_str().unwrap_or_default();
        if path.is_empty() {
            errors.push(required(format!("{at}.{name}"), ""));
        } else if !path.starts_with(root) {
            errors.push(invalid(
                format!("{at}.{name}"),
                &scale[name],
                &format!("should be a json path under {}", root.trim_end_matches('.')),
            ));
        }
    }
    errors
}

fn kind_names(given: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["plural", "singular", "kind", "listKind"] {
        let path = format!("spec.names.{field}");
        let value = given[field].as_str().unwrap_or_default();
        if value.is_empty() {
            errors.push(required(path, ""));
            continue;
        }
        for why in names::dns_1035_label(&value.to_lowercase()) {
            let shown = if field == "plural" || field == "singular" {
                why
            } else {
                format!("may have mixed case, but should otherwise match: {why}")
            };
            errors.push(invalid(path.clone(), &given[field], &shown));
        }
        if (field == "plural" || field == "singular") && value != value.to_lowercase() {
            errors.extend(names::dns_1035_label(value).iter().map(|why| invalid(path.clone(), &given[field], why)));
        }
    }
    if given["kind"] == given["listKind"] && given["kind"].is_string() {
        errors.push(invalid("spec.names.listKind", &given["listKind"], "kind and listKind may not be the same"));
    }
    for list in ["shortNames", "categories"] {
        for (index, name) in given[list].as_array().into_iter().flatten().enumerate() {
            for why in names::dns_1035_label(name.as_str().unwrap_or_default()) {
                errors.push(invalid(format!("spec.names.{list}[{index}]"), name, &why));
            }
        }
    }
    errors
}

/// Kubernetes' own domains are for APIs that Kubernetes approved.
fn protected_group(crd: &Value, group: &str) -> Vec<FieldError> {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let protected =
        ["k8s.io", "kubernetes.io"].iter().any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !protected || crd["metadata"]["annotations"][ANNOTATION].is_string() {
        return Vec::new();
    }
    let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
    vec![required(format!("metadata.annotations[{ANNOTATION}]"), why)]
}

/// What may not change once the CRD is established.
pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let conditions = old["status"]["conditions"].as_array();
    let established = conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True");
    if established {
        for (path, pointer) in [("spec.scope", "/spec/scope"), ("spec.names.kind", "/spec/names/kind")] {
            if new.pointer(pointer) != old.pointer(pointer) {
                errors.push(immutable(path, new.pointer(pointer).unwrap_or(&Value::Null)));
            }
        }
    }
    for (path, pointer) in [("spec.group", "/spec/group"), ("spec.names.plural", "/spec/names/plural")] {
        if new.pointer(pointer) != old.pointer(pointer) {
            errors.push(immutable(path, new.pointer(pointer).unwrap_or(&Value::Null)));
        }
    }
    for (index, stored) in old["status"]["storedVersions"].as_array().into_iter().flatten().enumerate() {
        let kept = new["spec"]["versions"].as_array().into_iter().flatten().any(|version| version["name"] == *stored);
        if !kept {
            let why = format!(
                "missing from spec.versions; {} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions",
                stored.as_str().unwrap_or_default()
            );
            errors.push(invalid(format!("status.storedVersions[{index}]"), stored, &why));
        }
    }
    errors
}
