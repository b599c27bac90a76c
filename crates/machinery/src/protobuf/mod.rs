//! Request bodies in `application/vnd.kubernetes.protobuf`, as kubectl sends them for built-in kinds.
//!
//! A body is the magic `k8s\0`, then a `runtime.Unknown` message with the type and the object's own message. Nothing is
//! generated: one decoder walks the wire format with a table of facts (`fields.txt`) and builds the JSON form of the
//! object, so that everything after it knows only JSON. Every length and depth is checked; foreign bytes cannot panic.

mod decode;
mod facts;
mod wire;

use serde_json::{Map, Value};

use crate::json::JsonError;
use wire::{Fields, Wire};

/// The first bytes of every body.
pub const MAGIC: &[u8] = b"k8s\0";

/// The media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// How deep messages may nest; JSON schemas in a CRD are the deepest.
const MAX_DEPTH: usize = 100;

/// Why a body could not be decoded. Where kube-apiserver has words for it, these are they.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// No bytes.
    #[error("empty data")]
    EmptyData,
    /// Bytes, but other ones.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// The magic and nothing else.
    #[error("empty body")]
    EmptyBody,
    /// The message ends inside a field.
    #[error("unexpected EOF")]
    UnexpectedEnd,
    /// A number with more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number or wire type that cannot be.
    #[error("proto: illegal tag {0}")]
    IllegalTag(u64),
    /// A field whose wire type is not that of its type. (Go names field and wire type here.)
    #[error("proto: wrong wireType for field")]
    WrongType,
    /// More messages in messages than any object has.
    #[error("proto: message is nested too deeply")]
    TooDeep,
    /// A time that no calendar reaches.
    #[error("proto: time is out of range")]
    TimeOutOfRange,
    /// The body does not say what it is, and the request does not, either.
    #[error("Object 'Kind' is missing in 'runtime.TypeMeta{{APIVersion:{api_version:?}, Kind:\"\"}}'")]
    MissingKind {
        /// What it does say.
        api_version: String,
    },
    /// A kind that is not built in, or not served.
    #[error("no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\"")]
    UnknownKind {
        /// The version that the body names.
        api_version: String,
        /// The kind that it names.
        kind: String,
    },
    /// JSON inside the message is broken.
    #[error(transparent)]
    Json(JsonError),
}

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// What the body says it is, or what the request said for it.
    pub api_version: String,
    /// The same for its kind.
    pub kind: String,
    /// The object in JSON form, with `apiVersion` and `kind`.
    pub value: Value,
}

/// Whether a protobuf body of this kind could be decoded.
pub fn supports(api_version: &str, kind: &str) -> bool {
    facts::FACTS.of_kind(api_version, kind).is_some()
}

/// Decodes a body. `default` (`apiVersion`, `kind`) is what the request's path says the object is, for bodies that do
/// not say it themselves.
pub fn decode(body: &[u8], default: Option<(&str, &str)>) -> Result<Body, ProtobufError> {
    decode_envelope(body, default, 0)
}

fn decode_envelope(body: &[u8], default: Option<(&str, &str)>, depth: usize) -> Result<Body, ProtobufError> {
    if body.is_empty() {
        return Err(ProtobufError::EmptyData);
    }
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
    if envelope.is_empty() {
        return Err(ProtobufError::EmptyBody);
    }
    let Envelope { mut api_version, mut kind, raw, content_type } = Envelope::read(envelope)?;
    if let Some((default_version, default_kind)) = default {
        if api_version.is_empty() {
            default_version.clone_into(&mut api_version);
        }
        if kind.is_empty() {
            default_kind.clone_into(&mut kind);
        }
    }
    if kind.is_empty() {
        return Err(ProtobufError::MissingKind { api_version });
    }
    let mut object = if content_type == "application/json" {
        match crate::json::parse_strict(raw).map_err(ProtobufError::Json)?.value {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    } else {
        let Some(message) = facts::FACTS.of_kind(&api_version, &kind) else {
            return Err(ProtobufError::UnknownKind { api_version, kind });
        };
        decode::message(message, raw, depth)?
    };
    object.insert("apiVersion".to_owned(), api_version.clone().into());
    object.insert("kind".to_owned(), kind.clone().into());
    Ok(Body { api_version, kind, value: Value::Object(object) })
}

/// `runtime.Unknown`.
#[derive(Default)]
struct Envelope<'b> {
    api_version: String,
    kind: String,
    raw: &'b [u8],
    content_type: String,
}

impl<'b> Envelope<'b> {
    fn read(message: &'b [u8]) -> Result<Self, ProtobufError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut envelope = Self::default();
        for field in Fields::of(message) {
            match field? {
                (1, Wire::Bytes(type_meta)) => {
                    for field in Fields::of(type_meta) {
                        match field? {
                            (1, Wire::Bytes(bytes)) => envelope.api_version = text(bytes),
                            (2, Wire::Bytes(bytes)) => envelope.kind = text(bytes),
                            (1 | 2, _) => return Err(ProtobufError::WrongType),
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(bytes)) => envelope.raw = bytes,
                (4, Wire::Bytes(bytes)) => envelope.content_type = text(bytes),
                (1 | 2 | 4, _) => return Err(ProtobufError::WrongType),
                _ => {}
            }
        }
        Ok(envelope)
    }
}

#[cfg(test)]
mod tests;
