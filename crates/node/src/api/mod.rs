//! The node's own API on a Unix socket: what `kubectl logs`, `exec`, `attach` and `port-forward` need from a node.
//!
//! | path | what |
//! |---|---|
//! | `/containerLogs/<namespace>/<pod>/<uid>/<container>` | output, with the options of `kubectl logs` ([`logs`]) |
//! | `/exec/<namespace>/<pod>/<uid>/<container>` | a program in the container, over a websocket ([`exec`]) |
//! | `/portForward/<namespace>/<pod>/<uid>` | TCP connections into the pod's network ([`port_forward`]) |
//!
//! Whoever can open the socket may do all of this: it belongs to root, and the API server asks only after it has checked who may.

mod exec;
pub mod log_lines;
mod logs;
mod port_forward;
pub mod spdy;
mod streams;
mod websocket;

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::context::Context;
use crate::files;
use crate::pod::record::ContainerRecord;

/// The body of an answer.
type Body = UnsyncBoxBody<Bytes, io::Error>;
type Answer = Response<Body>;

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Why a request is refused: a code and a sentence.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl Refusal {
    fn bad_request(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, message.into())
    }

    fn not_found(message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, message.into())
    }

    fn internal(error: impl std::fmt::Display) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }

    /// As the `Status` that clients of Kubernetes understand.
    fn answer(&self) -> Answer {
        let reason = match self.0 {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::NOT_FOUND => "NotFound",
            _ => "InternalError",
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.1, "reason": reason, "code": self.0.as_u16(),
        });
        let mut answer = Response::new(full(status.to_string()));
        *answer.status_mut() = self.0;
        answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        answer
    }
}

/// The pod, and perhaps the container, that a path names.
struct Place {
    pod: String,
    uid: String,
    container: String,
}

impl Place {
    /// `<namespace>/<pod>/<uid>[/<container>]`, plain names only.
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        if !(3..=4).contains(&parts.len()) || !parts.iter().all(|part| plain(part)) {
            return None;
        }
        let container = parts.get(3).copied().unwrap_or_default();
        Some(Self { pod: parts[1].to_owned(), uid: parts[2].to_owned(), container: container.to_owned() })
    }

    /// What is remembered about the container.
    fn record(&self, node: &Context) -> Result<ContainerRecord, Refusal> {
        let layout = node.layout.pod(&self.uid).container(&self.container);
        ContainerRecord::read(&layout).ok_or_else(|| {
            let message = format!("container {:?} in pod {:?} is waiting to start", self.container, self.pod);
            Refusal::bad_request(message)
        })
    }

    /// The runtime's name of the container, which must be running.
    fn running(&self, node: &Context) -> Result<String, Refusal> {
        let record = self.record(node)?;
        if record.is_running() {
            return Ok(record.id);
        }
        let message = format!("container {:?} in pod {:?} is not running", self.container, self.pod);
        Err(Refusal::bad_request(message))
    }
}

/// Query parameters in their order.
#[derive(Debug, Clone, Default)]
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn of(uri: &http::Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decode = |text: &str| percent_decode(&text.replace('+', " "));
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1" | ""))
    }
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%').then(|| std::str::from_utf8(after.get(..2)?).ok()).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Opens the socket, for root alone.
pub(crate) fn listen(node: &Context) -> io::Result<UnixListener> {
    let path = node.layout.socket();
    files::remove_file(&path)?;
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until `stop`.
pub(crate) async fn serve(node: Arc<Context>, listener: UnixListener, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (node, stop) = (node.clone(), stop.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = connection(node, stream) => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the node's socket could not take a connection");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn connection(node: Arc<Context>, stream: UnixStream) {
    let service = service_fn(move |request| {
        let node = node.clone();
        async move { Ok::<_, Infallible>(answer(node, request).await.unwrap_or_else(|refusal| refusal.answer())) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await {
        tracing::debug!(%error, "a connection to the node ended");
    }
}

async fn answer(node: Arc<Context>, request: Request<Incoming>) -> Result<Answer, Refusal> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let (action, rest) = path.split_once('/').unwrap_or((&path, ""));
    let place = || Place::parse(rest).ok_or_else(|| Refusal::not_found(format!("no such path: {path}")));
    match action {
        "containerLogs" => logs::answer(&node, &place()?, &Parameters::of(request.uri())),
        "exec" => exec::answer(&node, &place()?, request).await,
        "portForward" => port_forward::answer(&node, &place()?, request).await,
        "attach" => {
            Err(Refusal::bad_request("this node has no attach: use `kubectl logs -f`, or `kubectl exec` for a program"))
        }
        _ => Err(Refusal::not_found(format!("no such path: {path}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_hold_plain_names_only() {
        let place = Place::parse("default/web/8f3a-1/main").unwrap();
        assert_eq!((place.pod.as_str(), place.uid.as_str(), place.container.as_str()), ("web", "8f3a-1", "main"));
        for bad in ["a/b", "a/b/../c", "a/b/c/d/e", "a/b/c%2f/d", "a//c/d"] {
            assert!(Place::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn parameters_are_decoded_in_order() {
        let uri = "/x?command=sh&command=-c&command=echo+a%26b%3D%25&tty=true&stdin=false".parse().unwrap();
        let parameters = Parameters::of(&uri);
        assert_eq!(parameters.all("command"), ["sh", "-c", "echo a&b=%"]);
        assert!(parameters.is_set("tty"));
        assert!(!parameters.is_set("stdin"));
    }
}
