//! The shell: watches feed the [`Cluster`], the queue carries pods without a node, and verdicts become calls.

use std::sync::Arc;

use ferrovirt_kubernetes::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use ferrovirt_reconcile::{
    Act, Cache, Clock, Controller, Failure, Index, Note, ObjectKey, Plan, Priority, Queue, Recorder, Runner, Watches,
    events::reference,
    watch::{Change, DuplicateWatch},
};
use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
    runtime::watcher,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    claims::SELECTED_NODE,
    cluster::Cluster,
    decide::{ClaimView, PodInfo, Verdict, decide},
};

/// The scheduler that pods name when they do not say otherwise.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// Why the scheduler does not run.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// Two watches of one kind.
    #[error("the scheduler cannot start its watches")]
    Watches(#[from] DuplicateWatch),
}

/// Schedules pods until it is told to stop.
///
/// # Errors
/// When watches cannot be set up.
pub async fn run(client: Client, clock: Clock, stop: CancellationToken) -> Result<(), SchedulerError> {
    let queue = Queue::default();
    let caches = Caches::new();
    let cluster = Arc::new(Mutex::new(Cluster::default()));
    caches.connect(&cluster, &queue);
    let mut watches = Watches::new();
    watches.add(Api::all(client.clone()), watcher::Config::default(), &caches.pods)?;
    watches.add(Api::all(client.clone()), watcher::Config::default(), &caches.nodes)?;
    watches.add(Api::all(client.clone()), watcher::Config::default(), &caches.claims)?;
    watches.add(Api::all(client.clone()), watcher::Config::default(), &caches.volumes)?;
    watches.add(Api::all(client.clone()), watcher::Config::default(), &caches.classes)?;
    watches.add(Api::all(client.clone()), watcher::Config::default(), &caches.namespaces)?;
    let synced = watches.synced();
    let recorder = Recorder::new(client.clone(), SCHEDULER_NAME, SCHEDULER_NAME, clock);
    let scheduler = Scheduler { client, caches, cluster, recorder, clock };
    let work = async {
        synced.await;
        // One worker: each decision has to know the one before.
        Runner::new(scheduler, queue).workers(1).run(stop.clone()).await;
    };
    // What watches bring is taken in before anybody acts.
    tokio::select! {
        biased;
        () = watches.run() => {}
        () = work => {}
    }
    Ok(())
}

struct Caches {
    pods: Cache<Pod>,
    waiting: Index<Pod, bool>,
    waiting_by_claim: Index<Pod, ObjectKey>,
    nodes: Cache<Node>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    namespaces: Cache<Namespace>,
}

impl Caches {
    fn new() -> Self {
        let mut pods = Cache::<Pod>::builder();
        let waiting = pods.index(|pod: &Pod| is_waiting(pod).then_some(true));
        let waiting_by_claim = pods.index(|pod: &Pod| {
            let info = is_waiting(pod).then(|| PodInfo::of(pod));
            info.into_iter().flat_map(|info| {
                let namespace = info.namespace;
                info.claims.into_iter().map(move |claim| ObjectKey::new(&namespace, &claim)).collect::<Vec<_>>()
            })
        });
        Self {
            waiting,
            waiting_by_claim,
            pods: pods.build(),
            nodes: Cache::builder().build(),
            claims: Cache::builder().build(),
            volumes: Cache::builder().build(),
            classes: Cache::builder().build(),
            namespaces: Cache::builder().build(),
        }
    }

