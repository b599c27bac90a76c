//! Namespaces, config maps, secrets and nodes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use serde_json::{Value, json};

use super::{Strategy, defaults, forbidden, immutable, required};
use crate::server::Server;
use crate::status::ApiResult;

/// Config maps and secrets hold at most this much.
const MAX_DATA: usize = 1024 * 1024;

/// Namespaces.
pub struct Namespace;
/// The strategy of namespaces.
pub static NAMESPACE: Namespace = Namespace;

impl Strategy for Namespace {
    fn default(&self, object: &mut Value) {
        if let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned)
            && !name.is_empty()
        {
            defaults::child(&mut object["metadata"], "labels")["kubernetes.io/metadata.name"] = name.into();
        }
    }

    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] = json!({"phase": "Active"});
        let spec = defaults::child(object, "spec");
        let finalizers = spec["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
            let mut finalizers = finalizers;
            finalizers.push("kubernetes".into());
            spec["finalizers"] = finalizers.into();
        }
        Ok(())
    }

    fn prepare_update(&self, _server: &Server, new: &mut Value, old: &Value) {
        // Only /finalize changes spec.finalizers; there the rest stays.
        if new["spec"]["finalizers"] != old["spec"]["finalizers"] && new["status"] == old["status"] {
            new["status"] = old["status"].clone();
        }
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase", "name"]
    }

    fn may_vanish(&self, object: &Value) -> bool {
        object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
    }

    fn mark_deleted(&self, object: &mut Value) {
        object["status"]["phase"] = "Terminating".into();
        defaults::remove(&mut object["metadata"], "deletionGracePeriodSeconds");
    }
}

/// Config maps.
pub struct ConfigMap;
/// The strategy of config maps.
pub static CONFIG_MAP: ConfigMap = ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut size = 0;
        for field in ["binaryData", "data"] {
            for (key, value) in object[field].as_object().into_iter().flatten() {
                errors.extend(check_data_key(field, key));
                let other = if field == "data" { "binaryData" } else { "data" };
                if field == "data" && object[other].get(key).is_some() {
                    let message = format!("Invalid value: \"{key}\": duplicate of key present in binaryData");
                    errors.push(FieldError::new(FieldErrorKind::Invalid, format!("data[{key}]"), message));
                }
                size += value.as_str().map_or(0, str::len);
            }
        }
        if size > MAX_DATA {
            errors.push(FieldError::new(
                FieldErrorKind::TooLong,
                "[]",
                format!("Too long: may not be more than {MAX_DATA} bytes"),
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        frozen(new, old, &["data", "binaryData"])
    }
}

/// Secrets.
pub struct Secret;
/// The strategy of secrets.
pub static SECRET: Secret = Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        defaults::field(object, "type", "Opaque");
        let Some(Value::Object(plain)) = object.as_object_mut().and_then(|map| map.remove("stringData")) else {
            return;
        };
        let data = defaults::child(object, "data");
        for (key, value) in plain {
            data[key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut size = 0;
        for (key, value) in object["data"].as_object().into_iter().flatten() {
            errors.extend(check_data_key("data", key));
            size += value.as_str().map_or(0, |text| text.len() / 4 * 3);
        }
        if size > MAX_DATA {
            errors.push(FieldError::new(
                FieldErrorKind::TooLong,
                "data",
                format!("Too long: may not be more than {MAX_DATA} bytes"),
            ));
        }
        let needs = |keys: &[&str], errors: &mut Vec<FieldError>| {
            for key in keys {
                if object["data"].get(key).is_none() {
                    errors.push(required(format!("data[{key}]"), ""));
                }
            }
        };
        match object["type"].as_str().unwrap_or_default() {
            "kubernetes.io/tls" => needs(&["tls.crt", "tls.key"], &mut errors),
            "kubernetes.io/dockerconfigjson" => needs(&[".dockerconfigjson"], &mut errors),
            "kubernetes.io/dockercfg" => needs(&[".dockercfg"], &mut errors),
            "kubernetes.io/ssh-auth" => needs(&["ssh-privatekey"], &mut errors),
            "kubernetes.io/service-account-token"
                if object["metadata"]["annotations"]["kubernetes.io/service-account.name"].as_str().is_none() =>
            {
                errors.push(required("metadata.annotations[kubernetes.io/service-account.name]", ""));
            }
            _ => {}
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if new["type"] != old["type"] {
            errors.push(immutable("type", &new["type"]));
        }
        errors.extend(frozen(new, old, &["data"]));
        errors
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }
}

/// Nodes.
pub struct Node;
/// The strategy of nodes.
pub static NODE: Node = Node;

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        defaults::child(object, "spec");
        defaults::child(object, "status");
        if let Some(capacity) = object["status"].get("capacity").cloned() {
            defaults::field(&mut object["status"], "allocatable", capacity);
        }
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }
}

fn check_data_key(field: &str, key: &str) -> Option<FieldError> {
    const WHY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let fits = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let why = if !fits {
        WHY
    } else if key == "." {
        "must not be '.'"
    } else if key == ".." {
        "must not be '..'"
    } else if key.len() > 253 {
        "must be no more than 253 characters"
    } else {
        return None;
    };
    Some(FieldError::new(
        FieldErrorKind::Invalid,
        format!("{field}[{key}]"),
        format!("Invalid value: \"{key}\": {why}"),
    ))
}

/// An object with `immutable: true` stays as it is.
fn frozen(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let mut errors = Vec::new();
    const WHY: &str = "field is immutable when `immutable` is set";
    if new["immutable"] != true {
        errors.push(forbidden("immutable", WHY));
    }
    errors.extend(fields.iter().filter(|field| new[**field] != old[**field]).map(|field| forbidden(field, WHY)));
    errors
}
