//! gRPC over HTTP/2, as far as device plugins need it: a message is a byte that says "not compressed", four bytes of length, and
//! the message; how a call ended is in the trailers.

use std::convert::Infallible;
use std::path::Path;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

/// No message that we read is larger.
const LARGEST: usize = 4 << 20;
/// The length of what is in front of a message.
const PREFIX: usize = 5;

/// gRPC's number for a call that went well.
const OK: u8 = 0;
/// ... for a request that makes no sense.
pub(crate) const INVALID_ARGUMENT: u8 = 3;
/// ... and for a method that is not there.
pub(crate) const UNIMPLEMENTED: u8 = 12;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("cannot connect")]
    Connect(#[source] std::io::Error),
    #[error("the connection broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the other end answered {0}")]
    Http(StatusCode),
    #[error("the other end refused, with status {status}: {message}")]
    Refused { status: String, message: String },
}

/// A message with what is in front of it.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

/// The first message of what has arrived, which is then taken out of it; none while there is only a part.
pub(crate) fn unframed(arrived: &mut BytesMut) -> Option<Bytes> {
    let length = arrived.get(1..PREFIX)?.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    if arrived.len() - PREFIX < length {
        return None;
    }
    arrived.advance(PREFIX);
    Some(arrived.split_to(length).freeze())
}

/// The one message of a request.
pub(crate) async fn request_message(request: Request<Incoming>) -> Option<Bytes> {
    let body = Limited::new(request.into_body(), LARGEST).collect().await.ok()?;
    unframed(&mut BytesMut::from(&body.to_bytes()[..]))
}

/// An answer with messages, which ends well when they do.
pub(crate) fn answer(messages: impl Stream<Item = Vec<u8>> + Send + 'static) -> Response<Body> {
    let data = messages.map(|message| Frame::data(framed(&message)));
    let end = stream::once(async { Frame::trailers(trailers(OK)) });
    let frames = data.chain(end).map(Ok::<_, Infallible>);
    with_type(StreamBody::new(frames).boxed_unsync())
}

/// A refusal: its status is in the head already.
pub(crate) fn refusal(status: u8) -> Response<Body> {
    let mut answer = with_type(Full::default().boxed_unsync());
    answer.headers_mut().extend(trailers(status));
    answer
}

fn trailers(status: u8) -> HeaderMap {
    HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), HeaderValue::from(u16::from(status)))])
}

fn with_type(body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    answer
}

/// Calls a method on a Unix socket, with one message; its answer is another. The connection ends with what is returned.
pub(crate) async fn call(socket: &Path, method: &str, message: &[u8]) -> Result<Incoming, CallError> {
    let broken = |error: hyper::Error| CallError::Broken(error.into());
    let stream = UnixStream::connect(socket).await.map_err(CallError::Connect)?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    tokio::spawn(connection);
    let request = Request::post(format!("http://localhost{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::new(framed(message)))
        .map_err(|error| CallError::Broken(error.into()))?;
    let answer = sender.send_request(request).await.map_err(broken)?;
    if answer.status() != StatusCode::OK {
        return Err(CallError::Http(answer.status()));
    }
    // An answer without a body has its end in the head.
    ended(answer.headers())?;
    Ok(answer.into_body())
}

/// A call whose answer says nothing but how it ended.
pub(crate) async fn tell(socket: &Path, method: &str, message: &[u8]) -> Result<(), CallError> {
    let body = call(socket, method, message).await?;
    let body = Limited::new(body, LARGEST).collect().await.map_err(CallError::Broken)?;
    body.trailers().map_or(Ok(()), ended)
}

fn ended(headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    match text("grpc-status") {
        status if status.is_empty() || status == "0" => Ok(()),
        status => Err(CallError::Refused { status, message: text("grpc-message") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_or_not_at_all() {
        let both = [framed(b"one"), framed(b"")].concat();
        for end in 0..both.len() {
            let mut part = BytesMut::from(&both[..end]);
            assert_eq!(unframed(&mut part).is_some(), end >= PREFIX + 3, "{end}");
        }
        let mut arrived = BytesMut::from(&both[..]);
        let found = std::iter::from_fn(|| unframed(&mut arrived)).collect::<Vec<_>>();
        assert_eq!(found, [&b"one"[..], b""]);
    }
}
