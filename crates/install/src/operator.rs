//! What a user applies: the operator, its rights, and the kind of object that tells it what to install.

use ferrovirt_api::names::labels;
use serde_json::{Value, json};

use crate::Parameters;
use crate::access::{RBAC, account, cluster_role, role};
use crate::names::{
    FIRST_INSTALLATION, FIRST_INSTALLATION_KEY, INSTALLATIONS, OPERATOR, OPERATOR_ACCOUNT, PRIORITY_CLASS, PRODUCT,
};
use crate::pod::{control_plane_container, with_health};
use crate::rules;
use crate::workloads::deployment;

/// Everything, in the order in which it can be made.
#[must_use]
pub fn objects(parameters: &Parameters) -> Vec<Value> {
    let own = parameters.namespace.as_str();
    let mut objects = vec![namespace(own), definition(), priority_class(), account(own, OPERATOR_ACCOUNT)];
    objects.extend(cluster_role(OPERATOR_ACCOUNT, own, &rules::operator_cluster()));
    objects.extend(role(own, OPERATOR_ACCOUNT, own, &rules::operator_own()));
    objects.extend(role("kube-system", OPERATOR_ACCOUNT, own, &rules::operator_kube_system()));
    objects.push(administrators());
    objects.push(first_installation(parameters));
    objects.push(operator(parameters));
    for object in &mut objects {
        object["metadata"]["labels"][labels::OPERATOR] = "".into();
    }
    objects
}

fn namespace(name: &str) -> Value {
    // virt-handler works on the node itself.
    let labels = json!({"pod-security.kubernetes.io/enforce": "privileged", labels::APP: ""});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// The kind `KubeVirt`.
#[must_use]
pub fn definition() -> Value {
    let all = ferrovirt_api::crds::crds().into_iter().filter_map(|crd| serde_json::to_value(crd).ok());
    let mut own = all.filter(|crd| crd["spec"]["names"]["plural"] == INSTALLATIONS);
    own.next().unwrap_or_default()
}

fn priority_class() -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": PRIORITY_CLASS},
        "value": 1_000_000_000, "globalDefault": false,
        "description": "For the components that virtual machines depend on.",
    })
}

/// For those who may install, change and remove everything.
fn administrators() -> Value {
    let rule = json!({"apiGroups": ["kubevirt.io"], "resources": [INSTALLATIONS], "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]});
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "kubevirt.io:operator"}, "rules": [rule]})
}

/// The `KubeVirt` object.
#[must_use]
pub fn installation(parameters: &Parameters) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"namespace": parameters.namespace, "name": PRODUCT},
        "spec": {"imagePullPolicy": parameters.pull_policy},
    })
}

/// The same, for the operator to make as soon as the kind is there: it takes this away when it has.
fn first_installation(parameters: &Parameters) -> Value {
    let object = installation(parameters).to_string();
    let mut map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": parameters.namespace, "name": FIRST_INSTALLATION}, "data": {FIRST_INSTALLATION_KEY: object},
    });
    crate::manage(&mut map);
    map
}

fn operator(parameters: &Parameters) -> Value {
    let command = [
        "operator",
        "--control-plane-image",
        &parameters.images.control_plane,
        "--launcher-image",
        &parameters.images.launcher,
    ];
    let container = with_health(control_plane_container(parameters, OPERATOR, &command));
    deployment(parameters, OPERATOR, OPERATOR_ACCOUNT, 2, &container, &json!([]))
}
