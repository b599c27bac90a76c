//! What virt-api asks of this node: consoles, displays and commands to guests.
//!
//! HTTP/1.1 on a socket that only virt-api can reach (locally a Unix socket with mode 0600). Who may do what was decided there.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ferrovirt_launcher_rpc::messages::FreezeRequest;
use ferrovirt_reconcile::ObjectKey;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::launcher::{Command, Launcher, LauncherError};
use crate::vmi::Guests;

/// No request has a larger body.
const LARGEST_BODY: usize = 64 << 10;

type Answer = Response<Full<Bytes>>;

/// Serves on a Unix socket until told to stop.
pub(crate) async fn serve(path: &Path, guests: Guests, stop: CancellationToken) -> io::Result<()> {
    // A file of an earlier process may be in the way; the new one takes its place at once, ready to be used.
    let unfinished = path.with_extension("new");
    let _ = std::fs::remove_file(&unfinished);
    let listener = UnixListener::bind(&unfinished)?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&unfinished, path)?;
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            () = stop.cancelled() => return Ok(()),
        };
        tokio::spawn(connection(stream, guests.clone()));
    }
}

async fn connection(stream: UnixStream, guests: Guests) {
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
