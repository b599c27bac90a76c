//! Rights, admission, certificates, leases and the rest of what runs a cluster.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{age, condition, flag, int, list, name, row, selector, text, text_or};
use crate::table::duration::human_duration;

pub(super) fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let (mut users, mut groups, mut accounts) = (Vec::new(), Vec::new(), Vec::new());
    for subject in list(object, "/subjects") {
        let name = text(subject, "/name").to_owned();
        match text(subject, "/kind") {
            "User" => users.push(name),
            "Group" => groups.push(name),
            "ServiceAccount" => accounts.push(format!("{}/{name}", text(subject, "/namespace"))),
            _ => {}
        }
    }
    row![name(object), role, age(object, now), users.join(", "), groups.join(", "), accounts.join(", ")]
}

pub(super) fn signing_request(object: &Value, now: Timestamp) -> Vec<Value> {
    let seconds = object.pointer("/spec/expirationSeconds").and_then(Value::as_i64);
    row![
        name(object),
        age(object, now),
        text_or(object, "/spec/signerName", "<none>"),
        text(object, "/spec/username"),
        seconds.map_or("<none>".to_owned(), |seconds| human_duration(SignedDuration::from_secs(seconds))),
        signing_status(object),
    ]
}

fn signing_status(request: &Value) -> String {
    let mut status = match () {
        () if condition(request, "Denied").is_some() => "Denied",
        () if condition(request, "Approved").is_some() => "Approved",
        () => "Pending",
    }
    .to_owned();
    if condition(request, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    status
}

pub(super) fn trust_bundle(object: &Value, _now: Timestamp) -> Vec<Value> {
    row![name(object), text_or(object, "/spec/signerName", "<none>")]
}

pub(super) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), text(object, "/spec/holderIdentity"), age(object, now)]
}

pub(super) fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    row![
        name(object),
        int(object, "/value"),
        flag(object, "/globalDefault"),
        age(object, now),
        text(object, "/preemptionPolicy"),
    ]
}

pub(super) fn runtime_class(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), text(object, "/handler"), age(object, now)]
}

pub(super) fn api_service(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = object.pointer("/spec/service").filter(|service| !service.is_null());
    let service = service.map(|service| format!("{}/{}", text(service, "/namespace"), text(service, "/name")));
    let available = condition(object, "Available").map(|available| {
        match (text(available, "/status"), text(available, "/reason")) {
            (status, reason) if status != "True" && !reason.is_empty() => format!("{status} ({reason})"),
            (status, _) => status.to_owned(),
        }
    });
    row![
        name(object),
        service.unwrap_or_else(|| "Local".to_owned()),
        available.unwrap_or_else(|| "Unknown".to_owned()),
        age(object, now),
    ]
}

pub(super) fn webhooks(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), list(object, "/webhooks").len(), age(object, now)]
}

pub(super) fn validating_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), list(object, "/spec/validations").len(), parameter_kind(object), age(object, now)]
}

pub(super) fn mutating_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), list(object, "/spec/mutations").len(), parameter_kind(object), age(object, now)]
}

fn parameter_kind(policy: &Value) -> String {
    match policy.pointer("/spec/paramKind").filter(|kind| !kind.is_null()) {
        Some(kind) => format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")),
        None => "<unset>".to_owned(),
    }
}

pub(super) fn policy_binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameter = match (text(object, "/spec/paramRef/name"), text(object, "/spec/paramRef/namespace")) {
        ("", _) if object.pointer("/spec/paramRef/selector").is_some() => selector(object, "/spec/paramRef/selector"),
        ("", _) => "<unset>".to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    row![name(object), text(object, "/spec/policyName"), parameter, age(object, now)]
}

pub(super) fn flow_schema(object: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = condition(object, "Dangling").map_or("?", |dangling| text(dangling, "/status"));
    row![
        name(object),
        text(object, "/spec/priorityLevelConfiguration/name"),
        int(object, "/spec/matchingPrecedence"),
        text_or(object, "/spec/distinguisherMethod/type", "<none>"),
        age(object, now),
        dangling,
    ]
}

pub(super) fn priority_level(object: &Value, now: Timestamp) -> Vec<Value> {
    let number = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_else(|| "<none>".into());
    let queuing = |field: &str| number(&format!("/spec/limited/limitResponse/queuing/{field}"));
    row![
        name(object),
        text(object, "/spec/type"),
        number("/spec/limited/nominalConcurrencyShares"),
        queuing("queues"),
        queuing("handSize"),
        queuing("queueLengthLimit"),
        age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::plain;
    use super::*;

    fn cells(row: fn(&Value, Timestamp) -> Vec<Value>, object: &Value) -> Vec<String> {
        let now = "2026-01-01T00:05:03Z".parse().expect("a time");
        row(object, now).iter().map(plain).collect()
    }

    #[test]
    fn bindings() {
        let object = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]});
        assert_eq!(cells(binding, &object), ["b", "ClusterRole/view", "<unknown>", "u, v", "g", "n/s"]);
    }

    #[test]
    fn certificates() {
        let request = json!({"metadata": {"name": "r"}, "spec": {"signerName": "s/x", "username": "u", "expirationSeconds": 600},
            "status": {"conditions": [{"type": "Approved"}], "certificate": "AA=="}});
        assert_eq!(cells(signing_request, &request), ["r", "<unknown>", "s/x", "u", "10m", "Approved,Issued"]);
        assert_eq!(cells(signing_request, &json!({}))[4..], ["<none>", "Pending"]);
    }

    #[test]
    fn api_services() {
        let service = json!({"metadata": {"name": "v1.x"}, "spec": {"service": {"namespace": "n", "name": "s"}},
            "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]}});
        assert_eq!(cells(api_service, &service)[..3], ["v1.x", "n/s", "False (MissingEndpoints)"]);
        assert_eq!(cells(api_service, &json!({}))[1..3], ["Local", "Unknown"]);
    }

    #[test]
    fn admission() {
        assert_eq!(cells(webhooks, &json!({"webhooks": [{}, {}]}))[1], "2");
        let policy = json!({"spec": {"validations": [{}], "paramKind": {"apiVersion": "g/v1", "kind": "K"}}});
        assert_eq!(cells(validating_policy, &policy)[1..3], ["1", "g/v1/K"]);
        let parameter = |reference: Value| {
            cells(policy_binding, &json!({"spec": {"policyName": "p", "paramRef": reference}}))[2].clone()
        };
        assert_eq!(parameter(json!({"name": "x"})), "*/x");
        assert_eq!(parameter(json!({"name": "x", "namespace": "n"})), "n/x");
        assert_eq!(parameter(Value::Null), "<unset>");
    }
}
