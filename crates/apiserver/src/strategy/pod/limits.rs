//! Limit ranges: what containers get that do not say how much they need, and how much they may ask for.

use serde_json::Value;

use crate::server::Server;
use crate::status::{ApiError, ApiResult, Subject};
use crate::strategy::check::{fields, list, quantity, text};
use crate::strategy::defaults::{child, each};

/// Applies the limit ranges of the pod's namespace.
pub(super) fn apply(server: &Server, pod: &mut Value) -> ApiResult<()> {
    let namespace = text(&pod["metadata"]["namespace"]);
    let Ok(page) = server.store.list("/limitranges", Some(namespace), None, None, None) else { return Ok(()) };
    for range in &page.objects {
        let range = range.body.value();
        for limits in list(&range["spec"]["limits"]).iter().filter(|limits| limits["type"] == "Container") {
            fill(pod, limits);
        }
    }
    let mut wrong = Vec::new();
    for range in &page.objects {
        let range = range.body.value();
        for limits in list(&range["spec"]["limits"]).iter().filter(|limits| limits["type"] == "Container") {
            let containers = ["containers", "initContainers"].map(|name| list(&pod["spec"][name]));
            containers.into_iter().flatten().for_each(|container| wrong.extend(breaches(container, limits)));
        }
    }
    let why = match wrong.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let name = text(&pod["metadata"]["name"]);
    Err(ApiError::forbidden(Subject { group: "", resource: "pods" }, name, &why))
}

/// Fills in what containers leave open, and notes it in an annotation.
fn fill(pod: &mut Value, limits: &Value) {
    let mut notes = Vec::new();
    for (name, sort) in [("containers", "container"), ("initContainers", "init container")] {
        for container in each(&mut pod["spec"], name) {
            let title = format!("{sort} {}", text(&container["name"]));
            let resources = child(container, "resources");
            for (kind, word, source) in [("requests", "request", "defaultRequest"), ("limits", "limit", "default")] {
                let filled = fill_kind(resources, kind, &limits[source]);
                if !filled.is_empty() {
                    notes.push(format!("{} {word} for {title}", filled.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        child(&mut pod["metadata"], "annotations")["kubernetes.io/limit-ranger"] = note.into();
    }
}

fn fill_kind(resources: &mut Value, kind: &str, defaults: &Value) -> Vec<String> {
    let mut filled = Vec::new();
    for (name, amount) in fields(defaults) {
        if resources[kind][name.as_str()].is_null() {
            child(resources, kind)[name.as_str()] = amount.clone();
            filled.push(name.clone());
        }
    }
    filled.sort();
    filled
}

/// Where a container asks for less or more than it may.
fn breaches(container: &Value, limits: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let (requests, own) = (&container["resources"]["requests"], &container["resources"]["limits"]);
    for (name, least) in fields(&limits["min"]) {
        let Some(least) = quantity(least) else { continue };
        let prefix = format!("minimum {name} usage per Container is {least}");
        match (quantity(&requests[name.as_str()]), quantity(&own[name.as_str()])) {
            (None, _) => wrong.push(format!("{prefix}.  No request is specified")),
            (Some(asked), _) if asked < least => wrong.push(format!("{prefix}, but request is {asked}")),
            (_, Some(limit)) if limit < least => wrong.push(format!("{prefix}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, most) in fields(&limits["max"]) {
        let Some(most) = quantity(most) else { continue };
        let prefix = format!("maximum {name} usage per Container is {most}");
        match (quantity(&requests[name.as_str()]), quantity(&own[name.as_str()])) {
            (_, None) => wrong.push(format!("{prefix}.  No limit is specified")),
            (_, Some(limit)) if limit > most => wrong.push(format!("{prefix}, but limit is {limit}")),
            (Some(asked), _) if asked > most => wrong.push(format!("{prefix}, but request is {asked}")),
            _ => {}
        }
    }
    wrong
}

/// What a limit range of containers says by saying something else: limits default to the maximum, requests to the
/// limits, and then to the minimum.
pub(in crate::strategy) fn default_limits(limits: &mut Value) {
    if limits["type"] != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(given)) = limits.get(from).cloned() else { continue };
        let target = child(limits, to);
        for (name, amount) in given {
            if target[name.as_str()].is_null() {
                target[name.as_str()] = amount;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_get_what_they_leave_open() {
        let mut limits = json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}});
        default_limits(&mut limits);
        assert_eq!(limits["default"], json!({"cpu": "2"}));
        assert_eq!(limits["defaultRequest"], json!({"cpu": "2", "memory": "1Mi"}));
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
        fill(&mut pod, &limits);
        let note = "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c";
        assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"], note);
        assert!(breaches(&pod["spec"]["containers"][0], &limits).is_empty());
    }

    #[test]
    fn breaches_are_named() {
        let limits = json!({"max": {"cpu": "1"}, "min": {"memory": "1Mi"}});
        let container = json!({"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}});
        assert_eq!(
            breaches(&container, &limits),
            [
                "minimum memory usage per Container is 1Mi.  No request is specified",
                "maximum cpu usage per Container is 1, but limit is 2",
            ]
        );
    }
}
