//! From a request body to an object of the resource: type checks, unknown fields, and the clean-up that Go's typed
//! decoding does on the way.

use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use serde_json::Value;

use crate::http::body::{self, Decoded, RequestBody};
use crate::http::options::FieldValidation;
use crate::registry::{Resource, split_api_version};
use crate::server::Call;
use crate::status::{ApiError, ApiResult};

/// An object from a client, and what to tell the client about it.
pub struct Incoming {
    /// The object, with `apiVersion` and `kind`.
    pub value: Value,
    /// `Warning` headers.
    pub warnings: Vec<String>,
}

/// Reads and decodes the body of a create or update.
pub async fn incoming(
    resource: &Resource,
    call: &Call,
    body: RequestBody,
    validation: FieldValidation,
) -> ApiResult<Incoming> {
    let bytes = body::read(body).await?;
    if resource.custom.is_some() && body::content_type(&call.headers) == ferrovirt_machinery::protobuf::MEDIA_TYPE {
        return Err(ApiError::unsupported_media_type(body::OBJECT_TYPES));
    }
    let decoded = body::decode_object(&call.headers, &bytes).map_err(|error| {
        let undecodable = error.code() == http::StatusCode::BAD_REQUEST;
        if undecodable { unrecognized(resource, error.message(), &bytes) } else { error }
    })?;
    let Decoded { mut value, duplicates } = decoded;
    check_type(resource, &mut value, &bytes)?;
    clean(resource, Decoded { value, duplicates }, validation)
}

/// Checks unknown and duplicate fields and wrong types, and drops what the schema does not know.
pub fn clean(resource: &Resource, decoded: Decoded, validation: FieldValidation) -> ApiResult<Incoming> {
    let Decoded { mut value, duplicates } = decoded;
    let Some(schema) = resource.schema() else { return Ok(Incoming { value, warnings: duplicates }) };
    if resource.custom.is_none()
        && let Some(error) = ferrovirt_machinery::builtin::builtin_type_errors(&schema, &value)
    {
        let message = format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            resource.kind, resource.version, resource.kind
        );
        return Err(ApiError::bad_request(message));
    }
    if resource.custom.is_some()
        && let Some(metadata) = value.get("metadata")
        && let Some(error) = ferrovirt_machinery::builtin::builtin_type_errors(
            ferrovirt_machinery::schema::meta::object_meta(),
            metadata,
        )
    {
        return Err(cannot_be_handled(resource, &resource.kind, &resource.version, &error));
    }
    let mut warnings = duplicates;
    if validation != FieldValidation::Ignore {
        warnings.extend(schema.unknown_fields(&value).into_iter().map(|path| format!("unknown field \"{path}\"")));
    }
    if validation == FieldValidation::Strict && !warnings.is_empty() {
        return Err(strict_error(resource, &warnings));
    }
    if validation == FieldValidation::Ignore {
        warnings.clear();
    }
    schema.prune(&mut value, true);
    if resource.custom.is_none() {
        drop_nulls(&mut value);
    }
    clean_metadata(&mut value);
    Ok(Incoming { value, warnings })
}

fn strict_error(resource: &Resource, problems: &[String]) -> ApiError {
    let why = format!("strict decoding error: {}", problems.join(", "));
    cannot_be_handled(resource, &resource.kind, &resource.version, &why)
}

/// The body's `apiVersion` and `kind` must be the resource's; built-in kinds may leave them out.
fn check_type(resource: &Resource, value: &mut Value, bytes: &[u8]) -> ApiResult<()> {
    let wanted = resource.api_version();
    if value.is_null() && resource.custom.is_none() {
        *value = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = value else {
        let missing = value.is_null().then(|| "Object 'Kind' is missing in 'null'".to_owned());
        return Err(unrecognized(resource, &missing.unwrap_or_else(|| not_an_object(value)), bytes));
    };
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let api_version = map.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    if resource.custom.is_some() && kind.is_empty() {
        let text = String::from_utf8_lossy(bytes);
        return Err(unrecognized(resource, &format!("Object 'Kind' is missing in '{text}'"), bytes));
    }
    let (group, version) = split_api_version(&api_version);
    if !api_version.is_empty() && api_version != wanted && (group != &*resource.group || resource.custom.is_some()) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
        )));
    }
    let other_kind = !kind.is_empty() && kind != *resource.kind;
    if other_kind && resource.custom.is_some() {
        let why = format!("Invalid value: \"{kind}\": must be {}", resource.kind);
        let error = FieldError::new(FieldErrorKind::Invalid, "kind", why);
        let name = map.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
        return Err(ApiError::invalid(&resource.group, &kind, name, &[error]));
    }
    if other_kind || (!api_version.is_empty() && api_version != wanted) {
        let shown = if kind.is_empty() { &*resource.kind } else { &kind };
        let why = wrong_kind(resource, &api_version, shown);
        return Err(cannot_be_handled(resource, shown, version, &why));
    }
    map.insert("apiVersion".into(), wanted.into());
    map.insert("kind".into(), resource.kind.to_string().into());
    Ok(())
}

/// What a decoder says of an object of another kind.
pub(super) fn wrong_kind(resource: &Resource, api_version: &str, kind: &str) -> String {
    let (group, version) = split_api_version(api_version);
    if ferrovirt_machinery::builtin::kind(group, version, kind).is_none() {
        return not_registered(kind, api_version);
    }
    let internal =
        if resource.group.is_empty() { "core" } else { resource.group.split('.').next().unwrap_or_default() };
    format!("converting ({version}.{kind}) to ({internal}.{}): unknown conversion", resource.kind)
}

/// What a decoder says of a kind that it does not know.
pub(super) fn not_registered(kind: &str, api_version: &str) -> String {
    format!("no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/runtime/scheme.go:111\"")
}

fn cannot_be_handled(resource: &Resource, kind: &str, version: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {}: {why}", resource.kind))
}

/// A body that is no object at all, with its beginning.
fn unrecognized(resource: &Resource, why: &str, bytes: &[u8]) -> ApiError {
    let start = &bytes[..bytes.len().min(30)];
    let more = if bytes.len() > 30 { " ..." } else { "" };
    let shown = match bytes.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => format!("{}{more}", crate::discovery::hex(start)),
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({shown})",
        resource.kind
    ))
}

fn not_an_object(value: &Value) -> String {
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        go_type(value)
    )
}

pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Typed decoding forgets `null`s; custom resources keep those that their schema allows.
pub fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Metadata is typed for every kind, so empty values vanish from it.
pub fn clean_metadata(value: &mut Value) {
    let Value::Object(map) = value else { return };
    if !map.get("metadata").is_some_and(Value::is_object) {
        map.insert("metadata".into(), Value::Object(serde_json::Map::new()));
    }
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        metadata.retain(|key, value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(map) => !map.is_empty(),
            // An empty list of managed fields is a request to forget them.
            Value::Array(list) => !list.is_empty() || key == "managedFields",
            _ => true,
        });
        metadata.remove("selfLink");
    }
}
