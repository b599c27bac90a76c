//! Selectors, taints and tolerations.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, NodeSelectorTerm, Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

type Labels = BTreeMap<String, String>;

/// Whether the labels meet one requirement. An operator that nobody knows is met by nothing.
fn meets(labels: &Labels, key: &str, operator: &str, values: &[String]) -> bool {
    let value = labels.get(key);
    let compare = |wanted: fn(&i64, &i64) -> bool| {
        let number = value.and_then(|value| value.parse::<i64>().ok());
        let limit = values.first().and_then(|value| value.parse::<i64>().ok());
        number.zip(limit).is_some_and(|(number, limit)| wanted(&number, &limit))
    };
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

/// Whether the labels are selected. No selector selects nothing, an empty one everything.
pub(crate) fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return false };
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let mut expressions = selector.match_expressions.iter().flatten();
    equal
        && expressions.all(|expression| {
            meets(labels, &expression.key, &expression.operator, expression.values.as_deref().unwrap_or_default())
        })
}

/// Whether one of the terms matches the node.
pub(crate) fn selects_node(selector: &NodeSelector, labels: &Labels, name: &str) -> bool {
    selector.node_selector_terms.iter().any(|term| term_matches(term, labels, name))
}

/// Whether the term matches the node. An empty term matches none.
pub(crate) fn term_matches(term: &NodeSelectorTerm, labels: &Labels, name: &str) -> bool {
    let fields = Labels::from([("metadata.name".to_owned(), name.to_owned())]);
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let field_expressions = term.match_fields.as_deref().unwrap_or_default();
    let all = |labels: &Labels, expressions: &[k8s_openapi::api::core::v1::NodeSelectorRequirement]| {
        expressions.iter().all(|expression| {
            meets(labels, &expression.key, &expression.operator, expression.values.as_deref().unwrap_or_default())
        })
    };
    let empty = expressions.is_empty() && field_expressions.is_empty();
    !empty && all(labels, expressions) && all(&fields, field_expressions)
}

/// Whether a toleration lets the pod live with the taint.
pub(crate) fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let value = toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        (effect.is_empty() || effect == taint.effect)
            && (key == taint.key || (key.is_empty() && exists))
            && (exists || value)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn requirements_are_met_as_kubernetes_says() {
        let here = labels(&[("a", "1"), ("cpus", "8")]);
        for (key, operator, values, expected) in [
            ("a", "In", vec!["1", "2"], true),
            ("a", "In", vec!["2"], false),
            ("b", "In", vec!["1"], false),
            ("a", "NotIn", vec!["2"], true),
            ("b", "NotIn", vec!["2"], true),
            ("a", "NotIn", vec!["1"], false),
            ("a", "Exists", vec![], true),
            ("b", "Exists", vec![], false),
            ("b", "DoesNotExist", vec![], true),
            ("cpus", "Gt", vec!["4"], true),
            ("cpus", "Gt", vec!["8"], false),
            ("cpus", "Lt", vec!["9"], true),
            ("b", "Lt", vec!["9"], false),
            ("a", "Likes", vec!["1"], false),
        ] {
            let values: Vec<String> = values.into_iter().map(str::to_owned).collect();
            assert_eq!(meets(&here, key, operator, &values), expected, "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn no_selector_selects_nothing_and_an_empty_one_everything() {
        let here = labels(&[("a", "1")]);
        assert!(!selects(None, &here));
        assert!(selects(Some(&LabelSelector::default()), &here));
        assert!(!term_matches(&NodeSelectorTerm::default(), &here, "n"));
        let named: NodeSelectorTerm = serde_json::from_value(
            json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
        )
        .unwrap();
        assert!(term_matches(&named, &here, "n") && !term_matches(&named, &here, "m"));
    }

    #[test]
    fn tolerations_match_by_key_value_and_effect() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), true),
            (json!({"key": "k", "value": "w"}), false),
            (json!({"key": "k", "value": "v", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({}), false),
        ] {
            let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&[parsed], &taint), expected, "{toleration}");
        }
    }
}