    /// Lets changes into the cluster, and wakes pods that wait for such changes.
    fn connect(&self, cluster: &Arc<Mutex<Cluster>>, queue: &Queue<ObjectKey>) {
        let wake = {
            let (pods, waiting, queue) = (self.pods.clone(), self.waiting.clone(), queue.clone());
            move || add_all(&queue, &pods.by(&waiting, &true))
        };
        self.connect_pods(cluster, queue, wake.clone());
        self.nodes.on_change({
            let (cluster, wake) = (cluster.clone(), wake.clone());
            move |change: &Change<Node>| {
                let changed = match &change.new {
                    Some(node) => cluster.lock().set_node(node),
                    None => {
                        cluster.lock().remove_node(change.key.name());
                        true
                    }
                };
                if changed {
                    wake();
                }
            }
        });
        self.namespaces.on_change({
            let cluster = cluster.clone();
            move |change: &Change<Namespace>| {
                let labels = change.new.as_ref().map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
                cluster.lock().set_namespace(change.key.name(), labels.as_ref());
            }
        });
        let wake_users = {
            let (pods, users, queue) = (self.pods.clone(), self.waiting_by_claim.clone(), queue.clone());
            move |claim: &ObjectKey| add_all(&queue, &pods.by(&users, claim))
        };
        self.claims.on_change({
            let wake_users = wake_users.clone();
            move |change: &Change<PersistentVolumeClaim>| wake_users(&change.key)
        });
        self.volumes.on_change(move |change: &Change<PersistentVolume>| {
            let owners = change.sides().filter_map(|volume| volume.spec.as_ref()?.claim_ref.as_ref());
            for owner in owners {
                let part = |part: &Option<String>| part.clone().unwrap_or_default();
                wake_users(&ObjectKey::new(&part(&owner.namespace), &part(&owner.name)));
            }
        });
        self.classes.on_change(move |_| wake());
    }

    fn connect_pods(
        &self,
        cluster: &Arc<Mutex<Cluster>>,
        queue: &Queue<ObjectKey>,
        wake: impl Fn() + Send + Sync + 'static,
    ) {
        let (cluster, queue) = (cluster.clone(), queue.clone());
        self.pods.on_change(move |change: &Change<Pod>| {
            let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap_or_default();
            let replaced =
                change.old.as_ref().map(uid).filter(|old| change.new.as_ref().map(uid).as_ref() != Some(old));
            let mut changed = replaced.is_some_and(|old| cluster.lock().remove_pod(&old));
            if let Some(pod) = &change.new {
                changed |= cluster.lock().set_pod(pod);
                if is_waiting(pod) && change.old.as_ref().is_none_or(|old| !is_waiting(old)) {
                    queue.add(&change.key, Priority::NORMAL);
                }
            }
            if changed {
                wake();
            }
        });
    }
}

fn add_all(queue: &Queue<ObjectKey>, pods: &[Arc<Pod>]) {
    for key in pods.iter().filter_map(|pod| ObjectKey::of(&**pod)) {
        queue.add(&key, Priority::NORMAL);
    }
}

/// A pod that is this scheduler's to place.
fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ours = spec.scheduler_name.as_deref().is_none_or(|name| name == SCHEDULER_NAME || name.is_empty());
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let placed = spec.node_name.as_ref().is_some_and(|node| !node.is_empty());
    ours && !gated && !placed && phase == "Pending" && pod.metadata.deletion_timestamp.is_none()
}

struct Scheduler {
    client: Client,
    caches: Caches,
    cluster: Arc<Mutex<Cluster>>,
    recorder: Recorder,
    clock: Clock,
}

/// A pod and what was decided about it. The decision is made while observing, under the lock that keeps the cluster still.
struct View {
    pod: Arc<Pod>,
    info: PodInfo,
    verdict: Verdict,
    now: jiff::Timestamp,
}

/// All that the scheduler does.
#[derive(Debug)]
enum Action {
    /// Gives the pod to a node.
    Bind { pod: Arc<Pod>, info: PodInfo, node: String },
    /// Tells a claim where its volume is to be made.
    SelectNode { claim: String, node: String },
    /// Says that the pod has to wait, and why.
    Refuse { pod: Arc<Pod>, condition: PodCondition },
}

