//! Which labels a selector wants.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// Whether the labels are selected. An empty selector selects everything; a requirement that cannot be understood, nothing.
pub(crate) fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let mut exact = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    exact.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|requirement| {
            let value = labels.get(&requirement.key);
            let mut wanted = requirement.values.iter().flatten();
            match requirement.operator.as_str() {
                "In" => value.is_some_and(|value| wanted.any(|one| one == value)),
                "NotIn" => value.is_none_or(|value| !wanted.any(|one| one == value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_requirements_have_to_hold() {
        let labels = Labels::from([("app".to_owned(), "web".to_owned())]);
        let requirement =
            |operator: &str, key: &str| json!({"key": key, "operator": operator, "values": ["web", "db"]});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "x"}}), false),
            (json!({"matchExpressions": [requirement("In", "app"), requirement("NotIn", "tier")]}), true),
            (json!({"matchExpressions": [requirement("NotIn", "app")]}), false),
            (json!({"matchExpressions": [requirement("Exists", "app"), requirement("DoesNotExist", "tier")]}), true),
            (json!({"matchExpressions": [requirement("Exists", "tier")]}), false),
            (json!({"matchLabels": {"app": "web"}, "matchExpressions": [requirement("Near", "app")]}), false),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(selects(&parsed, &labels), expected, "{selector}");
        }
    }
}
