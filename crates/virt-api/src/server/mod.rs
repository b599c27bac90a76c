//! virt-api as a server of its own, for a Kubernetes cluster: admission webhooks and the aggregated subresource API over HTTPS.
//!
//! ```text
//!                      ┌ POST /virtualmachines-validate, … ─► webhooks ──► admission, eviction   (the same pure judgement)
//!  API server ──TLS──► │ GET /apis, /healthz, /openapi, …   ─► documents                         (anybody)
//!                      └ /apis/subresources.kubevirt.io/…   ─► trust ──► SubjectAccessReview ──► subresources
//! ```
//!
//! Callers of subresources are who the aggregation layer says, and only its certificate makes that believable. Webhooks are called
//! by the API server without a certificate: what they say depends on nothing but the question, and the eviction's mark can be set
//! by whoever reaches the port, so only the API server should.

mod documents;
mod registration;
mod tls;
pub mod trust;
pub mod webhooks;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use ferrovirt_apiserver::http::body::RequestBody;
use ferrovirt_apiserver::http::info::{RequestInfo, query_pairs};
use ferrovirt_apiserver::http::negotiate::Output;
use ferrovirt_apiserver::http::options::Query;
use ferrovirt_apiserver::http::respond::{self, Answer};
use ferrovirt_apiserver::serve::{FirstRequest, erase};
use ferrovirt_apiserver::server::Call;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::registration::Service;
pub use self::tls::{Certificate, Files, TlsError};
use self::trust::Trust;
use crate::cluster::Kubernetes;
use crate::subresources::{self, Subresources};

/// The largest body: an `AdmissionReview` holds two objects, and the API server stores none above 3 MiB.
const LARGEST_BODY: usize = 7 << 20;
/// A client that connects and says nothing is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take to come, also of the next one on a connection that waits for more.
const HEAD: Duration = Duration::from_secs(60);
/// How long an answer may take. The API server waits ten seconds for a webhook; virt-handler may take ten for a command.
const REQUEST: Duration = Duration::from_secs(30);
/// The most connections at once. The API servers of a cluster need a few each, and every console one.
const CONNECTIONS: usize = 4096;
/// The most concurrent requests of one connection.
const STREAMS: u32 = 128;
/// The largest head of a request.
const LARGEST_HEAD: usize = 64 << 10;
/// How long open requests may take once the server ends.
const DRAIN: Duration = Duration::from_secs(2);

/// virt-api on one cluster.
pub struct VirtApi {
    cluster: Arc<Kubernetes>,
    subresources: Subresources,
}

/// The other end of a connection, and what is thought of it.
struct Peer {
    certificates: Vec<CertificateDer<'static>>,
    /// The last judgement, with the configuration that it came from.
    judged: Mutex<Option<(Arc<Trust>, bool)>>,
}

impl Peer {
    fn new(certificates: &[CertificateDer<'_>]) -> Self {
        let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self { certificates, judged: Mutex::new(None) }
    }

    /// Whether this is the aggregation layer, by what is known now: a connection that was trusted may have lost that.
    fn is_believed(&self, trust: &Arc<Trust>) -> bool {
        let mut judged = self.judged.lock();
        match &*judged {
            Some((by, believed)) if Arc::ptr_eq(by, trust) => *believed,
            _ => {
                let believed = trust.believes(&self.certificates, SystemTime::now());
                *judged = Some((trust.clone(), believed));
                believed
            }
        }
    }
}

impl VirtApi {
    /// For a cluster that is [synced](Kubernetes::synced), so that no call is judged by a configuration that is not the cluster's.
    #[must_use]
    pub fn new(cluster: Arc<Kubernetes>, subresources: Subresources) -> Self {
        Self { cluster, subresources }
    }

