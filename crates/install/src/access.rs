//! Service accounts, roles and who has them.

use ferrovirt_api::names::labels;
use serde_json::{Value, json};

use crate::Parameters;
use crate::names::{API_ACCOUNT, CONTROLLER_ACCOUNT, HANDLER_ACCOUNT};
use crate::rules;

pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";
/// The role that every cluster has for extension API servers.
const AUTHENTICATION_READER: &str = "extension-apiserver-authentication-reader";

/// Accounts and roles of the components, and the users' roles.
pub(crate) fn objects(parameters: &Parameters) -> Vec<Value> {
    let own = parameters.namespace.as_str();
    let mut objects = Vec::new();
    for (name, everywhere, here) in [
        (API_ACCOUNT, rules::api_cluster(), Vec::new()),
        (CONTROLLER_ACCOUNT, rules::controller_cluster(), rules::controller_own()),
        (HANDLER_ACCOUNT, rules::handler_cluster(), Vec::new()),
    ] {
        objects.push(account(own, name));
        objects.extend(cluster_role(name, own, &everywhere));
        if !here.is_empty() {
            objects.extend(role(own, name, own, &here));
        }
    }
    let reader = json!({"apiGroup": RBAC, "kind": "Role", "name": AUTHENTICATION_READER});
    objects.push(binding("RoleBinding", Some("kube-system"), API_ACCOUNT, &reader, own, API_ACCOUNT));
    objects.extend(users(parameters.aggregate_roles));
    objects
}

/// What users may do with guests.
fn users(aggregate: bool) -> Vec<Value> {
    let mut objects = ferrovirt_virt_api::roles();
    if !aggregate {
        for role in &mut objects {
            let joins = |key: &String| key.starts_with("rbac.authorization.k8s.io/aggregate-to-");
            if let Some(labels) = role["metadata"]["labels"].as_object_mut() {
                labels.retain(|key, _| !joins(key));
            }
        }
    }
    objects.extend(ferrovirt_virt_api::bindings());
    objects
}

pub(crate) fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}})
}

/// A role for all namespaces and its binding to the account of the same name.
pub(crate) fn cluster_role(name: &str, namespace: &str, rules: &[Value]) -> [Value; 2] {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {labels::APP: ""}}, "rules": rules,
    });
    let reference = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": name});
    [role, binding("ClusterRoleBinding", None, name, &reference, namespace, name)]
}

/// A role for one namespace and its binding to an account of the same name.
pub(crate) fn role(within: &str, name: &str, namespace: &str, rules: &[Value]) -> [Value; 2] {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": within, "name": name, "labels": {labels::APP: ""}}, "rules": rules,
    });
    let reference = json!({"apiGroup": RBAC, "kind": "Role", "name": name});
    [role, binding("RoleBinding", Some(within), name, &reference, namespace, name)]
}

fn binding(kind: &str, within: Option<&str>, name: &str, role: &Value, namespace: &str, account: &str) -> Value {
    let mut metadata = json!({"name": name, "labels": {labels::APP: ""}});
    if let Some(within) = within {
        metadata["namespace"] = within.into();
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
    })
}
