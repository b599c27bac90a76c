//! PATCH in its four forms: JSON patch, merge patch, strategic merge patch and server-side apply.

use std::sync::Arc;

use ferrovirt_machinery::apply::{self, ApplyError, ApplyOptions, Conflict};
use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use ferrovirt_machinery::patch::{PatchError, json, merge, strategic};
use ferrovirt_machinery::quote::go_map;
use http::StatusCode;
use serde_json::{Value, json};

use super::decode;
use super::update::answer;
use super::write::Writer;
use crate::http::body::{self, Decoded, RequestBody};
use crate::http::negotiate::Output;
use crate::http::options::{FieldValidation, WriteOptions};
use crate::http::respond::{self, Answer};
use crate::registry::{Resource, split_api_version};
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};
use crate::view::View;

/// A parsed patch.
enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const CUSTOM_TYPES: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// `patch`
pub async fn patch(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: &Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?;
    let content_type = body::content_type(&call.headers).to_owned();
    check_content_type(resource, &content_type)?;
    let is_apply = content_type == "application/apply-patch+yaml";
    let options = WriteOptions::parse(&call.query, "PatchOptions", is_apply)?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let bytes = body::read(body).await?;
    let (patch, mut warnings) = parse(&content_type, &bytes, options.field_validation)?;
    let writer = Writer {
        server,
        resource,
        user: &call.user,
        namespace: &path.namespace,
        subresource: &path.subresource,
        dry_run: options.dry_run,
        manager: call.manager(options.field_manager.as_deref()),
        tracks: !is_apply,
    };
    if let Patch::Apply(applied) = &patch {
        check_applied(resource, applied, &path.name, &path.namespace)?;
    }
    let noticed = parking_lot::Mutex::new(Vec::new());
    let make = |old: Option<&Value>| {
        let patched = match &patch {
            Patch::Apply(applied) => return apply_patch(&writer, old, applied, &options),
            other => patched(resource, old.cloned().unwrap_or_default(), other)?,
        };
        let incoming =
            decode::clean(resource, Decoded { value: patched, duplicates: Vec::new() }, options.field_validation)
                .map_err(|error| undecodable(resource, &patch, error))?;
        *noticed.lock() = incoming.warnings;
        check_identity(resource, &incoming.value, old)?;
        Ok(incoming.value)
    };
    let may_create = is_apply && path.subresource.is_empty();
    let outcome = writer.change(&path.name, may_create, &make).await?;
    warnings.append(&mut noticed.lock());
    let view = View::new(resource, &output, &call.query, server.environment.now());
    Ok(respond::with_warnings(answer(&view, outcome), &warnings))
}

fn check_content_type(resource: &Resource, content_type: &str) -> ApiResult<()> {
    let known = match content_type {
        "application/json-patch+json" | "application/merge-patch+json" | "application/apply-patch+yaml" => true,
        "application/strategic-merge-patch+json" => resource.custom.is_none(),
        _ => false,
    };
    match (known, &resource.custom) {
        (true, _) => Ok(()),
        (false, None) => Err(ApiError::unsupported_media_type_route()),
        (false, Some(_)) => Err(ApiError::unsupported_media_type(CUSTOM_TYPES)),
    }
}

fn parse(content_type: &str, bytes: &[u8], validation: FieldValidation) -> ApiResult<(Patch, Vec<String>)> {
    let decoded = if content_type == "application/apply-patch+yaml" {
        body::decode_yaml(bytes).map_err(|error| {
            ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {}", error.message()))
        })?
    } else {
        let parsed = ferrovirt_machinery::json::parse_strict(bytes).map_err(|error| match content_type {
            STRATEGIC => ApiError::bad_request(error.to_string()),
            _ => ApiError::bad_request(format!("error decoding patch: {error}")),
        })?;
        Decoded { value: parsed.value, duplicates: parsed.duplicates }
    };
    let mut problems = decoded.duplicates;
    if content_type == "application/json-patch+json" {
        problems.extend(json::unknown_fields(&decoded.value));
    }
    if validation == FieldValidation::Strict && !problems.is_empty() {
        return Err(bad_patch(&format!("strict decoding error: {}", problems.join(", "))));
    }
    let warnings = if validation == FieldValidation::Warn { problems } else { Vec::new() };
    let patch = match content_type {
        "application/json-patch+json" => Patch::Json(decoded.value),
        "application/merge-patch+json" => Patch::Merge(decoded.value),
        "application/strategic-merge-patch+json" => Patch::Strategic(decoded.value),
        _ => Patch::Apply(decoded.value),
    };
    Ok((patch, warnings))
}

fn patched(resource: &Resource, current: Value, patch: &Patch) -> ApiResult<Value> {
    let result = match patch {
        Patch::Json(patch) => json::apply(current, patch),
        Patch::Merge(patch) => merge::apply(current, patch.clone()),
        Patch::Strategic(patch) => {
            let schema = resource.schema().ok_or_else(|| ApiError::unsupported_media_type(CUSTOM_TYPES))?;
            strategic::apply(&schema, current, patch.clone())
        }
        Patch::Apply(_) => return Err(ApiError::internal("an apply is not a plain patch")),
    };
    result.map_err(|error| patch_error(&error))
}

