//! `/scale`: the number of replicas of any kind that has one, as `autoscaling/v1` `Scale`.

use std::sync::Arc;

use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use ferrovirt_machinery::patch;
use http::StatusCode;
use serde_json::{Value, json};

use super::write::{Outcome, Shown, Writer};
use crate::http::body::{self, RequestBody};
use crate::http::negotiate::{Output, Shape};
use crate::http::options::WriteOptions;
use crate::http::respond::{self, Answer};
use crate::registry::Resource;
use crate::registry::custom::ScalePaths;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};

/// `get`, `update` and `patch` of a scale.
pub async fn serve(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: &Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let paths = paths(resource);
    let is_apply = body::content_type(&call.headers) == "application/apply-patch+yaml";
    let kind = if call.info.verb == "patch" { "PatchOptions" } else { "UpdateOptions" };
    let options = WriteOptions::parse(&call.query, kind, is_apply && kind == "PatchOptions")?;
    let writer = Writer {
        server,
        resource,
        user: &call.user,
        namespace: &path.namespace,
        subresource: "scale",
        dry_run: options.dry_run,
        manager: call.manager(options.field_manager.as_deref()),
        tracks: true,
    };
    if call.info.verb == "get" {
        let object = server.store.get(&resource.key(&path.namespace, &path.name));
        let object = object.ok_or_else(|| ApiError::not_found(resource.subject(), &path.name))?;
        let value = writer.value(&object);
        if resource.custom.is_some() && value.pointer(&paths.spec).is_none() {
            let path = paths.spec.replace('/', ".");
            return Err(ApiError::internal(format!("the spec replicas field \"{path}\" does not exist")));
        }
        let scale = scale_of(&value, &paths);
        return Ok(respond::object(StatusCode::OK, &output, &shaped(scale, &output, server.environment.now())));
    }
    let bytes = body::read(body).await?;
    let content_type = body::content_type(&call.headers).to_owned();
    let make = |old: Option<&Value>| {
        let old = old.cloned().unwrap_or_default();
        let scale = wanted(&call.info.verb, &content_type, call, &bytes, scale_of(&old, &paths))?;
        replace(old, &scale, &paths, &path.name, resource.custom.is_some())
    };
    let value = match writer.change(&path.name, false, &make).await? {
        Outcome::Created(shown) | Outcome::Updated(shown) => match shown {
            Shown::Stored(object) => writer.value(&object),
            Shown::Imagined(value) => value,
        },
        Outcome::Deleted(value) => value,
    };
    Ok(respond::object(StatusCode::OK, &output, &scale_of(&value, &paths)))
}

fn wanted(verb: &str, content_type: &str, call: &Call, bytes: &[u8], current: Value) -> ApiResult<Value> {
    if verb == "update" {
        return Ok(body::decode_object(&call.headers, bytes)?.value);
    }
    let parsed = body::decode_yaml(bytes)?.value;
    let patched = match content_type {
        "application/json-patch+json" => patch::json::apply(current, &parsed),
        "application/merge-patch+json" | "application/strategic-merge-patch+json" | "application/apply-patch+yaml" => {
            patch::merge::apply(current, parsed)
        }
        _ => return Err(ApiError::unsupported_media_type("application/json-patch+json, application/merge-patch+json")),
    };
    patched.map_err(|error| ApiError::bad_request(error.to_string()))
}

fn replace(mut object: Value, scale: &Value, paths: &ScalePaths, name: &str, custom: bool) -> ApiResult<Value> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 && !custom {
        let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
        let error = FieldError::new(FieldErrorKind::Invalid, "spec.replicas", message);
        return Err(ApiError::invalid("autoscaling", "Scale", name, &[error]));
    }
    set(&mut object, &paths.spec, replicas.into());
    if let Some(version) = scale["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty()) {
        object["metadata"]["resourceVersion"] = version.into();
    }
    if let Some(uid) = scale["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        object["metadata"]["uid"] = uid.into();
    }
    Ok(object)
}

