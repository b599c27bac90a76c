//! The controller of this node's guests: observe, decide, act.

mod act;
mod conditions;
pub(crate) mod decide;
mod migratable;
mod moves;
pub(crate) mod report;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::{VirtualMachineInstancePhase as Phase, VirtualMachineInstanceStatus as Status};
use ferrovirt_domain::NodeFacts;
use ferrovirt_kubernetes::Pod;
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Cache, Clock, Controller, Expectations, Failure, Index, Note, ObjectKey, Plan, Recorder};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use self::act::{give, image_missing, launcher_failed, wiring_failed};
pub use self::decide::{Action, View, decide};
pub(crate) use self::turns::Turns;
use crate::launcher::Followers;
use crate::migration::proxy::Carriers;
use crate::migration::{news, record};
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
    /// Whether the node's own processor model is known; `None`: it is being asked for.
    pub(crate) host_model: Mutex<Option<bool>>,
    pub(crate) vmis: Cache<VirtualMachineInstance>,
    pub(crate) pods: Cache<Pod>,
    pub(crate) pods_by_owner: Index<Pod, String>,
    pub(crate) pods_by_guest: Index<Pod, ObjectKey>,
    /// Guests that move to this node, or last did.
    pub(crate) arriving: Cache<VirtualMachineInstance>,
    pub(crate) arriving_by_move: Index<VirtualMachineInstance, String>,
    pub(crate) arrivals_written: Expectations<ObjectKey, VirtualMachineInstance>,
    /// Guests whose vanished pods this node is asked about.
    pub(crate) asked: Cache<VirtualMachineInstance>,
    pub(crate) carriers: Carriers,
    /// When the progress of a move was last written: the migration's UID, and the time.
    pub(crate) progressed: Mutex<HashMap<ObjectKey, (String, Instant)>>,
    pub(crate) followers: Arc<Followers>,
    pub(crate) starts: Turns,
    pub(crate) wiring: Arc<dyn Wiring>,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) recorder: Recorder,
    pub(crate) written: Expectations<ObjectKey, VirtualMachineInstance>,
    pub(crate) clock: Clock,
}

impl World {
    /// The launcher pod of a guest on this node: the one that its newest move names, or the one that it started in. Anybody who makes pods
    /// can call the guest its owner, and it may have been here before: other pods say nothing about it.
    pub(crate) fn pod_of(&self, vmi: &VirtualMachineInstance) -> Option<Arc<Pod>> {
        let pods = self.pods.by(&self.pods_by_owner, vmi.metadata.uid.as_deref()?);
        let first = || ferrovirt_pods::pod_name(vmi);
        let name = record::pod_on(vmi, &self.node).map_or_else(first, str::to_owned);
        pods.into_iter().find(|pod| pod.metadata.name.as_deref() == Some(&name))
    }

    /// Whether the guest may run in the pod: only in one that its object names, since it is held until nothing of those runs any more.
    pub(crate) fn is_recorded(vmi: &VirtualMachineInstance, pod: &Pod) -> bool {
        let ledger = vmi.status.as_ref().map(|status| &status.active_pods);
        pod.metadata.uid.as_ref().zip(ledger).is_some_and(|(uid, ledger)| ledger.contains_key(uid))
    }

    /// Writes a whole object over the version that it was made from.
    pub(crate) async fn write(&self, vmi: VirtualMachineInstance) -> Result<VirtualMachineInstance, Failure> {
        let (namespace, name) = (vmi.metadata.namespace.as_deref().unwrap_or_default(), vmi.metadata.name.clone());
        let (api, name) =
            (Api::<VirtualMachineInstance>::namespaced(self.client.clone(), namespace), name.unwrap_or_default());
        let written = api.replace(&name, &kube::api::PostParams::default(), &vmi).await;
        written.map_err(|error| Failure::api(format!("write the status of {name}"), error))
    }

    /// How long ago this process wrote progress of the guest's newest move.
    fn since_progress(&self, key: &ObjectKey, vmi: &VirtualMachineInstance) -> Option<Duration> {
        let id = record::Move::of(vmi)?.id;
        self.progressed.lock().get(key).filter(|(known, _)| known == id).map(|(_, at)| at.elapsed())
    }

    fn note_progress(&self, key: &ObjectKey, before: &VirtualMachineInstance, after: &VirtualMachineInstance) {
        let progress = |vmi: &VirtualMachineInstance| vmi.status.as_ref()?.migration_state.as_ref()?.progress.clone();
        let mut progressed = self.progressed.lock();
        match record::Move::from_node(after, &self.node) {
            Some(moving) if !moving.record.failed => {
                if progress(before) != progress(after) {
                    progressed.insert(key.clone(), (moving.id.to_owned(), Instant::now()));
                }
            }
            _ => drop(progressed.remove(key)),
        }
    }

    /// Tells people; an event is a courtesy, the status says the same.
    pub(crate) async fn tell(&self, about: &VirtualMachineInstance, note: &Note) {
        if let Err(error) = self.recorder.record(&reference(about), note).await {
            tracing::warn!(error = error.message(), "cannot write an event");
        }
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
            since_progress: self.since_progress(key, &vmi),
            vmi,
            pod,
            node: self.node.clone(),
            host_model: *self.host_model.lock(),
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
        let failure = report::news_of_failure(view.vmi.status.as_ref(), &status);
        let move_news = news::news(view.vmi.status.as_ref(), Some(&status));
        let vmi = VirtualMachineInstance { status: Some(status), ..VirtualMachineInstance::clone(&view.vmi) };
        let written = self.write(vmi).await?;
        if let Some(key) = ObjectKey::of(&written) {
            self.written.updated(&key, &written);
            self.note_progress(&key, &view.vmi, &written);
        }
        // The condition goes with the object, which a machine's controller replaces; the event stays.
        let failure = failure.map(|message| Note::warning("SyncFailed", message));
        for note in failure.into_iter().chain(move_news) {
            self.tell(&written, &note).await;
        }
        Ok(())
    }
}

/// Owner of a pod by uid.
pub(crate) fn owner(pod: &Pod) -> Option<String> {
    standard::owner_uid(pod).map(str::to_owned)
}
