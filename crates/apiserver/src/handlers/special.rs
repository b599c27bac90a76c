//! Subresources and kinds with a meaning of their own: access reviews, tokens, binding and eviction.

use std::sync::Arc;

use ferrovirt_machinery::selector::LabelSelector;
use http::StatusCode;
use serde_json::{Value, json};

use super::delete::{self, Deleted};
use super::write::{Writer, format_time};
use crate::admission::Operation;
use crate::controllers::disruption::is_ready;
use crate::http::body::{self, RequestBody};
use crate::http::negotiate::Output;
use crate::http::options::{DeleteOptions, WriteOptions};
use crate::http::respond::{self, Answer};
use crate::internal::{Internal, Place};
use crate::registry::Resource;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};

/// POST of a kind that is answered and not stored.
pub async fn create(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: &Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let output = Output::negotiate(&call.headers, &call.query)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    if &*resource.kind == "Binding" {
        let object = super::decode::incoming(resource, call, body, options.field_validation).await?.value;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        return bind(server, call, &call.path()?.namespace, &name, &object, options.dry_run).await;
    }
    let incoming = super::decode::incoming(resource, call, body, options.field_validation).await?;
    let mut object = incoming.value;
    let writer = Writer {
        server,
        resource,
        user: &call.user,
        namespace: &call.path()?.namespace,
        subresource: "",
        dry_run: options.dry_run,
        manager: call.manager(options.field_manager.as_deref()),
        tracks: true,
    };
    writer.track(None, &mut object);
    let answer = server.identity.review(server, resource, call, object)?;
    Ok(respond::with_warnings(respond::object(StatusCode::CREATED, &output, &answer), &incoming.warnings))
}

/// A subresource that is not a view of the object.
pub async fn subresource(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    call: Call,
    body: RequestBody,
) -> ApiResult<Answer> {
    let path = call.path()?.clone();
    match (&*resource.plural, path.subresource.as_str()) {
        ("serviceaccounts", "token") => token(server, &call, body).await,
        ("pods", "binding") => {
            let object = object(&call, body).await?;
            bind(server, &call, &path.namespace, &path.name, &object, call.query.get("dryRun").is_some()).await
        }
        ("pods", "eviction") => evict(server, resource, &call, body).await,
        ("pods", _) => crate::mounts::nodes::serve(server, call, body).await,
        _ => Err(ApiError::no_such_path()),
    }
}

async fn object(call: &Call, body: RequestBody) -> ApiResult<Value> {
    let bytes = body::read(body).await?;
    Ok(body::decode_object(&call.headers, &bytes)?.value)
}

/// `serviceaccounts/token`
async fn token(server: &Arc<Server>, call: &Call, body: RequestBody) -> ApiResult<Answer> {
    let path = call.path()?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let request = object(call, body).await?;
    let mut request = request;
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["kind"] = "TokenRequest".into();
    if let Some(schema) = ferrovirt_machinery::builtin::schema("authentication.k8s.io", "v1", "TokenRequest") {
        super::decode::clean_metadata(&mut request);
        if request["spec"]["expirationSeconds"].is_null() {
            request["spec"]["expirationSeconds"] = 3600.into();
        }
        let reset = ferrovirt_machinery::apply::reset_by_main();
        let manager = call.manager(call.query.get("fieldManager"));
        let now = server.environment.now();
        let writer = ferrovirt_machinery::apply::Writer {
            manager: &manager,
            api_version: "authentication.k8s.io/v1",
            subresource: "token",
            reset,
            now,
        };
        ferrovirt_machinery::apply::update(&schema, None, &mut request, &writer);
    }
    let answer = server.identity.issue_token(server, &path.namespace, &path.name, request)?;
    Ok(respond::object(StatusCode::CREATED, &output, &answer))
}

/// `pods/binding`: puts a pod on a node.
async fn bind(
    server: &Arc<Server>,
    call: &Call,
    namespace: &str,
    name: &str,
    binding: &Value,
    dry_run: bool,
) -> ApiResult<Answer> {
    let resource = server.registry.snapshot().find("", "v1", "pods").cloned().ok_or_else(ApiError::no_such_resource)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    if node.is_empty() {
        return Err(plain(&crate::strategy::required("target.name", "").to_string()));
    }
    let kind = &binding["target"]["kind"];
    if kind.as_str().is_some_and(|kind| !kind.is_empty() && kind != "Node") {
        let message = format!("target.kind: Unsupported value: {kind}: supported values: \"Node\", \"<empty>\"");
        return Err(plain(&message));
    }
    let now = format_time(server.environment.now());
    let writer = Writer {
        server,
        resource: &resource,
        user: &call.user,
        namespace,
        subresource: "binding",
        dry_run,
        manager: call.manager(None),
        // Where a pod runs belongs to nobody.
        tracks: false,
    };
    let make = |old: Option<&Value>| {
        let mut pod = old.cloned().unwrap_or_default();
        if pod["metadata"]["deletionTimestamp"].is_string() {
            let why = format!("pod {name} is being deleted, cannot be assigned to a host");
            return Err(ApiError::conflict(crate::status::Subject { group: "", resource: "pods/binding" }, name, &why));
        }
        if let Some(taken) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            let why = format!("pod {name} is already assigned to node \"{taken}\"");
            return Err(ApiError::conflict(crate::status::Subject { group: "", resource: "pods/binding" }, name, &why));
        }
        if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            let why = format!("pod {name} has non-empty .spec.schedulingGates");
            return Err(ApiError::conflict(crate::status::Subject { group: "", resource: "pods/binding" }, name, &why));
        }
        pod["spec"]["nodeName"] = node.clone().into();
        for (key, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
            pod["metadata"]["annotations"][key] = value.clone();
        }
        let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
        }));
        pod["status"]["conditions"] = conditions.into();
        Ok(pod)
    };
    writer.change(name, false, &make).await?;
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(respond::object(StatusCode::CREATED, &Output::JSON, &status))
}

