//! What virt-api asks of this node: consoles, displays and commands to guests.
//!
//! HTTP/1.1 on a connection that only virt-api can make: locally a Unix socket with mode 0600, on Kubernetes TLS with a certificate that
//! names virt-api. Who may do what was decided there.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_launcher_rpc::messages::FreezeRequest;
use ferrovirt_reconcile::ObjectKey;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::handshakes::Handshakes;
use crate::launcher::{Command, Launcher, LauncherError};
use crate::peers::Identities;
use crate::peers::tls::has_name;
use crate::vmi::Guests;

/// No request has a larger body.
const LARGEST_BODY: usize = 64 << 10;

type Answer = Response<Full<Bytes>>;

/// Where virt-api comes in.
pub enum Door {
    /// A Unix socket: whoever can open it is virt-api.
    Unix(PathBuf),
    /// A TCP port with mutual TLS.
    Tls {
        /// Where it listens.
        listener: TcpListener,
        /// What this node shows.
        identities: Identities,
        /// The name that virt-api's certificate has.
        caller: String,
    },
}

/// Serves until told to stop.
pub(crate) async fn serve(door: Door, guests: Guests, stop: CancellationToken) -> io::Result<()> {
    let serving = async {
        match door {
            Door::Unix(path) => serve_unix(&path, guests).await,
            Door::Tls { listener, identities, caller } => {
                serve_tls(&listener, &identities, &caller.into(), guests).await
            }
        }
    };
    stop.run_until_cancelled(serving).await.unwrap_or(Ok(()))
}

async fn serve_unix(path: &Path, guests: Guests) -> io::Result<()> {
    // A file of an earlier process may be in the way; the new one takes its place at once, ready to be used.
    let unfinished = path.with_extension("new");
    let _ = std::fs::remove_file(&unfinished);
    let listener = UnixListener::bind(&unfinished)?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&unfinished, path)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(stream, guests.clone()));
    }
}

async fn serve_tls(
    listener: &TcpListener,
    identities: &Identities,
    caller: &Arc<str>,
    guests: Guests,
) -> io::Result<()> {
    let mut handshakes = Handshakes::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: others need a moment to end.
                tracing::warn!(%error, "cannot accept a connection of virt-api");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (identities, caller, guests) = (identities.clone(), caller.clone(), guests.clone());
        let welcome = async move { welcome(stream, &identities, &caller).await };
        handshakes.begin("virt-api", welcome, move |stream| connection(stream, guests));
    }
}

