//! `ferrovirt controller`: virt-controller for a Kubernetes cluster, in the foreground.

use std::net::SocketAddr;
use std::path::PathBuf;

use ferrovirt_reconcile::LeaderConfig;
use ferrovirt_virt_controller::ControllerConfig;

use super::pod::{client, identity, until_stopped};

/// Arguments of `controller`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Kubeconfig of the cluster. Default: the service account of the pod that this runs in.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Image of the pods that guests run in.
    #[arg(long, env = "LAUNCHER_IMAGE")]
    launcher_image: String,
    /// Namespace of the lease that one virt-controller of several holds, and of what it asks the API server to only try.
    #[arg(long, env = "POD_NAMESPACE", default_value = ferrovirt_install::names::NAMESPACE)]
    namespace: String,
    /// Who this is, in the lease and in events.
    #[arg(long, env = "POD_NAME", default_value = ferrovirt_install::names::CONTROLLER)]
    name: String,
    /// Where `/healthz` and `/readyz` are answered.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    health: SocketAddr,
}

/// Works whenever it has the lease, until SIGTERM or SIGINT. When the lease is lost this ends, and whoever started it starts it again.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::serve::log();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let client = client(args.kubeconfig.as_deref()).await?;
        let lease = LeaderConfig::new(&args.namespace, ferrovirt_install::names::CONTROLLER, identity(&args.name));
        let config = ControllerConfig {
            launcher_image: args.launcher_image.clone(),
            leader: Some(lease),
            instance: args.name.clone(),
            ask_in_namespace: Some(args.namespace.clone()),
            ..ControllerConfig::default()
        };
        until_stopped(args.health, |stop| ferrovirt_virt_controller::run(client, config, stop)).await
    })
}
