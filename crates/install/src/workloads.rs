//! virt-api, virt-controller and virt-handler as they run in a cluster.

use ferrovirt_api::names::labels;
use serde_json::{Value, json};

use crate::Parameters;
use crate::names::{
    API, API_ACCOUNT, API_CERTIFICATE, API_PORT, API_SERVICE_PORT, CA, CA_BUNDLE_KEY, CONTROLLER, CONTROLLER_ACCOUNT,
    HANDLER, HANDLER_ACCOUNT, HANDLER_HEALTH_PORT, HANDLER_PORT, MIGRATION_PORT,
};
use crate::pod::{control_plane_container, field, place_infra, place_workloads, probe, template, with_health};

/// Where virt-api reads its certificate.
const API_CERTIFICATE_PATH: &str = "/etc/virt-api/certificates";
/// Where everybody reads the authorities.
const CA_PATH: &str = "/etc/kubevirt-ca";
/// The node's directories that virt-handler works with: volumes of pods, device plugins, devices, and its own.
const HOST_PATHS: [(&str, &str); 4] =
    [("kubelet", "/var/lib/kubelet"), ("ferrovirt", "/var/lib/ferrovirt"), ("devices", "/dev"), ("kernel", "/sys")];

/// virt-api's Deployment.
#[must_use]
pub fn api(parameters: &Parameters) -> Value {
    let mut container = control_plane_container(parameters, API, &["api"]);
    container["ports"] = json!([{"name": "https", "containerPort": API_PORT, "protocol": "TCP"}]);
    container["volumeMounts"] = json!([
        {"name": "certificates", "mountPath": API_CERTIFICATE_PATH, "readOnly": true},
        {"name": "authorities", "mountPath": CA_PATH, "readOnly": true},
    ]);
    let get = |path: &str| json!({"path": path, "port": API_PORT, "scheme": "HTTPS"});
    container["livenessProbe"] = probe(&get("/livez"), 15);
    container["readinessProbe"] = probe(&get("/readyz"), 5);
    let volumes = json!([{"name": "certificates", "secret": {"secretName": API_CERTIFICATE}}, authorities()]);
    deployment(parameters, API, API_ACCOUNT, parameters.api_replicas, &container, &volumes)
}

/// virt-controller's Deployment; of its pods, the one with the lease works.
#[must_use]
pub fn controller(parameters: &Parameters) -> Value {
    let command = [
        "controller",
        "--launcher-image",
        &parameters.images.launcher,
        "--namespace",
        "$(POD_NAMESPACE)",
        "--name",
        "$(POD_NAME)",
    ];
    let container = with_health(control_plane_container(parameters, CONTROLLER, &command));
    let replicas = parameters.controller_replicas;
    deployment(parameters, CONTROLLER, CONTROLLER_ACCOUNT, replicas, &container, &json!([]))
}

pub(crate) fn deployment(
    parameters: &Parameters,
    component: &str,
    account: &str,
    replicas: u32,
    container: &Value,
    volumes: &Value,
) -> Value {
    let mut template = template(parameters, component, account, container, volumes);
    place_infra(&mut template["spec"], component, &parameters.infra);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": parameters.namespace, "name": component, "labels": {labels::APP: component}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {labels::APP: component}},
            // A new one serves before an old one goes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template,
        },
    })
}

/// virt-handler's DaemonSet. Guests are nobody's children: it can be replaced under them.
#[must_use]
pub fn handler(parameters: &Parameters) -> Value {
    let mut mounts: Vec<Value> =
        HOST_PATHS.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect();
    // Volumes that the kubelet mounts later must be seen too.
    mounts[0]["mountPropagation"] = "HostToContainer".into();
    mounts.push(json!({"name": "authorities", "mountPath": CA_PATH, "readOnly": true}));
    let mut volumes: Vec<Value> = HOST_PATHS
        .iter()
        .map(|(name, path)| json!({"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}))
        .collect();
    volumes.push(authorities());
    let get = |path: &str| json!({"path": path, "port": HANDLER_HEALTH_PORT, "scheme": "HTTP"});
    let port =
        |name: &str, port: u16| json!({"name": name, "containerPort": port, "hostPort": port, "protocol": "TCP"});
    let container = json!({
        "name": HANDLER, "image": parameters.images.launcher, "imagePullPolicy": parameters.pull_policy,
        "command": ["/usr/bin/ferrovirt", "handler"],
        "env": [
            field("NODE_NAME", "spec.nodeName"), field("HOST_IP", "status.hostIP"), field("POD_NAMESPACE", "metadata.namespace"),
        ],
        "ports": [port("https", HANDLER_PORT), port("moves", MIGRATION_PORT), port("health", HANDLER_HEALTH_PORT)],
        // As much as a small guest's on a busy node: it encrypts the memory of guests that move.
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"privileged": true, "runAsUser": 0},
        "livenessProbe": probe(&get("/healthz"), 15), "readinessProbe": probe(&get("/readyz"), 5),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    });
    let mut template = template(parameters, HANDLER, HANDLER_ACCOUNT, &container, &volumes.into());
    template["spec"]["hostNetwork"] = true.into();
    template["spec"]["hostPID"] = true.into();
    template["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet".into();
    place_workloads(&mut template["spec"], &parameters.workloads);
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": parameters.namespace, "name": HANDLER, "labels": {labels::APP: HANDLER}},
        "spec": {
            "selector": {"matchLabels": {labels::APP: HANDLER}},
            // One that does not come up stops the others from being replaced.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}},
            "template": template,
        },
    })
}

fn authorities() -> Value {
    json!({"name": "authorities", "configMap": {"name": CA, "items": [{"key": CA_BUNDLE_KEY, "path": CA_BUNDLE_KEY}]}})
}

/// How the API server reaches virt-api.
pub(crate) fn api_service(parameters: &Parameters) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": parameters.namespace, "name": API, "labels": {labels::APP: API}},
        "spec": {
            "type": "ClusterIP", "selector": {labels::APP: API},
            "ports": [{"name": "https", "port": API_SERVICE_PORT, "targetPort": API_PORT, "protocol": "TCP"}],
        },
    })
}

/// Drains leave enough of the control plane.
pub(crate) fn disruption_budgets(parameters: &Parameters) -> Vec<Value> {
    let budget = |(component, replicas): (&str, u32)| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": parameters.namespace, "name": format!("{component}-pdb"), "labels": {labels::APP: component}},
            "spec": {"minAvailable": replicas.saturating_sub(1), "selector": {"matchLabels": {labels::APP: component}}},
        })
    };
    [(API, parameters.api_replicas), (CONTROLLER, parameters.controller_replicas)].map(budget).to_vec()
}
