//! Moves, guests and pods for tests.

use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstanceMigration;
use ferrovirt_api::names::finalizers;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::View;
use super::turn::{Entry, Limits, Standing};
use crate::launcher::Cluster;

pub(super) const GUEST_UID: &str = "8f3a92c1-77aa-4d52-9d0e-0a1b2c3d4e5f";
pub(super) const UID: &str = "c0ffee00-1234-4d52-9d0e-0a1b2c3d4e5f";
pub(super) const SOURCE: &str = "virt-launcher-web-8f3a9";
pub(super) const TARGET: &str = "virt-launcher-web-c0ffee0012";

/// The time of every view.
pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A move in a phase, or in none.
pub(super) fn migration(phase: Option<&str>) -> Value {
    json!({
        "metadata": {
            "name": "away", "namespace": "shop", "uid": UID, "resourceVersion": "9",
            "creationTimestamp": "2026-01-01T11:59:30Z", "finalizers": [finalizers::MIGRATION],
        },
        "spec": {"vmiName": "web"},
        "status": {"phase": phase},
    })
}

/// A guest that runs on the first node and can move.
pub(super) fn guest() -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": GUEST_UID, "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T11:00:00Z", "labels": {"tier": "front"},
        },
        "spec": {"domain": {"memory": {"guest": "128Mi"}, "devices": {}}},
        "status": {
            "phase": "Running", "nodeName": "n1", "activePods": {"source-uid": "n1"},
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
        },
    })
}

/// The guest with the record of this move.
pub(super) fn handed_off(more: &Value) -> Value {
    let mut guest = guest();
    let mut state = json!({
        "migrationUid": UID, "sourceNode": "n1", "sourcePod": SOURCE, "targetNode": "n2", "targetPod": TARGET,
    });
    for (key, value) in more.as_object().unwrap() {
        state[key] = value.clone();
    }
    guest["status"]["migrationState"] = state;
    guest
}

fn pod(name: &str, uid: &str, node: Option<&str>, phase: &str) -> Value {
    let state = if phase == "Running" { json!({"running": {}}) } else { json!({}) };
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": uid, "creationTimestamp": "2026-01-01T11:59:40Z",
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "uid": GUEST_UID, "controller": true,
            }],
        },
        "spec": {"nodeName": node, "containers": [{"name": "compute", "image": "launcher:1"}]},
        "status": {"phase": phase, "containerStatuses": [
            {"name": "compute", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state},
        ]},
    })
}

/// The pod that the guest runs in.
pub(super) fn source() -> Value {
    pod(SOURCE, "source-uid", Some("n1"), "Running")
}

/// The pod that it moves to.
pub(super) fn target(node: Option<&str>, phase: &str) -> Value {
    let mut pod = pod(TARGET, "target-uid", node, phase);
    pod["metadata"]["labels"] = json!({"kubevirt.io/migrationJobUID": UID});
    pod
}

/// A view in which a slot is free.
pub(super) fn view(migration: Value, guest: Value, pods: Vec<Value>) -> View {
    let migration: VirtualMachineInstanceMigration = serde_json::from_value(migration).unwrap();
    let entry =
        Entry { uid: UID.to_owned(), node: "n1".to_owned(), standing: Standing::Ready, priority: 0, created: now() };
    View {
        status: migration.status.clone().unwrap_or_default(),
        migration: Arc::new(migration),
        vmi: serde_json::from_value::<Option<_>>(guest).unwrap().map(Arc::new),
        pods: pods.into_iter().map(|pod| Arc::new(serde_json::from_value(pod).unwrap())).collect(),
        known: Default::default(),
        siblings: Vec::new(),
        queue: vec![entry],
        limits: Limits { per_cluster: 5, per_node: 2 },
        claims: [].into(),
        cluster: Cluster {
            kubevirt: None,
            launcher_image: "launcher:1".to_owned(),
            has_kvm: true,
            image_volumes: Default::default(),
        },
        policies: Vec::new(),
        namespace_labels: [].into(),
        node_labels: [].into(),
        is_target_fenced: false,
        now: now(),
    }
}
