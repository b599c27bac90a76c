//! What Kubernetes fills into pods and pod templates.

use serde_json::{Value, json};

use crate::strategy::defaults::{child, each, existing, field};

/// What Kubernetes fills into any pod spec, also in templates.
pub(in crate::strategy) fn pod_spec(spec: &mut Value) {
    field(spec, "restartPolicy", "Always");
    field(spec, "terminationGracePeriodSeconds", 30);
    field(spec, "dnsPolicy", "ClusterFirst");
    field(spec, "securityContext", json!({}));
    field(spec, "schedulerName", "default-scheduler");
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec["serviceAccount"] = account;
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in each(spec, list) {
            container_defaults(container);
        }
    }
    for volume in each(spec, "volumes") {
        volume_defaults(volume);
    }
    if spec["hostNetwork"] == true {
        host_ports(spec);
    }
    for constraint in each(spec, "topologySpreadConstraints") {
        field(constraint, "whenUnsatisfiable", "DoNotSchedule");
    }
}

/// In the host's network a container's port is the host's.
fn host_ports(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            for port in each(container, "ports") {
                let number = port["containerPort"].clone();
                field(port, "hostPort", number);
            }
        }
    }
}

/// A pod (not a template) requests what it is limited to, unless it says otherwise.
pub(super) fn requests_from_limits(container: &mut Value) {
    if let Some(resources) = existing(container, "resources")
        && let Some(limits) = resources.get("limits").cloned()
    {
        let requests = child(resources, "requests");
        for (name, quantity) in limits.as_object().into_iter().flatten() {
            field(requests, name, quantity.clone());
        }
    }
}

/// `podIP` is the first of `podIPs`, whichever of the two is given.
pub(super) fn mirror_addresses(object: &mut Value) {
    let Some(status) = existing(object, "status") else { return };
    let first = status["podIPs"][0]["ip"].clone();
    let single = status["podIP"].clone();
    if single.is_string() && first != single {
        status["podIPs"] = json!([{"ip": single}]);
    } else if single.is_null() && first.is_string() {
        status["podIP"] = first;
    }
}

fn container_defaults(container: &mut Value) {
    field(container, "terminationMessagePath", "/dev/termination-log");
    field(container, "terminationMessagePolicy", "File");
    field(container, "resources", json!({}));
    let image = container["image"].as_str().unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    field(container, "imagePullPolicy", policy);
    if let Some(lifecycle) = existing(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = existing(lifecycle, hook) {
                http_get(hook);
            }
        }
    }
    for port in each(container, "ports") {
        field(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing(container, probe) {
            field(probe, "timeoutSeconds", 1);
            field(probe, "periodSeconds", 10);
            field(probe, "successThreshold", 1);
            field(probe, "failureThreshold", 3);
            http_get(probe);
            if let Some(call) = existing(probe, "grpc") {
                field(call, "service", "");
            }
        }
    }
    for variable in each(container, "env") {
        if let Some(reference) = existing(variable, "valueFrom").and_then(|from| existing(from, "fieldRef")) {
            field(reference, "apiVersion", "v1");
        }
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = existing(handler, "httpGet") {
        field(get, "path", "/");
        field(get, "scheme", "HTTP");
    }
}

/// No tag, or the tag `latest`: the image may change under its name.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume_defaults(volume: &mut Value) {
    for (kind, mode_field) in [
        ("secret", "defaultMode"),
        ("configMap", "defaultMode"),
        ("projected", "defaultMode"),
        ("downwardAPI", "defaultMode"),
    ] {
        if let Some(source) = existing(volume, kind) {
            field(source, mode_field, 420);
        }
    }
    if let Some(path) = existing(volume, "hostPath") {
        field(path, "type", "");
    }
    if let Some(projected) = existing(volume, "projected") {
        for source in each(projected, "sources") {
            if let Some(token) = existing(source, "serviceAccountToken") {
                field(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = existing(source, "downwardAPI") {
                for item in each(downward, "items") {
                    if let Some(reference) = existing(item, "fieldRef") {
                        field(reference, "apiVersion", "v1");
                    }
                }
            }
        }
    }
    if let Some(downward) = existing(volume, "downwardAPI") {
        for item in each(downward, "items") {
            if let Some(reference) = existing(item, "fieldRef") {
                field(reference, "apiVersion", "v1");
            }
        }
    }
    if let Some(image) = existing(volume, "image") {
        let policy = if is_latest(image["reference"].as_str().unwrap_or_default()) { "Always" } else { "IfNotPresent" };
        field(image, "pullPolicy", policy);
    }
    let has_source = volume.as_object().is_some_and(|map| map.len() > 1);
    if !has_source {
        field(volume, "emptyDir", json!({}));
    }
}
