//! Listening: TLS, HTTP/1.1 and HTTP/2, one task per connection, and an orderly end.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::{Peer, Server};
use crate::stalled::{Stalled, Upgraded};

/// How long open requests may take once the server ends; watches end at once.
const DRAIN: Duration = Duration::from_secs(2);
/// A client that connects and says nothing is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// So is one that has shaken hands and asks for nothing.
const FIRST_REQUEST: Duration = Duration::from_secs(30);
/// A connection may be idle for so long, and the head of a request may take so long.
const IDLE: Duration = Duration::from_secs(90);
/// What is made of an answer before its client takes it, for each request of HTTP/2. Less would make fast clients wait.
const UNSENT: usize = 128 << 10;

/// Serves TLS connections until `stop` is cancelled.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    stop: CancellationToken,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors, or a client that left: neither is a reason to end.
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true);
        let (server, acceptor, stop) = (server.clone(), acceptor.clone(), stop.clone());
        connections.spawn(async move {
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let peer = server.identity.peer(certificates);
            connection(server, stream, peer, stop).await;
        });
    }
    connections.close();
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
    Ok(())
}

/// Serves one connection, whatever carries it.
pub async fn connection<S>(server: Arc<Server>, stream: S, peer: Peer, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::new(peer);
    let first = FirstRequest::default();
    let asked = first.clone();
    let upgraded = Upgraded::default();
    let stream = Stalled::new(stream, upgraded.clone());
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        asked.came();
        let (server, peer, upgraded) = (server.clone(), peer.clone(), upgraded.clone());
        async move {
            let answer = server.handle(request.map(erase), &peer).await;
            upgraded.note(&answer);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(IDLE).max_send_buf_size(UNSENT);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = first.missed() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // Watches never end by themselves; closing the connection is how their clients learn to come back.
    let _ = tokio::time::timeout(DRAIN, connection).await;
}

/// Whether a connection is used at all. Before its first request nobody knows who is at its other end, and neither version of HTTP limits
/// how long they may take to say which one they speak.
#[derive(Clone, Default)]
pub struct FirstRequest(Arc<AtomicBool>);

impl FirstRequest {
    /// It is here.
    pub fn came(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns when the first request did not come in time; never, when it did.
    pub async fn missed(&self) {
        tokio::time::sleep(FIRST_REQUEST).await;
        if self.0.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

/// Forgets where a body comes from.
pub fn erase<B>(body: B) -> crate::http::body::RequestBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    body.map_err(|error| Box::new(error) as Box<dyn std::error::Error + Send + Sync>).boxed_unsync()
}
