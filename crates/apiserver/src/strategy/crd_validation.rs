//! Checks of CustomResourceDefinitions: names, versions, schemas, subresources and what may not change.
//!
//! kube-apiserver checks definitions in its internal form. There, what all versions have in common stands at the top of
//! the spec, and that is where errors about it are reported.

use std::collections::HashSet;

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::names;
use ferrovirt_machinery::schema::structural::check_structural;
use ferrovirt_machinery::table::JsonPath;
use serde_json::{Value, json};

use super::check::{Errors, list, text};
use super::{immutable, invalid, required};

/// What is wrong with a CRD.
pub(super) fn validate(crd: &Value) -> Vec<FieldError> {
    let spec = &crd["spec"];
    let mut errors = Errors::default();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    if crd["metadata"]["name"] != format!("{plural}.{group}").as_str() {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.invalid("metadata.name", &crd["metadata"]["name"], why);
    }
    group_errors(group, &mut errors);
    match text(&spec["scope"]) {
        "" => errors.required("spec.scope", ""),
        _ => errors.one_of("spec.scope", &spec["scope"], &["Cluster", "Namespaced"]),
    }
    versions(spec, &mut errors);
    required_names(&spec["names"], &mut errors);
    kind_names(&spec["names"], &mut errors);
    shared(spec, &mut errors);
    conversion(spec, &mut errors);
    if spec["preserveUnknownFields"] == true {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid("spec.preserveUnknownFields", &json!(true), why);
    }
    if list(&crd["status"]["storedVersions"]).is_empty() {
        errors.invalid("status.storedVersions", &Value::Null, "must have at least one stored version");
    }
    errors.extend(protected_group(crd, group));
    errors.into_vec()
}

fn group_errors(group: &str, errors: &mut Errors) {
    let wrong = names::dns_subdomain(group);
    if group.is_empty() {
        errors.required("spec.group", "");
    } else if !wrong.is_empty() {
        errors.invalid_text("spec.group", group, &wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid_text("spec.group", group, "should be a domain with at least one dot");
    }
}

/// The parts of a version that move to the top of the spec when all versions have the same.
const SHARED: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

/// What all versions have in common, if they do.
fn in_common<'v>(spec: &'v Value, part: &str) -> Option<&'v Value> {
    let versions = list(&spec["versions"]);
    let first = versions.first()?.get(part).filter(|value| !value.is_null())?;
    versions.iter().all(|version| version.get(part) == Some(first)).then_some(first)
}

fn versions(spec: &Value, errors: &mut Errors) {
    let versions = list(&spec["versions"]);
    for (index, version) in versions.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            errors.required(format!("spec.versions[{index}].schema.openAPIV3Schema"), "");
        }
    }
    let mut seen = HashSet::new();
    let mut unique = true;
    for (index, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        let name = text(&version["name"]);
        unique &= seen.insert(name);
        let wrong = names::dns_1035_label(name);
        if !wrong.is_empty() {
            errors.invalid_text(format!("{at}.name"), name, &wrong.join(","));
        }
        let own = |part: &str| if in_common(spec, part).is_some() { &Value::Null } else { &version[part] };
        part_errors(&own, version["subresources"]["status"].is_object(), &version["schema"], &at, "schema", errors);
    }
    if !unique {
        errors.invalid("spec.versions", &go_versions(spec), "must contain unique version names");
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.invalid("spec.versions", &go_versions(spec), why);
    }
}

fn shared(spec: &Value, errors: &mut Errors) {
    let common = |part: &str| in_common(spec, part).unwrap_or(&Value::Null);
    let has_status = list(&spec["versions"]).iter().any(|version| version["subresources"]["status"].is_object());
    part_errors(&common, has_status, &spec["versions"][0]["schema"], "spec", "validation", errors);
}

/// Checks the parts that a version has, or that all versions have in common.
fn part_errors<'v>(
    part: &dyn Fn(&str) -> &'v Value,
    has_status: bool,
    schema: &Value,
    at: &str,
    schema_name: &str,
    errors: &mut Errors,
) {
    let own_schema = &part(SHARED[0])["openAPIV3Schema"];
    if !own_schema.is_null() {
        errors.extend(check_structural(own_schema, &format!("{at}.{schema_name}.openAPIV3Schema"), has_status));
    }
    scale(&part(SHARED[1])["scale"], &format!("{at}.subresources"), errors);
    for (index, column) in list(part(SHARED[2])).iter().enumerate() {
        column_errors(column, &format!("{at}.additionalPrinterColumns[{index}]"), errors);
    }
    selectable(list(part(SHARED[3])), &schema["openAPIV3Schema"], &format!("{at}.selectableFields"), errors);
}

/// The versions as Go prints them: names of struct fields, and nothing of what they have in common.
fn go_versions(spec: &Value) -> Value {
    let shown = list(&spec["versions"]).iter().map(|version| {
        let own = |part: &str| if in_common(spec, part).is_some() { Value::Null } else { version[part].clone() };
        json!({
            "Name": version["name"], "Served": version["served"] == true, "Storage": version["storage"] == true,
            "Deprecated": version["deprecated"] == true, "DeprecationWarning": version["deprecationWarning"],
            "Schema": own("schema"), "Subresources": own("subresources"),
            "AdditionalPrinterColumns": own("additionalPrinterColumns"), "SelectableFields": own("selectableFields"),
        })
    });
    shown.collect()
}

