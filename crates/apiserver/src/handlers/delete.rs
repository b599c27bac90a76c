//! DELETE of one object or a collection: preconditions, grace periods, finalizers and propagation.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::write::{CommitError, Shown, Writer, format_time};
use crate::admission::Operation;
use crate::http::body::{self, RequestBody};
use crate::http::negotiate::Output;
use crate::http::options::{DeleteOptions, ListOptions, Propagation};
use crate::http::respond::{self, Answer};
use crate::listing;
use crate::registry::Resource;
use crate::select::Selection;
use crate::server::{Call, Server};
use crate::status::{self, ApiError, ApiResult};
use crate::store::{Expect, Object};
use crate::view::View;

/// Finalizer that keeps an owner until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer that keeps an owner until its dependents have forgotten it.
pub const ORPHAN: &str = "orphan";

/// What a deletion did.
pub enum Deleted {
    /// The object is gone; its last state.
    Gone(Value),
    /// The object is marked and waits for finalizers or its grace period.
    Pending(Shown),
}

/// `delete`
pub async fn delete(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: &Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let options = delete_options(call, body).await?;
    let writer = writer(server, resource, call, &options)?;
    let view = View::new(resource, &output, &call.query, server.environment.now());
    Ok(match remove(&writer, &path.name, &options).await? {
        Deleted::Gone(value) if resource.rules.returns_deleted => view.one_value(StatusCode::OK, value),
        Deleted::Gone(value) => {
            let uid = value["metadata"]["uid"].as_str();
            respond::object(StatusCode::OK, &output, &status::success(resource.subject(), &path.name, uid))
        }
        Deleted::Pending(shown) => {
            let code = if options.explicit_cascade { StatusCode::ACCEPTED } else { StatusCode::OK };
            super::create::show(&view, code, shown)
        }
    })
}

/// `deletecollection`
pub async fn delete_collection(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: &Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?;
    let list_options = ListOptions::parse(&call.query, false)?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let options = delete_options(call, body).await?;
    let selection = Selection::new(resource, &list_options)?;
    let namespace = (!path.namespace.is_empty()).then_some(path.namespace.as_str());
    let page = server.store.list(&resource.storage, namespace, None, None, None).map_err(ApiError::internal)?;
    let objects: Vec<_> = page.objects.into_iter().filter(|object| selection.matches(object)).collect();
    for object in &objects {
        let mut writer = writer(server, resource, call, &options)?;
        writer.namespace = object.namespace();
        match remove(&writer, object.name(), &options).await {
            Ok(_) => {}
            // Gone meanwhile is what was asked for.
            Err(error) if error.code() == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if resource.custom.is_some() {
        meta["continue"] = "".into();
    }
    let now = server.environment.now();
    Ok(listing::answer(resource.clone(), output, call.query.clone(), now, objects, &meta))
}

async fn delete_options(call: &Call, body: RequestBody) -> ApiResult<DeleteOptions> {
    let bytes = body::read(body).await?;
    if bytes.is_empty() {
        return DeleteOptions::parse(None, &call.query);
    }
    let decoded = body::decode_object(&call.headers, &bytes)?;
    let kind = decoded.value["kind"].as_str().unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        let version = decoded.value["apiVersion"].as_str().unwrap_or_default();
        return Err(ApiError::bad_request(super::decode::not_registered(kind, version)));
    }
    DeleteOptions::parse(Some(&decoded.value), &call.query)
}

fn writer<'a>(
    server: &'a Arc<Server>,
    resource: &'a Arc<Resource>,
    call: &'a Call,
    options: &DeleteOptions,
) -> ApiResult<Writer<'a>> {
    Ok(Writer {
        server,
        resource,
        user: &call.user,
        namespace: &call.path()?.namespace,
        subresource: "",
        dry_run: options.dry_run,
        manager: call.manager(None),
        tracks: true,
    })
}

