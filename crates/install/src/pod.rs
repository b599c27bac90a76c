//! What the pods of all components have in common.

use ferrovirt_api::names::labels;
use serde_json::{Value, json};

use crate::names::{HEALTH_PORT, PRIORITY_CLASS};
use crate::{Parameters, Placement};

/// The user of the control plane's image.
const USER: u32 = 1001;
/// Nodes of the control plane are preferred for our own. Not required: where the control plane is somebody else's, there are none.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// One pod's template.
pub(crate) fn template(
    parameters: &Parameters,
    component: &str,
    account: &str,
    container: &Value,
    volumes: &Value,
) -> Value {
    let secrets: Vec<Value> = parameters.pull_secrets.iter().map(|name| json!({"name": name})).collect();
    let mut spec = json!({
        "serviceAccountName": account, "priorityClassName": PRIORITY_CLASS, "containers": [container], "volumes": volumes,
    });
    if !secrets.is_empty() {
        spec["imagePullSecrets"] = secrets.into();
    }
    let names = json!({labels::APP: component, labels::APP_COMPONENT: crate::names::PRODUCT});
    // `kubectl logs` and `exec` need not be told which container.
    let notes = json!({"kubectl.kubernetes.io/default-container": component});
    json!({"metadata": {"labels": names, "annotations": notes}, "spec": spec})
}

/// The container of a component of the control plane: nobody special, who writes nowhere.
pub(crate) fn control_plane_container(parameters: &Parameters, component: &str, command: &[&str]) -> Value {
    let mut all = vec!["/usr/bin/ferrovirt"];
    all.extend(command);
    json!({
        "name": component, "image": parameters.images.control_plane, "imagePullPolicy": parameters.pull_policy,
        "command": all,
        "env": [field("POD_NAMESPACE", "metadata.namespace"), field("POD_NAME", "metadata.name")],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {
            "runAsUser": USER, "runAsNonRoot": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// Adds the plain health port and its probes.
pub(crate) fn with_health(mut container: Value) -> Value {
    container["ports"] = json!([{"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"}]);
    container["livenessProbe"] = probe(&json!({"path": "/healthz", "port": HEALTH_PORT, "scheme": "HTTP"}), 15);
    container["readinessProbe"] = probe(&json!({"path": "/readyz", "port": HEALTH_PORT, "scheme": "HTTP"}), 5);
    container
}

pub(crate) fn probe(get: &Value, period: u32) -> Value {
    json!({"httpGet": get, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": 4})
}

/// An environment variable with a field of the pod.
pub(crate) fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
}

/// Puts a pod of the control plane where it belongs: near the control plane, and no two of a component on one node if that can be.
pub(crate) fn place_infra(spec: &mut Value, component: &str, placement: &Placement) {
    let near =
        json!({"weight": 50, "preference": {"matchExpressions": [{"key": CONTROL_PLANE, "operator": "Exists"}]}});
    let apart = json!({"weight": 1, "podAffinityTerm": {
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {labels::APP: component}},
    }});
    let affinity = json!({
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [near]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]},
    });
    let tolerations = json!([
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        {"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"},
    ]);
    place(spec, placement, Some(affinity), tolerations);
}

/// Puts a virt-handler on every node that may have guests.
pub(crate) fn place_workloads(spec: &mut Value, placement: &Placement) {
    place(spec, placement, None, json!([{"key": "CriticalAddonsOnly", "operator": "Exists"}]));
}

fn place(spec: &mut Value, placement: &Placement, affinity: Option<Value>, tolerations: Value) {
    spec["nodeSelector"] = placement.node_selector.clone().unwrap_or_else(|| json!({}));
    spec["nodeSelector"]["kubernetes.io/os"] = "linux".into();
    if let Some(affinity) = placement.affinity.clone().or(affinity) {
        spec["affinity"] = affinity;
    }
    spec["tolerations"] = placement.tolerations.clone().unwrap_or(tolerations);
}
