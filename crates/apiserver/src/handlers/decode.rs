//! From a request body to an object of the resource: type checks, unknown fields, and the clean-up that Go's typed
//! decoding does on the way.

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
        return Err(ApiError::unsupported_media_type("application/json, application/yaml"));
    }
    let decoded = body::decode_object(&call.headers, &bytes)?;
    let mut value = decoded.value.clone();
    check_type(resource, &mut value, &bytes)?;
    clean(resource, Decoded { value, duplicates: decoded.duplicates }, validation)
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
    let problems = problems.join(", ");
    if resource.custom.is_some() {
        return ApiError::bad_request(format!("strict decoding error: {problems}"));
    }
    let kind = &resource.kind;
    ApiError::bad_request(format!(
        "{kind} in version \"{}\" cannot be handled as a {kind}: strict decoding error: {problems}",
        resource.version
    ))
}

/// The body's `apiVersion` and `kind` must be the resource's; built-in kinds may leave them out.
fn check_type(resource: &Resource, value: &mut Value, bytes: &[u8]) -> ApiResult<()> {
    let Value::Object(map) = value else {
        return Err(ApiError::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            go_type(value)
        )));
    };
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let api_version = map.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    if resource.custom.is_some() && kind.is_empty() {
        let text = String::from_utf8_lossy(bytes);
        return Err(ApiError::bad_request(format!("Object 'Kind' is missing in '{text}'")));
    }
    let expected = resource.api_version();
    if !kind.is_empty() && kind != *resource.kind {
        let (_, version) = split_api_version(&api_version);
        return Err(ApiError::bad_request(if resource.custom.is_some() {
            let (group, _) = split_api_version(&expected);
            format!("no kind \"{kind}\" is registered for version \"{api_version}\" in group \"{group}\"")
        } else {
            format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: converting ({kind}) to ({}): unknown conversion",
                resource.kind, resource.kind
            )
        }));
    }
    if !api_version.is_empty() && api_version != expected {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected})"
        )));
    }
    map.insert("apiVersion".into(), expected.into());
    map.insert("kind".into(), resource.kind.to_string().into());
    Ok(())
}

fn go_type(value: &Value) -> &'static str {
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
