//! The `KubeVirt` object of the local cluster. There is no operator: whoever reads the object finds everything deployed, and whoever
//! edits its configuration is obeyed at once.

use std::sync::Arc;

use ferrovirt_api::names::groups;
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::server::Server;
use serde_json::{Value, json};

/// Namespace and name of the object.
const NAME: &str = "kubevirt";

/// Makes the object unless there is one, and says that what it stands for runs.
pub(super) async fn install(server: &Arc<Server>) -> anyhow::Result<()> {
    let kubevirts = server.internal(groups::KUBEVIRT, "v1", "kubevirts", "ferrovirt")?;
    if kubevirts.list(None).is_empty() {
        kubevirts.create(json!({"metadata": {"namespace": NAME, "name": NAME}, "spec": {}})).await?;
    }
    let now = server.environment.now().to_string();
    for object in kubevirts.list(None) {
        let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let place = Place::new(&field("namespace"), &field("name"));
        kubevirts.change(&place, "status", |object| object["status"] = deployed(&object["status"], &now)).await?;
    }
    Ok(())
}

/// The status of an installation that works. Conditions that were true before keep their time.
fn deployed(old: &Value, now: &str) -> Value {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let before = old["conditions"].as_array().into_iter().flatten();
        let before = before.into_iter().find(|old| old["type"] == kind && old["status"] == status);
        let since = before.map_or_else(|| json!(now), |old| old["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": since, "lastTransitionTime": since})
    };
    let ready = |kind: &str, status: &str| condition(kind, status, "AllComponentsReady", "All components are ready.");
    json!({
        "phase": "Deployed",
        "operatorVersion": version,
        "targetKubeVirtVersion": version,
        "observedKubeVirtVersion": version,
        "conditions": [
            condition("Created", "True", "AllResourcesCreated", "All resources were created."),
            ready("Available", "True"),
            ready("Progressing", "False"),
            ready("Degraded", "False"),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_changes_nothing() {
        let first = deployed(&Value::Null, "2026-01-01T00:00:00Z");
        assert_eq!(first["conditions"][1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(deployed(&first, "2026-02-02T00:00:00Z"), first);
    }

    #[test]
    fn the_status_is_one_of_the_objects() {
        let status = deployed(&Value::Null, "2026-01-01T00:00:00Z");
        let parsed: ferrovirt_api::kubevirt::KubeVirtStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(serde_json::to_value(parsed).unwrap(), status);
    }
}
