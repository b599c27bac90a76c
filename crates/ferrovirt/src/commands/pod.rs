//! What commands that run as pods of a Kubernetes cluster share: a client, a name in elections, signals, and a word about their health.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The longest silence of the API server: watches end after 290 s and are begun again.
const SILENCE: Duration = Duration::from_secs(300);

/// A client for the cluster of a kubeconfig, or for the one that this is a pod of.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::incluster()
            .context("this is no pod with a service account: name the cluster with --kubeconfig")?,
    };
    // A server that loses its power says nothing more, and whoever only reads would never learn of it.
    (config.read_timeout, config.reset_reader_on_write) = (Some(SILENCE), true);
    Ok(kube::Client::try_from(config)?)
}

/// A name for elections that no other process has, nor this one after a restart.
pub(crate) fn identity(name: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{name}_{}-{}", since.as_nanos(), std::process::id())
}

/// Runs something until it ends or a signal says so, and answers questions about its health meanwhile.
pub(crate) async fn until_stopped<W, E>(
    health: SocketAddr,
    work: impl FnOnce(CancellationToken) -> W,
) -> anyhow::Result<()>
where
    W: Future<Output = Result<(), E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(health).await.with_context(|| format!("cannot listen on {health}"))?;
    let stop = CancellationToken::new();
    let answering = tokio::spawn(stop.clone().run_until_cancelled_owned(answer(listener)));
    let told = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = work(stop.clone()) => ended,
        () = told => Ok(()),
    };
    stop.cancel();
    let _ = answering.await;
    Ok(ended?)
}

/// A process that answers is alive, and one without the lease is as ready as one with it.
async fn answer(listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others need a moment to end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async move {
                let known = ["/healthz", "/livez", "/readyz"].contains(&request.uri().path());
                let (code, text) = if known { (StatusCode::OK, "ok") } else { (StatusCode::NOT_FOUND, "not found") };
                let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
                *response.status_mut() = code;
                Ok::<_, Infallible>(response)
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
