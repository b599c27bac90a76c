//! CRDs: names are accepted, the kind is served and followed, and on deletion its objects go first.
//!
//! ```text
//! created → NamesAccepted → served → Established        deleted → Terminating → objects deleted → finalizer off → gone
//! ```

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Housekeeper;
use crate::handlers::write::format_time;
use crate::http::options::DeleteOptions;
use crate::internal::{Internal, Place};
use crate::registry::{Snapshot, custom};
use crate::server::Server;
use crate::status::ApiResult;

/// Keeps a CRD until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How long to wait before a failed step is tried again.
const RETRY: Duration = Duration::from_millis(200);

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    loop {
        let name = keeper.crds.next().await;
        if let Err(error) = reconcile(&keeper, &name).await
            && error.code() != http::StatusCode::NOT_FOUND
        {
            tracing::debug!(crd = name, %error, "CRD not reconciled yet");
            let keeper = keeper.clone();
            tokio::spawn(async move {
                tokio::time::sleep(RETRY).await;
                keeper.crds.add(name);
            });
        }
    }
}

fn crds(server: &Arc<Server>) -> ApiResult<Internal<'_>> {
    server.internal("apiextensions.k8s.io", "v1", "customresourcedefinitions", "kube-apiserver")
}

/// Serves every established CRD of the store, before the first request.
pub(crate) fn load(server: &Arc<Server>) {
    let Ok(internal) = crds(server) else { return };
    for crd in internal.list(None) {
        if condition(&crd, "Established") == Some("True") {
            serve(server, &crd);
        }
    }
}

