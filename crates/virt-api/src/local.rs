//! The `KubeVirt` object of the local cluster. There is no operator: whoever reads the object finds everything deployed, and whoever
//! edits its configuration is obeyed at once, which the object says too.

use std::sync::Arc;

use ferrovirt_api::names::groups;
use ferrovirt_apiserver::internal::{Internal, Place};
use ferrovirt_apiserver::server::Server;
use ferrovirt_apiserver::status::ApiResult;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::admission::architecture;
use crate::cluster::NAMESPACE;

/// The name of the object.
const NAME: &str = "kubevirt";
const MANAGER: &str = "ferrovirt";

fn objects(server: &Arc<Server>) -> ApiResult<Internal<'_>> {
    server.internal(groups::KUBEVIRT, "v1", "kubevirts", MANAGER)
}

/// Makes the object unless there is one, and says that what it stands for runs.
pub async fn install(server: &Arc<Server>) -> ApiResult<()> {
    let kubevirts = objects(server)?;
    if kubevirts.list(None).is_empty() {
        kubevirts.create(json!({"metadata": {"namespace": NAMESPACE, "name": NAME}, "spec": {}})).await?;
    }
    tell(server).await
}

/// Says of every change that it holds, until `stop`.
pub async fn follow(server: Arc<Server>, stop: CancellationToken) {
    let storage = format!("{}/kubevirts", groups::KUBEVIRT);
    let work = async {
        while let Ok(mut watch) = server.store.watch(&storage, None, server.store.revision()) {
            loop {
                if let Err(error) = tell(&server).await {
                    tracing::warn!(%error, "the KubeVirt object does not say that its configuration holds");
                }
                // Too far behind, or broken: start over. A store that is closed says so there.
                if watch.next().await.is_err() {
                    break;
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

/// Writes the status, where it says anything else. What stays the same is not written.
async fn tell(server: &Arc<Server>) -> ApiResult<()> {
    let now = server.environment.now().to_string();
    let kubevirts = objects(server)?;
    for object in kubevirts.list(None) {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let place = Place::new(&field("namespace"), &field("name"));
        kubevirts.change(&place, "status", |object| object["status"] = deployed(object, &now)).await?;
    }
    Ok(())
}

/// The status of an installation that works. Conditions that were true before keep their time.
fn deployed(object: &Value, now: &str) -> Value {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let before = object["status"]["conditions"].as_array().into_iter().flatten();
        let before = before.into_iter().find(|old| old["type"] == kind && old["status"] == status);
        let since = before.map_or_else(|| json!(now), |old| old["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": since, "lastTransitionTime": since})
    };
    let ready = |kind: &str, status: &str| condition(kind, status, "AllComponentsReady", "All components are ready.");
    let mut status = json!({
        "phase": "Deployed",
        "operatorVersion": version,
        "targetKubeVirtVersion": version,
        "observedKubeVirtVersion": version,
        "defaultArchitecture": architecture().as_str(),
        "conditions": [
            ready("Available", "True"),
            condition("Created", "True", "AllResourcesCreated", "All resources were created."),
            ready("Degraded", "False"),
            ready("Progressing", "False"),
        ],
    });
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        status["observedGeneration"] = generation.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_changes_nothing() {
        let object = |status: &Value| json!({"metadata": {"generation": 3}, "status": status});
        let first = deployed(&object(&Value::Null), "2026-01-01T00:00:00Z");
        assert_eq!(first["conditions"][1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(first["observedGeneration"], 3);
        assert_eq!(deployed(&object(&first), "2026-02-02T00:00:00Z"), first);
    }

    #[test]
    fn the_status_is_one_of_the_objects() {
        let status = deployed(&json!({"metadata": {"generation": 1}}), "2026-01-01T00:00:00Z");
        let parsed: ferrovirt_api::kubevirt::KubeVirtStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(serde_json::to_value(parsed).unwrap(), status);
    }
}
