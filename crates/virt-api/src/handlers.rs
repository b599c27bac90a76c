//! Connections to virt-handler, and one request on each.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// How long a virt-handler may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer that is read; a screenshot of a large display fits.
const LARGEST_ANSWER: usize = 64 << 20;

/// A connection, whatever carries it.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// The way to the virt-handlers of a cluster.
pub trait Handlers: Send + Sync {
    /// Connects to the virt-handler of a node, which speaks HTTP/1.1 on the connection.
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;
}

/// The virt-handlers of this machine: each listens on a Unix socket in the directory of its node.
#[derive(Debug, Clone)]
pub struct LocalHandlers {
    /// Has one directory for each node.
    directory: PathBuf,
}

impl LocalHandlers {
    /// Those whose nodes have their directories in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }
}

impl Handlers for LocalHandlers {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            // A node's name becomes part of a path.
            if node.is_empty() || node.starts_with('.') || node.contains(['/', '\0']) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no name of a node"));
            }
            let socket = self.directory.join(node).join("virt-handler.sock");
            Ok(Box::new(UnixStream::connect(socket).await?) as Box<dyn Stream>)
        })
    }
}

/// Why a virt-handler did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandlerError {
    /// There is no connection.
    #[error("virt-handler of node {node} cannot be reached: {source}")]
    Unreachable {
        /// The node.
        node: String,
        /// Why.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error("virt-handler of node {node} did not answer within {} s", PATIENCE.as_secs())]
    Silent {
        /// The node.
        node: String,
    },
    /// The connection broke.
    #[error("the connection to virt-handler of node {node} broke: {source}")]
    Broken {
        /// The node.
        node: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It said no.
    #[error("{message}")]
    Refused {
        /// Its HTTP status.
        code: StatusCode,
        /// Its words.
        message: String,
    },
}

/// One guest as its virt-handler knows it.
pub(crate) struct Guest<'a> {
    pub(crate) handlers: &'a dyn Handlers,
    pub(crate) node: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// An answer that is no stream.
pub(crate) struct Told {
    pub(crate) content_type: Option<http::HeaderValue>,
    pub(crate) body: Bytes,
}

impl Guest<'_> {
    /// Asks, and waits for the whole answer.
    pub(crate) async fn ask(&self, method: Method, wanted: &str, body: Option<&Value>) -> Result<Told, HandlerError> {
        self.in_time(async {
            let body = body.map(ToString::to_string).unwrap_or_default();
            let request = self.request(method, wanted).header(CONTENT_TYPE, "application/json").body(Full::from(body));
            let answer = self.send(request.map_err(|error| self.broken(error))?).await?;
            let (code, kind) = (answer.status(), answer.headers().get(CONTENT_TYPE).cloned());
            let body = self.read(answer).await?;
            if code.is_success() { Ok(Told { content_type: kind, body }) } else { Err(refused(code, &body)) }
        })
        .await
    }

    /// Asks for a stream: raw bytes in both directions.
    pub(crate) async fn stream(&self, wanted: &str) -> Result<TokioIo<Upgraded>, HandlerError> {
        self.in_time(async {
            let request = self.request(Method::GET, wanted).header(CONNECTION, "Upgrade").header(UPGRADE, "plain");
            let request = request.body(Full::<Bytes>::default()).map_err(|error| self.broken(error))?;
            let mut answer = self.send(request).await?;
            let code = answer.status();
            if code != StatusCode::SWITCHING_PROTOCOLS {
                let body = self.read(answer).await?;
                return Err(refused(code, &body));
            }
            let upgraded = hyper::upgrade::on(&mut answer).await;
            Ok(TokioIo::new(upgraded.map_err(|error| self.broken(error))?))
        })
        .await
    }

    fn request(&self, method: Method, wanted: &str) -> http::request::Builder {
        let uri = format!("/v1/namespaces/{}/virtualmachineinstances/{}/{wanted}", self.namespace, self.name);
        Request::builder().method(method).uri(uri).header(HOST, "virt-handler")
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, HandlerError> {
        let stream = self.handlers.connect(self.node).await;
        let stream = stream.map_err(|source| HandlerError::Unreachable { node: self.node.to_owned(), source })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to virt-handler broke");
            }
        });
        sender.send_request(request).await.map_err(|error| self.broken(error))
    }

    async fn read(&self, answer: Response<Incoming>) -> Result<Bytes, HandlerError> {
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
        let node = || self.node.to_owned();
        Ok(body.map_err(|source| HandlerError::Broken { node: node(), source })?.to_bytes())
    }

    async fn in_time<T>(&self, asked: impl Future<Output = Result<T, HandlerError>>) -> Result<T, HandlerError> {
        let answered = tokio::time::timeout(PATIENCE, asked).await;
        answered.unwrap_or_else(|_| Err(HandlerError::Silent { node: self.node.to_owned() }))
    }

    fn broken(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> HandlerError {
        HandlerError::Broken { node: self.node.to_owned(), source: source.into() }
    }
}

fn refused(code: StatusCode, body: &[u8]) -> HandlerError {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = said["message"].as_str().map_or_else(|| format!("virt-handler answered {code}"), ToOwned::to_owned);
    HandlerError::Refused { code, message }
}
