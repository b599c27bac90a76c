//! What extension servers serve, in the form of aggregated discovery.

use serde_json::{Value, json};

/// One group version of an extension server.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Entries of its `APIResourceList`; `None` while the server cannot be asked.
    pub resources: Option<Vec<Value>>,
}

impl Listed {
    /// The version's entry in the aggregated document.
    pub fn aggregated(&self) -> Value {
        match &self.resources {
            Some(resources) => {
                json!({"version": self.version, "resources": aggregated(resources), "freshness": "Current"})
            }
            None => json!({"version": self.version, "freshness": "Stale"}),
        }
    }
}

/// Entries of an `APIResourceList` as aggregated discovery shows them: subresources below their resource.
pub fn aggregated(entries: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    for entry in entries.iter().filter(|entry| !name(entry).contains('/')) {
        out.push(resource(entry, &name(entry)));
    }
    for entry in entries {
        let name = name(entry);
        let Some((parent, sub)) = name.split_once('/') else { continue };
        if !out.iter().any(|resource| resource["resource"] == parent) {
            // `virtualmachines/start` may stand alone, where the resource itself is in another group.
            let mut made = resource(&json!({"namespaced": entry["namespaced"]}), parent);
            made["verbs"] = Value::Null;
            out.push(made);
        }
        let shown = json!({"subresource": sub, "responseKind": response_kind(entry), "verbs": entry["verbs"]});
        let parent = out.iter_mut().find(|resource| resource["resource"] == parent);
        match parent.map(|parent| &mut parent["subresources"]) {
            Some(Value::Array(list)) => list.push(shown),
            Some(absent) => *absent = json!([shown]),
            None => {}
        }
    }
    out
}

fn resource(entry: &Value, name: &str) -> Value {
    let mut out = json!({
        "resource": name, "responseKind": response_kind(entry),
        "scope": if entry["namespaced"] == true { "Namespaced" } else { "Cluster" },
        "singularResource": entry["singularName"].as_str().unwrap_or_default(), "verbs": entry["verbs"],
    });
    for list in ["shortNames", "categories"] {
        if entry[list].as_array().is_some_and(|names| !names.is_empty()) {
            out[list] = entry[list].clone();
        }
    }
    out
}

fn response_kind(entry: &Value) -> Value {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    json!({"group": text("group"), "version": text("version"), "kind": text("kind")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subresources_move_below_their_resource() {
        let entries = [
            json!({"name": "things/status", "singularName": "", "namespaced": true, "kind": "Thing", "verbs": ["get"]}),
            json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["list"], "shortNames": ["t"]}),
            json!({"name": "alone/start", "namespaced": true, "kind": "Start", "group": "g", "version": "v2", "verbs": ["update"]}),
        ];
        let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
        let expected = vec![
            json!({
                "resource": "things", "responseKind": kind("", "", "Thing"), "scope": "Namespaced",
                "singularResource": "thing", "verbs": ["list"], "shortNames": ["t"],
                "subresources": [{"subresource": "status", "responseKind": kind("", "", "Thing"), "verbs": ["get"]}],
            }),
            json!({
                "resource": "alone", "responseKind": kind("", "", ""), "scope": "Namespaced", "singularResource": "",
                "verbs": null,
                "subresources": [{"subresource": "start", "responseKind": kind("g", "v2", "Start"), "verbs": ["update"]}],
            }),
        ];
        assert_eq!(aggregated(&entries), expected);
    }

    #[test]
    fn a_server_that_cannot_be_asked_is_stale() {
        let listed = Listed { group: "g".into(), version: "v1".into(), resources: None };
        assert_eq!(listed.aggregated(), json!({"version": "v1", "freshness": "Stale"}));
    }
}