    /// Serves connections until `stop` is cancelled.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        stop: CancellationToken,
    ) {
        let acceptor = TlsAcceptor::from(tls);
        let (connections, places) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS)));
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
            let Ok(place) = places.clone().try_acquire_owned() else {
                tracing::warn!(CONNECTIONS, "too many connections: one was refused");
                continue;
            };
            let (server, acceptor, stop) = (self.clone(), acceptor.clone(), stop.clone());
            connections.spawn(async move {
                server.connection(acceptor, stream, stop).await;
                drop(place);
            });
        }
        connections.close();
        let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
    }

    async fn connection(self: Arc<Self>, acceptor: TlsAcceptor, stream: TcpStream, stop: CancellationToken) {
        let _ = stream.set_nodelay(true);
        let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
        let peer = Arc::new(Peer::new(stream.get_ref().1.peer_certificates().unwrap_or_default()));
        let first = FirstRequest::default();
        let asked = first.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            asked.came();
            let (server, peer) = (self.clone(), peer.clone());
            async move { Ok::<_, Infallible>(server.handle(request.map(erase), &peer).await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LARGEST_HEAD);
        let head = u32::try_from(LARGEST_HEAD).unwrap_or(u32::MAX);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD).max_concurrent_streams(STREAMS);
        builder.http2().max_header_list_size(head);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = first.missed() => return,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = tokio::time::timeout(DRAIN, connection).await;
    }

    async fn handle(&self, request: Request<RequestBody>, peer: &Peer) -> Answer {
        let asks_to_switch = request.headers().contains_key(UPGRADE);
        let answer = tokio::time::timeout(REQUEST, self.answer(request, peer)).await;
        let late = || {
            let why = format!("the request was not answered within {} s", REQUEST.as_secs());
            Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", why))
        };
        let mut answer = answer.unwrap_or_else(|_| late()).unwrap_or_else(|error| respond::error(&error));
        // kube-apiserver passes a refusal on and closes the client's connection without a word: who would use it again has to be told.
        if asks_to_switch && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    async fn answer(&self, request: Request<RequestBody>, peer: &Peer) -> ApiResult<Answer> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().trim_end_matches('/');
        if let Some(hook) = webhooks::at(path) {
            if parts.method != Method::POST {
                return Err(ApiError::method_not_allowed());
            }
            let said = webhooks::answer(&*self.cluster, hook, &read(body).await?).await?;
            return Ok(respond::object(StatusCode::OK, &Output::JSON, &said));
        }
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        if reads && let Some(answer) = Self::open(path) {
            return Ok(answer);
        }
        let query = query_pairs(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        if !subresources::is_ours(&info) {
            return Err(ApiError::no_such_path());
        }
        let trust = self.cluster.trust();
        let user = if peer.is_believed(&trust) { trust.user(&parts.headers) } else { None };
        let user = user.ok_or_else(ApiError::unauthorized)?;
        let (method, uri, headers, extensions) = (parts.method, parts.uri, parts.headers, parts.extensions);
        let call = Call { info, method, uri, headers, query: Query(query), user, extensions };
        self.subresources.answer(&*self.cluster, call, body).await
    }

    /// What needs no name: health, version and discovery.
    fn open(path: &str) -> Option<Answer> {
        let object = |value| respond::object(StatusCode::OK, &Output::JSON, &value);
        match path {
            "/livez" | "/readyz" => Some(respond::text(StatusCode::OK, "ok")),
            "/healthz" => Some(object(subresources::health())),
            _ => match subresources::open(path) {
                Some(answered) => Some(answered.unwrap_or_else(|error| respond::error(&error))),
                None => documents::at(path).map(object),
            },
        }
    }
}

/// Reads a whole body, if it is not too large.
async fn read(mut body: RequestBody) -> ApiResult<Bytes> {
    let mut out = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ApiError::bad_request(format!("could not read the request body: {error}")))?;
        let Some(data) = frame.data_ref() else { continue };
        if out.len() + data.len() > LARGEST_BODY {
            return Err(ApiError::too_large(format!("Request entity too large: limit is {LARGEST_BODY}")));
        }
        out.extend_from_slice(data);
    }
    Ok(out.freeze())
}