/// A scale in the form that was asked for: as it is, or as a table of wanted and seen replicas.
fn shaped(scale: Value, output: &Output, now: jiff::Timestamp) -> Value {
    let Shape::Table { version } = output.shape else { return scale };
    let column = |name: &str, kind: &str, format: &str, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0});
    let age = ferrovirt_machinery::table::since(&scale["metadata"]["creationTimestamp"], now);
    let count = |value: &Value| value.as_i64().unwrap_or(0);
    let cells =
        json!([scale["metadata"]["name"], count(&scale["spec"]["replicas"]), count(&scale["status"]["replicas"]), age]);
    let meta = json!({"resourceVersion": scale["metadata"]["resourceVersion"]});
    let row = json!({"cells": cells, "object": crate::view::metadata_only(scale, version)});
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta, "rows": [row],
        "columnDefinitions": [
            column("Name", "string", "name", "Name of the scaled object."),
            column("Desired", "integer", "", "How many are wanted."),
            column("Available", "integer", "", "How many are there."),
            column("Age", "string", "", "Time since the object was made."),
        ],
    })
}

/// Replicas that cannot be read as a number would break every reader of the scale.
pub(super) fn accessor_error(object: &Value, pointer: &str) -> Option<FieldError> {
    let path = pointer.replace('/', ".");
    let mut place = object;
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    let complain = |value: &Value, expected: &str| {
        let (shown, kind) = go_value(value)?;
        let why =
            format!("Invalid value: 0: {path} accessor error: {shown} is of the type {kind}, expected {expected}");
        Some(FieldError::new(FieldErrorKind::Invalid, path.clone(), why))
    };
    for (index, part) in parts.iter().enumerate() {
        let Value::Object(map) = place else { return complain(place, "map[string]interface{}") };
        place = map.get(*part)?;
        if index + 1 == parts.len() && !place.is_i64() && !place.is_null() {
            return complain(place, "int64");
        }
        if place.as_i64().is_some_and(|replicas| replicas < 0) {
            let why = format!("Invalid value: {place}: should be a non-negative integer");
            return Some(FieldError::new(FieldErrorKind::Invalid, path.clone(), why));
        }
    }
    None
}

/// A value and its type as Go prints them.
fn go_value(value: &Value) -> Option<(String, &'static str)> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(list) => {
            let list: Vec<String> = list.iter().filter_map(|item| go_value(item).map(|(text, _)| text)).collect();
            (format!("[{}]", list.join(" ")), "[]interface {}")
        }
        Value::Object(_) => (ferrovirt_machinery::quote::go_map(value), "map[string]interface {}"),
    })
}

/// Sets a value at a JSON pointer, making the objects on the way.
pub(crate) fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for part in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part];
    }
    *place = value;
}

/// Where a kind has its replicas.
pub(crate) fn paths(resource: &Resource) -> ScalePaths {
    match resource.custom.as_ref().and_then(|custom| custom.scale.clone()) {
        Some(paths) => paths,
        None => ScalePaths { spec: "/spec/replicas".into(), status: "/status/replicas".into(), selector: None },
    }
}

/// The `Scale` of an object.
pub(crate) fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let at = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = serde_json::Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let mut spec = json!({});
    if at(&paths.spec) != 0 {
        spec["replicas"] = at(&paths.spec).into();
    }
    let mut status = json!({"replicas": at(&paths.status)});
    let selector = match &paths.selector {
        Some(pointer) => object.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
        None => selector_text(&object["spec"]["selector"]),
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A label selector object in query form.
fn selector_text(selector: &Value) -> Option<String> {
    let plain = selector.as_object()?;
    let labels = plain.get("matchLabels").and_then(Value::as_object);
    let labels = labels.or_else(|| (!plain.contains_key("matchExpressions")).then_some(plain));
    let mut parts: Vec<String> =
        labels.into_iter().flatten().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    for expression in plain.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<_> = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.sort();
    Some(parts.join(","))
}
