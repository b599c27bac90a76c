//! Namespaces, config maps, secrets and nodes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use serde_json::{Value, json};

use super::check::{Errors, list, text};
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
        // A name that the server makes up comes after the defaults, so the label is not the client's then.
        if object["metadata"]["generateName"].is_null() {
            name_label(object);
        }
    }

    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        name_label(object);
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
        // Only /finalize changes the finalizers of the spec.
        new["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
        new["status"] = old["status"].clone();
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["status.phase", "name"]
    }

    fn refuses_deletion(&self, object: &Value) -> Option<&'static str> {
        let immortal = matches!(text(&object["metadata"]["name"]), "default" | "kube-system" | "kube-public");
        immortal.then_some("this namespace may not be deleted")
    }

    fn may_vanish(&self, object: &Value) -> bool {
        object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
    }

    fn mark_deleted(&self, object: &mut Value) {
        object["status"]["phase"] = "Terminating".into();
        defaults::remove(&mut object["metadata"], "deletionGracePeriodSeconds");
    }
}

/// Selectors find a namespace by this label.
fn name_label(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        defaults::child(&mut object["metadata"], "labels")["kubernetes.io/metadata.name"] = name;
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
            "kubernetes.io/dockerconfigjson" => {
                needs(&[".dockerconfigjson"], &mut errors);
                errors.extend(not_json(&object["data"][".dockerconfigjson"], "data[.dockerconfigjson]"));
            }
            "kubernetes.io/dockercfg" => {
                needs(&[".dockercfg"], &mut errors);
                errors.extend(not_json(&object["data"][".dockercfg"], "data[.dockercfg]"));
            }
            // One of the two is enough.
            "kubernetes.io/basic-auth"
                if object["data"].get("username").is_none() && object["data"].get("password").is_none() =>
            {
                needs(&["username", "password"], &mut errors);
            }
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

/// What Go says about a value that should be JSON, without showing the secret.
fn not_json(encoded: &Value, at: &str) -> Option<FieldError> {
    let bytes = STANDARD.decode(encoded.as_str()?).ok()?;
    let error = serde_json::from_slice::<Value>(&bytes).err()?;
    let why = match error.classify() {
        serde_json::error::Category::Eof => "unexpected end of JSON input".to_owned(),
        _ => {
            let place = usize::min(error.column().saturating_sub(1), bytes.len().saturating_sub(1));
            format!("invalid character '{}' looking for beginning of value", char::from(*bytes.get(place)?))
        }
    };
    Some(super::invalid(at, &json!("<secret contents redacted>"), &why))
}

/// Nodes.
pub struct Node;
/// The strategy of nodes.
pub static NODE: Node = Node;

impl Strategy for Node {
    fn default(&self, object: &mut Value) {
        let spec = defaults::child(object, "spec");
        let single = spec["podCIDR"].clone();
        if single.is_string() && spec["podCIDRs"][0] != single {
            spec["podCIDRs"] = json!([single]);
        } else if single.is_null() && spec["podCIDRs"][0].is_string() {
            spec["podCIDR"] = spec["podCIDRs"][0].clone();
        }
        defaults::child(object, "status");
        if let Some(capacity) = object["status"].get("capacity").cloned() {
            defaults::field(&mut object["status"], "allocatable", capacity);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        taints(&object["spec"]["taints"], &mut errors);
        for (index, range) in list(&object["spec"]["podCIDRs"]).iter().enumerate() {
            if !is_range(text(range)) {
                let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                errors.invalid(format!("spec.podCIDRs[{index}]"), range, why);
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if !list(&old["spec"]["podCIDRs"]).is_empty() && new["spec"]["podCIDRs"] != old["spec"]["podCIDRs"] {
            errors.forbidden("spec.podCIDRs", "node updates may not change podCIDR except from \"\" to valid");
        }
        let (now, before) = (&new["spec"]["providerID"], &old["spec"]["providerID"]);
        if !before.is_null() && now != before {
            errors.forbidden("spec.providerID", "node updates may not change providerID except from \"\" to valid");
        }
        errors.into_vec()
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= most)
}

fn taints(taints: &Value, errors: &mut Errors) {
    let mut seen = std::collections::HashSet::new();
    for (index, taint) in list(taints).iter().enumerate() {
        let at = format!("metadata.taints[{index}]");
        let key = text(&taint["key"]);
        for why in ferrovirt_machinery::names::label_key(key) {
            errors.invalid_text(format!("{at}.key"), key, &why);
        }
        let wrong = ferrovirt_machinery::names::label_value(text(&taint["value"]));
        if !wrong.is_empty() {
            errors.invalid(format!("{at}.value"), &taint["value"], &wrong.join(";"));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        match text(&taint["effect"]) {
            "" => errors.required(format!("{at}.effect"), ""),
            _ => errors.one_of(format!("{at}.effect"), &taint["effect"], &effects),
        }
        if !seen.insert((key, text(&taint["effect"]))) {
            errors.duplicate(at, taint);
        }
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
