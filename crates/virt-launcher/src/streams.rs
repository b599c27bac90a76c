//! Console and display: an HTTP connection becomes a byte stream to one of QEMU's sockets.

use std::sync::Arc;

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::guest::Guest;
use crate::refusal::Refused;
use crate::serial_log::{View, Viewer};
use crate::server::{Answer, empty};

const PROTOCOL: &str = "plain";

/// Connects the caller with the socket at `path`. Whoever was connected to it before is cut off: QEMU's console has room for one.
pub async fn upgrade(guest: &Arc<Guest>, path: String, request: Request<Incoming>) -> Result<Answer, Refused> {
    check(guest, &request)?;
    guest.stop(&path);
    let socket = UnixStream::connect(&path).await.map_err(|source| Refused::Socket { path: path.clone(), source })?;
    guest.run(path, relay(hyper::upgrade::on(request), socket));
    Ok(switching())
}

/// Shows the caller what the guest wrote to its console; whoever types there goes on.
pub fn view(
    guest: &Arc<Guest>,
    view: View,
    seat: OwnedSemaphorePermit,
    request: Request<Incoming>,
) -> Result<Answer, Refused> {
    check(guest, &request)?;
    let viewer = Viewer::open(&guest.identity.uid, view).map_err(Refused::NoSerialLog)?;
    let (guest, upgraded) = (guest.clone(), hyper::upgrade::on(request));
    tokio::spawn(async move {
        if let Ok(client) = upgraded.await {
            // How it ends does not matter: a viewer that went away has seen enough.
            let _ = viewer.show(guest, TokioIo::new(client)).await;
        }
        drop(seat);
    });
    Ok(switching())
}

fn check(guest: &Guest, request: &Request<Incoming>) -> Result<(), Refused> {
    let wanted = request.headers().get(header::UPGRADE).is_some_and(|value| value.as_bytes() == PROTOCOL.as_bytes());
    if !wanted {
        return Err(Refused::NoUpgrade);
    }
    if guest.life().is_alive() { Ok(()) } else { Err(Refused::NotRunning) }
}

fn switching() -> Answer {
    let mut answer = Response::new(empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static(PROTOCOL));
    answer
}

async fn relay(upgraded: OnUpgrade, mut socket: UnixStream) {
    match upgraded.await {
        Ok(client) => {
            // How a stream ends does not matter: each side sees that it did.
            let _ = copy_bidirectional(&mut TokioIo::new(client), &mut socket).await;
        }
        Err(error) => tracing::debug!(%error, "a stream was not taken up"),
    }
}
