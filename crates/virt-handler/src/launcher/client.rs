//! The client of a real launcher: HTTP on the Unix socket in its pod's `sockets` volume.
//!
//! Everything below a pod's directory may be arranged by the pod: no link is followed on the way to a socket, the socket itself included,
//! and whoever listens has to be a process of the pod.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_launcher_rpc::messages::{DomainReport, Refusal, StartRequest};
use ferrovirt_launcher_rpc::migration::{
    CancelRequest, Channel, Connection, SourceRequest, TargetRequest, VerdictRequest,
};
use ferrovirt_launcher_rpc::paths;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::descriptor::{self, Handed};
use super::{Answer, Command, Holder, LONG, Launcher, LauncherError, Launchers, SHORT, Stream};
use crate::process::{PodProcess, look_at, path_of};

/// The largest answer that a launcher may give.
const LARGEST_ANSWER: usize = 16 << 20;
/// The longest line in its event stream.
const LONGEST_LINE: usize = 1 << 20;

/// Launchers in the pods of one node.
pub struct PodLaunchers {
    /// The directory with one directory per pod uid, laid out as a kubelet does.
    pods: PathBuf,
    seen: Seen,
}

/// Where containers see the volumes with sockets.
#[derive(Clone)]
struct Seen {
    sockets: String,
    holders: String,
}

impl PodLaunchers {
    /// Launchers below `pods`.
    pub fn new(pods: PathBuf) -> Self {
        Self::seeing(pods, paths::SOCKETS, paths::HOLDERS)
    }

    /// Launchers whose containers see their volumes at other places.
    pub(crate) fn seeing(pods: PathBuf, sockets: &str, holders: &str) -> Self {
        Self { pods, seen: Seen { sockets: sockets.to_owned(), holders: holders.to_owned() } }
    }

    /// The directory of the pod's emptyDirs, reached without crossing a symlink.
    fn volumes(&self, pod_uid: &str) -> std::io::Result<OwnedFd> {
        let root = rustix::fs::open(&self.pods, DIRECTORY, Mode::empty())?;
        beneath(&root, &format!("{pod_uid}/volumes/kubernetes.io~empty-dir"))
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

fn beneath(directory: &OwnedFd, path: &str) -> std::io::Result<OwnedFd> {
    Ok(openat2(directory, path, DIRECTORY, Mode::empty(), BENEATH)?)
}

impl Launchers for PodLaunchers {
    fn connect<'a>(&'a self, pod_uid: &'a str) -> Answer<'a, Arc<dyn Launcher>> {
        async move {
            let unreachable = |error: std::io::Error| LauncherError::Unreachable(error.to_string());
            let volumes = self.volumes(pod_uid).map_err(unreachable)?;
            let sockets = beneath(&volumes, paths::SOCKETS_VOLUME).map_err(unreachable)?;
            let probe = dial(&sockets, paths::LAUNCHER_SOCKET).await.map_err(unreachable)?;
            let (sockets, process) = listener(&probe, sockets, &self.seen.sockets, ()).await.map_err(unreachable)?;
            let seen = self.seen.clone();
            let looks = Arc::new(Semaphore::new(1));
            Ok(Arc::new(SocketLauncher { volumes, sockets, process, seen, looks }) as Arc<dyn Launcher>)
        }
        .boxed()
    }

    fn remains<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, std::io::Result<bool>> {
        let uid = pod_uid.to_owned();
        let looked = tokio::task::spawn_blocking(move || crate::traces::of_pod(&uid));
        async move { looked.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) }.boxed()
    }
}

/// Connects to a socket, and to nothing that somebody has put in its place: a link could lead to the launcher of somebody else.
async fn dial(directory: &OwnedFd, socket: &str) -> std::io::Result<UnixStream> {
    let (socket, kind) = look_at(directory, socket, BENEATH)?;
    if kind != FileType::Socket {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "there is something else than a socket"));
    }
    // A handle's path is short whatever the pod's is, and a socket's path may not be long.
    UnixStream::connect(path_of(&socket)).await
}

/// The process that listens, and the volume again that it has to see. A follower waits for its own pod only, so this may take as long as
/// the pod's files do; `turn` is held until they have answered, whether anybody still waits or not.
async fn listener(
    connection: &UnixStream,
    volume: OwnedFd,
    seen_at: &str,
    turn: impl Send + 'static,
) -> std::io::Result<(OwnedFd, Arc<PodProcess>)> {
    let pid = connection.peer_cred()?.pid().ok_or(std::io::ErrorKind::NotFound)?;
    let seen_at = seen_at.to_owned();
    let look = move || {
        let _turn = turn;
        PodProcess::seeing(&volume, &seen_at, pid).map(|process| (volume, Arc::new(process)))
    };
    tokio::task::spawn_blocking(look).await.map_err(std::io::Error::other)?
}

