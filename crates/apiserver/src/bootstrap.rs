//! The objects that every cluster has: namespaces, roles, the API server's own service and what extension servers read.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::auth;
use crate::internal::Place;
use crate::server::Server;
use crate::status::ApiResult;

/// Makes what is missing. Run before the first request is served; running it again changes nothing.
pub async fn run(server: &Arc<Server>, address: SocketAddr) -> ApiResult<()> {
    let namespaces = server.internal("", "v1", "namespaces", "kube-apiserver")?;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        namespaces.ensure(json!({"metadata": {"name": name}})).await?;
    }
    roles(server).await?;
    own_service(server, address).await?;
    let maps = server.internal("", "v1", "configmaps", "kube-apiserver")?;
    maps.ensure(json!({
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": server.identity.ca_certificate(),
            "requestheader-client-ca-file": server.identity.pki().front_proxy_ca_certificate(),
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        },
    }))
    .await?;
    let classes = server.internal("scheduling.k8s.io", "v1", "priorityclasses", "kube-apiserver")?;
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        classes.ensure(json!({"metadata": {"name": name}, "value": value, "description": description})).await?;
    }
    Ok(())
}

async fn roles(server: &Arc<Server>) -> ApiResult<()> {
    for (kind, object) in auth::bootstrap::objects() {
        let internal = server.internal("rbac.authorization.k8s.io", "v1", kind.resource(), "kube-apiserver")?;
        internal.ensure(object).await?;
    }
    Ok(())
}

/// `default/kubernetes`, through which pods find the API server.
async fn own_service(server: &Arc<Server>, address: SocketAddr) -> ApiResult<()> {
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let services = server.internal("", "v1", "services", "kube-apiserver")?;
    services
        .ensure(json!({
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
            "spec": {
                "clusterIP": "10.96.0.1",
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": address.port()}],
            },
        }))
        .await?;
    let slice = |old: &mut Value| {
        old["addressType"] = if address.is_ipv4() { "IPv4".into() } else { "IPv6".into() };
        old["ports"] = json!([{"name": "https", "port": address.port(), "protocol": "TCP"}]);
        old["endpoints"] = json!([{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}]);
    };
    let endpoints = server.internal("", "v1", "endpoints", "kube-apiserver")?;
    let subsets = json!([{
        "addresses": [{"ip": address.ip().to_string()}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    }]);
    endpoints
        .ensure(json!({
            "metadata": {
                "name": "kubernetes", "namespace": "default", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": subsets,
        }))
        .await?;
    endpoints.change(&Place::new("default", "kubernetes"), "", |old| old["subsets"] = subsets.clone()).await?;
    let slices = server.internal("discovery.k8s.io", "v1", "endpointslices", "kube-apiserver")?;
    let mut wanted = json!({"metadata": {"name": "kubernetes", "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}}});
    slice(&mut wanted);
    slices.ensure(wanted).await?;
    slices.change(&Place::new("default", "kubernetes"), "", slice).await?;
    Ok(())
}
