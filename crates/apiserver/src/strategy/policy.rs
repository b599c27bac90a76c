//! Disruption budgets, priority classes, network policies and role bindings.

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::selector::validate_label_selector;
use serde_json::{Value, json};

use super::check::Errors;
use super::defaults::{child, each, field};
use super::{Strategy, forbidden, required};
use crate::server::Server;
use crate::status::ApiResult;

/// Disruption budgets.
pub struct Budget;
/// The strategy of pod disruption budgets.
pub static PDB: Budget = Budget;

impl Strategy for Budget {
    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] =
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Errors::default();
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            // Go prints the struct with the names of its own fields.
            let shown = json!({
                "MinAvailable": spec["minAvailable"], "Selector": spec["selector"],
                "MaxUnavailable": spec["maxUnavailable"],
                "UnhealthyPodEvictionPolicy": spec["unhealthyPodEvictionPolicy"],
            });
            errors.invalid("spec", &shown, "minAvailable and maxUnavailable cannot be both set");
        }
        for name in ["minAvailable", "maxUnavailable"] {
            amount_or_percent(&spec[name], &format!("spec.{name}"), &mut errors);
        }
        errors.extend(validate_label_selector(&spec["selector"], "spec.selector"));
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        errors.one_of("spec.unhealthyPodEvictionPolicy", &spec["unhealthyPodEvictionPolicy"], &policies);
        errors.into_vec()
    }
}

/// A number that is not negative, or a percentage.
pub(super) fn amount_or_percent(value: &Value, at: &str, errors: &mut Errors) {
    let Value::String(given) = value else { return errors.not_negative(at, value) };
    let number = given.strip_suffix('%').filter(|number| number.bytes().all(|c| c.is_ascii_digit()));
    match number.and_then(|number| number.parse::<u64>().ok()) {
        None => {
            let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
            errors.invalid(at, value, why);
        }
        Some(percent) if percent > 100 => errors.invalid(at, value, "must not be greater than 100%"),
        Some(_) => {}
    }
}

/// Priority classes.
pub struct PriorityClass;
/// The strategy of priority classes.
pub static PRIORITY_CLASS: PriorityClass = PriorityClass;

/// Users may not outrank the system.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

impl Strategy for PriorityClass {
    fn default(&self, object: &mut Value) {
        field(object, "preemptionPolicy", "PreemptLowerPriority");
        field(object, "value", 0);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut errors = Vec::new();
        if name.starts_with("system-") {
            if !matches!(name, "system-cluster-critical" | "system-node-critical") {
                let why = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
                );
                errors.push(forbidden("metadata.name", &why));
            }
        } else if object["value"].as_i64().is_some_and(|value| value > HIGHEST_USER_PRIORITY) {
            let why = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            errors.push(forbidden("value", &why));
        }
        let mut more = Errors::default();
        more.one_of("preemptionPolicy", &object["preemptionPolicy"], &["PreemptLowerPriority", "Never"]);
        errors.extend(more.into_vec());
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if new["value"] != old["value"] {
            errors.push(forbidden("value", "may not be changed in an update."));
        }
        if new["preemptionPolicy"] != old["preemptionPolicy"] {
            errors.push(super::immutable("preemptionPolicy", &new["preemptionPolicy"]));
        }
        errors
    }
}

/// Network policies.
pub struct NetworkPolicy;
/// The strategy of network policies.
pub static NETWORK_POLICY: NetworkPolicy = NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        field(spec, "podSelector", json!({}));
        if spec["policyTypes"].as_array().is_some_and(Vec::is_empty) {
            spec["policyTypes"] = Value::Null;
        }
        let egress = spec.get("egress").is_some_and(|rules| rules.as_array().is_some_and(|rules| !rules.is_empty()));
        field(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
        for direction in ["ingress", "egress"] {
            for rule in each(spec, direction) {
                for port in each(rule, "ports") {
                    field(port, "protocol", "TCP");
                }
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = validate_label_selector(&spec["podSelector"], "spec.podSelector");
        for (direction, side) in [("ingress", "from"), ("egress", "to")] {
            for (rule, peers) in items(&spec[direction]).map(|(index, rule)| (index, &rule[side])) {
                for (index, peer) in items(peers) {
                    for selector in ["podSelector", "namespaceSelector"] {
                        let path = format!("spec.{direction}[{rule}].{side}[{index}].{selector}");
                        errors.extend(validate_label_selector(&peer[selector], &path));
                    }
                }
            }
        }
        for (index, one) in items(&spec["policyTypes"]) {
            if !["Egress", "Ingress"].iter().any(|known| one == known) {
                errors.push(super::unsupported(format!("spec.policyTypes[{index}]"), one, &["Egress", "Ingress"]));
            }
        }
        errors
    }
}

fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

/// Role bindings of both scopes.
pub struct Binding;
/// The strategy of role bindings.
pub static BINDING: Binding = Binding;

impl Strategy for Binding {
    fn default(&self, object: &mut Value) {
        field(child(object, "roleRef"), "apiGroup", "rbac.authorization.k8s.io");
        for subject in each(object, "subjects") {
            if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                field(subject, "apiGroup", "rbac.authorization.k8s.io");
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let reference = &object["roleRef"];
        let kinds: &[&str] =
            if object["kind"] == "ClusterRoleBinding" { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
        if !reference["kind"].as_str().is_some_and(|kind| kinds.contains(&kind)) {
            let shown = json!(reference["kind"].as_str().unwrap_or_default());
            errors.push(super::unsupported("roleRef.kind", &shown, kinds));
        }
        if reference["name"].as_str().is_none_or(str::is_empty) {
            errors.push(required("roleRef.name", ""));
        }
        for (index, subject) in object["subjects"].as_array().into_iter().flatten().enumerate() {
            if subject["name"].as_str().is_none_or(str::is_empty) {
                errors.push(required(format!("subjects[{index}].name"), ""));
            }
            let namespaced = subject["kind"] == "ServiceAccount" && object["kind"] == "ClusterRoleBinding";
            if namespaced && subject["namespace"].as_str().is_none_or(str::is_empty) {
                errors.push(required(format!("subjects[{index}].namespace"), ""));
            }
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        if new["roleRef"] == old["roleRef"] {
            return Vec::new();
        }
        let reference = &new["roleRef"];
        let text = |name: &str| reference[name].as_str().unwrap_or_default().to_owned();
        let shown = json!({"APIGroup": text("apiGroup"), "Kind": text("kind"), "Name": text("name")});
        vec![FieldError::new(
            ferrovirt_machinery::error::FieldErrorKind::Invalid,
            "roleRef",
            format!("Invalid value: {shown}: cannot change roleRef"),
        )]
    }
}