/// Shakes hands with virt-api, and with nobody else.
async fn welcome(stream: TcpStream, identities: &Identities, caller: &str) -> io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    let stream = TlsAcceptor::from(identities.get()?.server).accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    if shown.is_some_and(|certificate| has_name(certificate, caller)) {
        Ok(stream)
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("its certificate does not name {caller}")))
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, guests: Guests) {
    let service = service_fn(move |request| {
        let guests = guests.clone();
        async move { Ok::<_, Infallible>(answer(&guests, request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.with_upgrades().await {
        tracing::debug!(%error, "a connection of virt-api ended");
    }
}

/// A guest and what is wanted of it.
fn parse(path: &str) -> Option<(ObjectKey, &str)> {
    let rest = path.strip_prefix("/v1/namespaces/")?;
    let (namespace, rest) = rest.split_once('/')?;
    let (name, wanted) = rest.strip_prefix("virtualmachineinstances/")?.split_once('/')?;
    Some((ObjectKey::new(namespace, name), wanted))
}

async fn answer(guests: &Guests, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let Some((key, wanted)) = parse(&path) else {
        return error(StatusCode::NOT_FOUND, "there is no such path");
    };
    let Some(launcher) = launcher(guests, &key) else {
        return error(StatusCode::NOT_FOUND, &format!("{} does not run on this node", key.as_str()));
    };
    let answered = match (request.method(), wanted) {
        (&Method::GET, "console") => return stream(&*launcher, console(request.uri().query()), request).await,
        (&Method::GET, "vnc") => return stream(&*launcher, "vnc", request).await,
        (&Method::GET, "vnc/screenshot") => read(&*launcher, "screenshot").await,
        (&Method::GET, "guestosinfo") => read(&*launcher, "guest/info").await,
        (&Method::GET, "userlist") => read(&*launcher, "guest/users").await,
        (&Method::GET, "filesystemlist") => read(&*launcher, "guest/filesystems").await,
        (&Method::PUT, wanted) => match command(wanted, request).await {
            Ok(command) => launcher.command(command).await.map(|()| empty()),
            Err(refused) => return refused,
        },
        _ => return error(StatusCode::NOT_FOUND, "there is no such path"),
    };
    answered.unwrap_or_else(|failure| failed(&failure))
}

/// The launcher of a guest that this node owns.
fn launcher(guests: &Guests, key: &ObjectKey) -> Option<Arc<dyn Launcher>> {
    let vmi = guests.vmis.get_key(key)?;
    let pod = guests.pod_of(&vmi)?;
    guests.followers.get(pod.metadata.uid.as_deref()?).launcher
}

/// The console itself, or a look at what the guest wrote there: so far, from now on, or both.
fn console(query: Option<&str>) -> &'static str {
    let is_on = |option: &str| query.is_some_and(|query| query.split('&').any(|part| part == option));
    match (is_on("log=true"), is_on("watch=true")) {
        (false, false) => "console",
        (true, false) => "console?log=true",
        (false, true) => "console?watch=true",
        (true, true) => "console?log=true&watch=true",
    }
}

async fn command(wanted: &str, request: Request<Incoming>) -> Result<Command, Answer> {
    Ok(match wanted {
        "pause" => Command::Pause,
        "unpause" => Command::Unpause,
        "reset" => Command::Reset,
        "softreboot" => Command::SoftReboot,
        "unfreeze" => Command::Unfreeze,
        "freeze" => Command::Freeze(freeze(request).await?),
        _ => return Err(error(StatusCode::NOT_FOUND, "there is no such path")),
    })
}

/// `{"unfreezeTimeout": "5m"}` in virt-api's words is `{"unfreezeTimeoutSeconds": 300}` here.
async fn freeze(request: Request<Incoming>) -> Result<FreezeRequest, Answer> {
    let body = Limited::new(request.into_body(), LARGEST_BODY).collect().await;
    let body = body.map_err(|_| error(StatusCode::BAD_REQUEST, "the body cannot be read"))?.to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(FreezeRequest { thaw_after_seconds: value["unfreezeTimeoutSeconds"].as_u64().unwrap_or(300) })
}

async fn read(launcher: &dyn Launcher, path: &'static str) -> Result<Answer, LauncherError> {
    let (kind, body) = launcher.read(path).await?;
    let answer = Response::builder().header(header::CONTENT_TYPE, kind).body(Full::new(body.into()));
    answer.map_err(|error| LauncherError::Protocol(error.to_string()))
}

/// Connects the caller with the guest's console or display.
async fn stream(launcher: &dyn Launcher, path: &'static str, mut request: Request<Incoming>) -> Answer {
    if !request.headers().contains_key(header::UPGRADE) {
        return error(StatusCode::BAD_REQUEST, "this is a stream: ask for an upgrade to \"plain\"");
    }
    let mut guest = match launcher.open(path).await {
        Ok(guest) => guest,
        Err(failure) => return failed(&failure),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(caller) = upgrade.await {
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut guest).await;
        }
    });
    let mut answer = empty();
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
    answer.headers_mut().insert(header::UPGRADE, http::HeaderValue::from_static("plain"));
    answer
}

fn empty() -> Answer {
    Response::new(Full::default())
}

fn failed(failure: &LauncherError) -> Answer {
    let code = match failure {
        LauncherError::Refused(_) => StatusCode::CONFLICT,
        LauncherError::Unreachable(_) | LauncherError::Timeout(_) => StatusCode::SERVICE_UNAVAILABLE,
        LauncherError::Failed(_) | LauncherError::Protocol(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error(code, &failure.to_string())
}

fn error(code: StatusCode, message: &str) -> Answer {
    let mut answer = Response::new(Full::new(json!({"message": message}).to_string().into()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_is_taken_or_watched() {
        assert_eq!(console(None), "console");
        assert_eq!(console(Some("log=false")), "console");
        assert_eq!(console(Some("watch=true")), "console?watch=true");
        assert_eq!(console(Some("watch=true&log=true&x=1")), "console?log=true&watch=true");
    }

    #[test]
    fn paths_name_a_guest_and_a_wish() {
        let (key, wanted) = parse("/v1/namespaces/shop/virtualmachineinstances/db/vnc/screenshot").unwrap();
        assert_eq!((key.namespace(), key.name(), wanted), ("shop", "db", "vnc/screenshot"));
        for wrong in ["/v1/namespaces/shop", "/v1/namespaces/shop/pods/db/exec", "/"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
