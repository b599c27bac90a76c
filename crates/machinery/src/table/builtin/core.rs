//! Nodes, namespaces, events and the plain data kinds of the core group.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, condition, containers, entries, flag, int, labels, list, name, plain, row, text, text_or};
use crate::table::duration::since;

/// Kinds that have nothing else to show.
pub(super) fn name_and_age(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), age(object, now)]
}

pub(super) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), text(object, "/status/phase"), age(object, now)]
}

pub(super) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), text(object, "/type"), entries(object, "/data"), age(object, now)]
}

pub(super) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), entries(object, "/data") + entries(object, "/binaryData"), age(object, now)]
}

pub(super) fn pod_template(object: &Value, _now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/template/spec/containers");
    row![name(object), names, images, labels(object, "/template/metadata/labels")]
}

pub(super) fn component_status(object: &Value, _now: Timestamp) -> Vec<Value> {
    let healthy = list(object, "/conditions").iter().find(|condition| condition["type"] == "Healthy");
    let status = match healthy {
        None => "Unknown",
        Some(condition) if condition["status"] == "True" => "Healthy",
        Some(_) => "Unhealthy",
    };
    let detail = |field: &str| healthy.map_or("", |condition| text(condition, field));
    row![name(object), status, detail("/message"), detail("/error")]
}

pub(super) fn resource_quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let hard = object.pointer("/status/hard").and_then(Value::as_object);
    let mut resources: Vec<(&String, &Value)> = hard.into_iter().flatten().collect();
    resources.sort_by_key(|(resource, _)| *resource);
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in resources {
        let used = object.pointer("/status/used").and_then(|used| used.get(resource)).map_or("0".to_owned(), plain);
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {used}/{}", plain(hard)));
    }
    row![name(object), requests.join(", "), limits.join(", "), age(object, now)]
}

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match condition(object, "Ready") {
        None => "Unknown",
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if flag(object, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| text_or(object, &format!("/status/nodeInfo/{field}"), "<unknown>").to_owned();
    let mut kernel = info("kernelVersion");
    let architecture = text(object, "/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    row![
        name(object),
        status,
        node_roles(object),
        age(object, now),
        text(object, "/status/nodeInfo/kubeletVersion"),
        node_address(object, "InternalIP"),
        node_address(object, "ExternalIP"),
        info("osImage"),
        kernel,
        info("containerRuntimeVersion"),
    ]
}

/// Roles are labels: `node-role.kubernetes.io/<role>`, or `kubernetes.io/role=<role>`.
fn node_roles(node: &Value) -> String {
    let mut roles = std::collections::BTreeSet::new();
    for (key, value) in node.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str().unwrap_or_default(),
            None => "",
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    if roles.is_empty() { "<none>".to_owned() } else { Vec::from_iter(roles).join(",") }
}

fn node_address<'o>(node: &'o Value, kind: &str) -> &'o str {
    let address = list(node, "/status/addresses").iter().find(|address| address["type"] == kind);
    address.map_or("<none>", |address| text(address, "/address"))
}

/// Events of the core group and of events.k8s.io: the same things under two sets of names.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |one: &str, other: &str| match text(object, one) {
        "" => text(object, other).to_owned(),
        found => found.to_owned(),
    };
    let time = |text: String| since(&Value::from(text), now);
    let first = match either("/firstTimestamp", "/deprecatedFirstTimestamp") {
        found if found.is_empty() => time(text(object, "/eventTime").to_owned()),
        found => time(found),
    };
    let mut last = match either("/lastTimestamp", "/deprecatedLastTimestamp") {
        found if found.is_empty() => first.clone(),
        found => time(found),
    };
    let mut count = int(object, "/count").max(int(object, "/deprecatedCount")).max(1);
    if object.get("series").is_some_and(Value::is_object) {
        last = time(text(object, "/series/lastObservedTime").to_owned());
        count = int(object, "/series/count");
    }
    let kind = either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let target = match either("/involvedObject/name", "/regarding/name") {
        name if name.is_empty() => kind,
        name => format!("{kind}/{name}"),
    };
    let message = either("/message", "/note");
    row![
        last,
        text(object, "/type"),
        text(object, "/reason"),
        target,
        either("/involvedObject/fieldPath", "/regarding/fieldPath"),
        event_source(object),
        message.trim(),
        first,
        count,
        name(object),
    ]
}

fn event_source(event: &Value) -> String {
    let first_of = |pointers: &[&str]| {
        pointers.iter().map(|pointer| text(event, pointer)).find(|found| !found.is_empty()).unwrap_or_default()
    };
    let component =
        first_of(&["/source/component", "/deprecatedSource/component", "/reportingComponent", "/reportingController"]);
    match first_of(&["/source/host", "/deprecatedSource/host", "/reportingInstance"]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:05:03Z".parse().expect("a time")
    }

    fn cells(row: fn(&Value, Timestamp) -> Vec<Value>, object: &Value) -> Vec<String> {
        row(object, now()).iter().map(plain).collect()
    }

    #[test]
    fn nodes() {
        let object = json!({
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {
                "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "x"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
                "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "amd64"}},
        });
        assert_eq!(
            cells(node, &object),
            [
                "n",
                "NotReady,SchedulingDisabled",
                "control-plane,worker,x",
                "5m3s",
                "v1",
                "10.0.0.2",
                "<none>",
                "<unknown>",
                "6.1 (amd64)",
                "<unknown>"
            ]
        );
        assert_eq!(cells(node, &json!({}))[1..3], ["Unknown", "<none>"]);
    }

    #[test]
    fn events_of_both_groups() {
        let core = json!({"metadata": {"name": "e"}, "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:05:00Z", "count": 3, "type": "Normal", "reason": "Started",
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"}, "source": {"component": "kubelet", "host": "n"},
            "message": " hello\n"});
        let expected = ["3s", "Normal", "Started", "pod/p", "spec", "kubelet, n", "hello", "5m3s", "3", "e"];
        assert_eq!(cells(event, &core), expected);
        let new = json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "note": "n", "regarding":
            {"kind": "Node"}, "reportingController": "c", "series": {"count": 7, "lastObservedTime": "2026-01-01T00:05:02.000000Z"}});
        assert_eq!(cells(event, &new), ["1s", "", "", "node", "", "c", "n", "5m3s", "7", "e"]);
    }

    #[test]
    fn data_kinds() {
        let object =
            json!({"metadata": {"name": "x"}, "type": "Opaque", "data": {"a": "", "b": ""}, "binaryData": {"c": ""}});
        assert_eq!(cells(secret, &object), ["x", "Opaque", "2", "<unknown>"]);
        assert_eq!(cells(config_map, &object), ["x", "3", "<unknown>"]);
        let quota = json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "5", "limits.cpu": "2", "cpu": "1"},
            "used": {"pods": "3"}}});
        assert_eq!(cells(resource_quota, &quota), ["q", "cpu: 0/1, pods: 3/5", "limits.cpu: 0/2", "<unknown>"]);
    }
}
