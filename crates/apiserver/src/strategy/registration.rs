//! Objects that change what the server does: webhook configurations, CRDs and API services.

use ferrovirt_machinery::cel::MatchCondition;
use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use serde_json::{Value, json};

use super::check::{Errors, list, text};
use super::defaults::{child, each, existing, field};
use super::{Strategy, invalid, required};
use crate::server::Server;
use crate::status::ApiResult;

/// Webhook configurations of both kinds.
pub struct WebhookConfiguration {
    mutating: bool,
}
/// The strategy of mutating webhook configurations.
pub static MUTATING_WEBHOOKS: WebhookConfiguration = WebhookConfiguration { mutating: true };
/// The strategy of validating webhook configurations.
pub static VALIDATING_WEBHOOKS: WebhookConfiguration = WebhookConfiguration { mutating: false };

impl Strategy for WebhookConfiguration {
    fn default(&self, object: &mut Value) {
        for webhook in each(object, "webhooks") {
            field(webhook, "failurePolicy", "Fail");
            field(webhook, "matchPolicy", "Equivalent");
            field(webhook, "namespaceSelector", json!({}));
            field(webhook, "objectSelector", json!({}));
            field(webhook, "timeoutSeconds", 10);
            if self.mutating {
                field(webhook, "reinvocationPolicy", "Never");
            }
            for rule in each(webhook, "rules") {
                field(rule, "scope", "*");
            }
            if let Some(service) = existing(webhook, "clientConfig").and_then(|config| existing(config, "service")) {
                field(service, "port", 443);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut names = std::collections::HashSet::new();
        for (index, webhook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
            let at = format!("webhooks[{index}]");
            let name = webhook["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                errors.push(required(format!("{at}.name"), ""));
            } else if name.split('.').count() < 3 {
                errors.push(invalid(
                    format!("{at}.name"),
                    &webhook["name"],
                    "should be a domain with at least three segments separated by dots",
                ));
            } else if !names.insert(name) {
                errors.push(FieldError::new(
                    FieldErrorKind::Duplicate,
                    format!("{at}.name"),
                    format!("Duplicate value: \"{name}\""),
                ));
            }
            errors.extend(webhook_errors(webhook, &at));
        }
        errors
    }
}

fn webhook_errors(webhook: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let side_effects = &webhook["sideEffects"];
    match side_effects.as_str() {
        None => errors.push(required(format!("{at}.sideEffects"), "must specify one of None, NoneOnDryRun")),
        Some("None" | "NoneOnDryRun") => {}
        Some(_) => {
            errors.push(super::unsupported(format!("{at}.sideEffects"), side_effects, &["None", "NoneOnDryRun"]));
        }
    }
    if webhook["admissionReviewVersions"].as_array().is_none_or(Vec::is_empty) {
        errors.push(required(format!("{at}.admissionReviewVersions"), "must specify one of v1, v1beta1"));
    }
    let seconds = webhook["timeoutSeconds"].as_i64().unwrap_or(10);
    if !(1..=30).contains(&seconds) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(invalid(format!("{at}.timeoutSeconds"), &json!(seconds), why));
    }
    errors.extend(client_errors(&webhook["clientConfig"], &format!("{at}.clientConfig")));
    errors.extend(condition_errors(webhook, at));
    errors
}

/// Where a webhook is: at a URL or behind a service.
fn client_errors(config: &Value, at: &str) -> Vec<FieldError> {
    if config["url"].is_string() == config["service"].is_object() {
        return vec![required(at, "exactly one of url or service is required")];
    }
    let mut errors = Errors::default();
    if config["service"].is_object() {
        for name in ["name", "namespace"] {
            if text(&config["service"][name]).is_empty() {
                errors.required(format!("{at}.service.{name}"), "");
            }
        }
        let path = text(&config["service"]["path"]);
        if !path.is_empty() && !path.starts_with('/') {
            errors.invalid_text(format!("{at}.service.path"), path, "must start with a '/'");
        }
        if !config["service"]["port"].is_null() {
            let port = config["service"]["port"].as_i64().unwrap_or(0);
            if !(1..=65535).contains(&port) {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                errors.invalid(format!("{at}.service.port"), &json!(port), why);
            }
        }
        return errors.into_vec();
    }
    const FORM: &str = "; desired format: https://host[/path]";
    let at = format!("{at}.url");
    let url = text(&config["url"]);
    match url.split_once("://") {
        Some(("https", rest)) => {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if host.is_empty() {
                errors.invalid_text(&at, "", &format!("host must be specified{FORM}"));
            }
            if let Some((user, _)) = host.rsplit_once('@') {
                errors.invalid_text(&at, user, &format!("user information is not permitted in the URL{FORM}"));
            }
            for (mark, what) in [('#', "fragments"), ('?', "query parameters")] {
                if let Some((_, part)) = rest.split_once(mark) {
                    errors.invalid_text(&at, part, &format!("{what} are not permitted in the URL{FORM}"));
                }
            }
        }
        other => {
            let scheme = other.map_or("", |(scheme, _)| scheme);
            errors.invalid_text(&at, scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
        }
    }
    errors.into_vec()
}

/// Match conditions have unique names and expressions that compile.
fn condition_errors(webhook: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let mut names = std::collections::HashSet::new();
    for (index, condition) in list(&webhook["matchConditions"]).iter().enumerate() {
        let at = format!("{at}.matchConditions[{index}]");
        let expression = text(&condition["expression"]);
        if expression.trim().is_empty() {
            errors.required(format!("{at}.expression"), "");
        } else if let Err(why) = MatchCondition::compile(text(&condition["name"]), expression) {
            errors.invalid(format!("{at}.expression"), &condition["expression"], &why.to_string());
        }
        match text(&condition["name"]) {
            "" => errors.required(format!("{at}.name"), ""),
            name if !names.insert(name) => errors.duplicate(format!("{at}.name"), &condition["name"]),
            _ => {}
        }
    }
    errors.into_vec()
}

/// CRDs.
pub struct Definition;
/// The strategy of CRDs.
pub static CRD: Definition = Definition;

impl Strategy for Definition {
    fn deletion_is_a_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        let names = child(spec, "names");
        if let Some(kind) = names["kind"].as_str().filter(|kind| !kind.is_empty()).map(str::to_owned) {
            field(names, "singular", kind.to_lowercase());
            field(names, "listKind", format!("{kind}List"));
        }
        let conversion = child(spec, "conversion");
        field(conversion, "strategy", "None");
        if let Some(service) = existing(conversion, "webhook")
            .and_then(|hook| existing(hook, "clientConfig"))
            .and_then(|config| existing(config, "service"))
        {
            field(service, "port", 443);
        }
    }

    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        let stored: Vec<Value> = versions(object)
            .iter()
            .filter(|version| version["storage"] == true)
            .map(|version| version["name"].clone())
            .collect();
        let stored = if stored.is_empty() { Value::Null } else { stored.into() };
        object["status"] = json!({"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored});
        Ok(())
    }

    fn prepare_update(&self, _server: &Server, new: &mut Value, _old: &Value) {
        let stored =
            versions(new).iter().find(|version| version["storage"] == true).map(|version| version["name"].clone());
        let mut known = new["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
        if let Some(stored) = stored
            && !known.contains(&stored)
        {
            known.push(stored);
            new["status"]["storedVersions"] = known.into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        super::crd_validation::validate(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        super::crd_validation::validate_update(new, old)
    }

    fn mark_deleted(&self, object: &mut Value) {
        const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
        let mut list = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let already = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Terminating");
        if already {
            return;
        }
        if !list.iter().any(|name| name == CLEANUP) {
            list.push(CLEANUP.into());
        }
        object["metadata"]["finalizers"] = list.into();
        super::defaults::remove(&mut object["metadata"], "deletionGracePeriodSeconds");
        let condition = json!({
            "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
            "lastTransitionTime": object["metadata"]["deletionTimestamp"],
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        });
        let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.push(condition);
        object["status"]["conditions"] = conditions.into();
    }
}

fn versions(object: &Value) -> &[Value] {
    object["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// API services.
pub struct ApiService;
/// The strategy of API services.
pub static API_SERVICE: ApiService = ApiService;

impl Strategy for ApiService {
    fn default(&self, object: &mut Value) {
        if let Some(service) = existing(child(object, "spec"), "service") {
            field(service, "port", 443);
        }
    }

    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] = json!({});
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let text = |name: &str| spec[name].as_str().unwrap_or_default();
        let expected = format!("{}.{}", text("version"), text("group"));
        let mut errors = Vec::new();
        if object["metadata"]["name"] != expected.as_str() {
            let why = format!("must be `spec.version+\".\"+spec.group`: \"{expected}\"");
            errors.push(invalid("metadata.name", &object["metadata"]["name"], &why));
        }
        if text("version").is_empty() {
            errors.push(required("spec.version", ""));
        }
        for (name, most) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
            let given = spec[name].as_i64().unwrap_or(0);
            if given <= 0 || given > most {
                let why = format!("must be positive and less than {most}");
                errors.push(invalid(format!("spec.{name}"), &json!(given), &why));
            }
        }
        errors.extend(service_errors(spec));
        errors
    }
}

/// Without a service the server itself answers, and then there is nothing to verify.
fn service_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let skips = spec["insecureSkipTLSVerify"] == true;
    let has_bundle = !text(&spec["caBundle"]).is_empty();
    if !spec["service"].is_object() {
        if has_bundle {
            let why = "local APIServices may not have a caBundle";
            errors.invalid_text("spec.caBundle", &format!("{} bytes", text(&spec["caBundle"]).len() / 4 * 3), why);
        }
        if skips {
            errors.invalid(
                "spec.insecureSkipTLSVerify",
                &json!(true),
                "local APIServices may not have insecureSkipTLSVerify",
            );
        }
        return errors.into_vec();
    }
    for name in ["namespace", "name"] {
        if text(&spec["service"][name]).is_empty() {
            errors.required(format!("spec.service.{name}"), "");
        }
    }
    if has_bundle && skips {
        errors.invalid("spec.insecureSkipTLSVerify", &json!(true), "may not be true if caBundle is present");
    }
    errors.into_vec()
}
