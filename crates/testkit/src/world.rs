//! What all parts of a run share: the server, the clock, the machine, the dice, and the record of what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ferrovirt_apiserver::http::options::DeleteOptions;
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::server::Server;
use ferrovirt_apiserver::status::ApiResult;
use ferrovirt_apiserver::store::Revision;
use ferrovirt_reconcile::Clock;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::network::Network;

/// Where guests live.
pub const NAMESPACE: &str = "default";

/// Objects of one kind by name, each with its revision.
type Known = BTreeMap<Arc<str>, (Revision, Arc<Value>)>;

/// One run's world.
pub struct World {
    /// The API server.
    pub server: Arc<Server>,
    /// Virtual time.
    pub clock: Clock,
    /// Processes and guests.
    pub machine: Machine,
    /// What users have asked of machines.
    pub ledger: Ledger,
    /// The network between the nodes.
    pub network: Network,
    /// Requests fail now and then.
    pub flaky: AtomicBool,
    /// Calls to launchers are lost and repeated, and hypervisors fail.
    pub rough: AtomicBool,
    /// Resources that are shown as they were at a revision.
    rewound: Mutex<BTreeMap<&'static str, Revision>>,
    known: Mutex<BTreeMap<&'static str, Known>>,
    /// Uids of guests that have ended by themselves, and whether well.
    own_ends: Mutex<BTreeMap<String, bool>>,
    /// Guests whose launcher was killed, or whose node: they may have been lost with it.
    lost: Mutex<BTreeSet<String>>,
    /// Pods that were deleted by force, by uid, with their guests: nobody needs to have asked for the end of what is in them.
    forced: Mutex<BTreeMap<String, String>>,
    /// Nodes that are dead and will be fenced.
    lost_nodes: Mutex<BTreeSet<String>>,
    /// Moves that held a slot at the same time.
    most_moves: AtomicUsize,
    start: Instant,
    dice: Mutex<StdRng>,
    /// Of everything that was noted or drawn, and when.
    fingerprint: Mutex<DefaultHasher>,
    record: Mutex<Vec<String>>,
    broken: Mutex<Option<String>>,
}

