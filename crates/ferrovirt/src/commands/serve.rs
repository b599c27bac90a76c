//! `ferrovirt serve`: the control plane in the foreground.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ferrovirt_apiserver::cluster::{self, Config};
use ferrovirt_apiserver::registry::Snapshot;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::control_plane;
use crate::local::{Home, Process};

/// Arguments of `serve`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    pub home: Home,
    /// Address to listen on.
    ///
    /// Only this machine can connect to a loopback address; anything else opens the cluster to the network. Without it
    /// the address of the last start is used, and 127.0.0.1 with a free port the first time.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// File with static bearer tokens, one `token,user,uid,"group1,group2"` per line.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// How many nodes this machine plays. Without any there is only the API: pods are not scheduled, guests do not start.
    #[arg(long, default_value = "0", value_parser = clap::value_parser!(u8).range(0..=16))]
    pub nodes: u8,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    log();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

/// Log lines go to standard error, which `up` sends to a file.
pub(crate) fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

async fn serve(args: &Args) -> anyhow::Result<()> {
    let directory = args.home.directory()?;
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let remembered = directory.join("listen");
    let listen = args.listen.or_else(|| std::fs::read_to_string(&remembered).ok()?.trim().parse().ok());
    let config = Config {
        directory: directory.clone(),
        listen: listen.unwrap_or_else(free_address),
        token_file: args.token_file.clone(),
    };
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cluster = cluster::start(&config).await?;
    // Kubeconfigs in use name the port, so the next start takes the same one.
    std::fs::write(&remembered, cluster.address.to_string())?;
    install_crds(&cluster.server).await?;
    let stop = CancellationToken::new();
    if args.nodes > 0 {
        control_plane::start(&cluster, &directory, args.nodes, &stop).await?;
    }
    Process::register(&directory, &cluster.address.to_string())?;
    tracing::info!(address = %cluster.address, "the API server is ready");
    let mut out = std::io::stdout();
    let _ = writeln!(out, "ready https://{}", cluster.address).and_then(|()| out.flush());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    stop.cancel();
    Process::unregister(&directory);
    cluster.stop().await;
    Ok(())
}

/// A free loopback port for a new cluster. Not one of those that the kernel hands to clients: such a client could have
/// taken it when the cluster starts again.
fn free_address() -> SocketAddr {
    let free = (17443..=17943).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut free = free.filter(|address| std::net::TcpListener::bind(address).is_ok());
    free.next().unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// How long the server may take until it serves kinds that it knows.
const PATIENCE: Duration = Duration::from_secs(30);

/// The cluster knows Ferrovirt's kinds from the start: on return all of them are served.
pub(crate) async fn install_crds(server: &Arc<ferrovirt_apiserver::server::Server>) -> anyhow::Result<()> {
    let crds = server.internal("apiextensions.k8s.io", "v1", "customresourcedefinitions", "ferrovirt")?;
    let mut names = Vec::new();
    for crd in ferrovirt_api::crds::crds() {
        names.extend(crd.metadata.name.clone());
        let wanted = serde_json::to_value(crd)?;
        let place =
            ferrovirt_apiserver::internal::Place::new("", wanted["metadata"]["name"].as_str().unwrap_or_default());
        if crds.get("", &place.name).is_none() {
            crds.create(wanted).await?;
        } else {
            crds.change(&place, "", |crd| crd["spec"] = wanted["spec"].clone()).await?;
        }
    }
    let all = server.registry.until(|served| names.iter().all(|name| is_served(name, served)));
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let served = server.registry.snapshot();
        let missing: Vec<_> = names.iter().filter(|name| !is_served(name, &served)).map(String::as_str).collect();
        anyhow::bail!("these kinds are not served after {} s: {}", PATIENCE.as_secs(), missing.join(", "));
    }
    Ok(())
}

/// The group that a CRD's name tells has its resource.
fn is_served(crd: &str, served: &Snapshot) -> bool {
    let (plural, group) = crd.split_once('.').unwrap_or((crd, ""));
    let mut versions = served.groups().get(group).into_iter().flatten();
    versions.any(|version| served.find(group, version, plural).is_some())
}
