//! `ferrovirt node`: one node of the local cluster: the node runtime and virt-handler.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use ferrovirt_api::names::labels;
use ferrovirt_kubernetes::Node;
use ferrovirt_reconcile::Clock;
use ferrovirt_virt_handler::Door;
use ferrovirt_virt_handler::launcher::PodLaunchers;
use ferrovirt_virt_handler::peers::{Identity, TlsPeers, plain_sockets};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, ResourceExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::control_plane::{HANDLER_KUBECONFIG, MIGRATION_IDENTITY, NODE_KUBECONFIG, node_name};
use crate::local::{Home, Process};
use crate::wiring::NodeWiring;

/// How long the control plane may take to write the node's kubeconfigs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where nodes listen for guests that move; always the same, since objects name it over restarts.
const MIGRATION_PORT: u16 = 8189;

/// Arguments of `node`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    home: Home,
    /// Number of the node, from 1.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(1..=200))]
    index: u8,
}

/// Runs the node until SIGTERM or SIGINT. Guests go on without it.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::serve::log();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(node(args))
}

async fn node(args: &Args) -> anyhow::Result<()> {
    let state = args.home.directory()?;
    let name = node_name(args.index);
    let directory = state.join("nodes").join(&name);
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let runtime_client = client(&directory.join(NODE_KUBECONFIG)).await?;
    let handler_client = client(&directory.join(HANDLER_KUBECONFIG)).await?;
    let stop = CancellationToken::new();
    let found = ferrovirt_virt_handler::probe::facts().await;
    let facts = found.facts.clone();
    let network = ferrovirt_cluster_network::Cluster::open(&state.join("network"), "ferrovirt").await?;
    let network = Arc::new(network.node(args.index, &name).await.context("cannot set up the node's network")?);
    let images = Arc::new(ferrovirt_images::Store::open(&state.join("images"))?);
    let mut config = ferrovirt_node::NodeConfig::new(name.clone(), directory.clone());
    config.shared_directory = state.join("shared");
    config.binaries = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    config.kvm = facts.accelerator == ferrovirt_domain::Accelerator::Kvm;
    config.addresses = network.addresses().to_vec();
    config.hosts = network.host_addresses().to_vec();
    config.pod_ranges = network.pod_ranges().iter().map(ToString::to_string).collect();
    let peers = Arc::new(peers(&network, &directory).await?);
    let nodes: Api<Node> = Api::all(runtime_client.clone());
    let runtime = tokio::spawn(ferrovirt_node::run(config, runtime_client, images, network.clone(), stop.clone()));
    let handler = ferrovirt_virt_handler::Config {
        node: name.clone(),
        directory: directory.join("virt-handler"),
        door: Door::Unix(directory.join("virt-handler.sock")),
        facts,
    };
    let launchers = Arc::new(PodLaunchers::new(directory.join("pods")));
    let wiring = Arc::new(NodeWiring::new(network));
    let handler =
        ferrovirt_virt_handler::run(handler_client, handler, launchers, wiring, peers, Clock::System, stop.clone());
    let handler = tokio::spawn(handler);
    let up = async {
        until_schedulable(&nodes, &name).await;
        tracing::info!("{name} is up");
        Process::register(&directory, &name)?;
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        failed = up => failed?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = runtime => ended?.context("the node runtime ended")?,
        ended = handler => ended?.context("virt-handler ended")?,
        () = found.until_kvm_runs() => anyhow::bail!("{}", super::handler::KVM_RUNS),
    }
    stop.cancel();
    Process::unregister(&directory);
    Ok(())
}

/// The way to the other nodes: sockets in the node's own network, so that what cuts nodes off from each other cuts guests on their way.
async fn peers(network: &ferrovirt_cluster_network::Node, directory: &Path) -> anyhow::Result<TlsPeers> {
    let path = directory.join(MIGRATION_IDENTITY);
    until_there(&path).await;
    let pem = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let identity = Identity::parse(&pem, &path.display().to_string())?;
    let (namespace, [address, _]) = (network.netns(), network.addresses());
    let sockets = Arc::new(move |to| ferrovirt_cluster_network::run_in(&namespace, move || plain_sockets(to)));
    let begin = Instant::now();
    loop {
        match TlsPeers::listen((address, MIGRATION_PORT).into(), identity.clone(), sockets.clone()) {
            // An earlier process of this node may be on its way out.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            listening => return listening.with_context(|| format!("cannot listen at {address}:{MIGRATION_PORT}")),
        }
    }
}

/// Waits until guests can be placed on the node. `up` waits for this, so that whoever creates one then is not told to be patient.
async fn until_schedulable(nodes: &Api<Node>, name: &str) {
    loop {
        let node = nodes.get_metadata(name).await;
        if node.is_ok_and(|node| node.labels().get(labels::NODE_SCHEDULABLE).is_some_and(|value| value == "true")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for a file that the control plane writes when it starts; both start at the same time.
async fn until_there(path: &Path) {
    let begin = Instant::now();
    while !path.exists() && begin.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client for a kubeconfig that the control plane writes when it starts.
async fn client(path: &Path) -> anyhow::Result<kube::Client> {
    until_there(path).await;
    let kubeconfig = Kubeconfig::read_from(path)
        .with_context(|| format!("cannot read {}: the control plane makes it when it starts", path.display()))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
