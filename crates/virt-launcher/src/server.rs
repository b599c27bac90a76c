//! The contract of `ferrovirt_launcher_rpc`, served on a Unix socket.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_launcher_rpc::messages::{DomainReport, FreezeRequest, PROTOCOL, ShutdownRequest, StartRequest, Version};
use ferrovirt_launcher_rpc::migration::TargetRequest;
use ferrovirt_launcher_rpc::paths;
use futures::stream;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use crate::guest::Guest;
use crate::migration::Moves;
use crate::refusal::Refused;
use crate::serial_log::View;
use crate::start::Starter;
use crate::{archive, daemon, operations, streams};

/// A domain's XML and its cloud-init data.
const REQUEST_MAX: usize = 8 * 1024 * 1024;
/// A capability cache has a few hundred KiB.
const ARCHIVE_MAX: usize = 32 * 1024 * 1024;

/// How many may watch the console at a time.
const VIEWERS: usize = 16;

/// A body.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
/// An answer.
pub type Answer = Response<Body>;

/// What requests need.
#[derive(Debug)]
pub struct Server {
    guest: Arc<Guest>,
    starter: Arc<Starter>,
    moves: Arc<Moves>,
    /// Seats for those who watch the console.
    viewers: Arc<Semaphore>,
}

impl Server {
    /// Serves requests about `guest`.
    pub fn new(guest: Arc<Guest>, starter: Arc<Starter>, moves: Arc<Moves>) -> Arc<Self> {
        Arc::new(Self { guest, starter, moves, viewers: Arc::new(Semaphore::new(VIEWERS)) })
    }

    /// Makes the socket. One that is left from before is replaced.
    pub fn listen(path: &Path) -> std::io::Result<UnixListener> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixListener::bind(path)
    }

    /// Serves for ever.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => drop(tokio::spawn(self.clone().connection(socket))),
                Err(error) => {
                    tracing::error!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, socket: UnixStream) {
        let service = service_fn(|request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service).with_upgrades();
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let call = format!("{} {}", request.method(), request.uri().path());
        self.route(request).await.unwrap_or_else(|refused| {
            match &refused {
                // Handlers ask until a move begins, and hear so that it is over.
                Refused::NoMove(_) => tracing::debug!(call, reason = %refused, "refused"),
                _ => tracing::warn!(call, reason = %refused, "refused"),
            }
            let mut answer = json(&refused.body());
            *answer.status_mut() = refused.status();
            answer
        })
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        let guest = &self.guest;
        let path = request.uri().path().to_owned();
        let call = path.strip_prefix("/v1/").unwrap_or_default();
        match (request.method(), call) {
            (&Method::GET, "version") => Ok(json(&version())),
            (&Method::PUT, "capabilities") => self.capabilities(request).await,
            (&Method::GET, "capabilities") => self.probed_capabilities().await,
            (&Method::PUT, "domain") => self.start(request).await,
            (&Method::GET, "domain") => Ok(json(&guest.report())),
            (&Method::GET, "events") => Ok(events(guest.watch())),
            (&Method::GET, "guest/info") => Ok(json(&guest.report().agent)),
            (&Method::GET, "guest/users") => Ok(json(&guest.details().users)),
            (&Method::GET, "guest/filesystems") => Ok(json(&guest.details().filesystems)),
            (&Method::GET, "screenshot") => screenshot(guest).await,
            (&Method::GET, "console") => match View::parse(request.uri().query()) {
                Some(view) => {
                    let seat = self.viewers.clone().try_acquire_owned();
                    streams::view(guest, view, seat.map_err(|_| Refused::TooManyViewers(VIEWERS))?, request)
                }
                None => streams::upgrade(guest, paths::serial_socket(&guest.identity.uid), request).await,
            },
            (&Method::GET, "vnc") => streams::upgrade(guest, paths::vnc_socket(&guest.identity.uid), request).await,
            (&Method::PUT, "migration/target") => self.expect(request).await,
            (&Method::PUT, "migration/source") => {
                self.moves.begin(read_json(request).await?)?;
                Ok(no_content())
            }
            (&Method::GET, "migration/outgoing") => self.moves.outgoing(request).await,
            (&Method::GET, "migration/incoming") => self.moves.incoming(request).await,
            (&Method::POST, order) => {
                let order = order.to_owned();
                self.order(&order, request).await?;
                Ok(no_content())
            }
            (method, _) => Err(Refused::NoSuchCall(format!("{method} {path}"))),
        }
    }

    async fn order(&self, order: &str, request: Request<Incoming>) -> Result<(), Refused> {
        let guest = &self.guest;
        match order {
            "shutdown" => {
                let wish: ShutdownRequest = read_json(request).await?;
                guest.ask_to_end(Duration::from_secs(wish.grace_seconds));
                Ok(())
            }
            "kill" => {
                guest.ask_to_end(Duration::ZERO);
                Ok(())
            }
            "done" => {
                guest.done.notify_one();
                Ok(())
            }
            "migration/cancel" => {
                self.moves.cancel(read_json(request).await?);
                Ok(())
            }
            "migration/verdict" => {
                self.moves.judge(&read_json(request).await?);
                Ok(())
            }
            "pause" => operations::pause(guest).await,
            "unpause" => operations::unpause(guest).await,
            "reset" => operations::reset(guest).await,
            "softreboot" => operations::soft_reboot(guest).await,
            "freeze" => {
                let wish: FreezeRequest = read_json(request).await?;
                operations::freeze(guest, Duration::from_secs(wish.thaw_after_seconds)).await
            }
            "unfreeze" => operations::unfreeze(guest).await,
            other => Err(Refused::NoSuchCall(format!("POST /v1/{other}"))),
        }
    }

    /// Unpacks the cache and lets libvirt start; once it runs, nothing happens.
    async fn capabilities(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        let archive = read(request, ARCHIVE_MAX).await?;
        if self.guest.libvirt().is_err() {
            let directory = daemon::capability_directory();
            let path = directory.display().to_string();
            std::fs::create_dir_all(&directory).map_err(|source| Refused::Directory { path, source })?;
            let files = archive::unpack(&archive, &directory)?;
            tracing::info!(files, "the capability cache is there");
        }
        self.guest.libvirt_wanted.notify_one();
        Ok(no_content())
    }

    /// The cache for the node's next launchers, once libvirt has looked at QEMU.
    async fn probed_capabilities(&self) -> Result<Answer, Refused> {
        let libvirt = self.guest.wait_for_libvirt().await?;
        libvirt.capabilities().await?;
        let archive = archive::pack(&daemon::capability_directory())?;
        Ok(bytes("application/x-tar", archive))
    }

    /// In a task of its own: a handler that goes away does not stop it half way.
    async fn expect(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        let wish: TargetRequest = read_json(request).await?;
        let moves = self.moves.clone();
        let ready = tokio::spawn(async move { moves.expect(wish).await });
        ready.await.map_err(|error| Refused::DiskHelper(error.to_string()))??;
        Ok(no_content())
    }

    /// In a task of its own: a handler that goes away does not stop a start half way.
    async fn start(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        let wish: StartRequest = read_json(request).await?;
        let starter = self.starter.clone();
        let started = tokio::spawn(async move { starter.start(&wish).await });
        let report = started.await.map_err(|error| Refused::DiskHelper(error.to_string()))??;
        Ok(json(&report))
    }
}

