//! Cluster roles that gather the rules of others (`aggregationRule`).

use ferrovirt_machinery::selector::LabelSelector;
use serde_json::Value;

use super::rule::PolicyRule;

/// The rules that the cluster role `role` should have, given all cluster roles, or `None` when it gathers nothing
/// (or its selectors cannot be read) and so keeps the rules that it has.
///
/// Selectors are taken in order, roles by name, and a rule that is there already is not repeated; the result is
/// therefore the same whoever computes it.
pub fn aggregated_rules<'a>(role: &Value, all: impl IntoIterator<Item = &'a Value>) -> Option<Vec<PolicyRule>> {
    let selectors = match &role["aggregationRule"] {
        Value::Object(rule) => {
            rule.get("clusterRoleSelectors").and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
        }
        _ => return None,
    };
    let own_name = name_of(role);
    let mut others: Vec<&Value> = all.into_iter().filter(|other| name_of(other) != own_name).collect();
    others.sort_by_key(|other| name_of(other));
    let mut gathered: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let selector = LabelSelector::from_object(selector).ok()?;
        for other in others.iter().filter(|other| selector.matches_object(other)) {
            for rule in rules_of(other) {
                if !gathered.contains(&rule) {
                    gathered.push(rule);
                }
            }
        }
    }
    Some(gathered)
}

/// The rules that are written in a role or cluster role; what cannot be read is no rule.
pub fn rules_of(role: &Value) -> Vec<PolicyRule> {
    let rules = role["rules"].as_array().map_or(&[][..], Vec::as_slice);
    rules.iter().filter_map(|rule| serde_json::from_value(rule.clone()).ok()).collect()
}

fn name_of(role: &Value) -> &str {
    role["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, labels: Value, rules: Value) -> Value {
        let mut role = json!({"metadata": {"name": name}});
        role["metadata"]["labels"] = labels;
        role["rules"] = rules;
        role
    }

    fn gatherer(selectors: Value) -> Value {
        let mut gatherer = role("all", json!({"to": "x"}), json!([{"verbs": ["old"]}]));
        gatherer["aggregationRule"]["clusterRoleSelectors"] = selectors;
        gatherer
    }

    #[test]
    fn rules_come_in_name_order_without_repetition_and_without_itself() {
        let get = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let list = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
        let all = [
            role("b", json!({"to": "x"}), json!([get, list])),
            role("a", json!({"to": "x"}), json!([list])),
            role("c", json!({"to": "y"}), json!([{"verbs": ["delete"]}])),
            gatherer(json!([{"matchLabels": {"to": "x"}}])),
        ];
        let rules = aggregated_rules(&all[3], &all).unwrap();
        let verbs: Vec<_> = rules.iter().map(|r| r.verbs.join(",")).collect();
        assert_eq!(verbs, ["list", "get"]);
    }

    #[test]
    fn a_role_without_an_aggregation_rule_keeps_its_rules() {
        assert_eq!(aggregated_rules(&role("a", json!({}), json!([])), &[]), None);
        assert_eq!(aggregated_rules(&gatherer(json!([])), &[]), Some(vec![]));
    }

    #[test]
    fn a_selector_that_cannot_be_read_changes_nothing() {
        let all = [role("a", json!({}), json!([]))];
        let bad = json!([{}, {"matchExpressions": [{"key": "a", "operator": "Like"}]}]);
        assert_eq!(aggregated_rules(&gatherer(bad), &all), None);
        let expression = json!([{"matchExpressions": [{"key": "to", "operator": "DoesNotExist"}]}]);
        let rules = json!([{"verbs": ["get"]}]);
        assert_eq!(aggregated_rules(&gatherer(expression), &[role("a", json!({}), rules)]).unwrap().len(), 1);
    }
}
