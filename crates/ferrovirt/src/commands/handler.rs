//! `ferrovirt handler`: virt-handler of one node of a Kubernetes cluster, in the foreground.
//!
//! It runs in a pod with the node's network and processes. Guests go on without it, and it finds them again when it starts.

use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use ferrovirt_device_plugin::Device;
use ferrovirt_domain::{Accelerator, NodeFacts};
use ferrovirt_install::names;
use ferrovirt_reconcile::Clock;
use ferrovirt_virt_handler::certificate::Keeper;
use ferrovirt_virt_handler::launcher::PodLaunchers;
use ferrovirt_virt_handler::peers::{Identities, TlsPeers, plain_sockets};
use ferrovirt_virt_handler::wiring::PodWiring;
use ferrovirt_virt_handler::{Config, Door, health};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Arguments of `handler`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Kubeconfig of the cluster. Default: the service account of the pod that this runs in.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of the node.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: String,
    /// Address of the node that other nodes and virt-api reach.
    #[arg(long, env = "HOST_IP", value_name = "ADDRESS")]
    address: IpAddr,
    /// Namespace that Ferrovirt is installed in.
    #[arg(long, env = "POD_NAMESPACE", default_value = names::NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// Directory on the node for what must be remembered; only root may look inside.
    #[arg(long, default_value = "/var/lib/ferrovirt", value_name = "DIRECTORY")]
    directory: PathBuf,
    /// The kubelet's directory.
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "DIRECTORY")]
    kubelet: PathBuf,
    /// Certificates of Ferrovirt's authorities, as PEM. They are read again when they change.
    #[arg(long, default_value = "/etc/kubevirt-ca/ca-bundle", value_name = "FILE")]
    ca_bundle: PathBuf,
    /// How many guests can share each of the node's devices.
    #[arg(long, default_value = "1000", value_name = "NUMBER")]
    max_devices: usize,
    /// Port for virt-api.
    #[arg(long, default_value_t = names::HANDLER_PORT, value_name = "PORT")]
    port: u16,
    /// Port for guests that move; the same on all nodes, and over restarts.
    #[arg(long, default_value_t = names::MIGRATION_PORT, value_name = "PORT")]
    migration_port: u16,
    /// Port of `/healthz` and `/readyz`.
    #[arg(long, default_value_t = names::HANDLER_HEALTH_PORT, value_name = "PORT")]
    health_port: u16,
}

/// Whoever started this process starts it again, and VMs go on meanwhile.
pub(crate) const KVM_RUNS: &str =
    "KVM works on this node, which could not be told before: this process begins anew with it";

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::serve::log();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(handle(args))
}

async fn handle(args: &Args) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let private = |path: &Path| -> anyhow::Result<()> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("cannot make the directory {}", path.display()))
    };
    let (identity, memory) = (args.directory.join("identity"), args.directory.join("virt-handler"));
    private(&identity)?;
    private(&memory)?;
    let client = super::pod::client(args.kubeconfig.as_deref()).await?;
    let stop = CancellationToken::new();
    let identities = Identities::default();
    let health = health::serve(listen(args.address, args.health_port).await?, identities.clone());
    let keeper = Keeper {
        client: client.clone(),
        node: args.node.clone(),
        directory: identity,
        bundle: args.ca_bundle.clone(),
        identities: identities.clone(),
    };
    let beside = [tokio::spawn(health), tokio::spawn(keeper.run())];
    let found = ferrovirt_virt_handler::probe::facts().await;
    let facts = found.facts.clone();
    tracing::info!(node = args.node, accelerator = ?facts.accelerator, "virt-handler starts");
    let plugins = ferrovirt_device_plugin::Config {
        directory: args.kubelet.join("device-plugins"),
        devices: devices(&facts),
        count: args.max_devices,
    };
    let plugins = tokio::spawn(ferrovirt_device_plugin::run(plugins, stop.clone()));
    let door = Door::Tls {
        listener: listen(args.address, args.port).await?,
        identities: identities.clone(),
        caller: format!("virt-api.{}.svc", args.namespace),
    };
    let address = (args.address, args.migration_port).into();
    let peers = TlsPeers::listen(address, identities, Arc::new(plain_sockets));
    let peers = peers.with_context(|| format!("cannot listen at {address}"))?;
    let config = Config { node: args.node.clone(), directory: memory, door, facts };
    let launchers = Arc::new(PodLaunchers::new(args.kubelet.join("pods")));
    let handler = ferrovirt_virt_handler::run(
        client,
        config,
        launchers,
        Arc::new(PodWiring),
        Arc::new(peers),
        Clock::System,
        stop.clone(),
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = handler => ended.context("virt-handler ended")?,
        () = found.until_kvm_runs() => anyhow::bail!("{KVM_RUNS}"),
    }
    stop.cancel();
    plugins.await?;
    beside.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// What launchers share of the node. KVM is offered where a guest has run with it: a device that opens proves nothing.
fn devices(facts: &NodeFacts) -> Vec<Device> {
    let kvm = (facts.accelerator == Accelerator::Kvm).then(|| Device::new("kvm", "/dev/kvm"));
    let others = [Device::new("tun", "/dev/net/tun"), Device::new("vhost-net", "/dev/vhost-net")];
    kvm.into_iter().chain(others).collect()
}

async fn listen(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, port)).await.with_context(|| format!("cannot listen at {address} port {port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_is_offered_only_where_it_runs() {
        let names = |accelerator| {
            let facts = NodeFacts { accelerator, ..NodeFacts::default() };
            devices(&facts).into_iter().map(|device| device.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Accelerator::Kvm), ["kvm", "tun", "vhost-net"]);
        assert_eq!(names(Accelerator::Tcg), ["tun", "vhost-net"]);
    }
}
