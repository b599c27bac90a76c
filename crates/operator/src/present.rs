//! What the operator has made so far, and whether it still is as it should be.

use std::collections::BTreeMap;

use ferrovirt_api::values::Quantity;
use ring::digest::{SHA256, digest};
use serde_json::Value;

/// On every applied object: a hash of what was applied, so that what is not wanted any more is noticed too.
const APPLIED: &str = "kubevirt.io/applied";

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Its kind.
    pub kind: String,
    /// Its namespace, empty for kinds without.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Id {
    /// That of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        Self { kind: text(&object["kind"]), namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) }
    }

    /// That of a named one.
    #[must_use]
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Objects that are there.
pub type Present = BTreeMap<Id, Value>;

/// Adds the hash of its content to a wanted object.
#[must_use]
pub fn stamped(mut object: Value) -> Value {
    let hash = hash(&object.to_string());
    object["metadata"]["annotations"][APPLIED] = hash[..16].into();
    object
}

/// A hash as text.
#[must_use]
pub fn hash(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an object has everything that is wanted of it. Others may add to it: the server its defaults, users their labels.
#[must_use]
pub fn covers(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (_, Value::Null) => true,
        (Value::Object(present), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            let judge = if AMOUNTS.contains(&key.as_str()) { has_amounts } else { covers };
            present.get(key).map_or(is_empty(value), |present| judge(present, value))
        }),
        (Value::Array(present), Value::Array(wanted)) if wanted.iter().all(|item| item["name"].is_string()) => {
            wanted.iter().all(|item| present.iter().any(|present| covers(present, item)))
        }
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len() && wanted.iter().zip(present).all(|(wanted, present)| covers(present, wanted))
        }
        (Value::Number(present), Value::Number(wanted)) => present.as_f64() == wanted.as_f64(),
        (present, wanted) => present == wanted,
    }
}

/// Fields with quantities.
const AMOUNTS: [&str; 2] = ["limits", "requests"];

/// Servers write quantities in one way: `1000m` is kept as `1`.
fn has_amounts(present: &Value, wanted: &Value) -> bool {
    let amount = |value: &Value| match value {
        Value::String(text) => text.parse::<Quantity>().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    wanted.as_object().is_none_or(|wanted| {
        wanted.iter().all(|(name, wanted)| amount(wanted).is_none_or(|wanted| Some(wanted) == amount(&present[name])))
    })
}

/// Servers leave out what is empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn additions_are_no_drift_and_changes_are() {
        let wanted =
            json!({"a": 1, "rules": [{"verbs": ["get"]}], "containers": [{"name": "c", "image": "i"}], "off": false});
        let grown = json!({
            "a": 1.0, "b": 2, "rules": [{"verbs": ["get"], "x": 1}],
            "containers": [{"name": "side", "image": "s"}, {"name": "c", "image": "i", "policy": "p"}],
        });
        assert!(covers(&grown, &wanted));
        let amounts = |cpu: Value, memory: &str| json!({"limits": {"cpu": cpu, "memory": memory}});
        for cpu in [json!("1"), json!("1000m"), json!(1), json!("1.0")] {
            assert!(covers(&amounts(json!("1"), "1Gi"), &amounts(cpu.clone(), "1024Mi")), "{cpu}");
        }
        assert!(!covers(&amounts(json!("1"), "1Gi"), &amounts(json!("100m"), "1Gi")));
        assert!(!covers(&json!({"image": "a"}), &json!({"image": "b"})));
        for (path, value) in [
            ("/a", json!(2)),
            ("/containers/1/image", json!("j")),
            ("/rules/0/verbs", json!(["get", "delete"])),
            ("/rules", json!([])),
        ] {
            let mut changed = grown.clone();
            *changed.pointer_mut(path).unwrap() = value;
            assert!(!covers(&changed, &wanted), "{path}");
        }
    }

    #[test]
    fn what_is_wanted_no_more_shows_in_the_stamp() {
        let old = stamped(json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}));
        let new = stamped(json!({"metadata": {"name": "a"}, "data": {"x": "1"}}));
        assert!(!covers(&old, &new));
        assert!(covers(&new, &new));
    }
}
