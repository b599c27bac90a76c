//! Requests to the API server, watches and streams, and what a refusal means to the user.

use std::time::Duration;

use anyhow::Context;
use futures::{AsyncBufReadExt, Stream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// The sub-protocol of consoles, displays and ports: messages are bytes.
const PROTOCOL: &str = "plain.kubevirt.io";
/// Where streams and commands of virtual machines are served.
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1";

/// A stream of a guest.
pub(crate) type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Why a request had no success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The server said no.
    #[error("{}", said(.0))]
    Status(Value),
    /// There is no connection.
    #[error("cannot reach the cluster at {url}: {cause}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// The innermost cause.
        cause: String,
    },
    /// The answer is no JSON.
    #[error("the cluster at {url} answered {code} with something unexpected: {body}")]
    Malformed {
        /// Who answered.
        url: String,
        /// HTTP code.
        code: StatusCode,
        /// The start of the answer.
        body: String,
    },
}

/// The message of a `Status`.
fn said(status: &Value) -> &str {
    status["message"].as_str().filter(|text| !text.is_empty()).unwrap_or("the server refused without a word")
}

impl Refused {
    /// The HTTP code, if the server answered.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => status["code"].as_u64().and_then(|code| u16::try_from(code).ok()),
            Self::Malformed { code, .. } => Some(code.as_u16()),
            Self::Unreachable { .. } => None,
        }
    }

    /// The object is not there.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// What the user can do about it.
    pub(crate) fn next_step(&self) -> Option<String> {
        let text = match self {
            Self::Unreachable { .. } => {
                "is the cluster up? \"ferrovirt up\" starts one on this machine; --kubeconfig and --context choose another"
            }
            Self::Malformed { .. } => {
                "is this the address of a Kubernetes API server? --server and --kubeconfig choose another"
            }
            Self::Status(status) => match (self.code(), status["reason"].as_str()) {
                (Some(401), _) => "the cluster does not know you: check the user of the kubeconfig, or give --token",
                (Some(403), _) => {
                    "ask an administrator for the right that is named above (roles kubevirt.io:admin, edit, view)"
                }
                (Some(404), _) if said(status).contains("could not find the requested resource") => {
                    "this cluster does not serve that: is Ferrovirt or KubeVirt installed in it?"
                }
                (Some(404), Some("NotFound")) => "\"virtctl get vm,vmi -A\" shows what there is",
                (Some(503), _) => "try again in a moment; if it stays, look at the component that is named above",
                _ => return None,
            },
        };
        Some(text.to_owned())
    }
}

/// A connection to a cluster.
#[derive(Clone)]
pub(crate) struct Session {
    client: Client,
    /// Where the server is, for messages.
    url: String,
    /// The namespace that is meant when none is named.
    pub(crate) namespace: String,
    patience: Option<Duration>,
    /// Requests are told from level 6 on, as kubectl does.
    verbosity: u8,
}

