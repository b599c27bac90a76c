//! POST to a collection.

use std::sync::Arc;

use http::StatusCode;

use super::decode;
use super::write::{Shown, Writer};
use crate::http::body::RequestBody;
use crate::http::negotiate::Output;
use crate::http::options::WriteOptions;
use crate::http::respond::{self, Answer};
use crate::registry::Resource;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};
use crate::view::View;

/// `create`
pub async fn create(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: &Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?;
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let incoming = decode::incoming(resource, call, body, options.field_validation).await?;
    check_namespace(resource, &incoming.value, &path.namespace)?;
    if resource.custom.as_ref().is_some_and(|custom| custom.terminating) {
        let name = incoming.value["metadata"]["name"].as_str().unwrap_or_default();
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::forbidden(resource.subject(), name, why));
    }
    let mut warnings = incoming.warnings;
    warnings.extend(resource.strategy.warnings(&incoming.value));
    let writer = Writer {
        server,
        resource,
        user: &call.user,
        namespace: &path.namespace,
        subresource: "",
        dry_run: options.dry_run,
        manager: call.manager(options.field_manager.as_deref()),
        tracks: true,
    };
    let shown = writer.create(incoming.value).await?;
    let view = View::new(resource, &output, &call.query, server.environment.now());
    Ok(respond::with_warnings(show(&view, StatusCode::CREATED, shown), &warnings))
}

/// The namespace in the body, if any, is the one in the path.
pub(super) fn check_namespace(resource: &Resource, object: &serde_json::Value, namespace: &str) -> ApiResult<()> {
    let given = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if resource.namespaced && !given.is_empty() && given != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

/// The answer that shows a written object.
pub(super) fn show(view: &View<'_>, code: StatusCode, shown: Shown) -> Answer {
    match shown {
        Shown::Stored(object) => view.one(code, &object),
        Shown::Imagined(value) => view.one_value(code, value),
    }
}
