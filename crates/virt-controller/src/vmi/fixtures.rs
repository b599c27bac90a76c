//! Guests, pods and claims for tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::finalizers;
use ferrovirt_pods::LauncherPod;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::unaccounted::Known;
use super::{Record, View};
use crate::launcher::Cluster;

pub(super) const UID: &str = "8f3a92c1-77aa-4d52-9d0e-0a1b2c3d4e5f";
pub(super) const POD: &str = "virt-launcher-web-8f3a9";
pub(super) const NODE: &str = "node-1";

/// The time of every view.
pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A guest in a phase.
pub(super) fn guest(phase: &str) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": UID, "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T11:59:00Z", "finalizers": [finalizers::VMI],
        },
        "spec": {"domain": {"memory": {"guest": "128Mi"}, "devices": {}}},
        "status": {
            "phase": phase,
            "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T11:59:00Z"}],
        },
    })
}

/// A guest that a node owns.
pub(super) fn owned_guest(phase: &str) -> Value {
    let mut vmi = guest(phase);
    vmi["metadata"]["labels"] = json!({"kubevirt.io/nodeName": NODE});
    vmi["status"]["nodeName"] = json!(NODE);
    vmi["status"]["activePods"] = json!({"pod-uid": NODE});
    let ready = if phase == "Running" { "True" } else { "False" };
    let mut condition = json!({"type": "Ready", "status": ready});
    if phase != "Running" {
        condition["reason"] = json!("GuestNotRunning");
    }
    vmi["status"]["conditions"] = json!([condition]);
    vmi
}

/// The guest's own pod, made a second ago.
#[expect(clippy::needless_pass_by_value, reason = "a literal of JSON reads better without a reference")]
pub(super) fn pod(node: Option<&str>, status: Value) -> Value {
    json!({
        "metadata": {
            "name": POD, "namespace": "shop", "uid": "pod-uid", "creationTimestamp": "2026-01-01T11:59:59Z",
            "annotations": {"kubevirt.io/memory-overhead-bytes": "1048576"},
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "uid": UID, "controller": true,
            }],
        },
        "spec": {"nodeName": node, "containers": [{"name": "compute", "image": "launcher:1"}]},
        "status": status,
    })
}

/// The status of a pod whose launcher runs.
pub(super) fn running() -> Value {
    json!({
        "phase": "Running", "qosClass": "Burstable",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [compute(&json!({"running": {}}))],
    })
}

/// The status of the launcher's container.
pub(super) fn compute(state: &Value) -> Value {
    json!({"name": "compute", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state})
}

/// A view without claims.
pub(super) fn view(vmi: Value, pods: Vec<Value>) -> View {
    let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
    let pods = pods.into_iter().map(|pod| Arc::new(serde_json::from_value::<LauncherPod>(pod).unwrap()));
    View {
        record: Record::of(&vmi),
        vmi: Arc::new(vmi),
        pods: pods.collect(),
        known: Known::default(),
        claims: [].into(),
        cluster: Cluster {
            kubevirt: None,
            launcher_image: "launcher:1".to_owned(),
            has_kvm: true,
            image_volumes: Default::default(),
        },
        missing_node_labels: Vec::new(),
        taken_vsock_cids: BTreeSet::new(),
        now: now(),
    }
}