struct SocketLauncher {
    volumes: OwnedFd,
    sockets: OwnedFd,
    process: Arc<PodProcess>,
    seen: Seen,
    /// Whoever looks for a sidecar may have to wait for its files: a pod holds up one thread and no more.
    looks: Arc<Semaphore>,
}

impl SocketLauncher {
    /// One request on a connection of its own: calls are rare, and a stuck one holds nobody up.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, LauncherError> {
        let unreachable = |error: &dyn std::fmt::Display| LauncherError::Unreachable(error.to_string());
        let stream = dial(&self.sockets, paths::LAUNCHER_SOCKET).await.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        tokio::spawn(connection.with_upgrades());
        let answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        if answer.status().is_success() || answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer);
        }
        Err(refusal(answer).await)
    }

    /// Asks for a connection, which comes as a descriptor.
    async fn descriptor(&self, path: &str) -> Result<Handed, LauncherError> {
        let unreachable = |error: std::io::Error| LauncherError::Unreachable(error.to_string());
        let mut stream = dial(&self.sockets, paths::LAUNCHER_SOCKET).await.map_err(unreachable)?;
        stream.write_all(descriptor::request(path).as_bytes()).await.map_err(unreachable)?;
        descriptor::receive(&stream).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<(String, Bytes), LauncherError> {
        let request = request(method, path, body)?;
        let exchange = async {
            let answer = self.send(request).await?;
            let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let kind = kind.unwrap_or("application/octet-stream").to_owned();
            Ok((kind, read(answer).await?))
        };
        tokio::time::timeout(patience, exchange).await.map_err(|_| LauncherError::Timeout(patience))?
    }
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Result<Request<Full<Bytes>>, LauncherError> {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "launcher");
    request.body(Full::new(body.into())).map_err(|error| LauncherError::Protocol(error.to_string()))
}

async fn read(answer: Response<Incoming>) -> Result<Bytes, LauncherError> {
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
    Ok(body.map_err(|error| LauncherError::Protocol(error.to_string()))?.to_bytes())
}

/// 4xx: asking again is no use. 5xx: it may be.
async fn refusal(answer: Response<Incoming>) -> LauncherError {
    let code = answer.status();
    let body = read(answer).await.unwrap_or_default();
    let refusal = serde_json::from_slice(&body).unwrap_or_else(|_| Refusal {
        reason: code.canonical_reason().unwrap_or("Unknown").replace(' ', ""),
        message: format!("the launcher answered {code}"),
    });
    if code.is_client_error() { LauncherError::Refused(refusal) } else { LauncherError::Failed(refusal) }
}

fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, LauncherError> {
    serde_json::to_vec(value).map_err(|error| LauncherError::Protocol(error.to_string()))
}

impl Launcher for SocketLauncher {
    fn process(&self) -> Option<&Arc<PodProcess>> {
        Some(&self.process)
    }

    fn holder<'a>(&'a self, slot: &'a str) -> Answer<'a, Holder> {
        let exchange = async move {
            let holders = beneath(&self.volumes, paths::HOLDERS_VOLUME)?;
            let connection = dial(&holders, &paths::holder_socket(slot)).await?;
            let look = async {
                let turn = self.looks.clone().acquire_owned().await.map_err(std::io::Error::other)?;
                listener(&connection, holders, &self.seen.holders, turn).await
            };
            let (_, process) = tokio::time::timeout(SHORT, look).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
            Ok(Holder { connection, process })
        };
        exchange
            .map(|found: std::io::Result<_>| found.map_err(|error| LauncherError::Unreachable(error.to_string())))
            .boxed()
    }