/// The status of one condition.
fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a str> {
    let mut conditions = crd["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)?["status"].as_str()
}

async fn reconcile(keeper: &Arc<Housekeeper>, name: &str) -> ApiResult<()> {
    let server = &keeper.server;
    let internal = crds(server)?;
    let Some(crd) = internal.get("", name) else {
        server.registry.remove_custom(name);
        keeper.follow_all();
        return Ok(());
    };
    let place = Place::new("", name);
    if crd["metadata"]["deletionTimestamp"].is_string() {
        serve(server, &crd);
        return delete_objects(keeper, &internal, &place, &crd).await;
    }
    let now = format_time(server.environment.now());
    let (names, accepted, established) = judge_names(&crd, &server.registry.snapshot());
    let mut wanted = crd["status"].clone();
    wanted["acceptedNames"] = names;
    set_condition(&mut wanted, accepted, &now);
    set_condition(&mut wanted, established, &now);
    if wanted != crd["status"] {
        internal.change(&place, "status", |crd| crd["status"] = wanted.clone()).await?;
        return Ok(());
    }
    if condition(&crd, "NamesAccepted") == Some("True") {
        serve(server, &crd);
        keeper.follow_all();
        if condition(&crd, "Established") != Some("True") {
            // Only now: whoever sees Established finds the kind served.
            let established = json!({
                "type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            });
            internal
                .change(&place, "status", |crd| set_condition(&mut crd["status"], established.clone(), &now))
                .await?;
        }
    }
    Ok(())
}

fn serve(server: &Arc<Server>, crd: &Value) {
    let name = crd["metadata"]["name"].as_str().unwrap_or_default();
    let snapshot = server.registry.snapshot();
    let generation = crd["metadata"]["generation"].as_i64().unwrap_or(0);
    let deleting = crd["metadata"]["deletionTimestamp"].is_string();
    if snapshot.custom_is_current(name, generation, deleting) {
        return;
    }
    match custom::resources(crd, server.store.revision()) {
        Ok(resources) => server.registry.set_custom(name, resources),
        Err(error) => tracing::warn!(%error, "a CRD cannot be served"),
    }
}

/// Which names the CRD gets, and its NamesAccepted and Established conditions.
fn judge_names(crd: &Value, snapshot: &Snapshot) -> (Value, Value, Value) {
    let requested = &crd["spec"]["names"];
    let mut names = crd["status"]["acceptedNames"].clone();
    if !names.is_object() {
        names = json!({"plural": "", "kind": ""});
    }
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    let own = crd["metadata"]["name"].as_str().unwrap_or_default();
    let (taken, kinds) = snapshot.taken_names(group, own);
    let mut conflict: Option<(&'static str, String)> = None;
    // Checked in this order, and the last conflict is the one that is told.
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        conflict = claim(requested, &mut names, field, reason, &taken).or(conflict);
    }
    let short: Vec<&str> = requested["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let clashes: Vec<String> = short
        .iter()
        .filter(|name| taken.contains(**name))
        .map(|name| format!("\"{name}\" is already in use"))
        .collect();
    if clashes.is_empty() {
        copy_list(requested, &mut names, "shortNames");
    } else {
        let message = if clashes.len() == 1 { clashes[0].clone() } else { format!("[{}]", clashes.join(", ")) };
        conflict = Some(("ShortNamesConflict", message));
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        conflict = claim(requested, &mut names, field, reason, &kinds).or(conflict);
    }
    copy_list(requested, &mut names, "categories");
    let (accepted, established) = name_conditions(crd, conflict.as_ref());
    (names, accepted, established)
}

/// Takes one name unless somebody else has it.
fn claim(
    requested: &Value,
    names: &mut Value,
    field: &str,
    reason: &'static str,
    taken: &HashSet<String>,
) -> Option<(&'static str, String)> {
    let wanted = requested[field].as_str().filter(|name| !name.is_empty())?;
    if names[field] != requested[field] && taken.contains(wanted) {
        return Some((reason, format!("\"{wanted}\" is already in use")));
    }
    names[field] = wanted.into();
    None
}

fn copy_list(from: &Value, to: &mut Value, field: &str) {
    match from.get(field).filter(|list| list.as_array().is_some_and(|list| !list.is_empty())) {
        Some(list) => to[field] = list.clone(),
        None => {
            if let Value::Object(map) = to {
                map.remove(field);
            }
        }
    }
}

fn name_conditions(crd: &Value, conflict: Option<&(&'static str, String)>) -> (Value, Value) {
    let old = |kind: &str| {
        let conditions = crd["status"]["conditions"].as_array();
        conditions.into_iter().flatten().find(|condition| condition["type"] == kind).cloned()
    };
    let accepted = match conflict {
        Some((reason, message)) => {
            json!({"type": "NamesAccepted", "status": "False", "reason": reason, "message": message})
        }
        None => {
            json!({"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"})
        }
    };
    let mut established = old("Established").unwrap_or_else(|| {
        json!({"type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted"})
    });
    if established["status"] != "True" && conflict.is_none() {
        established = json!({
            "type": "Established", "status": "False", "reason": "Installing",
            "message": "the initial names have been accepted",
        });
    }
    (accepted, established)
}

/// Sets a condition; the transition time moves only with the status.
pub(super) fn set_condition(status: &mut Value, mut condition: Value, now: &str) {
    if !status.is_object() {
        *status = json!({});
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|old| old["type"] == condition["type"]) {
        Some(old) => {
            let keep = old["status"] == condition["status"];
            condition["lastTransitionTime"] = if keep { old["lastTransitionTime"].clone() } else { now.into() };
            *old = condition;
        }
        None => {
            condition["lastTransitionTime"] = now.into();
            conditions.push(condition);
        }
    }
}

async fn delete_objects(
    keeper: &Arc<Housekeeper>,
    internal: &Internal<'_>,
    place: &Place,
    crd: &Value,
) -> ApiResult<()> {
    let server = &keeper.server;
    let finalizers = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        return Ok(());
    }
    let snapshot = server.registry.snapshot();
    let served = snapshot
        .preferred()
        .into_iter()
        .find(|resource| resource.custom.as_ref().is_some_and(|custom| custom.crd_name == place.name));
    if let Some(resource) = served {
        let objects = server.internal_for(resource.clone(), "kube-apiserver");
        for object in objects.list(None) {
            let metadata = &object["metadata"];
            let place = Place::new(
                metadata["namespace"].as_str().unwrap_or_default(),
                metadata["name"].as_str().unwrap_or_default(),
            );
            if !metadata["deletionTimestamp"].is_string() {
                let _ = objects.delete(&place, &DeleteOptions::default()).await;
            }
        }
        if server.store.count(&resource.storage, None) > 0 {
            // Finalizers of its objects hold it; look again when they may have gone.
            return Err(crate::status::ApiError::unavailable("objects of the kind are still being deleted"));
        }
    }
    // Nothing is left to serve, and whoever sees the definition gone finds the kind gone too.
    server.registry.remove_custom(&place.name);
    let now = format_time(server.environment.now());
    internal
        .change(place, "", |crd| {
            if let Some(list) = crd["metadata"]["finalizers"].as_array_mut() {
                list.retain(|finalizer| finalizer != CLEANUP);
            }
            let done = json!({
                "type": "Terminating", "status": "False", "reason": "InstanceDeletionCompleted", "message": "removed all instances",
            });
            set_condition(&mut crd["status"], done, &now);
        })
        .await?;
    Ok(())
}