impl World {
    pub(crate) fn new(server: Arc<Server>, clock: Clock, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            server,
            clock,
            machine: Machine::default(),
            ledger: Ledger::default(),
            network: Network::default(),
            flaky: AtomicBool::new(false),
            rough: AtomicBool::new(false),
            rewound: Mutex::default(),
            known: Mutex::default(),
            own_ends: Mutex::default(),
            lost: Mutex::default(),
            forced: Mutex::default(),
            lost_nodes: Mutex::default(),
            most_moves: AtomicUsize::new(0),
            start: Instant::now(),
            dice: Mutex::new(StdRng::seed_from_u64(seed)),
            fingerprint: Mutex::default(),
            record: Mutex::default(),
            broken: Mutex::default(),
        })
    }

    /// Makes the namespace, and waits for the account that its pods run under.
    pub(crate) async fn make_namespace(&self) -> ApiResult<()> {
        let namespaces = self.server.internal("", "v1", "namespaces", "simulation")?;
        namespaces.create(json!({"metadata": {"name": NAMESPACE}})).await?;
        let accounts = self.server.internal("", "v1", "serviceaccounts", "simulation")?;
        while accounts.get(NAMESPACE, "default").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// A number out of a range.
    pub fn roll(&self, range: Range<u64>) -> u64 {
        let number = self.dice.lock().random_range(range);
        (self.start.elapsed(), number).hash(&mut *self.fingerprint.lock());
        number
    }

    /// Whether something happens that happens in so many of a hundred cases.
    pub fn chance(&self, percent: u64) -> bool {
        self.roll(0..100) < percent
    }

    /// Waits for a random time, in milliseconds.
    pub async fn pause(&self, range: Range<u64>) {
        let pause = self.roll(range);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    /// Notes what happened, for whoever reads about a failed run.
    pub fn note(&self, what: impl FnOnce() -> String) {
        let line = format!("{:9.3} {}", self.start.elapsed().as_secs_f64(), what());
        line.hash(&mut *self.fingerprint.lock());
        self.record.lock().push(line);
    }

    /// A promise was broken; the first one counts.
    pub fn broken(&self, promise: impl FnOnce() -> String) {
        let mut broken = self.broken.lock();
        if broken.is_none() {
            let promise = promise();
            self.note(|| format!("BROKEN: {promise}"));
            *broken = Some(promise);
        }
    }

    /// The first promise that was broken.
    pub fn first_broken(&self) -> Option<String> {
        self.broken.lock().clone()
    }

    /// Everything that was noted.
    pub fn record(&self) -> String {
        self.record.lock().join("\n")
    }

    /// Differs for runs that did not go the same way.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint.lock().finish()
    }

    /// Whether a request fails now.
    pub(crate) fn request_fails(&self) -> bool {
        self.flaky.load(Ordering::Relaxed) && self.chance(20)
    }

    /// Whether calls to launchers go astray.
    pub(crate) fn is_rough(&self) -> bool {
        self.rough.load(Ordering::Relaxed)
    }

    /// Whether a step of a hypervisor fails now.
    pub(crate) fn hypervisor_fails(&self) -> bool {
        self.is_rough() && self.chance(10)
    }

    /// The guests as they are stored, whatever watches say.
    pub fn guests(&self) -> Vec<Arc<Value>> {
        self.stored("kubevirt.io/virtualmachineinstances")
    }

    /// The machines as they are stored.
    pub fn machines(&self) -> Vec<Arc<Value>> {
        self.stored("kubevirt.io/virtualmachines")
    }

    /// The machine of a name as it is stored.
    pub fn machine_named(&self, name: &str) -> Option<Arc<Value>> {
        self.machines().into_iter().find(|machine| machine["metadata"]["name"] == name)
    }

    /// The guest of a name as it is stored.
    pub fn guest_named(&self, name: &str) -> Option<Arc<Value>> {
        self.guests().into_iter().find(|guest| guest["metadata"]["name"] == name)
    }

    /// The pods as they are stored.
    pub fn pods(&self) -> Vec<Arc<Value>> {
        self.stored("/pods")
    }

    /// Each object is read once for each of its revisions: everybody looks often, and little changes.
    fn stored(&self, resource: &'static str) -> Vec<Arc<Value>> {
        self.end_of_past();
        let page = self.server.store.list(resource, Some(NAMESPACE), None, None, None);
        self.begin_of_past();
        let mut known = self.known.lock();
        let known = known.entry(resource).or_default();
        let before = std::mem::take(known);
        for object in page.map(|page| page.objects).unwrap_or_default() {
            let same = before.get(&object.key.name).filter(|(revision, _)| *revision == object.revision);
            let value = same.map_or_else(|| Arc::new(object.value()), |(_, value)| value.clone());
            known.insert(object.key.name.clone(), (object.revision, value));
        }
        known.values().map(|(_, value)| value.clone()).collect()
    }

    /// From now on a resource is listed as it was at a revision; its watches break.
    pub(crate) fn rewind(&self, resource: &'static str, past: Revision) {
        self.rewound.lock().insert(resource, past);
        self.begin_of_past();
        self.server.store.faults().disconnect(resource);
    }

    /// The present again.
    pub(crate) fn catch_up(&self, resource: &'static str) {
        self.end_of_past();
        self.rewound.lock().remove(resource);
        self.begin_of_past();
    }

    /// Shows the present for a moment, whatever is rewound.
    pub(crate) fn end_of_past(&self) {
        for resource in self.rewound.lock().keys() {
            self.server.store.faults().catch_up(resource);
        }
    }

    /// The moment is over.
    pub(crate) fn begin_of_past(&self) {
        for (resource, past) in &*self.rewound.lock() {
            self.server.store.faults().rewind(resource, *past);
        }
    }

    /// Whether somebody has asked for the end of this guest, or it has ended, as far as its object knows.
    pub fn is_end_intended(&self, name: &str, uid: &str) -> bool {
        let guests = self.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "simulation");
        let stored = guests.ok().and_then(|guests| guests.get(NAMESPACE, name));
        let Some(guest) = stored.filter(|guest| guest["metadata"]["uid"] == uid) else { return true };
        let ended = matches!(guest["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        ended || guest["metadata"]["deletionTimestamp"].is_string()
    }

    /// A guest has ended by itself: it must not run again.
    pub(crate) fn note_own_end(&self, uid: &str, well: bool) {
        self.own_ends.lock().insert(uid.to_owned(), well);
    }

    /// Whether a guest has ended by itself, and whether well.
    pub(crate) fn own_end(&self, uid: &str) -> Option<bool> {
        self.own_ends.lock().get(uid).copied()
    }

    /// The guest's launcher, or one of them, is gone without being asked to. Its machine, if it has one, may start it again.
    pub(crate) fn may_be_lost(&self, guest: &str) {
        self.ledger.ended_by_itself(guest, true);
        self.lost.lock().insert(guest.to_owned());
    }

    /// A pod's object is deleted by force, and nobody on its node is told. What becomes of its guest is for nobody to promise.
    pub(crate) async fn lose(&self, pod: &Value) -> ApiResult<()> {
        let text = |field: &str| pod.pointer(field).and_then(Value::as_str).unwrap_or_default();
        self.note(|| format!("pod {} is deleted by force", text("/metadata/name")));
        let guest = text("/metadata/ownerReferences/0/name");
        self.forced.lock().insert(text("/metadata/uid").to_owned(), guest.to_owned());
        self.may_be_lost(guest);
        let options = DeleteOptions {
            grace_period: Some(0),
            uid: Some(text("/metadata/uid").to_owned()),
            ..DeleteOptions::default()
        };
        let pods = self.server.internal("", "v1", "pods", "simulation")?;
        pods.delete(&Place::new(NAMESPACE, text("/metadata/name")), &options).await.map(drop)
    }

    /// Whether a pod was deleted by force.
    pub(crate) fn is_forced(&self, pod_uid: &str) -> bool {
        self.forced.lock().contains_key(pod_uid)
    }

    /// Whether a pod of a guest was deleted by force: its kubelet may have told the guest to power off.
    pub(crate) fn lost_a_pod(&self, guest: &str) -> bool {
        self.forced.lock().values().any(|of| of == guest)
    }

    /// A node has died for good: what it was given to start and has not started can be started elsewhere.
    pub(crate) fn node_is_lost(&self, node: &str) {
        self.lost_nodes.lock().insert(node.to_owned());
        self.pods().iter().for_each(|pod| self.note_unstarted(pod));
    }

    /// A pod has got its node, which may have died unseen by whoever chose it.
    pub(crate) fn note_binding(&self, name: &str) {
        self.pods().iter().filter(|pod| pod["metadata"]["name"] == *name).for_each(|pod| self.note_unstarted(pod));
    }

    fn note_unstarted(&self, pod: &Value) {
        let text = |field: &str| pod.pointer(field).and_then(Value::as_str).unwrap_or_default();
        // A guest that moves there is alive elsewhere.
        let is_target = pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"].is_string();
        let is_started = self.machine.living().iter().any(|process| process.pod_uid == text("/metadata/uid"));
        if self.lost_nodes.lock().contains(text("/spec/nodeName")) && !is_target && !is_started {
            self.may_be_lost(text("/metadata/ownerReferences/0/name"));
        }
    }

    /// Whether a guest may have ended with its launcher.
    pub(crate) fn is_lost_allowed(&self, guest: &str) -> bool {
        self.lost.lock().contains(guest)
    }

    /// The moves as they are stored.
    pub fn migrations(&self) -> Vec<Arc<Value>> {
        self.stored("kubevirt.io/virtualmachineinstancemigrations")
    }

    /// No guest has two pods that may run, and no machine either: its guests have one name. A guest that moves has a second, which was
    /// made for that move alone.
    pub(crate) fn check_children(&self) {
        let (mut pods, mut made): (BTreeMap<String, usize>, BTreeSet<String>) = Default::default();
        for pod in self.pods() {
            let metadata = &pod["metadata"];
            let of_move = metadata["labels"]["kubevirt.io/migrationJobUID"].as_str();
            if let Some(uid) = of_move
                && !made.insert(uid.to_owned())
            {
                self.broken(|| format!("a move has two target pods: {}", metadata["name"]));
            }
            let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
                || metadata["deletionTimestamp"].is_string()
                || self.machine.process(metadata["uid"].as_str().unwrap_or_default()).is_some_and(|it| it.is_left());
            if is_over {
                continue;
            }
            let owner = metadata["ownerReferences"][0]["name"].as_str().unwrap_or_default().to_owned();
            let count = pods.entry(owner).or_default();
            *count += if of_move.is_some() { 1 } else { 10 };
        }
        // One of its own and one of a move, or two of moves: it has moved before, and moves again.
        if let Some((owner, _)) = pods.iter().find(|(_, count)| !matches!(count, 1 | 2 | 10 | 11)) {
            self.broken(|| format!("{owner} has two pods that were not made for a move, or three"));
        }
        self.check_slots();
    }

    /// No more moves at a time than allowed.
    fn check_slots(&self) {
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        let pods = self.pods();
        for migration in self.migrations().iter().filter(|it| !crate::mover::is_final(it)) {
            let has_pod = pods.iter().any(|pod| {
                let is_its = pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] == migration["metadata"]["uid"];
                is_its && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            });
            let guest = migration["spec"]["vmiName"].as_str().and_then(|name| self.guest_named(name));
            let Some(guest) = guest.filter(|_| has_pod) else { continue };
            let (status, state) = (&guest["status"], &guest["status"]["migrationState"]);
            let is_its = state["migrationUid"] == migration["metadata"]["uid"];
            let node = if is_its { &state["sourceNode"] } else { &status["nodeName"] };
            *used.entry(node.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        let all = used.values().sum();
        self.most_moves.fetch_max(all, Ordering::Relaxed);
        if used.values().any(|count| *count > 2) || all > 5 {
            self.broken(|| format!("too many moves at a time: {used:?}"));
        }
    }

    /// How many moves there were at the same time.
    pub(crate) fn most_moves(&self) -> usize {
        self.most_moves.load(Ordering::Relaxed)
    }

    /// Nobody says that a guest has ended while it runs.
    pub(crate) fn check_ends(&self) {
        for guest in &self.guests() {
            if !matches!(guest["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
                continue;
            }
            let living = self.machine.living();
            if living.iter().any(|process| guest["metadata"]["uid"] == *process.guest_uid && process.is_live()) {
                self.broken(|| format!("{} is said to have ended, and runs", guest["metadata"]["name"]));
            }
        }
    }
}
