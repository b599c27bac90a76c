//! The form in which Kubernetes' typed objects go to the wire and to the store.
//!
//! kube-apiserver reads built-in kinds into Go structs and writes them out again. On that way empty values vanish,
//! fields that are always written appear, and quantities and times get their canonical form. Clients see the result,
//! so it is part of the API: [`settle`] gives an object the same form.

mod facts;

use ferrovirt_api::values::Quantity;
use serde_json::{Map, Value};

use self::facts::{FACTS, Field, Shown, Type};

/// What to do about fields that nobody set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unset {
    /// Take them out, so that defaults can tell them from those that were set.
    Drop,
    /// Show those that are always shown.
    Show,
}

/// Takes out what means nothing to Go's types, before defaults are filled in; metadata is left alone.
pub fn tidy(api_version: &str, kind: &str, object: &mut Value) {
    settle_object(api_version, kind, object, Unset::Drop);
}

/// Gives an object of a built-in kind the form that Go's types would give it; metadata is left alone.
pub fn settle(api_version: &str, kind: &str, object: &mut Value) {
    settle_object(api_version, kind, object, Unset::Show);
}

fn settle_object(api_version: &str, kind: &str, object: &mut Value, unset: Unset) {
    let Some(fields) = FACTS.kind(api_version, kind) else { return };
    if let Value::Object(map) = object {
        settle_fields(fields.iter().filter(|field| field.name != "metadata"), map, unset);
    }
}

fn settle_fields<'f>(fields: impl Iterator<Item = &'f Field>, map: &mut Map<String, Value>, unset: Unset) {
    for field in fields {
        if let Some(value) = map.get_mut(field.name).filter(|value| !value.is_null()) {
            settle_value(&field.kind, value, unset);
            let meaningless = match field.shown {
                Shown::NotEmpty => is_empty(&field.kind, value),
                Shown::Always => {
                    unset == Unset::Drop && !value.is_array() && !value.is_object() && is_empty(&field.kind, value)
                }
                Shown::Present | Shown::AlwaysOrNull => false,
            };
            if meaningless {
                map.remove(field.name);
            }
            continue;
        }
        match field.shown {
            Shown::Always if unset == Unset::Show => _ = map.insert(field.name.to_owned(), zero(&field.kind)),
            Shown::AlwaysOrNull if unset == Unset::Show => _ = map.insert(field.name.to_owned(), Value::Null),
            _ => _ = map.remove(field.name),
        }
    }
}

fn settle_value(kind: &Type, value: &mut Value, unset: Unset) {
    match (kind, &mut *value) {
        (Type::Struct(index), Value::Object(map)) => settle_fields(FACTS.fields(*index).iter(), map, unset),
        (Type::List(item), Value::Array(list)) => {
            for element in list {
                if element.is_null() {
                    *element = zero(item);
                }
                settle_value(item, element, unset);
            }
        }
        (Type::Map(item), Value::Object(map)) => {
            map.values_mut().for_each(|element| settle_value(item, element, unset));
        }
        (Type::Quantity, given) => {
            if let Some(canonical) = canonical_quantity(given) {
                *given = canonical.into();
            }
        }
        (Type::Time, Value::String(text)) => {
            if let Some(canonical) = canonical_time(text, "%Y-%m-%dT%H:%M:%SZ") {
                *text = canonical;
            }
        }
        (Type::MicroTime, Value::String(text)) => {
            if let Some(canonical) = canonical_time(text, "%Y-%m-%dT%H:%M:%S%.6fZ") {
                *text = canonical;
            }
        }
        _ => {}
    }
}

fn canonical_quantity(given: &Value) -> Option<String> {
    let text = match given {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    text.parse::<Quantity>().ok().map(|quantity| quantity.to_string())
}

fn canonical_time(text: &str, format: &str) -> Option<String> {
    text.parse::<jiff::Timestamp>().ok().map(|time| time.strftime(format).to_string())
}

/// The value of a field that nobody set.
fn zero(kind: &Type) -> Value {
    match kind {
        Type::String => "".into(),
        Type::Bool => false.into(),
        Type::Number | Type::IntOrString => 0.into(),
        Type::Quantity => "0".into(),
        Type::Bytes | Type::Time | Type::MicroTime | Type::Any | Type::List(_) | Type::Map(_) => Value::Null,
        Type::Struct(index) => {
            let mut map = Map::new();
            settle_fields(FACTS.fields(*index).iter(), &mut map, Unset::Show);
            map.into()
        }
    }
}

fn is_empty(kind: &Type, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() && *kind != Type::IntOrString,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => match kind {
            Type::Struct(_) => *value == zero(kind),
            _ => map.is_empty(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settled(api_version: &str, kind: &str, mut object: Value) -> Value {
        settle(api_version, kind, &mut object);
        object
    }

    #[test]
    fn fields_that_are_always_written_appear() {
        let node = settled("v1", "Node", json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null});
        assert_eq!(node["status"]["conditions"], json!([ready]));
        assert_eq!(node["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
        assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "");
        assert_eq!(node["spec"], json!({}));
    }

    #[test]
    fn empty_values_vanish_unless_they_are_pointers() {
        let pod = settled(
            "v1",
            "Pod",
            json!({"spec": {
                "nodeName": "", "hostNetwork": false, "tolerations": [], "nodeSelector": {}, "securityContext": {},
                "automountServiceAccountToken": false, "containers": [],
            }}),
        );
        let spec = json!({"securityContext": {}, "automountServiceAccountToken": false, "containers": []});
        assert_eq!(pod["spec"], spec);
    }

    #[test]
    fn defaults_see_only_what_was_set() {
        let mut service = json!({"spec": {"type": "", "ports": [{"port": 80, "targetPort": 0}]}});
        tidy("v1", "Service", &mut service);
        assert_eq!(service, json!({"spec": {"ports": [{"port": 80}]}}));
    }

    #[test]
    fn quantities_and_times_become_canonical() {
        let claim = json!({"spec": {"resources": {"requests": {"storage": "1024Mi", "cpu": 0.1}}}});
        let claim = settled("v1", "PersistentVolumeClaim", claim);
        assert_eq!(claim["spec"]["resources"]["requests"], json!({"storage": "1Gi", "cpu": "100m"}));
        let lease = json!({"spec": {"renewTime": "2026-01-02T03:04:05+02:00"}});
        let lease = settled("coordination.k8s.io/v1", "Lease", lease);
        assert_eq!(lease["spec"]["renewTime"], "2026-01-02T01:04:05.000000Z");
    }

    #[test]
    fn every_kind_of_the_table_has_fields() {
        for (api_version, kind) in
            [("v1", "Event"), ("apps/v1", "Deployment"), ("apiregistration.k8s.io/v1", "APIService")]
        {
            assert!(FACTS.kind(api_version, kind).is_some_and(|fields| !fields.is_empty()), "{kind}");
        }
    }
}
