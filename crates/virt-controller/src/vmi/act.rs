//! Carrying out what was decided: one call to the API for each action, and one write of the guest's record.

use std::sync::Arc;

use ferrovirt_api::names::{conditions, labels, reasons};
use ferrovirt_api::{ToJson, VirtualMachineInstance};
use ferrovirt_kubernetes::{Node, Pod};
use ferrovirt_pods::LauncherPod;
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Act, Failure, Note, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Record, View, VmiController};
use crate::conditions::whole_seconds;
use crate::patch::difference;

/// All that the controller can do, besides writing the guest's record.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create the guest's launcher pod.
    CreatePod(Box<Pod>),
    /// Delete one of the guest's pods, gracefully.
    DeletePod(Arc<LauncherPod>),
    /// Delete the pod that the guest has left, after making sure that it has.
    DeleteSource(Arc<LauncherPod>),
    /// Let Services send to the pod: the guest is in it.
    OpenGate(Arc<LauncherPod>),
    /// Make sure that there is no pod of these names and this owner: the cache sees labelled pods only, and late. What follows can not
    /// be taken back.
    ConfirmGone {
        /// Names of pods.
        pods: Vec<String>,
        /// The guest's uid.
        owner: String,
    },
    /// Make sure that these nodes are out of service: what follows can not be taken back, and a cache may show yesterday's fence.
    ConfirmFenced(Vec<String>),
    /// Tell people.
    Tell(Note),
}

impl Act<VmiController> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::CreatePod(_) => "create pod",
            Self::DeletePod(_) => "delete pod",
            Self::DeleteSource(_) => "delete the pod that the guest has left",
            Self::OpenGate(_) => "open the pod's readiness gate",
            Self::ConfirmGone { .. } => "confirm that the pod is gone",
            Self::ConfirmFenced(_) => "confirm that the node is out of service",
            Self::Tell(_) => "record event",
        }
    }

    async fn act(self, controller: &VmiController, vmi: &ObjectKey) -> Result<(), Failure> {
        let pods: Api<LauncherPod> = Api::namespaced(controller.client.clone(), vmi.namespace());
        match self {
            Self::CreatePod(pod) => {
                let pods: Api<Pod> = Api::namespaced(controller.client.clone(), vmi.namespace());
                let created = standard::create_expected(&pods, &pod, vmi, &controller.expected_pods).await;
                controller.tell_failure(vmi, reasons::FAILED_CREATE, created.map(drop)).await
            }
            Self::DeletePod(pod) => controller.delete(&pods, &pod, vmi).await,
            Self::DeleteSource(pod) => {
                confirm_left(controller, vmi, &pod).await?;
                controller.delete(&pods, &pod, vmi).await
            }
            Self::OpenGate(pod) => open_gate(&pods, &pod, whole_seconds(controller.clock.now())).await,
            Self::ConfirmGone { pods: names, owner } => {
                for name in names {
                    confirm_gone(&pods, &name, &owner).await?;
                }
                Ok(())
            }
            Self::ConfirmFenced(nodes) => confirm_fenced(&Api::all(controller.client.clone()), nodes).await,
            Self::Tell(note) => {
                controller.tell(vmi, &note).await;
                Ok(())
            }
        }
    }
}

impl VmiController {
    async fn delete(&self, pods: &Api<LauncherPod>, pod: &LauncherPod, vmi: &ObjectKey) -> Result<(), Failure> {
        let (guard, params) = (standard::Guard::SameObject, DeleteParams::default());
        let deleted = standard::delete_expected(pods, pod, guard, params, vmi, &self.expected_pods).await;
        self.tell_failure(vmi, reasons::FAILED_DELETE, deleted.map(drop)).await
    }

    /// A note that cannot be written stops nothing.
    async fn tell(&self, vmi: &ObjectKey, note: &Note) {
        if let Some(vmi) = self.caches.vmis.get_key(vmi) {
            // The recorder has logged it.
            let _ = self.recorder.record(&reference(&*vmi), note).await;
        }
    }

    /// Passes a result on; people hear of a failure that is not just a lagging cache.
    async fn tell_failure(&self, vmi: &ObjectKey, reason: &str, result: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &result
            && !failure.category().is_quiet()
        {
            self.tell(vmi, &Note::warning(reason, failure.message())).await;
        }
        result
    }
}