    fn prepare(&self, cache: Vec<u8>) -> Answer<'_, ()> {
        async move { self.call(Method::PUT, "/v1/capabilities", cache, SHORT).await.map(drop) }.boxed()
    }

    fn capabilities(&self) -> Answer<'_, Vec<u8>> {
        async move { self.call(Method::GET, "/v1/capabilities", Vec::new(), LONG).await.map(|(_, body)| body.into()) }
            .boxed()
    }

    fn start(&self, wanted: StartRequest) -> Answer<'_, DomainReport> {
        async move {
            let (_, body) = self.call(Method::PUT, "/v1/domain", json(&wanted)?, LONG).await?;
            let report = serde_json::from_slice(&body).map_err(|error| LauncherError::Protocol(error.to_string()))?;
            Ok(DomainReport::within_bounds(report))
        }
        .boxed()
    }

    fn events(&self) -> Answer<'_, BoxStream<'static, DomainReport>> {
        async move {
            let answer = self.send(request(Method::GET, "/v1/events", Vec::new())?);
            let answer = tokio::time::timeout(SHORT, answer).await.map_err(|_| LauncherError::Timeout(SHORT))??;
            Ok(lines(answer.into_body()).boxed())
        }
        .boxed()
    }

    fn command(&self, command: Command) -> Answer<'_, ()> {
        async move {
            let body = match &command {
                Command::Shutdown { grace_seconds } => {
                    json(&ferrovirt_launcher_rpc::messages::ShutdownRequest { grace_seconds: *grace_seconds })?
                }
                Command::Freeze(wanted) => json(wanted)?,
                _ => Vec::new(),
            };
            let path = format!("/v1/{}", command.path());
            self.call(Method::POST, &path, body, 2 * SHORT).await.map(drop)
        }
        .boxed()
    }

    fn read(&self, path: &'static str) -> Answer<'_, (String, Vec<u8>)> {
        async move {
            let (kind, body) = self.call(Method::GET, &format!("/v1/{path}"), Vec::new(), 4 * SHORT).await?;
            Ok((kind, body.into()))
        }
        .boxed()
    }

    fn open(&self, path: &'static str) -> Answer<'_, Box<dyn Stream>> {
        async move {
            let mut wanted = request(Method::GET, &format!("/v1/{path}"), Vec::new())?;
            wanted.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
            wanted.headers_mut().insert(header::UPGRADE, http::HeaderValue::from_static("plain"));
            let answer = tokio::time::timeout(SHORT, self.send(wanted));
            let answer = answer.await.map_err(|_| LauncherError::Timeout(SHORT))??;
            let upgraded = hyper::upgrade::on(answer).await;
            let upgraded = upgraded.map_err(|error| LauncherError::Protocol(error.to_string()))?;
            Ok(Box::new(TokioIo::new(upgraded)) as Box<dyn Stream>)
        }
        .boxed()
    }

    fn prepare_target(&self, wanted: TargetRequest) -> Answer<'_, ()> {
        async move { self.call(Method::PUT, "/v1/migration/target", json(&wanted)?, LONG).await.map(drop) }.boxed()
    }

    fn begin_move(&self, wanted: SourceRequest) -> Answer<'_, ()> {
        async move { self.call(Method::PUT, "/v1/migration/source", json(&wanted)?, SHORT).await.map(drop) }.boxed()
    }

    fn cancel_move(&self, wanted: CancelRequest) -> Answer<'_, ()> {
        async move { self.call(Method::POST, "/v1/migration/cancel", json(&wanted)?, SHORT).await.map(drop) }.boxed()
    }

    fn tell_verdict(&self, wanted: VerdictRequest) -> Answer<'_, ()> {
        async move { self.call(Method::POST, "/v1/migration/verdict", json(&wanted)?, SHORT).await.map(drop) }.boxed()
    }

    fn outgoing<'a>(&'a self, id: &'a str) -> Answer<'a, (Channel, Box<dyn Stream>)> {
        async move {
            let handed = self.descriptor(&format!("/v1/migration/outgoing?id={}", word(id)?)).await?;
            let connection: Connection =
                serde_json::from_str(&handed.line).map_err(|error| LauncherError::Protocol(error.to_string()))?;
            Ok((connection.channel, Box::new(handed.socket) as Box<dyn Stream>))
        }
        .boxed()
    }

    fn incoming<'a>(&'a self, id: &'a str, channel: Channel) -> Answer<'a, Box<dyn Stream>> {
        async move {
            let path = format!("/v1/migration/incoming?id={}&channel={}", word(id)?, channel.name());
            // The launcher connects to something that is there, or refuses: unlike above there is nothing to wait for.
            let patience = 2 * SHORT;
            let handed = tokio::time::timeout(patience, self.descriptor(&path)).await;
            let handed = handed.map_err(|_| LauncherError::Timeout(patience))??;
            Ok(Box::new(handed.socket) as Box<dyn Stream>)
        }
        .boxed()
    }
}

/// The id of a move as part of a query: it is a UID, and nothing that could be more than one word.
fn word(id: &str) -> Result<&str, LauncherError> {
    let plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if plain { Ok(id) } else { Err(LauncherError::Protocol(format!("{id:?} cannot be the id of a move"))) }
}

/// Reports, one per line. A launcher that does not speak JSON, or never ends a line, ends the stream.
fn lines(body: Incoming) -> impl futures::Stream<Item = DomainReport> + Send {
    futures::stream::unfold((body, Vec::<u8>::new()), |(mut body, mut rest)| async move {
        // A line may come byte by byte: each is looked at once.
        let mut searched = 0;
        loop {
            if let Some(end) = rest[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=searched + end).collect();
                let report: DomainReport = serde_json::from_slice(&line).ok()?;
                return Some((report.within_bounds(), (body, rest)));
            }
            searched = rest.len();
            if searched > LONGEST_LINE {
                return None;
            }
            let frame = body.frame().await?.ok()?;
            rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    })
}
