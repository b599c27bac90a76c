//! What runs beside the API server in the local control plane: admission and subresources (virt-api), virt-controller, the
//! scheduler, and the identities of the nodes.
//!
//! They use the API as on any cluster, only that their requests are function calls, made as users of their own with rights of
//! their own.

mod identities;
mod pod_limits;

pub(crate) use self::identities::{HANDLER_KUBECONFIG, MIGRATION_IDENTITY, NODE_KUBECONFIG};

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster::Cluster;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::{Peer, Server};
use ferrovirt_node::local_path::LocalPath;
use ferrovirt_reconcile::Clock;
use http::Request;
use tokio_util::sync::CancellationToken;

/// Starts everything for a cluster with `nodes` nodes whose directories are below `directory`.
pub(crate) async fn start(
    cluster: &Cluster,
    directory: &Path,
    nodes: u8,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let server = &cluster.server;
    identities::install(server).await.context("cannot make the components' roles")?;
    let node_directory = directory.join("nodes");
    for index in 1..=nodes {
        let name = node_name(index);
        identities::write_node(server, &cluster.address, &node_directory.join(&name), &name)?;
    }
    cluster.add_provisioner(Arc::new(LocalPath::new(directory.join("volumes"))));
    identities::ensure(
        server,
        "storage.k8s.io",
        "v1",
        "storageclasses",
        serde_json::to_value(LocalPath::storage_class())?,
    )
    .await?;
    ferrovirt_virt_api::install(server, ferrovirt_virt_api::LocalHandlers::new(node_directory.clone())).await?;
    server.admission.add(Arc::new(pod_limits::PodLimits));
    server.mounts.nodes.reach_through(Arc::new(ferrovirt_node::LocalNodes::new(node_directory)));
    ferrovirt_virt_api::local::install(server).await.context("cannot make the KubeVirt object")?;
    tokio::spawn(ferrovirt_virt_api::local::follow(server.clone(), stop.clone()));
    let controller = client(server, identities::VIRT_CONTROLLER);
    let config = ferrovirt_virt_controller::ControllerConfig::default();
    tokio::spawn(report("virt-controller", ferrovirt_virt_controller::run(controller, config, stop.clone())));
    tokio::spawn(ferrovirt_apiserver::controllers::nodes::run(server.clone(), stop.clone()));
    let scheduler = client(server, identities::SCHEDULER);
    tokio::spawn(report("scheduler", ferrovirt_scheduler::run(scheduler, Clock::System, stop.clone())));
    Ok(())
}

/// The name of a node of this machine.
pub(crate) fn node_name(index: u8) -> String {
    format!("node{index}")
}

/// A client whose requests are function calls, made as `user`.
fn client(server: &Arc<Server>, user: &'static str) -> kube::Client {
    let server = server.clone();
    let user = UserInfo::new(user, ["system:authenticated"]);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (server, peer) = (server.clone(), Peer::Trusted(user.clone()));
        async move { Ok::<_, Infallible>(server.handle(request.map(erase), &peer).await) }
    });
    kube::Client::new(service, "default")
}

/// A component that ends on its own ends with a word in the log.
async fn report<E: std::fmt::Display>(name: &str, component: impl Future<Output = Result<(), E>>) {
    if let Err(error) = component.await {
        tracing::error!(%error, "{name} ended");
    }
}
