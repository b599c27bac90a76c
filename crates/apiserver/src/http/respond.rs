//! Answers: bytes, objects, errors and streams as HTTP responses.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::negotiate::Output;
use crate::status::ApiError;

/// The body type of every answer.
pub type ResponseBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
/// An answer.
pub type Answer = Response<ResponseBody>;

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer of ready bytes.
pub fn bytes(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Plain text, as health checks answer.
pub fn text(code: StatusCode, text: impl Into<String>) -> Answer {
    let mut response = bytes(code, "text/plain; charset=utf-8", text.into());
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

/// One object in the negotiated encoding.
pub fn object(code: StatusCode, output: &Output, value: &Value) -> Answer {
    bytes(code, output.content_type(), encode(output, value))
}

/// Encodes a value; JSON ends with a newline as Go's encoder writes it.
pub fn encode(output: &Output, value: &Value) -> Bytes {
    if output.yaml {
        return serde_saphyr::to_string(value).map(Bytes::from).unwrap_or_default();
    }
    let mut out = BytesMut::with_capacity(512).writer();
    let written = if output.pretty {
        serde_json::to_writer_pretty(&mut out, value)
    } else {
        serde_json::to_writer(&mut out, value)
    };
    let mut out = out.into_inner();
    if written.is_ok() {
        out.put_u8(b'\n');
    }
    out.freeze()
}

/// An error as its `Status`.
pub fn error(error: &ApiError) -> Answer {
    if let Some(message) = error.plain_text() {
        return text(error.code(), message);
    }
    let mut response = object(error.code(), &Output::JSON, &error.to_status());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds one `Warning` header per text.
pub fn with_warnings(mut response: Answer, warnings: &[String]) -> Answer {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}