fn version() -> Version {
    Version { launcher: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL }
}

async fn screenshot(guest: &Guest) -> Result<Answer, Refused> {
    let screenshot = operations::screenshot(guest).await?;
    Ok(bytes(&screenshot.mime, screenshot.bytes))
}

fn bytes(kind: &str, content: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(content)).boxed_unsync());
    if let Ok(kind) = header::HeaderValue::from_str(kind) {
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    answer
}

/// The present report, then one per change, one per line. It stays open after the last one: its end is the launcher's.
fn events(mut reports: watch::Receiver<DomainReport>) -> Answer {
    reports.mark_changed();
    let lines = stream::unfold(reports, |mut reports| async move {
        reports.changed().await.ok()?;
        let mut line = serde_json::to_vec(&*reports.borrow_and_update()).unwrap_or_default();
        line.push(b'\n');
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line))), reports))
    });
    Response::new(StreamBody::new(lines).boxed_unsync())
}

async fn read(request: Request<Incoming>, limit: usize) -> Result<Bytes, Refused> {
    let body = Limited::new(request.into_body(), limit).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            Refused::TooLarge(limit)
        } else {
            Refused::Malformed(error.to_string())
        }
    })
}

async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refused> {
    let body = read(request, REQUEST_MAX).await?;
    serde_json::from_slice(&body).map_err(|error| Refused::Malformed(error.to_string()))
}

fn json(value: &impl Serialize) -> Answer {
    // Our own types; there is nothing in them that JSON cannot say.
    bytes("application/json", serde_json::to_vec(value).unwrap_or_default())
}

fn no_content() -> Answer {
    let mut answer = Response::new(empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

/// A body without bytes.
pub fn empty() -> Body {
    Empty::new().boxed_unsync()
}