/// Deletes an object or begins its deletion.
pub async fn remove(writer: &Writer<'_>, name: &str, options: &DeleteOptions) -> ApiResult<Deleted> {
    let mut admitted = false;
    for _ in 0..16 {
        let key = writer.resource.key(writer.namespace, name);
        let current = writer.server.store.current(&key);
        let current = current.ok_or_else(|| ApiError::not_found(writer.resource.subject(), name))?;
        let old = writer.value(&current);
        check_preconditions(writer, name, &old, options)?;
        if let Some(why) = writer.resource.strategy.refuses_deletion(&old) {
            return Err(ApiError::forbidden(writer.resource.subject(), name, why));
        }
        if !admitted {
            writer.server.admission.validate(writer, Operation::Delete, &Value::Null, Some(&old)).await?;
            admitted = true;
        }
        match remove_once(writer, name, &current, old, options).await {
            Err(CommitError::Changed) => {}
            Err(error) => return Err(error.into_api(writer.resource.subject(), name)),
            Ok(deleted) => return Ok(deleted),
        }
    }
    Err(ApiError::modified(writer.resource.subject(), name))
}

fn check_preconditions(writer: &Writer<'_>, name: &str, old: &Value, options: &DeleteOptions) -> ApiResult<()> {
    let metadata = &old["metadata"];
    for (field, key, wanted, since) in [
        ("UID", "uid", &options.uid, "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", &options.resource_version, "modified"),
    ] {
        let have = metadata[key].as_str().unwrap_or_default();
        if let Some(wanted) = wanted
            && wanted != have
        {
            let why = format!(
                "the {field} in the precondition ({wanted}) does not match the {field} in record ({have}). The object might have been {since}"
            );
            let subject = status::Subject { group: &writer.resource.group, resource: &writer.resource.kind };
            return Err(ApiError::conflict(subject, name, &why));
        }
    }
    Ok(())
}

async fn remove_once(
    writer: &Writer<'_>,
    name: &str,
    current: &Arc<Object>,
    old: Value,
    options: &DeleteOptions,
) -> Result<Deleted, CommitError> {
    let mut new = old.clone();
    set_propagation(&mut new, options.propagation);
    mark(writer, &mut new, &old, options);
    writer.resource.strategy.mark_deleted(&mut new);
    if writer.is_gone(&new) {
        return vanish(writer, name, current, old, new).await;
    }
    if new == old {
        return Ok(Deleted::Pending(Shown::Stored(current.clone())));
    }
    writer.commit(name, Expect::Revision(current.revision), new).await.map(Deleted::Pending)
}

/// The object goes now. One of a kind that may take its time is first seen to have none left.
async fn vanish(
    writer: &Writer<'_>,
    name: &str,
    current: &Arc<Object>,
    old: Value,
    new: Value,
) -> Result<Deleted, CommitError> {
    let mut last = current.clone();
    if writer.resource.strategy.is_graceful() && !writer.dry_run && new != old {
        let Shown::Stored(marked) = writer.commit(name, Expect::Revision(current.revision), new).await? else {
            return Err(CommitError::Changed);
        };
        last = marked;
    }
    let revision = writer.remove(name, &last).await?;
    let mut shown = writer.value(&last);
    shown["metadata"]["resourceVersion"] = revision.to_string().into();
    Ok(Deleted::Gone(shown))
}

/// Foreground and orphan deletion are finalizers that the garbage collector takes off again.
fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let mut finalizers: Vec<Value> =
        finalizers.into_iter().filter(|name| name != FOREGROUND && name != ORPHAN).collect();
    match propagation {
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
        Propagation::Background => {}
    }
    if finalizers.is_empty() {
        if let Value::Object(metadata) = &mut object["metadata"] {
            metadata.remove("finalizers");
        }
    } else {
        object["metadata"]["finalizers"] = finalizers.into();
    }
}

/// Sets or shortens the time of death.
fn mark(writer: &Writer<'_>, new: &mut Value, old: &Value, options: &DeleteOptions) {
    let grace = writer.resource.strategy.grace_period(old, options.grace_period).max(0);
    let metadata = &mut new["metadata"];
    let now = writer.server.environment.now();
    let at = now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
    if metadata["deletionTimestamp"].is_string() {
        let left = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if options.grace_period.is_some() && grace < left {
            metadata["deletionGracePeriodSeconds"] = grace.into();
            metadata["deletionTimestamp"] = format_time(at).into();
        }
        return;
    }
    metadata["deletionTimestamp"] = format_time(at).into();
    metadata["deletionGracePeriodSeconds"] = grace.into();
    if let Some(generation) =
        metadata["generation"].as_i64().filter(|_| writer.resource.strategy.deletion_is_a_generation())
    {
        metadata["generation"] = (generation + 1).into();
    }
}
