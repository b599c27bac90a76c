//! Users of the local cluster's components, what each may do, and the nodes' kubeconfigs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use ferrovirt_apiserver::auth::kubeconfig::{kubeconfig_yaml, write_private};
use ferrovirt_apiserver::server::Server;
use ferrovirt_install::rules;
use ferrovirt_virt_api::HANDLER_GROUP;
use serde_json::{Value, json};

/// The user of virt-controller, as it is called on a Kubernetes cluster.
pub(super) const VIRT_CONTROLLER: &str = "system:serviceaccount:kubevirt:virt-controller";
/// The user of virt-handler.
const VIRT_HANDLER: &str = "system:serviceaccount:kubevirt:virt-handler";
/// The user of the scheduler; its role is one of those that every cluster has.
pub(super) const SCHEDULER: &str = "system:kube-scheduler";

/// What nodes read for network policies.
const NETWORK_ROLE: &str = "ferrovirt:network";

/// Files in a node's directory.
pub(crate) const NODE_KUBECONFIG: &str = "node.kubeconfig";
/// The handler's.
pub(crate) const HANDLER_KUBECONFIG: &str = "virt-handler.kubeconfig";

/// What the node's handler shows to other nodes' handlers: the cluster's CA, its certificate and its key.
pub(crate) const MIGRATION_IDENTITY: &str = "migration.pem";
/// The user of handlers among each other; it has no rights at the API server.
const MIGRATION_USER: &str = "kubevirt.io:system:client:migration";

/// Makes or renews roles and bindings.
pub(super) async fn install(server: &Arc<Server>) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}});
    ensure(server, "", "v1", "namespaces", namespace).await?;
    for (name, subject, rules) in [
        ("kubevirt-controller", VIRT_CONTROLLER, rules::controller_cluster()),
        ("kubevirt-handler", VIRT_HANDLER, rules::handler_cluster()),
    ] {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
        ensure(server, "rbac.authorization.k8s.io", "v1", "clusterroles", role).await?;
        bind(server, name, name, &json!({"kind": "User", "name": subject, "apiGroup": "rbac.authorization.k8s.io"}))
            .await?;
    }
    // There is no node authorizer here; the machine's own nodes get the role that it would enforce.
    let nodes = json!({"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"});
    bind(server, "ferrovirt:nodes", "system:node", &nodes).await?;
    // Elsewhere network policies are not the kubelet's; here the node enforces them itself.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": NETWORK_ROLE},
        "rules": [
            {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
        ],
    });
    ensure(server, "rbac.authorization.k8s.io", "v1", "clusterroles", role).await?;
    bind(server, NETWORK_ROLE, NETWORK_ROLE, &nodes).await
}

async fn bind(server: &Arc<Server>, name: &str, role: &str, subject: &Value) -> anyhow::Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [subject],
    });
    ensure(server, "rbac.authorization.k8s.io", "v1", "clusterrolebindings", binding).await
}

/// Makes an object unless it is there.
pub(super) async fn ensure(
    server: &Arc<Server>,
    group: &str,
    version: &str,
    resource: &str,
    object: Value,
) -> anyhow::Result<()> {
    Ok(server.internal(group, version, resource, "ferrovirt")?.ensure(object).await?)
}

/// Writes the kubeconfigs of one node.
pub(super) fn write_node(
    server: &Arc<Server>,
    address: &SocketAddr,
    directory: &Path,
    name: &str,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let (pki, url) = (server.identity.pki(), format!("https://{address}"));
    let node = format!("system:node:{name}");
    // Admission lets a handler write about the guests of this node only.
    let of_node = format!("{HANDLER_GROUP}{name}");
    let handler = ["system:serviceaccounts", "system:serviceaccounts:kubevirt", &of_node];
    for (file, user, groups) in [
        (NODE_KUBECONFIG, node.as_str(), ["system:nodes"].as_slice()),
        (HANDLER_KUBECONFIG, VIRT_HANDLER, handler.as_slice()),
    ] {
        let identity = pki.client_identity(user, groups, SystemTime::now())?;
        write_private(&directory.join(file), &kubeconfig_yaml("ferrovirt", &url, pki.ca_certificate(), &identity))?;
    }
    let peer =
        pki.peer_identity(MIGRATION_USER, &ferrovirt_virt_handler::peers::certified_name(name), SystemTime::now())?;
    let pem = format!("{}{}{}", pki.ca_certificate(), peer.certificate, peer.key);
    write_private(&directory.join(MIGRATION_IDENTITY), &pem)?;
    Ok(())
}
