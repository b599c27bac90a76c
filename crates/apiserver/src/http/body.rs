//! Request bodies: read with a limit, decoded from JSON, YAML or protobuf into one form.

use bytes::{Bytes, BytesMut};
use ferrovirt_machinery::{json, protobuf};
use http::HeaderMap;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::status::{ApiError, ApiResult};

/// The largest request body that is read.
pub const LIMIT: usize = 3 * 1024 * 1024;

/// The body type of requests, whatever transport they came through.
pub type RequestBody = http_body_util::combinators::UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Media types of whole objects.
pub const OBJECT_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// A decoded object and what was odd about its text.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// `duplicate field "…"` for each field that was given twice.
    pub duplicates: Vec<String>,
}

/// Reads the whole body, or fails when it is larger than [`LIMIT`].
pub async fn read(body: RequestBody) -> ApiResult<Bytes> {
    let mut body = body;
    let mut out = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| ApiError::bad_request(format!("could not read the request body: {error}")))?;
        if let Some(data) = frame.data_ref() {
            if out.len() + data.len() > LIMIT {
                return Err(ApiError::too_large(format!("Request entity too large: limit is {LIMIT}")));
            }
            out.extend_from_slice(data);
        }
    }
    Ok(out.freeze())
}

/// The media type of the body, without parameters.
pub fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// Decodes a whole object.
pub fn decode_object(headers: &HeaderMap, bytes: &[u8]) -> ApiResult<Decoded> {
    match content_type(headers) {
        "" | "application/json" => decode_json(bytes),
        "application/yaml" => decode_yaml(bytes),
        protobuf::MEDIA_TYPE => {
            let body = protobuf::decode(bytes, None).map_err(|error| ApiError::bad_request(error.to_string()))?;
            Ok(Decoded { value: body.value, duplicates: Vec::new() })
        }
        _ => Err(ApiError::unsupported_media_type(OBJECT_TYPES)),
    }
}

/// Decodes JSON.
pub fn decode_json(bytes: &[u8]) -> ApiResult<Decoded> {
    let parsed = json::parse_strict(bytes)
        .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
    Ok(Decoded { value: parsed.value, duplicates: parsed.duplicates })
}

/// Decodes YAML, of which JSON is a part.
pub fn decode_yaml(bytes: &[u8]) -> ApiResult<Decoded> {
    let parsed = json::parse_yaml(bytes).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(Decoded { value: parsed.value, duplicates: parsed.duplicates })
}
