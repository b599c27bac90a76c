//! The websocket handshake, and a connection as Kubernetes' channels.

use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::{Answer, Refusal, full};

/// A websocket that hyper handed over.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Whether the client asks for a websocket.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Agrees on the first of the client's protocols that is known. The answer has to be sent before the connection can be opened.
pub(super) fn accept(
    request: &mut Request<Incoming>,
    known: &[&'static str],
) -> Result<(Answer, &'static str, OnUpgrade), Refusal> {
    let headers = request.headers();
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(Refusal::bad_request("this needs a websocket of version 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| Refusal::bad_request("the websocket has no key"))?;
    let protocol = choose(headers, known).ok_or_else(|| {
        Refusal::bad_request(format!("none of the offered protocols is known; this node speaks {}", known.join(", ")))
    })?;
    let accepted = derive_accept_key(key.as_bytes());
    let mut answer = Response::new(full(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&accepted).map_err(Refusal::internal)?);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    Ok((answer, protocol, hyper::upgrade::on(request)))
}

fn choose(headers: &HeaderMap, known: &[&'static str]) -> Option<&'static str> {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut offered = offered.flat_map(|value| value.split(',')).map(str::trim);
    offered.find_map(|offer| known.iter().find(|known| **known == offer).copied())
}

/// The connection behind an accepted handshake.
pub(super) async fn open(upgrade: OnUpgrade) -> hyper::Result<Socket> {
    let stream = TokioIo::new(upgrade.await?);
    Ok(WebSocketStream::from_raw_socket(stream, Role::Server, None).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_first_known_protocol_is_taken() {
        let mut headers = HeaderMap::new();
        headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("v9.channel.k8s.io, v5.channel.k8s.io"));
        headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("v4.channel.k8s.io"));
        assert_eq!(choose(&headers, &["v4.channel.k8s.io", "v5.channel.k8s.io"]), Some("v5.channel.k8s.io"));
        assert_eq!(choose(&headers, &["other"]), None);
    }
}