fn column_errors(column: &Value, at: &str, errors: &mut Errors) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    if text(&column["name"]).is_empty() {
        errors.required(format!("{at}.name"), "");
    }
    let why = format!("must be one of {}", TYPES.join(","));
    match text(&column["type"]) {
        "" => errors.required(format!("{at}.type"), &why),
        kind if !TYPES.contains(&kind) => errors.invalid(format!("{at}.type"), &column["type"], &why),
        _ => {}
    }
    let formats = ["int32", "int64", "float", "double", "byte", "date", "date-time", "password"];
    let format = text(&column["format"]);
    if !format.is_empty() && !formats.contains(&format) {
        let mut sorted = formats;
        sorted.sort_unstable();
        errors.invalid(format!("{at}.format"), &column["format"], &format!("must be one of {}", sorted.join(",")));
    }
    match text(&column["jsonPath"]) {
        "" => errors.required(format!("{at}.jsonPath"), ""),
        path => {
            if let Err(error) = JsonPath::compile(path) {
                errors.invalid(format!("{at}.jsonPath"), &column["jsonPath"], &error.to_string());
            }
        }
    }
}

fn selectable(fields: &[Value], schema: &Value, at: &str, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = format!("{at}[{index}].jsonPath");
        let path = text(&field["jsonPath"]);
        if path.is_empty() {
            errors.required(at, "");
            continue;
        }
        if !seen.insert(path) {
            errors.duplicate(&at, &field["jsonPath"]);
        }
        let parts = path.strip_prefix('.').into_iter().flat_map(|path| path.split('.'));
        let mut node = path.starts_with('.').then_some(schema);
        for part in parts {
            node = node.and_then(|node| node["properties"].get(part));
        }
        let why = match node.map(|node| text(&node["type"])) {
            None => "is an invalid path: does not refer to a valid field",
            Some("string" | "boolean" | "integer") if path.starts_with(".metadata") => {
                "must not point to fields in metadata"
            }
            Some("string" | "boolean" | "integer") => continue,
            Some(_) => {
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
            }
        };
        errors.invalid(at, &field["jsonPath"], why);
    }
}

fn scale(scale: &Value, at: &str, errors: &mut Errors) {
    if !scale.is_object() {
        return;
    }
    for (name, roots) in [
        ("specReplicasPath", &[".spec."][..]),
        ("statusReplicasPath", &[".status."][..]),
        ("labelSelectorPath", &[".spec.", ".status."][..]),
    ] {
        let at = format!("{at}.scale.{name}");
        let path = text(&scale[name]);
        let simple = path.starts_with('.') && JsonPath::compile(path).is_ok() && !path.contains(['[', '*', '(']);
        if path.is_empty() {
            if name != "labelSelectorPath" {
                errors.required(at, "");
            }
        } else if !simple {
            errors.invalid(at, &scale[name], "must be a simple json path starting with .");
        } else if !roots.iter().any(|root| path.starts_with(root)) {
            let place = if roots.len() > 1 { "either .spec or .status" } else { roots[0].trim_end_matches('.') };
            errors.invalid(at, &scale[name], &format!("should be a json path under {place}"));
        }
    }
}

fn required_names(given: &Value, errors: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(&given[field]).is_empty() {
            errors.required(format!("spec.names.{field}"), "");
        }
    }
}

fn kind_names(given: &Value, errors: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        let path = format!("spec.names.{field}");
        let value = text(&given[field]);
        if value.is_empty() {
            continue;
        }
        let mixed = field == "kind" || field == "listKind";
        let wrong = names::dns_1035_label(&if mixed { value.to_lowercase() } else { value.to_owned() });
        if !wrong.is_empty() {
            let prefix = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.invalid(path, &given[field], &format!("{prefix}{}", wrong.join(",")));
        }
    }
    for name in ["shortNames", "categories"] {
        for (index, given) in list(&given[name]).iter().enumerate() {
            let wrong = names::dns_1035_label(text(given));
            if !wrong.is_empty() {
                errors.invalid(format!("spec.names.{name}[{index}]"), given, &wrong.join(","));
            }
        }
    }
    if given["kind"] == given["listKind"] && !text(&given["kind"]).is_empty() {
        errors.invalid("spec.names.listKind", &given["listKind"], "kind and listKind may not be the same");
    }
}

fn conversion(spec: &Value, errors: &mut Errors) {
    let conversion = &spec["conversion"];
    errors.one_of("spec.conversion.strategy", &conversion["strategy"], &["None", "Webhook"]);
    let webhook = &conversion["webhook"];
    if conversion["strategy"] == "None" && webhook.is_object() {
        let why = "should not be set when strategy is not set to Webhook";
        errors.forbidden("spec.conversion.webhookClientConfig", why);
    }
    if conversion["strategy"] != "Webhook" {
        return;
    }
    let config = &webhook["clientConfig"];
    if !config.is_object() {
        errors.required("spec.conversion.webhookClientConfig", "required when strategy is set to Webhook");
    } else if config["url"].is_string() == config["service"].is_object() {
        let why = "exactly one of url or service is required";
        errors.required("spec.conversion.webhookClientConfig", why);
    }
    let reviews = list(&webhook["conversionReviewVersions"]);
    if reviews.is_empty() {
        errors.required("spec.conversion.conversionReviewVersions", "");
    } else if !reviews.iter().any(|version| matches!(text(version), "v1" | "v1beta1")) {
        let why = "must include at least one of v1, v1beta1";
        errors.invalid("spec.conversion.conversionReviewVersions", &webhook["conversionReviewVersions"], why);
    }
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
