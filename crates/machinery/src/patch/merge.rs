//! JSON merge patch (RFC 7396) as kube-apiserver runs it.

use serde_json::{Map, Value};

use super::{PatchError, json_type_name};

/// Merges `patch` into `document`: objects merge member by member, `null` removes a member, everything else replaces.
pub fn apply(document: Value, patch: Value) -> Result<Value, PatchError> {
    let patch = match patch {
        Value::Object(members) => members,
        Value::Null => return Err(PatchError::Malformed("Invalid JSON Patch".into())),
        other => {
            return Err(PatchError::Malformed(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_type_name(&other)
            )));
        }
    };
    let mut members = match document {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    merge_members(&mut members, patch);
    Ok(Value::Object(members))
}

fn merge_members(members: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut change) in patch {
        match (members.get_mut(&name), &mut change) {
            (_, Value::Null) => {
                members.remove(&name);
            }
            (Some(Value::Object(current)), Value::Object(changes)) => merge_members(current, std::mem::take(changes)),
            // An object that becomes something else takes the new value untouched, nulls inside it included.
            (Some(current @ Value::Object(_)), _) => *current = change,
            (_, _) => {
                drop_nulls(&mut change);
                members.insert(name, change);
            }
        }
    }
}

/// A new value cannot carry removals: `null` members mean that there is nothing. List elements keep their place.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_merge_null_removes_the_rest_replaces() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"a": "foo"}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
            (json!({}), json!({"a": [{"b": null, "c": 1}, null]}), json!({"a": [{"c": 1}, null]})),
            (json!({"a": {"x": 1}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
        ];
        for (document, patch, expected) in cases {
            assert_eq!(apply(document, patch.clone()).unwrap(), expected, "{patch}");
        }
    }

    #[test]
    fn only_an_object_is_a_patch() {
        assert_eq!(apply(json!({}), json!(null)).unwrap_err().to_string(), "Invalid JSON Patch");
        let error = apply(json!({}), json!([])).unwrap_err();
        assert_eq!(error.code(), 400);
        assert_eq!(
            error.to_string(),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }
}
