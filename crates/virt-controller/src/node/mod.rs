//! The node controller: nodes whose virt-handler has gone silent, and guests on nodes that are out of service.
//!
//! | what is known | what follows |
//! |---|---|
//! | the heartbeat is older than five minutes | an event says so |
//! | ... and no guest may run there | the node gets no more guests |
//! | the node is [fenced](is_fenced) | its guests have failed, unless a move may have taken them elsewhere |
//! | a guest's pod is gone | the [guest controller](crate::vmi) says so |
//!
//! **Silence is no evidence**: a guest on a node that does not answer may run, and write to its disks. Somebody has to vouch that it
//! does not: whoever fences the node puts the taint on it, as for any workload of Kubernetes. A pod whose object is gone is no better
//! than silence: see [`vmi`](crate::vmi).

mod act;
pub mod decide;

use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_kubernetes::Node;
use ferrovirt_pods::LauncherPod;
use ferrovirt_reconcile::{Clock, Controller, Failure, ObjectKey, Plan, Queue, Recorder, Runner};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use kube::Client;

pub use act::Action;

use crate::ControllerConfig;
use crate::caches::Caches;

/// The taint by which somebody vouches that nothing runs on a node any more.
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// On a node: the heartbeat after which it was silent so long that an event told about it.
pub(crate) const SILENCE: &str = "kubevirt.io/silent-since";

/// Whether somebody vouches that nothing runs on the node any more, and the node does not say otherwise.
pub(crate) fn is_fenced(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let is_mark = |taint: &Taint| taint.key == OUT_OF_SERVICE && taint.effect == "NoExecute";
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    taints.into_iter().flatten().any(is_mark) && !is_ready
}

/// What the controller works with.
pub struct NodeController {
    client: Client,
    caches: Caches,
    recorder: Recorder,
    clock: Clock,
}

/// One node and its guests.
#[derive(Clone, Debug)]
pub struct View {
    /// The node.
    pub node: Arc<Node>,
    /// Guests that name it, and their pods.
    pub guests: Vec<(Arc<VirtualMachineInstance>, Vec<Arc<LauncherPod>>)>,
    /// Now.
    pub now: Timestamp,
}

/// The controller on its queue. Nothing happens before it runs.
pub(crate) fn runner(
    client: Client,
    caches: Caches,
    recorder: Recorder,
    config: &ControllerConfig,
) -> Runner<NodeController> {
    let queue = Queue::default();
    caches.nodes.feed(&queue, ObjectKey::of);
    caches.vmis.feed(&queue, |vmi| Some(ObjectKey::new("", vmi.status.as_ref()?.node_name.as_deref()?)));
    Runner::new(NodeController { client, caches, recorder, clock: config.clock }, queue)
}

impl Controller for NodeController {
    const NAME: &'static str = "node";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = ();

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let node = self.caches.nodes.get_key(key)?;
        let guests = self.caches.vmis.by(&self.caches.vmis_by_node, key.name()).into_iter().map(|vmi| {
            let uid = vmi.metadata.uid.clone().unwrap_or_default();
            let pods = self.caches.pods.by(&self.caches.pods_by_owner, uid.as_str());
            (vmi, pods)
        });
        Some(View { node, guests: guests.collect(), now: self.clock.now() })
    }

    fn decide(view: &View) -> Plan<Action, ()> {
        decide::decide(view)
    }

    fn observed_status(_: &View) -> Option<&()> {
        Some(&())
    }

    async fn write_status(&self, _: &View, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}
