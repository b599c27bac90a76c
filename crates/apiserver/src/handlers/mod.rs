//! One set of handlers for every resource. Which verb runs is decided here; what it does to a kind is the kind's data.

pub mod create;
pub mod decode;
pub mod delete;
pub mod patch;
pub mod read;
pub mod scale;
pub mod special;
pub mod update;
pub mod watch;
pub mod write;

use std::sync::Arc;

use crate::http::body::RequestBody;
use crate::http::respond::{self, Answer};
use crate::registry::Resource;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};

/// Runs the handler for the verb and subresource of `call`.
pub async fn dispatch(
    server: &Arc<Server>,
    resource: Arc<Resource>,
    call: Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?;
    let warnings = deprecation(&resource);
    let sub = path.subresource.clone();
    let verb = call.info.verb.clone();
    if !sub.is_empty() {
        let Some(subresource) = resource.subresource(&sub).filter(|_| path.tail.is_empty() || sub == "proxy") else {
            return Err(match &resource.custom {
                Some(_) => ApiError::not_found(resource.subject(), &path.name),
                None => ApiError::no_such_resource(),
            });
        };
        if !subresource.verbs.contains(&verb.as_str()) {
            return Err(not_allowed(&resource, &verb));
        }
    } else if !resource.verbs.contains(&verb.as_str()) || misplaced(&resource, path, &verb) {
        return Err(not_allowed_here(&resource, path, &verb));
    }
    if resource.custom.is_none() {
        // Built-in kinds sit behind a router that looks at the media types before anything else.
        crate::http::negotiate::check_route(&call.headers)?;
    }
    let answer = match (sub.as_str(), verb.as_str()) {
        ("", "create") if resource.verbs.len() == 1 => special::create(server, &resource, &call, body).await?,
        ("", "create") => create::create(server, &resource, &call, body).await?,
        ("" | "status", "get") => read::get(server, &resource, &call).await?,
        ("", "list") => read::list(server, &resource, &call).await?,
        ("", "watch") => watch::watch(server, &resource, &call).await?,
        ("" | "status" | "finalize" | "approval" | "ephemeralcontainers" | "resize", "update") => {
            update::update(server, &resource, &call, body).await?
        }
        ("" | "status" | "approval" | "ephemeralcontainers" | "resize", "patch") => {
            patch::patch(server, &resource, &call, body).await?
        }
        ("ephemeralcontainers" | "resize" | "approval", "get") => read::get(server, &resource, &call).await?,
        ("", "delete") => delete::delete(server, &resource, &call, body).await?,
        ("", "deletecollection") => delete::delete_collection(server, &resource, &call, body).await?,
        ("scale", _) => scale::serve(server, &resource, &call, body).await?,
        _ => special::subresource(server, &resource, call, body).await?,
    };
    Ok(respond::with_warnings(answer, &warnings))
}

/// Verbs that need a name, without one, and the other way round.
fn misplaced(resource: &Resource, path: &crate::http::info::ResourcePath, verb: &str) -> bool {
    let named = !path.name.is_empty();
    match verb {
        "update" | "patch" => !named,
        "create" => (named && resource.custom.is_none()) || (resource.namespaced && path.namespace.is_empty()),
        "deletecollection" => resource.namespaced && path.namespace.is_empty(),
        _ => false,
    }
}

fn not_allowed_here(resource: &Resource, path: &crate::http::info::ResourcePath, verb: &str) -> ApiError {
    match (&resource.custom, verb) {
        (Some(_), "update" | "patch") if path.name.is_empty() => ApiError::bad_request("name must be provided"),
        (Some(_), "create" | "deletecollection") => ApiError::no_such_path(),
        _ => not_allowed(resource, verb),
    }
}

fn not_allowed(resource: &Resource, verb: &str) -> ApiError {
    match &resource.custom {
        Some(_) => ApiError::verb_not_supported(resource.subject(), verb),
        None => ApiError::method_not_allowed(),
    }
}

fn deprecation(resource: &Resource) -> Vec<String> {
    match &resource.custom {
        Some(custom) => custom.deprecation.clone().into_iter().collect(),
        None if &*resource.kind == "Endpoints" => {
            vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()]
        }
        None => Vec::new(),
    }
}