impl Controller for Scheduler {
    const NAME: &'static str = "scheduler";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = ();

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let pod = self.caches.pods.get_key(key).filter(|pod| is_waiting(pod))?;
        let info = PodInfo::of(&pod);
        let claims: Vec<_> = info.claims.iter().map(|name| self.claim(key.namespace(), name)).collect();
        let verdict = decide(&info, &self.cluster.lock(), &claims);
        Some(View { pod, info, verdict, now: self.clock.now() })
    }

    fn decide(view: &View) -> Plan<Action, ()> {
        match &view.verdict {
            Verdict::Bind(node) => Plan::nothing().then(Action::Bind {
                pod: view.pod.clone(),
                info: view.info.clone(),
                node: node.clone(),
            }),
            Verdict::Prepare { node, claims } => claims.iter().fold(Plan::nothing(), |plan, claim| {
                plan.then(Action::SelectNode { claim: claim.clone(), node: node.clone() })
            }),
            Verdict::Unschedulable(why) => {
                let mut condition = refused(&why.to_string(), view.now);
                let known = view.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let known =
                    known.into_iter().find(|known| known.type_ == condition.type_ && known.status == condition.status);
                if known.is_some_and(|known| known.message == condition.message) {
                    return Plan::nothing();
                }
                if let Some(known) = known {
                    condition.last_transition_time = known.last_transition_time.clone();
                }
                Plan::nothing().then(Action::Refuse { pod: view.pod.clone(), condition })
            }
        }
    }

    fn observed_status(_: &View) -> Option<&()> {
        None
    }

    async fn write_status(&self, _: &View, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}

fn refused(message: &str, now: jiff::Timestamp) -> PodCondition {
    PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    }
}

impl Scheduler {
    fn claim(&self, namespace: &str, name: &str) -> ClaimView {
        let claim = self.caches.claims.get(namespace, name);
        let spec = claim.as_ref().and_then(|claim| claim.spec.as_ref());
        let volume = spec.and_then(|spec| self.caches.volumes.get("", spec.volume_name.as_deref()?));
        let class = spec.and_then(|spec| self.caches.classes.get("", spec.storage_class_name.as_deref()?));
        ClaimView { name: name.to_owned(), volume, class, claim }
    }

    async fn bind(&self, key: &ObjectKey, pod: &Pod, info: &PodInfo, node: &str) -> Result<(), Failure> {
        let what = || format!("bind pod {key} to node {node}");
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(key.name().to_owned()),
                namespace: Some(key.namespace().to_owned()),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), key.namespace());
        self.cluster.lock().assume(info, node);
        let bound: Result<serde_json::Value, _> =
            pods.create_subresource("binding", key.name(), &PostParams::default(), &binding).await;
        if let Err(error) = bound {
            self.cluster.lock().remove_pod(&info.uid);
            // It may have been bound after all, by an answer that was lost: the watch says so then.
            if let Some(pod) = self.caches.pods.get_key(key) {
                self.cluster.lock().set_pod(&pod);
            }
            return Err(Failure::api(what(), error));
        }
        tracing::debug!(pod = %key, node, "bound");
        self.tell(pod, Note::normal("Scheduled", format!("Successfully assigned {key} to {node}")));
        Ok(())
    }

    /// Records an event without keeping the next pod waiting.
    fn tell(&self, pod: &Pod, note: Note) {
        let (recorder, regarding) = (self.recorder.clone(), reference(pod));
        tokio::spawn(async move {
            if let Err(error) = recorder.record(&regarding, &note).await {
                tracing::debug!(%error, "an event is lost");
            }
        });
    }
}

impl Act<Scheduler> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Bind { .. } => "bind pod",
            Self::SelectNode { .. } => "select node of claim",
            Self::Refuse { .. } => "say why the pod waits",
        }
    }

    async fn act(self, scheduler: &Scheduler, key: &ObjectKey) -> Result<(), Failure> {
        match self {
            Self::Bind { pod, info, node } => scheduler.bind(key, &pod, &info, &node).await,
            Self::SelectNode { claim, node } => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(scheduler.client.clone(), key.namespace());
                let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
                let patched = claims.patch(&claim, &PatchParams::default(), &Patch::Merge(patch)).await;
                patched.map(drop).map_err(|error| Failure::api(format!("select node {node} for claim {claim}"), error))
            }
            Self::Refuse { pod, condition } => {
                let message = condition.message.clone().unwrap_or_default();
                let pods: Api<Pod> = Api::namespaced(scheduler.client.clone(), key.namespace());
                let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
                let patched = pods.patch_status(key.name(), &PatchParams::default(), &Patch::Strategic(patch)).await;
                patched.map_err(|error| Failure::api(format!("report that pod {key} waits"), error))?;
                scheduler.tell(&pod, Note::warning("FailedScheduling", message));
                Ok(())
            }
        }
    }
}
