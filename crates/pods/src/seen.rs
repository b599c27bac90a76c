//! [`LauncherPod`]: what is read of a launcher pod. A whole one is several times as large, and there is one for each guest.

use std::collections::BTreeMap;

use ferrovirt_api::names::{annotations, conditions, labels};
use ferrovirt_kubernetes::Pod;
use ferrovirt_kubernetes::json::{DecodeError, FromJson};
use k8s_openapi::api::core::v1::{self, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::COMPUTE;

/// A launcher pod, as far as it is read. What it was told to do follows from its guest, and is most of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LauncherPod {
    /// Name, owner, labels; of annotations only the memory that was added for what runs beside the guest.
    pub metadata: ObjectMeta,
    /// The node that it was given.
    pub node_name: Option<String>,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The launcher's image.
    pub image: Option<String>,
    /// Services send nothing to it before somebody says that the guest is in it.
    pub waits_for_guest: bool,
    /// How it goes.
    pub status: Option<PodStatus>,
}

impl LauncherPod {
    /// The move that it was made for.
    pub fn migration_uid(&self) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(labels::MIGRATION_JOB).map(String::as_str)
    }

    /// Whether its kubelet saw its launcher end. A phase is no such sight: a kubelet that starts may turn away a pod whose launcher runs.
    pub fn was_seen_to_end(&self) -> bool {
        let mut all = self.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        all.any(|one| one.name == COMPUTE && one.state.as_ref().is_some_and(|state| state.terminated.is_some()))
    }

    /// Whether its launcher runs no more, nor will.
    pub fn has_ended(&self) -> bool {
        self.status.as_ref().is_some_and(has_ended)
    }
}

/// Whether a launcher pod's launcher runs no more: it is not started again. Containers that others have added may go on. A phase alone
/// says nothing of a launcher that its kubelet last saw running: a cluster calls the pods of a node failed that is gone from it.
pub fn has_ended(status: &PodStatus) -> bool {
    let mut containers = status.container_statuses.iter().flatten();
    let launcher = containers.find(|container| container.name == COMPUTE);
    let state = launcher.and_then(|container| container.state.as_ref());
    let is_over = state.is_some_and(|state| state.terminated.is_some());
    let runs = state.is_some_and(|state| state.running.is_some());
    is_over || (!runs && matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")))
}

impl From<v1::Pod> for LauncherPod {
    fn from(pod: v1::Pod) -> Self {
        let v1::Pod { mut metadata, spec, status } = pod;
        if let Some(all) = &mut metadata.annotations {
            all.retain(|key, _| key == annotations::MEMORY_OVERHEAD_BYTES);
        }
        let PodSpec { containers, node_name, node_selector, readiness_gates, .. } = spec.unwrap_or_default();
        let launcher = containers.into_iter().find(|container| container.name == COMPUTE);
        let mut gates = readiness_gates.iter().flatten();
        Self {
            metadata,
            node_name,
            node_selector: node_selector.unwrap_or_default(),
            image: launcher.and_then(|launcher| launcher.image),
            waits_for_guest: gates.any(|gate| gate.condition_type == conditions::POD_UNPAUSED),
            status,
        }
    }
}

impl FromJson for LauncherPod {
    fn from_json(value: &Value) -> Result<Self, DecodeError> {
        Pod::from_json(value).map(|pod| pod.0.into())
    }
}

impl<'de> Deserialize<'de> for LauncherPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Pod::deserialize(deserializer).map(|pod| pod.0.into())
    }
}

/// It is watched and deleted as the pod that it is.
impl Resource for LauncherPod {
    const API_VERSION: &'static str = v1::Pod::API_VERSION;
    const GROUP: &'static str = v1::Pod::GROUP;
    const KIND: &'static str = v1::Pod::KIND;
    const VERSION: &'static str = v1::Pod::VERSION;
    const URL_PATH_SEGMENT: &'static str = v1::Pod::URL_PATH_SEGMENT;
    type Scope = <v1::Pod as Resource>::Scope;
}

impl Metadata for LauncherPod {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_pod_stays_what_is_read() {
        let status = json!({"phase": "Running", "containerStatuses": [{
            "name": COMPUTE, "image": "i", "imageID": "", "ready": true, "restartCount": 0,
        }]});
        let pod: LauncherPod = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "labels": {labels::MIGRATION_JOB: "1"},
                "annotations": {annotations::MEMORY_OVERHEAD_BYTES: "1", "other": "x"},
            },
            "spec": {
                "nodeName": "n", "nodeSelector": {"a": "b"}, "readinessGates": [{"conditionType": conditions::POD_UNPAUSED}],
                "containers": [{"name": "other", "image": "o"}, {"name": COMPUTE, "image": "i", "command": ["x"]}],
                "volumes": [{"name": "v", "emptyDir": {}}],
            },
            "status": status,
        }))
        .unwrap();
        assert_eq!(pod.migration_uid(), Some("1"));
        assert_eq!(
            pod.metadata.annotations,
            Some([(annotations::MEMORY_OVERHEAD_BYTES.to_owned(), "1".to_owned())].into())
        );
        assert_eq!((pod.node_name.as_deref(), pod.image.as_deref()), (Some("n"), Some("i")));
        assert_eq!(pod.node_selector, [("a".to_owned(), "b".to_owned())].into());
        assert!(pod.waits_for_guest && !pod.has_ended());
        assert_eq!(pod.status, serde_json::from_value(status).unwrap());
        // Each guest has one: what is held must stay a fraction of a whole pod and its containers.
        let whole = size_of::<v1::Pod>() + size_of::<v1::Container>();
        assert!(size_of::<LauncherPod>() * 4 < whole, "{} of {whole}", size_of::<LauncherPod>());
    }

    #[test]
    fn a_launcher_has_ended_when_its_kubelet_says_so() {
        let ended = |phase: &str, state: Value| {
            let launcher =
                json!({"name": COMPUTE, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state});
            has_ended(&serde_json::from_value(json!({"phase": phase, "containerStatuses": [launcher]})).unwrap())
        };
        assert!(ended("Running", json!({"terminated": {"exitCode": 1}})), "others go on");
        assert!(ended("Failed", json!({"terminated": {"exitCode": 1}})));
        assert!(ended("Failed", json!({"waiting": {}})), "it was never started");
        assert!(!ended("Running", json!({"running": {}})));
        assert!(!ended("Failed", json!({"running": {}})), "the word of a cluster that has lost the node");
        assert!(has_ended(&serde_json::from_value(json!({"phase": "Failed", "reason": "Evicted"})).unwrap()));
    }

    #[test]
    fn what_is_no_pod_is_not_read_as_one() {
        let error = LauncherPod::from_json(&json!({"kind": "Node", "apiVersion": "v1", "metadata": {}})).unwrap_err();
        assert!(error.to_string().contains("Pod"), "{error}");
    }
}
