//! A user's websocket, joined to a stream of bytes.
//!
//! Every message carries bytes, as the sub-protocol `plain.kubevirt.io` has it; how they are cut into messages means nothing on a
//! byte stream. Each direction reads only when the other side has taken what was read before, so a slow reader slows the
//! writer down instead of filling memory. Silent clients are asked for a sign of life; those that give none are gone.

use std::time::Duration;

use ferrovirt_apiserver::http::respond::{self, Answer};
use ferrovirt_apiserver::server::Call;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// The sub-protocol: bytes in messages, nothing else.
pub(crate) const PLAIN: &str = "plain.kubevirt.io";
/// No client sends larger messages.
const LARGEST_MESSAGE: usize = 1 << 20;
/// What is read at once from the other side; holds the largest datagram.
const CHUNK: usize = 64 << 10;
/// How often a sign of life is asked for, and how long one may be missing. Shorter costs messages, longer keeps dead clients.
const PING: Duration = Duration::from_secs(30);
const SILENCE: Duration = Duration::from_secs(90);

type Socket<S> = WebSocketStream<S>;

/// What a client hears when the other side of its stream ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Farewell {
    code: CloseCode,
    reason: &'static str,
}

impl Farewell {
    /// That is how such a stream ends.
    pub(crate) const fn regular(reason: &'static str) -> Self {
        Self { code: CloseCode::Normal, reason }
    }

    /// The client was not done: its program ends with an error.
    pub(crate) const fn cut_off(reason: &'static str) -> Self {
        Self { code: CloseCode::Away, reason }
    }
}

/// A client that asked for a websocket.
pub(crate) struct Asked {
    upgrade: OnUpgrade,
    key: HeaderValue,
    plain: bool,
}

impl Asked {
    /// Reads the client's wish out of its request.
    pub(crate) fn parse(call: &mut Call) -> ApiResult<Self> {
        let why = "this is a stream: connect with a websocket";
        let key = call.headers.get(SEC_WEBSOCKET_KEY).cloned();
        let version = has_token(&call.headers, &SEC_WEBSOCKET_VERSION, "13");
        let asks = call.method == Method::GET
            && has_token(&call.headers, &CONNECTION, "upgrade")
            && has_token(&call.headers, &UPGRADE, "websocket");
        let (Some(key), true, true) = (key, version, asks) else { return Err(ApiError::bad_request(why)) };
        let upgrade = call.extensions.remove::<OnUpgrade>().ok_or_else(|| ApiError::bad_request(why))?;
        Ok(Self { upgrade, key, plain: has_token(&call.headers, &SEC_WEBSOCKET_PROTOCOL, PLAIN) })
    }

    /// Accepts the client and joins it to the stream for as long as both are there.
    pub(crate) fn join<S>(self, stream: S, ended: Farewell) -> ApiResult<Answer>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let accept = HeaderValue::from_str(&derive_accept_key(self.key.as_bytes())).map_err(ApiError::internal)?;
        let mut answer = Response::new(respond::full(Bytes::new()));
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        if self.plain {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PLAIN));
        }
        tokio::spawn(async move {
            match self.upgrade.await {
                Ok(client) => join(TokioIo::new(client), stream, ended).await,
                Err(error) => tracing::debug!(%error, "a client left before its websocket began"),
            }
        });
        Ok(answer)
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(wanted))
}

/// Copies both ways until one side ends. `ended` tells the client why, when it was the other side.
async fn join<C, S>(client: C, stream: S, ended: Farewell)
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let limits =
        WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE)).max_frame_size(Some(LARGEST_MESSAGE));
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(limits)).await;
    let (mut sink, mut source) = socket.split();
    let (reader, writer) = tokio::io::split(stream);
    let (heard, last_heard) = watch::channel(Instant::now());
    let close = tokio::select! {
        close = to_client(&mut sink, reader, last_heard, ended) => close,
        close = to_stream(&mut source, writer, &heard) => close,
    };
    let Some((code, reason)) = close else { return };
    // The client may be gone, and may take its time: neither matters any more.
    let frame = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let farewell = async {
        if sink.send(frame).await.is_ok() {
            while let Some(Ok(_)) = source.next().await {}
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), farewell).await;
}

type Close = Option<(CloseCode, &'static str)>;

/// Bytes of the stream become messages, until the stream ends.
async fn to_client<C, R>(
    sink: &mut SplitSink<Socket<C>, Message>,
    mut reader: R,
    last_heard: watch::Receiver<Instant>,
    ended: Farewell,
) -> Close
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let mut buffer = vec![0; CHUNK];
    let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
    loop {
        let message = tokio::select! {
            read = reader.read(&mut buffer) => match read {
                Ok(0) => return Some((ended.code, ended.reason)),
                Ok(length) => Message::Binary(Bytes::copy_from_slice(&buffer[..length])),
                Err(error) => {
                    tracing::debug!(%error, "a stream to a guest broke");
                    return Some((CloseCode::Error, "the connection to the guest broke"));
                }
            },
            _ = ping.tick() => {
                if last_heard.borrow().elapsed() > SILENCE {
                    return Some((CloseCode::Policy, "no sign of life from the client"));
                }
                Message::Ping(Bytes::new())
            }
        };
        if sink.send(message).await.is_err() {
            return None;
        }
    }
}

/// Messages become bytes of the stream, until the client ends.
async fn to_stream<C, W>(source: &mut SplitStream<Socket<C>>, mut writer: W, heard: &watch::Sender<Instant>) -> Close
where
    C: AsyncRead + AsyncWrite + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let message = match source.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                tracing::debug!(%error, "a client's websocket broke");
                return None;
            }
            None => return None,
        };
        heard.send_replace(Instant::now());
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => text.into(),
            // Pings are answered below, and a close is followed by the end.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => continue,
        };
        if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
            return Some((CloseCode::Error, "the connection to the guest broke"));
        }
    }
}
