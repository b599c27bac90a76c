//! Whether an object came back as it was sent.

use serde_json::Value;

/// Where and how two documents differ, given that `null` and what equals an empty default may be left out.
///
/// A flag that is `false` and a list without elements mean the same as their absence. An empty object does not: `rng: {}`
/// is a request for a device.
pub(crate) fn difference(sent: &Value, received: &Value) -> Option<String> {
    differ(sent, received, "")
}

fn differ(sent: &Value, received: &Value, path: &str) -> Option<String> {
    match (sent, received) {
        (Value::Object(sent), Value::Object(received)) => {
            let lost = sent.iter().find_map(|(name, value)| {
                let path = format!("{path}.{name}");
                match received.get(name) {
                    Some(other) => differ(value, other, &path),
                    None if may_vanish(value) => None,
                    None => Some(format!("{path}: {value} is lost")),
                }
            });
            let is_extra = |(name, value): &(&String, &Value)| !sent.contains_key(*name) && !leaves_all_open(value);
            let extra = || received.iter().find(is_extra);
            lost.or_else(|| extra().map(|(name, _)| format!("{path}.{name}: came from nowhere")))
        }
        (Value::Array(sent), Value::Array(received)) if sent.len() == received.len() => {
            let mut pairs = sent.iter().zip(received).enumerate();
            pairs.find_map(|(index, (sent, received))| differ(sent, received, &format!("{path}[{index}]")))
        }
        // Kubernetes' own types write an integer quantity as text.
        (Value::Number(sent), Value::String(received)) if sent.to_string() == *received => None,
        _ => (sent != received).then(|| format!("{path}: {sent} became {received}")),
    }
}

/// A template without a spec is one whose guest leaves everything open.
fn leaves_all_open(value: &Value) -> bool {
    *value == serde_json::json!({"domain": {"devices": {}}})
}

fn may_vanish(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    }
}
