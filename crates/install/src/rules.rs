//! What each component may do: exactly what its code asks an API server for.
//!
//! The local cluster gives its components the same `*_cluster` rules. Rules without a namespace are needed everywhere, because guests
//! are in any namespace; what only concerns the installation's own namespace is in the `*_own` rules.

use ferrovirt_api::names::groups;
use serde_json::{Value, json};

use crate::names;

const READ: &[&str] = &["get", "list", "watch"];
const EVENTS: &[&str] = &["create", "patch", "update"];
/// What applying, repairing and removing an object takes.
const MANAGE: &[&str] = &["get", "list", "watch", "create", "patch", "update", "delete"];
const LEASE: &[&str] = &["get", "create", "update"];

const MACHINES: &str = "virtualmachines";
const GUESTS: &str = "virtualmachineinstances";
const MOVES: &str = "virtualmachineinstancemigrations";

/// Who signs virt-handlers' certificates, as certificate requests name it.
pub const HANDLER_SIGNER: &str = "ferrovirt.io/virt-handler";

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn named(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs})
}

/// virt-controller, in all namespaces.
#[must_use]
pub fn controller_cluster() -> Vec<Value> {
    let statuses = [format!("{MACHINES}/status"), format!("{MOVES}/status")];
    let finalizers = [MACHINES, GUESTS, MOVES].map(|kind| format!("{kind}/finalizers"));
    vec![
        rule(&[groups::KUBEVIRT], &[MACHINES], &["get", "list", "watch", "update", "patch"]),
        rule(&[groups::KUBEVIRT], &[GUESTS, MOVES], MANAGE),
        rule(&[groups::KUBEVIRT], &statuses.each_ref().map(String::as_str), &["update", "patch"]),
        rule(&[groups::KUBEVIRT], &finalizers.each_ref().map(String::as_str), &["update"]),
        rule(&[groups::KUBEVIRT], &[names::INSTALLATIONS], READ),
        rule(&[groups::MIGRATIONS], &["migrationpolicies"], READ),
        rule(&["apps"], &["controllerrevisions"], &["get", "list", "watch", "create", "delete"]),
        rule(&["cdi.kubevirt.io"], &["datavolumes"], &["get", "list", "watch", "create"]),
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], READ),
        rule(&[""], &["pods"], &["get", "list", "watch", "create", "delete"]),
        // The readiness gate of a pod that a guest has moved to.
        rule(&[""], &["pods/status"], &["patch"]),
        rule(&[""], &["persistentvolumeclaims", "namespaces"], READ),
        rule(&[""], &["nodes"], &["get", "list", "watch", "patch"]),
        rule(&["policy"], &["poddisruptionbudgets"], &["get", "list", "watch", "delete"]),
        rule(&["", "events.k8s.io"], &["events"], EVENTS),
    ]
}

/// virt-controller, in the installation's namespace.
#[must_use]
pub fn controller_own() -> Vec<Value> {
    vec![rule(&["coordination.k8s.io"], &["leases"], LEASE)]
}

/// virt-handler. Admission lets it write about guests and the node that it is on, and about nothing else of these kinds.
#[must_use]
pub fn handler_cluster() -> Vec<Value> {
    vec![
        rule(&[groups::KUBEVIRT], &[GUESTS], &["get", "list", "watch", "update", "patch"]),
        rule(&[groups::KUBEVIRT], &[names::INSTALLATIONS], READ),
        rule(&[""], &["pods"], READ),
        rule(&[""], &["nodes"], &["get", "list", "watch", "patch"]),
        rule(&["", "events.k8s.io"], &["events"], EVENTS),
        rule(&["certificates.k8s.io"], &["certificatesigningrequests"], &["get", "create"]),
    ]
}

/// virt-api, in all namespaces. How it recognises the aggregation layer is in `kube-system`, where every cluster has a role for that.
#[must_use]
pub fn api_cluster() -> Vec<Value> {
    vec![
        rule(&[groups::KUBEVIRT], &[MACHINES, GUESTS], &["get", "list", "patch"]),
        rule(&[groups::KUBEVIRT], &[&format!("{MACHINES}/status")], &["patch"]),
        rule(&[groups::KUBEVIRT], &[MOVES], &["list", "create"]),
        rule(&[groups::KUBEVIRT], &[names::INSTALLATIONS], READ),
        rule(&[""], &["pods"], &["get", "list"]),
        rule(&[""], &["nodes"], &["get"]),
        rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
    ]
}

/// virt-operator, in all namespaces: what it installs, and all that it grants to others, since nobody can grant what they do not
/// have.
#[must_use]
pub fn operator_cluster() -> Vec<Value> {
    let admission = [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ];
    let mut all = vec![
        rule(&[groups::KUBEVIRT], &[names::INSTALLATIONS], &["get", "list", "watch", "create", "update", "patch"]),
        rule(
            &[groups::KUBEVIRT],
            &[&format!("{}/status", names::INSTALLATIONS), &format!("{}/finalizers", names::INSTALLATIONS)],
            &["update", "patch"],
        ),
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], MANAGE),
        rule(&["rbac.authorization.k8s.io"], &["clusterroles", "clusterrolebindings"], MANAGE),
        rule(&["admissionregistration.k8s.io"], &admission, MANAGE),
        rule(&["apiregistration.k8s.io"], &["apiservices"], MANAGE),
        rule(&["certificates.k8s.io"], &["certificatesigningrequests"], &["get", "list", "watch", "delete"]),
        rule(
            &["certificates.k8s.io"],
            &["certificatesigningrequests/approval", "certificatesigningrequests/status"],
            &["update", "patch"],
        ),
        named(&["certificates.k8s.io"], &["signers"], &[HANDLER_SIGNER], &["approve", "sign"]),
    ];
    let granted = [controller_cluster(), handler_cluster(), api_cluster()].into_iter().flatten();
    let users = ferrovirt_virt_api::roles().into_iter().flat_map(|role| match role["rules"].clone() {
        Value::Array(rules) => rules,
        _ => Vec::new(),
    });
    for rule in granted.chain(users) {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    all
}

/// virt-operator, in the installation's namespace.
#[must_use]
pub fn operator_own() -> Vec<Value> {
    vec![
        rule(&[""], &["secrets", "configmaps", "services", "serviceaccounts"], MANAGE),
        rule(&["apps"], &["deployments", "daemonsets"], MANAGE),
        rule(&["policy"], &["poddisruptionbudgets"], MANAGE),
        rule(&["rbac.authorization.k8s.io"], &["roles", "rolebindings"], MANAGE),
        rule(&["coordination.k8s.io"], &["leases"], &["get", "create", "update", "delete"]),
    ]
}

/// virt-operator, in `kube-system`: it lets virt-api read how the aggregation layer is recognised.
#[must_use]
pub fn operator_kube_system() -> Vec<Value> {
    let reader = "extension-apiserver-authentication-reader";
    vec![
        rule(&["rbac.authorization.k8s.io"], &["rolebindings"], MANAGE),
        named(&["rbac.authorization.k8s.io"], &["roles"], &[reader], &["bind"]),
    ]
}