impl Session {
    /// A session; connecting happens at the first request.
    pub(crate) fn new(
        config: kube::Config,
        namespace: String,
        patience: Option<Duration>,
        verbosity: u8,
    ) -> anyhow::Result<Self> {
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).context("the kubeconfig's credentials cannot be used")?;
        Ok(Self { client, url, namespace, patience: patience.filter(|patience| !patience.is_zero()), verbosity })
    }

    /// The path of something that can be done to, or read from, a machine or guest.
    pub(crate) fn subresource(namespace: &str, resource: &str, name: &str, what: &str) -> String {
        format!("{SUBRESOURCES}/namespaces/{namespace}/{resource}/{name}/{what}")
    }

    /// The path of the machines (`virtualmachines`) or guests of a namespace.
    pub(crate) fn collection(namespace: &str, resource: &str) -> String {
        format!("/apis/kubevirt.io/v1/namespaces/{namespace}/{resource}")
    }

    /// Reads an object.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Refused> {
        self.ask(Method::GET, path, None, "application/json").await
    }

    /// Reads an object that may be missing.
    pub(crate) async fn find(&self, path: &str) -> Result<Option<Value>, Refused> {
        match self.get(path).await {
            Err(refused) if refused.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Sends a JSON body.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, Refused> {
        self.ask(method, path, Some(("application/json", body)), "application/json").await
    }

    /// Any request with a JSON answer; an empty answer is null.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
        accept: &'static str,
    ) -> Result<Value, Refused> {
        let (code, body) = self.raw(method, path, body, accept).await?;
        if body.trim_ascii().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|_| self.malformed(code, &body))
    }

    /// Any request; the bytes of its answer.
    pub(crate) async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, &Value)>,
        accept: &'static str,
    ) -> Result<(StatusCode, Vec<u8>), Refused> {
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        let mut bytes = Vec::new();
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind);
            bytes = body.to_string().into_bytes();
        }
        let request = request.body(Body::from(bytes)).map_err(|error| self.unreachable(&error))?;
        let exchange = async {
            let answer = self.deliver(request).await?;
            let code = answer.status();
            let body = answer.into_body().collect_bytes().await.map_err(|error| self.unreachable(&error))?;
            Ok((code, body.to_vec()))
        };
        match self.patience {
            Some(patience) => match tokio::time::timeout(patience, exchange).await {
                Ok(answered) => answered,
                Err(_) => Err(Refused::Unreachable {
                    url: self.url.clone(),
                    cause: format!("no answer within {} s", patience.as_secs()),
                }),
            },
            None => exchange.await,
        }
    }

    /// Sends a request; a refusal is an error.
    async fn deliver(&self, request: Request<Body>) -> Result<Response<Body>, Refused> {
        let told = (self.verbosity >= 6).then(|| format!("{} {}", request.method(), request.uri()));
        let answer = self.client.send(request).await.map_err(|error| self.unreachable(&error))?;
        let code = answer.status();
        if let Some(request) = told {
            eprintln!("{request}: {code}");
        }
        if code.is_success() || code == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer);
        }
        let body = answer.into_body().collect_bytes().await.map_err(|error| self.unreachable(&error))?;
        match serde_json::from_slice::<Value>(&body) {
            Ok(mut status) if status["kind"] == "Status" => {
                status["code"] = json!(code.as_u16());
                Err(Refused::Status(status))
            }
            // Proxies and authentication layers answer in plain text.
            _ => Err(self.malformed(code, &body)),
        }
    }

    /// The events of a watch, until the server ends it.
    pub(crate) async fn watch(
        &self,
        path: &str,
        accept: &'static str,
    ) -> Result<impl Stream<Item = Result<Value, Refused>> + use<>, Refused> {
        let request = Request::builder().uri(path).header(ACCEPT, accept).body(Body::empty());
        let answer = self.deliver(request.map_err(|error| self.unreachable(&error))?).await?;
        let body = http_body_util::BodyExt::into_data_stream(answer.into_body());
        let lines =
            futures::TryStreamExt::into_async_read(body.map(|part| part.map_err(std::io::Error::other))).lines();
        let session = self.clone();
        Ok(lines.map(move |line| {
            let line = line.map_err(|error| session.unreachable(&error))?;
            let event: Value =
                serde_json::from_str(&line).map_err(|_| session.malformed(StatusCode::OK, line.as_bytes()))?;
            if event["type"] == "ERROR" { Err(Refused::Status(event["object"].clone())) } else { Ok(event) }
        }))
    }

    /// Opens a stream of a guest.
    pub(crate) async fn stream(&self, path: &str) -> Result<Socket, Refused> {
        let key = generate_key();
        let request = Request::builder()
            .uri(path)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL))
            .body(Body::empty());
        let answer = self.deliver(request.map_err(|error| self.unreachable(&error))?).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(
                self.malformed(answer.status(), b"no stream: is there a proxy that does not pass websockets on?")
            );
        }
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| self.unreachable(&error))?;
        Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> Refused {
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Refused::Unreachable { url: self.url.clone(), cause: cause.to_string() }
    }

    fn malformed(&self, code: StatusCode, body: &[u8]) -> Refused {
        let body = String::from_utf8_lossy(&body[..body.len().min(300)]).trim().to_owned();
        Refused::Malformed { url: self.url.clone(), code, body }
    }
}