/// Adds the condition that the gate waits for; those of others stay.
async fn open_gate(pods: &Api<LauncherPod>, pod: &LauncherPod, now: Time) -> Result<(), Failure> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let opened = json!({"type": conditions::POD_UNPAUSED, "status": "True", "lastTransitionTime": now});
    let changes = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [opened]}});
    match pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(changes)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::api(format!("open the readiness gate of pod {name}"), error)),
    }
}

/// The guest's object, read afresh, names another node than the pod's.
async fn confirm_left(controller: &VmiController, vmi: &ObjectKey, pod: &LauncherPod) -> Result<(), Failure> {
    let operation = "confirm that the guest has left its pod";
    let api: Api<VirtualMachineInstance> = Api::namespaced(controller.client.clone(), vmi.namespace());
    let found = api.get_opt(vmi.name()).await.map_err(|error| Failure::api(operation, error))?;
    let Some(found) = found.filter(|found| found.metadata.uid.as_deref() == standard::owner_uid(pod)) else {
        return Ok(());
    };
    let node = found.status.as_ref().and_then(|status| status.node_name.as_deref());
    let on = pod.node_name.as_deref();
    match node.is_some() && node != on {
        true => Ok(()),
        false => Err(Failure::new(Category::Conflict, operation, "its object names the pod's node")),
    }
}

async fn confirm_gone(pods: &Api<LauncherPod>, pod: &str, owner: &str) -> Result<(), Failure> {
    let operation = format!("confirm that pod {pod} is gone");
    match pods.get_metadata_opt(pod).await {
        Ok(Some(found)) if standard::owner_uid(&found) == Some(owner) => {
            Err(Failure::new(Category::Conflict, operation, "it is still there"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::api(operation, error)),
    }
}

/// The nodes, read afresh, are out of service.
pub(crate) async fn confirm_fenced(api: &Api<Node>, nodes: Vec<String>) -> Result<(), Failure> {
    for node in nodes {
        let operation = format!("confirm that node {node} is out of service");
        let found = api.get_opt(&node).await.map_err(|error| Failure::api(operation.clone(), error))?;
        if !found.is_some_and(|found| crate::node::is_fenced(&found)) {
            return Err(Failure::new(Category::Conflict, operation, "it is in service"));
        }
    }
    Ok(())
}

/// Writes what changed in the record. The API server refuses it when somebody else has written since the guest was observed.
pub(super) async fn write(controller: &VmiController, view: &View, record: &Record) -> Result<(), Failure> {
    let (Some(key), Some(namespace)) = (ObjectKey::of(&*view.vmi), view.vmi.metadata.namespace.as_deref()) else {
        return Ok(());
    };
    let changes = changes(&view.record, record)?;
    let api: Api<VirtualMachineInstance> = Api::namespaced(controller.client.clone(), namespace);
    let written = standard::patch_unchanged(&api, &view.vmi, changes).await?;
    controller.expected_vmis.updated(&key, &written);
    Ok(())
}

/// The merge patch that turns one record into another. The kind has no status of its own, so label, finalizers and status are one
/// write.
pub(super) fn changes(old: &Record, new: &Record) -> Result<Value, Failure> {
    let mut changes = json!({});
    if old.finalizers != new.finalizers {
        changes["metadata"]["finalizers"] = json!(new.finalizers);
    }
    let labelled =
        [(labels::NODE_NAME, &old.node_label, &new.node_label), (labels::ASKED_NODE, &old.asked_node, &new.asked_node)];
    for (label, _, new) in labelled.into_iter().filter(|(_, old, new)| old != new) {
        changes["metadata"]["labels"][label] = json!(new);
    }
    let render = |record: &Record| {
        let status = record.status.to_json();
        status.map_err(|error| Failure::new(Category::Internal, "write a guest's status as JSON", error))
    };
    if let Some(status) = difference(&render(old)?, &render(new)?) {
        changes["status"] = status;
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_finalizers_and_status_are_one_patch() {
        let old = Record { finalizers: vec!["a".into(), "b".into()], ..Record::default() };
        let mut new = Record { finalizers: vec!["b".into()], node_label: Some("n".into()), ..Record::default() };
        new.status.node_name = Some("n".into());
        let expected = json!({
            "metadata": {"finalizers": ["b"], "labels": {"kubevirt.io/nodeName": "n"}}, "status": {"nodeName": "n"},
        });
        assert_eq!(changes(&old, &new).unwrap(), expected);
    }
}
