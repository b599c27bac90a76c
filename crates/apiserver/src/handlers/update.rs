//! PUT of an object or of its status.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::create::{check_namespace, show};
use super::decode;
use super::write::{Outcome, Writer};
use crate::http::body::RequestBody;
use crate::http::negotiate::Output;
use crate::http::options::WriteOptions;
use crate::http::respond::{self, Answer};
use crate::registry::Resource;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};
use crate::view::View;

/// `update`
pub async fn update(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: &Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?;
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let incoming = decode::incoming(resource, call, body, options.field_validation).await?;
    let mut warnings = incoming.warnings;
    warnings.extend(resource.strategy.warnings(&incoming.value));
    let object = incoming.value;
    check_name(&object, &path.name)?;
    check_namespace(resource, &object, &path.namespace)?;
    let writer = Writer {
        server,
        resource,
        user: &call.user,
        namespace: &path.namespace,
        subresource: &path.subresource,
        dry_run: options.dry_run,
        manager: call.manager(options.field_manager.as_deref()),
        tracks: true,
    };
    let make = |old: Option<&Value>| {
        check_uid(resource, &object, old, &path.name)?;
        Ok(with_identity(object.clone(), old))
    };
    let outcome =
        writer.change(&path.name, resource.rules.create_on_update && path.subresource.is_empty(), &make).await?;
    let view = View::new(resource, &output, &call.query, server.environment.now());
    Ok(respond::with_warnings(answer(&view, outcome), &warnings))
}

/// An update need not repeat name and namespace.
fn with_identity(mut object: Value, old: Option<&Value>) -> Value {
    for field in ["name", "namespace"] {
        if let Some(value) = old.and_then(|old| old["metadata"].get(field))
            && object["metadata"].get(field).is_none()
        {
            object["metadata"][field] = value.clone();
        }
    }
    object
}

fn check_name(object: &Value, name: &str) -> ApiResult<()> {
    match object["metadata"]["name"].as_str() {
        Some(given) if given == name => Ok(()),
        None | Some("") => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        Some(given) => Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

/// The uid of a PUT is a precondition; the words are those of a store with keys in a registry.
fn check_uid(resource: &Resource, object: &Value, old: Option<&Value>, name: &str) -> ApiResult<()> {
    let Some(old) = old else { return Ok(()) };
    let (given, have) = (&object["metadata"]["uid"], &old["metadata"]["uid"]);
    if given.is_null() || given == have {
        return Ok(());
    }
    let namespace = old["metadata"]["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let group = if resource.custom.is_some() { format!("{}/", resource.group) } else { String::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{namespace}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {}, UID in object meta: {}",
        resource.plural,
        text(given),
        text(have),
    );
    Err(ApiError::conflict(resource.subject(), name, &why))
}

/// The answer to a change.
pub(super) fn answer(view: &View<'_>, outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Created(shown) => show(view, StatusCode::CREATED, shown),
        Outcome::Updated(shown) => show(view, StatusCode::OK, shown),
        Outcome::Deleted(value) => view.one_value(StatusCode::OK, value),
    }
}
