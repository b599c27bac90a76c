//! Pods: defaults, the fields that may change after creation, and graceful deletion.

use ferrovirt_machinery::error::FieldError;
use serde_json::{Value, json};

use super::defaults::{child, each, existing, field};
use super::{Strategy, forbidden, required};
use crate::server::Server;
use crate::status::ApiResult;

/// Pods.
pub struct Pod;
/// The strategy of pods.
pub static POD: Pod = Pod;

impl Strategy for Pod {
    fn default(&self, object: &mut Value) {
        pod_spec(child(object, "spec"));
        let spec = &mut object["spec"];
        field(spec, "enableServiceLinks", true);
        if spec["hostNetwork"] != true {
            return;
        }
        for container in each(spec, "containers") {
            for port in each(container, "ports") {
                let number = port["containerPort"].clone();
                field(port, "hostPort", number);
            }
        }
    }

    fn prepare_create(&self, server: &Server, object: &mut Value) -> ApiResult<()> {
        let quality = quality_of_service(&object["spec"]);
        object["status"] = json!({"phase": "Pending", "qosClass": quality});
        let spec = &mut object["spec"];
        field(spec, "serviceAccountName", "default");
        spec["serviceAccount"] = spec["serviceAccountName"].clone();
        field(spec, "preemptionPolicy", "PreemptLowerPriority");
        field(spec, "priority", 0);
        default_tolerations(spec);
        mount_token(spec, server);
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        pod_spec_errors(&object["spec"], "spec")
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        const WHY: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        if without_mutable(&new["spec"]) == without_mutable(&old["spec"]) {
            return Vec::new();
        }
        vec![forbidden("spec", WHY)]
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> i64 {
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        if object["spec"]["nodeName"].as_str().is_none_or(str::is_empty) || matches!(phase, "Succeeded" | "Failed") {
            return 0;
        }
        asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30)
    }
}

/// What Kubernetes fills into any pod spec, also in templates.
pub(super) fn pod_spec(spec: &mut Value) {
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
}

fn container_defaults(container: &mut Value) {
    field(container, "terminationMessagePath", "/dev/termination-log");
    field(container, "terminationMessagePolicy", "File");
    field(container, "resources", json!({}));
    let image = container["image"].as_str().unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    field(container, "imagePullPolicy", policy);
    for port in each(container, "ports") {
        field(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing(container, probe) {
            field(probe, "timeoutSeconds", 1);
            field(probe, "periodSeconds", 10);
            field(probe, "successThreshold", 1);
            field(probe, "failureThreshold", 3);
            if let Some(get) = existing(probe, "httpGet") {
                field(get, "path", "/");
                field(get, "scheme", "HTTP");
            }
        }
    }
    if let Some(resources) = existing(container, "resources")
        && let Some(limits) = resources.get("limits").cloned()
    {
        let requests = child(resources, "requests");
        for (name, quantity) in limits.as_object().into_iter().flatten() {
            field(requests, name, quantity.clone());
        }
    }
    for variable in each(container, "env") {
        if let Some(reference) = existing(variable, "valueFrom").and_then(|from| existing(from, "fieldRef")) {
            field(reference, "apiVersion", "v1");
        }
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
    let has_source = volume.as_object().is_some_and(|map| map.len() > 1);
    if !has_source {
        field(volume, "emptyDir", json!({}));
    }
}

/// A node that is not ready is given five minutes before its pods move.
fn default_tolerations(spec: &mut Value) {
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            (toleration["key"] == key || toleration["key"].as_str().is_none_or(str::is_empty))
                && (toleration["effect"] == "NoExecute" || toleration["effect"].as_str().is_none_or(str::is_empty))
        });
        if !tolerated {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    spec["tolerations"] = tolerations.into();
}

/// The service account's token is mounted unless the pod says no.
fn mount_token(spec: &mut Value, server: &Server) {
    const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    if spec["automountServiceAccountToken"] == false {
        return;
    }
    let mounted = |container: &Value| {
        container["volumeMounts"].as_array().into_iter().flatten().any(|mount| mount["mountPath"] == MOUNT)
    };
    let needs = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .any(|container| !mounted(container));
    if !needs {
        return;
    }
    let name = format!("kube-api-access-{}", server.environment.name_suffix());
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            if !mounted(container) {
                let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT}));
                container["volumeMounts"] = mounts.into();
            }
        }
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}));
    spec["volumes"] = volumes.into();
}

fn quality_of_service(spec: &Value) -> &'static str {
    let containers =
        || ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let resources =
        |container: &Value, kind: &str| container["resources"][kind].as_object().cloned().unwrap_or_default();
    let any = containers().any(|container| {
        ["requests", "limits"]
            .iter()
            .any(|kind| resources(container, kind).keys().any(|name| name == "cpu" || name == "memory"))
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        let (limits, requests) = (resources(container, "limits"), resources(container, "requests"));
        ["cpu", "memory"].iter().all(|name| {
            limits.get(*name).is_some_and(|limit| requests.get(*name).is_none_or(|request| request == limit))
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// What any pod spec must have.
pub(super) fn pod_spec_errors(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        errors.push(required(format!("{path}.containers"), ""));
    }
    let mut names = std::collections::HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let at = format!("{path}.containers[{index}]");
        let name = container["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(required(format!("{at}.name"), ""));
        } else {
            for why in ferrovirt_machinery::names::dns_label(name) {
                errors.push(super::invalid(format!("{at}.name"), &container["name"], &why));
            }
            if !names.insert(name) {
                let message = format!("Duplicate value: \"{name}\"");
                errors.push(FieldError::new(
                    ferrovirt_machinery::error::FieldErrorKind::Duplicate,
                    format!("{at}.name"),
                    message,
                ));
            }
        }
        if container["image"].as_str().is_none_or(str::is_empty) {
            errors.push(required(format!("{at}.image"), ""));
        }
    }
    for (field, supported) in [
        ("restartPolicy", &["Always", "OnFailure", "Never"][..]),
        ("dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"][..]),
    ] {
        let value = &spec[field];
        if value.as_str().is_some_and(|value| !supported.contains(&value)) {
            errors.push(super::unsupported(format!("{path}.{field}"), value, supported));
        }
    }
    errors
}

/// The spec without what an update may change.
fn without_mutable(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in each(&mut spec, list) {
            super::defaults::remove(container, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "tolerations", "ephemeralContainers", "schedulingGates"] {
        super::defaults::remove(&mut spec, name);
    }
    spec
}
