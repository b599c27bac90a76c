//! The controller of this node's guests: observe, decide, act.

mod act;
mod conditions;
mod decide;
mod migratable;
mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::{VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus as Status};
use ferrovirt_domain::NodeFacts;
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Cache, Clock, Controller, Expectations, Failure, Index, Note, ObjectKey, Plan, Recorder};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

pub use self::decide::{Action, View, decide};
use crate::launcher::Followers;
use crate::peers::Peers;
use crate::wiring::Wiring;

/// The reason of the condition `Synchronized` when a guest cannot be started, as KubeVirt words it.
pub(crate) const SYNC_FAILED: &str = "Synchronizing with the Domain failed.";

/// The controller; clones are the same one.
#[derive(Clone)]
pub struct Guests(Arc<World>);

impl std::ops::Deref for Guests {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl From<World> for Guests {
    fn from(world: World) -> Self {
        Self(Arc::new(world))
    }
}

/// Everything the controller works with.
pub struct World {
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) facts: NodeFacts,
    pub(crate) vmis: Cache<VirtualMachineInstance>,
    pub(crate) pods: Cache<Pod>,
    pub(crate) pods_by_owner: Index<Pod, String>,
    pub(crate) followers: Arc<Followers>,
    pub(crate) wiring: Arc<dyn Wiring>,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) recorder: Recorder,
    pub(crate) written: Expectations<ObjectKey, VirtualMachineInstance>,
    pub(crate) clock: Clock,
}

impl World {
    /// The launcher pod of a guest on this node: the living one if there are several.
    pub(crate) fn pod_of(&self, vmi: &VirtualMachineInstance) -> Option<Arc<Pod>> {
        let mut pods = self.pods.by(&self.pods_by_owner, vmi.metadata.uid.as_deref()?);
        pods.sort_by_key(|pod| {
            let ended = pod
                .status
                .as_ref()
                .is_some_and(|status| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")));
            (ended, pod.metadata.creation_timestamp.clone().map(|time| std::cmp::Reverse(time.0)))
        });
        pods.into_iter().next()
    }
}

impl Controller for Guests {
    const NAME: &'static str = "virt-handler-vmi";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = Status;

    fn hold(&self, key: &ObjectKey) -> Option<Duration> {
        self.written.hold(key)
    }

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let vmi = self.vmis.get_key(key)?;
        let pod = self.pod_of(&vmi);
        let uid = pod.as_ref().and_then(|pod| pod.metadata.uid.as_deref());
        let followed = uid.map(|uid| self.followers.get(uid)).unwrap_or_default();
        Some(View {
            report: followed.report.filter(|report| report.uid.is_none() || report.uid == vmi.metadata.uid),
            reachable: followed.launcher.is_some(),
            vmi,
            pod,
            node: self.node.clone(),
            now: self.clock.now(),
        })
    }

    fn decide(view: &View) -> Plan<Action, Status> {
        decide(view)
    }

    fn observed_status(view: &View) -> Option<&Status> {
        view.vmi.status.as_ref()
    }

    fn status_after(view: &View, failure: &Failure) -> Option<Status> {
        // Only a guest that has never run can fail for good by what we could not do to it.
        view.vmi.status.as_ref().filter(|status| status.phase == Some(Phase::Scheduled))?;
        let hopeless = failure.category() == Category::Hopeless;
        Some(report::start_failed(&view.vmi, &failure.message(), hopeless, view.now))
    }

    async fn write_status(&self, view: &View, status: Status) -> Result<(), Failure> {
        let api: Api<VirtualMachineInstance> =
            Api::namespaced(self.client.clone(), view.vmi.metadata.namespace.as_deref().unwrap_or_default());
        let news = report::news_of_failure(view.vmi.status.as_ref(), &status);
        let vmi = VirtualMachineInstance { status: Some(status), ..VirtualMachineInstance::clone(&view.vmi) };
        let name = vmi.metadata.name.clone().unwrap_or_default();
        let written = api.replace(&name, &kube::api::PostParams::default(), &vmi).await;
        let written = written.map_err(|error| Failure::api(format!("write the status of {name}"), error))?;
        if let Some(key) = ObjectKey::of(&written) {
            self.written.updated(&key, &written);
        }
        // The condition goes with the object, which a machine's controller replaces; the event stays.
        if let Some(message) = news
            && let Err(error) = self.recorder.record(&reference(&written), &Note::warning("SyncFailed", message)).await
        {
            tracing::warn!(%error, "cannot write an event");
        }
        Ok(())
    }
}

/// Owner of a pod by uid.
pub(crate) fn owner(pod: &Pod) -> Option<String> {
    standard::owner_uid(pod).map(str::to_owned)
}