fn patch_error(error: &PatchError) -> ApiError {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let answer = ApiError::new(code, error.reason(), error.to_string());
    if error.code() == 422 { answer.with_empty_details() } else { answer }
}

/// A patch whose result is not an object of the kind is the patch's fault.
fn undecodable(resource: &Resource, patch: &Patch, error: ApiError) -> ApiError {
    let prefix =
        format!("{} in version \"{}\" cannot be handled as a {}: ", resource.kind, resource.version, resource.kind);
    let Some(why) = error.message().strip_prefix(&prefix) else { return error };
    match patch {
        Patch::Strategic(patch) => {
            let why =
                if why.contains("cannot unmarshal string into") { "cannot restore struct from: string" } else { why };
            let why = format!("Invalid value: \"{}\": {why}", go_map(patch));
            ApiError::invalid("", "", "", &[FieldError::new(FieldErrorKind::Invalid, "patch", why)])
        }
        _ => bad_patch(why),
    }
}

/// 422 about the patch itself; kube-apiserver quotes the whole patch where we say what it is.
fn bad_patch(why: &str) -> ApiError {
    let why = format!("Invalid value: \"{{\\\"patch\\\"}}\": {why}");
    ApiError::invalid("", "", "", &[FieldError::new(FieldErrorKind::Invalid, "patch", why)])
}

/// A patch cannot rename or retype.
fn check_identity(resource: &Resource, new: &Value, old: Option<&Value>) -> ApiResult<()> {
    let Some(old) = old else { return Ok(()) };
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    let given = new["metadata"]["name"].as_str().unwrap_or_default();
    if given != name {
        let message = match given {
            "" => format!("the name of the object ({name} based on URL) was undeterminable: name must be provided"),
            given => format!("the name of the object ({given}) does not match the name on the URL ({name})"),
        };
        return Err(ApiError::bad_request(message));
    }
    let namespace = old["metadata"]["namespace"].as_str().unwrap_or_default();
    super::create::check_namespace(resource, new, namespace)?;
    let (given, expected) = (new["apiVersion"].as_str().unwrap_or_default(), resource.api_version());
    let kind = new["kind"].as_str().unwrap_or_default();
    if given == expected && kind == &*resource.kind {
        return Ok(());
    }
    if resource.custom.is_some() {
        let (field, value, wanted) =
            if given == expected { ("kind", kind, resource.kind.to_string()) } else { ("apiVersion", given, expected) };
        let why = format!("Invalid value: \"{value}\": must be {wanted}");
        let (group, _) = split_api_version(given);
        return Err(ApiError::invalid(group, kind, name, &[FieldError::new(FieldErrorKind::Invalid, field, why)]));
    }
    Err(bad_patch(&decode::wrong_kind(resource, given, kind)))
}

fn check_applied(resource: &Resource, applied: &Value, name: &str, namespace: &str) -> ApiResult<()> {
    if !applied.is_object() {
        return Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::go_type(applied)
        )));
    }
    let given = applied["metadata"]["name"].as_str().unwrap_or_default();
    if !given.is_empty() && given != name {
        let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
        return Err(ApiError::bad_request(message));
    }
    super::create::check_namespace(resource, applied, namespace)
}

fn apply_patch(writer: &Writer<'_>, old: Option<&Value>, applied: &Value, options: &WriteOptions) -> ApiResult<Value> {
    let resource = writer.resource;
    let schema = resource.typed_schema().ok_or_else(|| ApiError::internal("the kind has no schema"))?;
    let mut applied = applied.clone();
    // Metadata that is no object is refused by the apply itself.
    if applied["metadata"]["name"].is_null() && matches!(applied["metadata"], Value::Null | Value::Object(_)) {
        applied["metadata"]["name"] = old.map_or(Value::Null, |old| old["metadata"]["name"].clone());
    }
    let api_version = resource.api_version();
    let apply_options = ApplyOptions {
        writer: writer.apply_writer(&api_version),
        kind: &resource.kind,
        force: options.force == Some(true),
    };
    let version = applied["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let mut merged = apply::apply(&schema, old, &applied, &apply_options).map_err(|error| apply_error(&error))?;
    // An apply only checks the version when it names one, and there is none to check on creation.
    match (version, old) {
        (Some(version), Some(_)) => merged["metadata"]["resourceVersion"] = version.into(),
        (None, Some(old)) => merged["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone(),
        (_, None) => super::write::put_metadata(&mut merged, "resourceVersion", None),
    }
    Ok(merged)
}

fn apply_error(error: &ApplyError) -> ApiError {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let answer = ApiError::new(code, error.reason(), error.to_string());
    let ApplyError::Conflicts(conflicts) = error else { return answer };
    let cause = |conflict: &Conflict| json!({"reason": Conflict::REASON, "message": conflict.message(), "field": conflict.field});
    answer.with_causes(conflicts.iter().map(cause).collect())
}
