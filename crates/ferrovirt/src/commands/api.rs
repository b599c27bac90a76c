//! `ferrovirt api`: virt-api for a Kubernetes cluster, in the foreground.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use ferrovirt_virt_api::server::{Certificate, Files, VirtApi};
use ferrovirt_virt_api::{Handlers, Kubernetes, LocalHandlers, NodeHandlers, Subresources};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::pod::client;

/// How long a pod that has to end goes on: until then the cluster may send it requests. A webhook that does not answer is an error to
/// whoever drains a node.
const LINGER: Duration = Duration::from_secs(10);

/// Arguments of `api`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Kubeconfig of the cluster. Default: the service account of the pod that this runs in.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace that Ferrovirt is installed in.
    #[arg(long, env = "POD_NAMESPACE", default_value = ferrovirt_install::names::NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// Address to listen on.
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The server's certificate, as PEM. It is read again when it changes.
    #[arg(long, default_value = "/etc/virt-api/certificates/tls.crt", value_name = "FILE")]
    tls_certificate: PathBuf,
    /// Its private key, as PEM.
    #[arg(long, default_value = "/etc/virt-api/certificates/tls.key", value_name = "FILE")]
    tls_key: PathBuf,
    /// Certificates of the authorities that nodes are known by, as PEM.
    #[arg(long, default_value = "/etc/kubevirt-ca/ca-bundle", value_name = "FILE")]
    ca_bundle: PathBuf,
    /// Directory in which each node has a directory with its virt-handler's socket, for nodes on this machine.
    #[arg(long, value_name = "DIRECTORY")]
    node_sockets: Option<PathBuf>,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    super::serve::log();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let files = Files { certificate: args.tls_certificate.clone(), key: args.tls_key.clone() };
    let certificate = Certificate::read(files)?;
    let tls = Arc::new(certificate.clone().server_config()?);
    let client = client(args.kubeconfig.as_deref()).await?;
    let handlers = handlers(args, client.clone(), certificate.clone());
    let (cluster, watching) = Kubernetes::watch(client, &args.namespace)?;
    let (cluster, stop) = (Arc::new(cluster), CancellationToken::new());
    let watching = tokio::spawn(stop.clone().run_until_cancelled_owned(watching));
    let following = tokio::spawn(stop.clone().run_until_cancelled_owned(async move { certificate.follow().await }));
    tokio::select! {
        () = cluster.synced() => {}
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    }
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    let server = Arc::new(VirtApi::new(cluster, Subresources::new(handlers)));
    let serving = tokio::spawn(server.serve(listener, tls, stop.clone()));
    tracing::info!(%address, "virt-api is ready");
    let mut out = io::stdout();
    let _ = writeln!(out, "ready https://{address}").and_then(|()| out.flush());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    if args.kubeconfig.is_none() {
        // Whoever is told to stop again stops at once.
        tokio::select! {
            () = tokio::time::sleep(LINGER) => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
    stop.cancel();
    let _ = tokio::join!(serving, watching, following);
    Ok(())
}

fn handlers(args: &Args, client: kube::Client, certificate: Arc<Certificate>) -> Arc<dyn Handlers> {
    match &args.node_sockets {
        Some(directory) => Arc::new(LocalHandlers::new(directory)),
        None => Arc::new(NodeHandlers::new(client, certificate, &args.ca_bundle)),
    }
}