/// An error that the reference does not classify.
fn plain(message: &str) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
}

/// `pods/eviction`: a deletion that disruption budgets may refuse.
async fn evict(server: &Arc<Server>, resource: &Arc<Resource>, call: &Call, body: RequestBody) -> ApiResult<Answer> {
    let path = call.path()?;
    let eviction = object(call, body).await?;
    if eviction["metadata"]["name"].as_str().unwrap_or_default() != path.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::parse(eviction.get("deleteOptions"), &call.query)?;
    options.dry_run |= call.query.get("dryRun") == Some("All");
    let writer = Writer {
        server,
        resource,
        user: &call.user,
        namespace: &path.namespace,
        subresource: "eviction",
        dry_run: options.dry_run,
        manager: call.manager(None),
        tracks: true,
    };
    let pods = server.internal_for(resource.clone(), "kube-apiserver");
    let pod =
        pods.get(&path.namespace, &path.name).ok_or_else(|| ApiError::not_found(resource.subject(), &path.name))?;
    server.admission.validate(&writer, Operation::Create, &eviction, None).await?;
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
    if !finished && !pod["metadata"]["deletionTimestamp"].is_string() {
        spend_budget(server, &path.namespace, &pod, options.dry_run).await?;
    }
    if !options.dry_run {
        let now = format_time(server.environment.now());
        mark_disrupted(&pods, &Place::new(&path.namespace, &path.name), &mut options, &now).await?;
    }
    let plain = Writer { subresource: "", ..writer };
    match delete::remove(&plain, &path.name, &options).await? {
        Deleted::Gone(_) | Deleted::Pending(_) => {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
            Ok(respond::object(StatusCode::CREATED, &Output::JSON, &status))
        }
    }
}

/// Writes down in the pod why it goes. A resource version that the caller insisted on moves along.
async fn mark_disrupted(pods: &Internal<'_>, place: &Place, options: &mut DeleteOptions, now: &str) -> ApiResult<()> {
    let Some(pod) = pods.get(&place.namespace, &place.name) else { return Ok(()) };
    let is_meant = |wanted: &Option<String>, field: &str| {
        wanted.as_ref().is_none_or(|wanted| pod["metadata"][field] == wanted.as_str())
    };
    if !is_meant(&options.uid, "uid") || !is_meant(&options.resource_version, "resourceVersion") {
        // The deletion will say what is wrong.
        return Ok(());
    }
    let marked = pods
        .change(place, "status", |pod| {
            let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let already = |condition: &Value| condition["type"] == "DisruptionTarget" && condition["status"] == "True";
            if !conditions.iter().any(already) {
                conditions.retain(|condition| condition["type"] != "DisruptionTarget");
                conditions.push(json!({
                    "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
                }));
                pod["status"]["conditions"] = conditions.into();
            }
        })
        .await?;
    if let Some(version) = &mut options.resource_version {
        marked["metadata"]["resourceVersion"].as_str().unwrap_or_default().clone_into(version);
    }
    Ok(())
}

/// Takes one disruption from the pod's budget, or refuses.
async fn spend_budget(server: &Arc<Server>, namespace: &str, pod: &Value, dry_run: bool) -> ApiResult<()> {
    let budgets = server.internal("policy", "v1", "poddisruptionbudgets", "kube-apiserver")?;
    let matching: Vec<Value> = budgets
        .list(Some(namespace))
        .into_iter()
        .filter(|budget| {
            LabelSelector::from_object(&budget["spec"]["selector"])
                .is_ok_and(|selector| selector.matches(|key| pod["metadata"]["labels"][key].as_str()))
        })
        .collect();
    let budget = match matching.as_slice() {
        [] => return Ok(()),
        [one] => one,
        _ => {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", why));
        }
    };
    if !is_ready(pod) && may_lose_unready(budget) {
        return Ok(());
    }
    let name = budget["metadata"]["name"].as_str().unwrap_or_default();
    refuse_if_spent(budget, name)?;
    if dry_run {
        return Ok(());
    }
    let now = format_time(server.environment.now());
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let spent = parking_lot::Mutex::new(Ok(()));
    budgets
        .change(&Place::new(namespace, name), "status", |budget| {
            let checked = refuse_if_spent(budget, name);
            if checked.is_ok() {
                let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
                budget["status"]["disruptionsAllowed"] = left.into();
                budget["status"]["disruptedPods"][pod_name] = now.clone().into();
            }
            *spent.lock() = checked;
        })
        .await?;
    spent.into_inner()
}

/// A pod that is not ready does not count, so nothing is lost with it unless the others are too few as well.
fn may_lose_unready(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (healthy >= desired && desired > 0)
}

fn refuse_if_spent(budget: &Value, name: &str) -> ApiResult<()> {
    const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = |message: String| json!({"reason": "DisruptionBudget", "message": message});
    let status = &budget["status"];
    if status["observedGeneration"].as_i64().unwrap_or(0) < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let message = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::too_many_requests(REFUSED, 10).with_causes(vec![cause(message)]));
    }
    if status["disruptionsAllowed"].as_i64().unwrap_or(0) <= 0 {
        let needed = status["desiredHealthy"].as_i64().unwrap_or(0);
        let healthy = status["currentHealthy"].as_i64().unwrap_or(0);
        let message = format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
        return Err(ApiError::too_many_requests(REFUSED, 0).with_causes(vec![cause(message)]));
    }
    Ok(())
}
