//! Namespaces: a new one gets its `default` service account and the CA's certificate, a deleted one is emptied before
//! it goes.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::Housekeeper;
use crate::handlers::write::format_time;
use crate::http::options::DeleteOptions;
use crate::internal::Place;
use crate::status::ApiResult;
use crate::store::Key;

const RETRY: Duration = Duration::from_millis(500);
/// How many objects of a namespace are deleted at the same time.
const DELETIONS: usize = 32;

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    loop {
        let name = keeper.namespaces.next().await;
        if let Err(error) = reconcile(&keeper, &name).await
            && error.code() != http::StatusCode::NOT_FOUND
        {
            tracing::debug!(namespace = name, %error, "namespace not reconciled yet");
            let keeper = keeper.clone();
            tokio::spawn(async move {
                tokio::time::sleep(RETRY).await;
                keeper.namespaces.add(name);
            });
        }
    }
}

async fn reconcile(keeper: &Arc<Housekeeper>, name: &str) -> ApiResult<()> {
    let namespaces = keeper.server.internal("", "v1", "namespaces", "kube-controller-manager")?;
    let Some(namespace) = namespaces.get("", name) else {
        keeper.namespaces.done_with(&name.to_owned());
        return Ok(());
    };
    if namespace["metadata"]["deletionTimestamp"].is_string() {
        // From now on every deletion in the namespace brings us back here.
        keeper.namespaces.wait_for_more(name.to_owned());
        empty(keeper, name, &namespace).await
    } else {
        furnish(keeper, name).await
    }
}

/// The object is one of those that every namespace has.
pub(super) fn is_furniture(key: &Key) -> bool {
    matches!((&*key.resource, &*key.name), ("/serviceaccounts", "default") | ("/configmaps", "kube-root-ca.crt"))
}

/// What every namespace has.
async fn furnish(keeper: &Arc<Housekeeper>, name: &str) -> ApiResult<()> {
    let server = &keeper.server;
    let accounts = server.internal("", "v1", "serviceaccounts", "kube-controller-manager")?;
    accounts.ensure(json!({"metadata": {"name": "default", "namespace": name}})).await?;
    let maps = server.internal("", "v1", "configmaps", "kube-controller-manager")?;
    let wanted = json!({
        "metadata": {
            "name": "kube-root-ca.crt", "namespace": name,
            "annotations": {
                "kubernetes.io/description":
                    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
            },
        },
        "data": {"ca.crt": server.identity.ca_certificate()},
    });
    let Some(map) = maps.get(name, "kube-root-ca.crt") else { return maps.ensure(wanted).await };
    if map["data"] != wanted["data"] {
        let restore = |map: &mut Value| map["data"] = wanted["data"].clone();
        maps.change(&Place::new(name, "kube-root-ca.crt"), "", restore).await?;
    }
    Ok(())
}

fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Deletes what is left; the last deletion takes the namespace's own finalizer off.
async fn empty(keeper: &Arc<Housekeeper>, name: &str, namespace: &Value) -> ApiResult<()> {
    let server = &keeper.server;
    let snapshot = server.registry.snapshot();
    let mut left: Vec<(String, usize)> = Vec::new();
    let mut finalizers: Vec<String> = Vec::new();
    for resource in snapshot.preferred() {
        if !resource.namespaced || !resource.verbs.contains(&"delete") {
            continue;
        }
        let objects = server.internal_for(resource.clone(), "kube-controller-manager");
        // One at a time as values, however many there are; several at a time to the disk, which they share.
        stream::iter(objects.places(Some(name)))
            .for_each_concurrent(DELETIONS, |place| {
                let objects = &objects;
                async move {
                    if objects.get(&place.namespace, &place.name).is_some_and(|object| !is_deleted(&object)) {
                        let _ = objects.delete(&place, &DeleteOptions::default()).await;
                    }
                }
            })
            .await;
        let remaining = objects.places(Some(name));
        if !remaining.is_empty() {
            left.push((format!("{}.{}", resource.plural, resource.group), remaining.len()));
            for object in remaining.iter().filter_map(|place| objects.get(&place.namespace, &place.name)) {
                let held = object["metadata"]["finalizers"].as_array().into_iter().flatten();
                finalizers.extend(held.filter_map(Value::as_str).map(str::to_owned));
            }
        }
    }
    if !left.is_empty() {
        return tell(keeper, name, namespace, &left, finalizers).await;
    }
    let namespaces = server.internal("", "v1", "namespaces", "kube-controller-manager")?;
    namespaces
        .change(&Place::new("", name), "finalize", |namespace| {
            if let Some(list) = namespace["spec"]["finalizers"].as_array_mut() {
                list.retain(|finalizer| finalizer != "kubernetes");
            }
        })
        .await?;
    Ok(())
}

/// Writes down what holds the namespace.
async fn tell(
    keeper: &Arc<Housekeeper>,
    name: &str,
    namespace: &Value,
    left: &[(String, usize)],
    mut finalizers: Vec<String>,
) -> ApiResult<()> {
    let now = format_time(keeper.server.environment.now());
    let resources: Vec<String> =
        left.iter().map(|(kind, count)| format!("{kind} has {count} resource instances")).collect();
    finalizers.sort();
    let mut counted: Vec<(String, usize)> = Vec::new();
    for finalizer in finalizers {
        match counted.last_mut() {
            Some((last, count)) if *last == finalizer => *count += 1,
            _ => counted.push((finalizer, 1)),
        }
    }
    let held: Vec<String> =
        counted.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let condition = |kind: &str, status: &str, reason: &str, message: String| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    let remaining = format!("Some resources are remaining: {}", resources.join(", "));
    let wanted = vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".into(),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".into(),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".into(),
        ),
        condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", remaining),
        if held.is_empty() {
            condition(
                "NamespaceFinalizersRemaining",
                "False",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".into(),
            )
        } else {
            condition(
                "NamespaceFinalizersRemaining",
                "True",
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {}", held.join(", ")),
            )
        },
    ];
    let same = |old: &Value| {
        let strip = |list: &[Value]| -> Vec<(Value, Value)> {
            list.iter().map(|c| (c["status"].clone(), c["message"].clone())).collect()
        };
        old.as_array().is_some_and(|old| strip(old) == strip(&wanted))
    };
    if same(&namespace["status"]["conditions"]) {
        return Ok(());
    }
    let namespaces = keeper.server.internal("", "v1", "namespaces", "kube-controller-manager")?;
    namespaces
        .change(&Place::new("", name), "status", |namespace| namespace["status"]["conditions"] = wanted.clone().into())
        .await?;
    Ok(())
}
