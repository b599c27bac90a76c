//! Resource quotas and limit ranges.

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::names;
use serde_json::{Value, json};

use super::check::{Errors, fields, list, quantity, text};
use super::defaults::each;
use super::{Strategy, pod};
use crate::server::Server;
use crate::status::ApiResult;

/// Resource quotas.
pub struct Quota;
/// The strategy of resource quotas.
pub static RESOURCE_QUOTA: Quota = Quota;

impl Strategy for Quota {
    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] = json!({});
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        for (name, amount) in fields(&object["spec"]["hard"]) {
            let at = format!("spec.hard[{name}]");
            resource_name(name, &at, &mut errors);
            errors.not_negative_quantity(&at, amount);
            if is_count(name) && quantity(amount).is_some_and(|amount| amount.milli_value() % 1000 != 0) {
                errors.invalid(at, amount, "must be an integer");
            }
        }
        for (index, scope) in list(&object["spec"]["scopes"]).iter().enumerate() {
            let known = [
                "Terminating",
                "NotTerminating",
                "BestEffort",
                "NotBestEffort",
                "PriorityClass",
                "CrossNamespacePodAffinity",
                "VolumeAttributesClass",
            ];
            if !known.contains(&text(scope)) {
                errors.invalid(format!("spec.scopes[{index}]"), scope, "unsupported scope");
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        errors.unchanged("spec.scopes", &new["spec"]["scopes"], &old["spec"]["scopes"]);
        errors.into_vec()
    }
}

/// Objects are counted, not measured.
fn is_count(name: &str) -> bool {
    const COUNTED: &[&str] = &[
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    name.starts_with("count/") || COUNTED.contains(&name)
}

fn resource_name(name: &str, at: &str, errors: &mut Errors) {
    const MEASURED: &[&str] = &[
        "cpu",
        "memory",
        "ephemeral-storage",
        "storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    ];
    let wrong = names::label_key(name);
    wrong.iter().for_each(|why| errors.invalid_text(at, name, why));
    let standard = MEASURED.contains(&name) || is_count(name) || name.contains("hugepages-");
    if wrong.is_empty() && !name.contains('/') && !standard {
        errors.invalid_text(at, name, "must be a standard resource for quota");
    }
}

/// Limit ranges.
pub struct LimitRange;
/// The strategy of limit ranges.
pub static LIMIT_RANGE: LimitRange = LimitRange;

impl Strategy for LimitRange {
    fn default(&self, object: &mut Value) {
        each(&mut object["spec"], "limits").for_each(pod::default_limits);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let mut kinds = std::collections::HashSet::new();
        for (index, limits) in list(&object["spec"]["limits"]).iter().enumerate() {
            let at = format!("spec.limits[{index}]");
            if !kinds.insert(text(&limits["type"])) {
                errors.duplicate(format!("{at}.type"), &limits["type"]);
            }
            limit_errors(limits, &at, &mut errors);
        }
        errors.into_vec()
    }
}

fn limit_errors(limits: &Value, at: &str, errors: &mut Errors) {
    if limits["type"] == "Pod" {
        for name in ["default", "defaultRequest"] {
            if fields(&limits[name]).next().is_some() {
                errors.forbidden(format!("{at}.{name}"), "may not be specified when `type` is 'Pod'");
            }
        }
    }
    if limits["type"] == "PersistentVolumeClaim" {
        let says = |bound: &str| !limits[bound]["storage"].is_null();
        if !says("min") && !says("max") {
            errors.required(
                format!("{at}.limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
    }
    // The lower bound, the upper one, their names, and the one that is blamed.
    for (low, high, low_name, high_name, blamed) in [
        ("min", "max", "min", "max", "min"),
        ("min", "defaultRequest", "min", "default request", "defaultRequest"),
        ("defaultRequest", "max", "default request", "max", "defaultRequest"),
        ("defaultRequest", "default", "default request", "default limit", "defaultRequest"),
        ("min", "default", "min", "default", "default"),
        ("default", "max", "default", "max", "default"),
    ] {
        for (name, least) in fields(&limits[low]) {
            let (Some(least), Some(most)) = (quantity(least), quantity(&limits[high][name.as_str()])) else { continue };
            if least > most {
                let shown = if blamed == high && high == "defaultRequest" || low == "default" { &most } else { &least };
                let why = format!("{low_name} value {least} is greater than {high_name} value {most}");
                errors.invalid_text(format!("{at}.{blamed}[{name}]"), &shown.to_string(), &why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn quotas_are_not_negative() {
        let quota = json!({"spec": {"hard": {"requests.cpu": "-1", "count/things.example.com": "3", "pods": "1500m"}}});
        let found = wrong(&RESOURCE_QUOTA.validate(&quota));
        assert!(found.contains(
            &"spec.hard[requests.cpu]: Invalid value: \"-1\": must be greater than or equal to 0".to_owned()
        ));
        assert!(found.contains(&"spec.hard[pods]: Invalid value: \"1500m\": must be an integer".to_owned()));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn limits_are_in_order() {
        let range = json!({"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}});
        let why = "Invalid value: \"2\": min value 2 is greater than max value 1";
        assert_eq!(wrong(&LIMIT_RANGE.validate(&range)), [format!("spec.limits[0].min[cpu]: {why}")]);
    }
}
