//! Roles of both scopes: what a rule must say.

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::selector::validate_label_selector;
use serde_json::Value;

use super::Strategy;
use super::check::{Errors, list};

/// Roles and cluster roles.
pub struct Role;
/// The strategy of roles.
pub static ROLE: Role = Role;

impl Strategy for Role {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let namespaced = object["kind"] == "Role";
        for (index, rule) in list(&object["rules"]).iter().enumerate() {
            rule_errors(rule, namespaced, &format!("rules[{index}]"), &mut errors);
        }
        let aggregation = &object["aggregationRule"];
        if aggregation.is_object() {
            let selectors = list(&aggregation["clusterRoleSelectors"]);
            if selectors.is_empty() {
                errors.required(
                    "aggregationRule.clusterRoleSelectors",
                    "at least one clusterRoleSelector required if aggregationRule is non-nil",
                );
            }
            for (index, selector) in selectors.iter().enumerate() {
                let at = format!("aggregationRule.clusterRoleSelectors[{index}]");
                errors.extend(validate_label_selector(selector, &at));
            }
        }
        errors.into_vec()
    }
}

fn rule_errors(rule: &Value, namespaced: bool, at: &str, errors: &mut Errors) {
    let has = |name: &str| !list(&rule[name]).is_empty();
    if !has("verbs") {
        errors.required(format!("{at}.verbs"), "verbs must contain at least one value");
    }
    if has("nonResourceURLs") {
        let urls = format!("{at}.nonResourceURLs");
        if namespaced {
            errors.invalid(&urls, &rule["nonResourceURLs"], "namespaced rules cannot apply to non-resource URLs");
        }
        if has("apiGroups") || has("resources") || has("resourceNames") {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(urls, &rule["nonResourceURLs"], why);
        }
        return;
    }
    for name in ["apiGroups", "resources"] {
        if !has(name) {
            let word = if name == "apiGroups" { "api groups" } else { "resources" };
            let why = format!("resource rules must supply at least one {}", word.trim_end_matches('s'));
            errors.required(format!("{at}.{name}"), &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(kind: &str, rule: &Value) -> Vec<String> {
        ROLE.validate(&json!({"kind": kind, "rules": [rule]})).into_iter().map(|error| error.path).collect()
    }

    #[test]
    fn rules_are_about_resources_or_urls() {
        assert!(wrong("Role", &json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]})).is_empty());
        assert_eq!(wrong("Role", &json!({"verbs": ["get"]})), ["rules[0].apiGroups", "rules[0].resources"]);
        let url = json!({"nonResourceURLs": ["/x"], "verbs": ["get"]});
        assert!(wrong("ClusterRole", &url).is_empty());
        assert_eq!(wrong("Role", &url), ["rules[0].nonResourceURLs"]);
    }
}
