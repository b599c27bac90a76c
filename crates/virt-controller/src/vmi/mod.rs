//! The guest controller: from a `VirtualMachineInstance` to a launcher pod, and from the pod to the node that it runs on.
//!
//! ```text
//!                   pod is in trouble or
//!   (none), Pending ---- slow to start ----> Scheduling          owned by this controller
//!        |      \                             /     \
//!        |       \------ pod runs ----\      /       \  pod ended or vanished
//!        |                             v    v         \
//!        |                            Scheduled        \         owned by virt-handler of status.nodeName
//!        | deleted                        | (handler)   \
//!        |                             Running           \
//!        |                            /       \           \
//!        |            guest ended (handler)   pod vanished \
//!        |                          /           \           \
//!        +-----------------> Failed, Succeeded   +---------> Failed
//!
//!   deleted, any phase: delete the pods; when none is left, and nothing of one runs, take the finalizer away
//! ```
//!
//! - The pod's name is derived from the guest's uid: whatever a cache misses, a second pod cannot come to be.
//! - **Hand-over** is one write: phase `Scheduled`, `status.nodeName` and the label that the node's virt-handler watches. After it
//!   this controller changes conditions, `activePods` and (when the pod is gone) the phase, and nothing else.
//! - All writes are merges of what changed that the API server refuses when somebody else wrote meanwhile.
//! - On the straight way there are two writes: the pod, and the hand-over. `Scheduling` is written when the pod has trouble or takes
//!   longer than [`decide::PATIENCE`]; its time is recorded anyway. The event about the pod's creation goes with it.
//! - A **move** ([`crate::migration`]) gives a guest a second pod. While it is open the guest may be in either, so a vanished source
//!   is no end of the guest: the nodes are asked to end the move, and the target's handler says where the guest is. The pod that a
//!   guest has left is deleted after a fresh look at the guest.
//! - How a guest ended is for virt-handler to say, which spoke with its launcher. This controller says `Failed` when there is nobody
//!   left to ask: the pod is gone, and nothing of it runs.
//! - **A pod object that is gone is no guest that is gone.** Each pod in which the guest may have come to run is in
//!   `status.activePods` until it is [accounted for](unaccounted), and the guest's object stays that long.

mod act;
mod conditions;
pub mod decide;
pub(crate) mod hand_over;
mod moving;
mod observe;
pub(crate) mod pod_state;
pub(crate) mod unaccounted;

#[cfg(test)]
mod fixtures;

use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_pods::LauncherPod;
use ferrovirt_reconcile::controller::standard::owner_uid;
use ferrovirt_reconcile::expectations::DEFAULT_TIMEOUT;
use ferrovirt_reconcile::{Clock, Controller, Expectations, Failure, ObjectKey, Plan, Queue, Recorder, Runner};
use kube::Client;

pub use act::Action;
pub(crate) use act::confirm_fenced;
pub use observe::{Record, View};
pub use unaccounted::Known;

use crate::ControllerConfig;
use crate::caches::Caches;

/// What the controller works with.
pub struct VmiController {
    client: Client,
    caches: Caches,
    recorder: Recorder,
    clock: Clock,
    launcher_image: String,
    expected_pods: Expectations<ObjectKey, LauncherPod>,
    expected_vmis: Expectations<ObjectKey, VirtualMachineInstance>,
}

/// The controller on its queue. Nothing happens before it runs.
pub(crate) fn runner(
    client: Client,
    caches: Caches,
    recorder: Recorder,
    config: &ControllerConfig,
) -> Runner<VmiController> {
    let queue = Queue::default();
    feed(&caches, &queue);
    let controller = VmiController {
        client,
        recorder,
        clock: config.clock,
        launcher_image: config.launcher_image.clone(),
        expected_pods: Expectations::new(&caches.pods, DEFAULT_TIMEOUT),
        expected_vmis: Expectations::new(&caches.vmis, DEFAULT_TIMEOUT),
        caches,
    };
    Runner::new(controller, queue).workers(config.workers)
}

/// Which changes concern which guests.
fn feed(caches: &Caches, queue: &Queue<ObjectKey>) {
    caches.vmis.feed(queue, ObjectKey::of);
    caches.pods.feed(queue, owner_key);
    let (vmis, by_claim) = (caches.vmis.clone(), caches.vmis_by_claim.clone());
    caches.claims.feed(queue, move |claim| {
        let users = ObjectKey::of(claim).map(|key| vmis.by(&by_claim, &key)).unwrap_or_default();
        users.iter().filter_map(|vmi| ObjectKey::of(&**vmi)).collect::<Vec<_>>()
    });
    // A fence settles what runs there.
    let vmis = caches.vmis.clone();
    caches.nodes.feed(queue, move |node| {
        let name = node.metadata.name.as_deref().filter(|_| crate::node::is_fenced(node));
        let has_pod_there = |vmi: &VirtualMachineInstance| {
            vmi.status.iter().flat_map(|status| status.active_pods.values()).any(|on| Some(on.as_str()) == name)
        };
        let concerned = name.map(|_| vmis.all()).unwrap_or_default();
        concerned.iter().filter(|vmi| has_pod_there(vmi)).filter_map(|vmi| ObjectKey::of(&**vmi)).collect::<Vec<_>>()
    });
    // What could not be run yesterday may be allowed today.
    let vmis = caches.vmis.clone();
    caches
        .kubevirts
        .feed(queue, move |_| vmis.all().iter().filter_map(|vmi| ObjectKey::of(&**vmi)).collect::<Vec<_>>());
}

/// The guest that a pod belongs to, by the name in its owner reference; the uid is checked when the view is made.
pub(crate) fn owner_key(pod: &LauncherPod) -> Option<ObjectKey> {
    let uid = owner_uid(pod)?;
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.uid == uid)?;
    (owner.kind == "VirtualMachineInstance").then_some(())?;
    Some(ObjectKey::new(pod.metadata.namespace.as_deref()?, &owner.name))
}

impl Controller for VmiController {
    const NAME: &'static str = "vmi";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = Record;

    fn hold(&self, key: &ObjectKey) -> Option<Duration> {
        self.expected_pods.hold(key).max(self.expected_vmis.hold(key))
    }

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        observe::observe(&self.caches, key, &self.launcher_image, self.clock.now())
    }

    fn decide(view: &View) -> Plan<Action, Record> {
        decide::decide(view)
    }

    fn observed_status(view: &View) -> Option<&Record> {
        Some(&view.record)
    }

    fn status_after(view: &View, failure: &Failure) -> Option<Record> {
        decide::after_failure(view, failure)
    }

    async fn write_status(&self, view: &View, record: Record) -> Result<(), Failure> {
        act::write(self, view, &record).await
    }
}
