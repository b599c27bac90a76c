//! Guests of which a pod vanished: whether something of it runs here still.
//!
//! A pod object can be deleted by force while its launcher and guest go on. virt-controller then asks, with a label that names this
//! node, and holds the guest's object until it has the answer: the pod's uid leaves `status.activePods`. It is given when no process of
//! this machine is of that pod, and not before. Who ends what is left is the kubelet, or this handler if it followed the launcher.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_kubernetes::Pod;
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::{Act, Controller, Failure, ObjectKey, Plan};
use kube::Api;
use serde_json::{Map, Value, json};

use crate::vmi::Guests;

/// Between two looks at what still runs.
const PAUSE: Duration = Duration::from_secs(2);

/// The controller.
pub(crate) struct Remains(pub(crate) Guests);

/// A guest that this node is asked about.
pub(crate) struct View {
    vmi: Arc<VirtualMachineInstance>,
    node: String,
    /// Uids of its pods here whose objects are known and have not ended: they may only be about to run.
    in_sight: Vec<String>,
}

/// Looks for processes of these pods, and says of which there are none.
#[derive(Debug, PartialEq)]
pub(crate) struct Look {
    vmi: Arc<VirtualMachineInstance>,
    pods: Vec<String>,
}

/// The pods of the guest that may run something here.
fn pods_here(view: &View) -> Vec<String> {
    let ledger = view.vmi.status.iter().flat_map(|status| &status.active_pods);
    let vanished = ledger.filter(|(uid, on)| **on == view.node && !view.in_sight.contains(uid));
    vanished.map(|(uid, _)| uid.clone()).collect()
}

impl Controller for Remains {
    const NAME: &'static str = "virt-handler-remains";
    type Key = ObjectKey;
    type View = View;
    type Action = Look;
    type Status = ();

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let guests = &self.0;
        let runs = |pod: &Arc<Pod>| pod.status.as_ref().is_none_or(|status| !ferrovirt_pods::has_ended(status));
        let pods = guests.pods.by(&guests.pods_by_guest, key).into_iter().filter(runs);
        Some(View {
            vmi: guests.asked.get_key(key)?,
            node: guests.node.clone(),
            in_sight: pods.filter_map(|pod| pod.metadata.uid.clone()).collect(),
        })
    }

    fn decide(view: &View) -> Plan<Look, ()> {
        let pods = pods_here(view);
        match pods.is_empty() {
            // virt-controller takes the label away, or a pod goes out of sight.
            true => Plan::nothing().look_again_after(PAUSE),
            false => Plan::nothing().then(Look { vmi: view.vmi.clone(), pods }).look_again_after(PAUSE),
        }
    }

    fn observed_status(_: &View) -> Option<&()> {
        None
    }

    async fn write_status(&self, _: &View, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}

impl Act<Remains> for Look {
    fn name(&self) -> &'static str {
        "look for processes of vanished pods"
    }

    async fn act(self, remains: &Remains, _: &ObjectKey) -> Result<(), Failure> {
        let guests = &remains.0;
        let mut gone = Map::new();
        for pod in self.pods {
            let runs = guests.followers.remains(&pod).await;
            let what = || format!("look for processes of pod {pod}");
            if !runs.map_err(|error| Failure::new(Category::Unavailable, what(), error))? {
                gone.insert(pod, Value::Null);
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        let namespace = self.vmi.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<VirtualMachineInstance> = Api::namespaced(guests.client.clone(), namespace);
        tracing::info!(guest = self.vmi.metadata.name, pods = ?gone.keys(), "nothing of these pods runs here any more");
        standard::patch_unchanged(&api, &*self.vmi, json!({"status": {"activePods": gone}})).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(ledger: &Value) -> View {
        let vmi = json!({
            "metadata": {"name": "web"}, "spec": {"domain": {"devices": {}}}, "status": {"nodeName": "node2", "activePods": ledger},
        });
        let in_sight = vec!["d".to_owned()];
        View { vmi: Arc::new(serde_json::from_value(vmi).unwrap()), node: "node1".to_owned(), in_sight }
    }

    #[test]
    fn a_node_answers_for_its_own_pods_and_looks_again_while_they_run() {
        let plan = Remains::decide(&view(&json!({"a": "node1", "b": "node2", "c": "node1", "d": "node1"})));
        assert_eq!(plan.actions.len(), 1);
        assert_eq!(plan.actions[0].pods, ["a", "c"]);
        assert_eq!(plan.requeue, Some(PAUSE));
        let nothing = Remains::decide(&view(&json!({"b": "node2", "d": "node1"})));
        assert!(nothing.actions.is_empty(), "another node's, and one that may be about to run");
    }
}
