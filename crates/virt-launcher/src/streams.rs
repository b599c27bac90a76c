//! Console and display: an HTTP connection becomes a byte stream to one of QEMU's sockets.

use std::sync::Arc;

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tokio::net::UnixStream;

use crate::guest::Guest;
use crate::refusal::Refused;
use crate::server::{Answer, empty};

const PROTOCOL: &str = "plain";

/// Connects the caller with the socket at `path`. Whoever was connected to it before is cut off: QEMU's console has room for one.
pub async fn upgrade(guest: &Arc<Guest>, path: String, request: Request<Incoming>) -> Result<Answer, Refused> {
    let wanted = request.headers().get(header::UPGRADE).is_some_and(|value| value.as_bytes() == PROTOCOL.as_bytes());
    if !wanted {
        return Err(Refused::NoUpgrade);
    }
    if !guest.life().is_alive() {
        return Err(Refused::NotRunning);
    }
    guest.stop(&path);
    let socket = UnixStream::connect(&path).await.map_err(|source| Refused::Socket { path: path.clone(), source })?;
    guest.run(path, relay(hyper::upgrade::on(request), socket));
    let mut answer = Response::new(empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static(PROTOCOL));
    Ok(answer)
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
