//! Processes and guests of all nodes. They survive the death of every component, and here the promises are checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::messages::{DomainReport, DomainState, FinalWords, OffReason, PauseReason};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::course::Fate;
use crate::moves::Moves;
use crate::told::{Followed, Told};
use crate::world::World;

/// How long a launcher waits for somebody to note its guest's end.
const DONE_PATIENCE: Duration = Duration::from_secs(15);

/// The name of a node.
pub fn node_name(index: usize) -> String {
    format!("node{index}")
}

/// All processes.
#[derive(Default)]
pub struct Machine {
    processes: Mutex<Vec<Arc<Process>>>,
    fates: Mutex<BTreeMap<String, Fates>>,
    /// Some process ended.
    pub ended: Notify,
}

/// What the guests of one name do by themselves.
#[derive(Default)]
struct Fates {
    /// The first does the first, and so on.
    each: Vec<Fate>,
    /// All later ones.
    rest: Option<Fate>,
    /// Uids of those that were started, in order.
    known: Vec<String>,
}

/// One launcher with its guest, in one pod.
pub struct Process {
    /// The pod.
    pub pod_uid: String,
    /// Where it runs.
    pub node: usize,
    /// The guest's object.
    pub guest: String,
    /// The guest's uid.
    pub guest_uid: String,
    report: Told<DomainReport>,
    deadline: watch::Sender<Option<Instant>>,
    done: Notify,
    ending: Mutex<Option<Ending>>,
    dead: CancellationToken,
    pub(crate) moves: Moves,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Its last words, unless it was killed.
    pub words: Option<FinalWords>,
}

impl Machine {
    /// Decides what a guest does by itself.
    pub(crate) fn set_fate(&self, guest: &str, fate: Fate) {
        self.set_fates(guest, Vec::new(), fate);
    }

    /// Decides what the guests of a name do, one after the other.
    pub(crate) fn set_fates(&self, guest: &str, each: Vec<Fate>, rest: Fate) {
        let mut fates = self.fates.lock();
        let fates = fates.entry(guest.to_owned()).or_default();
        fates.rest = Some(rest);
        fates.each = each;
    }

    fn fate(&self, guest: &str, uid: &str) -> Fate {
        let mut fates = self.fates.lock();
        let Some(fates) = fates.get_mut(guest) else { return Fate::Obedient };
        let known = fates.known.iter().position(|known| known == uid);
        let index = known.unwrap_or_else(|| {
            fates.known.push(uid.to_owned());
            fates.known.len() - 1
        });
        fates.each.get(index).copied().or(fates.rest).unwrap_or(Fate::Obedient)
    }

    /// The process of a pod, also after its end.
    pub fn process(&self, pod_uid: &str) -> Option<Arc<Process>> {
        self.processes.lock().iter().find(|process| process.pod_uid == pod_uid).cloned()
    }

    /// Processes that have not ended.
    pub fn living(&self) -> Vec<Arc<Process>> {
        self.processes.lock().iter().filter(|process| process.ending.lock().is_none()).cloned().collect()
    }

    /// Starts the launcher of a pod.
    pub(crate) fn start(world: &Arc<World>, pod_uid: &str, node: usize, guest: &str, guest_uid: &str) {
        let process = Arc::new(Process {
            pod_uid: pod_uid.to_owned(),
            node,
            guest: guest.to_owned(),
            guest_uid: guest_uid.to_owned(),
            report: Told::new(DomainReport::default()),
            deadline: watch::Sender::new(None),
            done: Notify::new(),
            ending: Mutex::new(None),
            dead: CancellationToken::new(),
            moves: Moves::default(),
        });
        world.note(|| format!("launcher of {guest} starts on {}", node_name(node)));
        world.machine.processes.lock().push(process.clone());
        tokio::spawn(live(world.clone(), process.clone()));
        tokio::spawn(bring_about_the_end(world.clone(), process));
    }
}

/// Whether a guest in this state may write to its disks. One that stands still for a move does not.
fn writes(state: &DomainState) -> bool {
    !matches!(state, DomainState::Absent | DomainState::Off(_) | DomainState::Paused(PauseReason::Migration))
}

impl Process {
    /// What the launcher reports.
    pub fn report(&self) -> DomainReport {
        self.report.get()
    }

    /// Follows the reports.
    pub(crate) fn reports(&self) -> Followed<DomainReport> {
        self.report.follow()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ending> {
        self.ending.lock().clone()
    }

    /// Waits for its end.
    pub(crate) async fn dies(&self) {
        self.dead.cancelled().await;
    }

    fn note_end(&self, world: &World, ending: Ending) {
        let mut known = self.ending.lock();
        if known.is_none() {
            let how = if ending.words.is_some() { "exits" } else { "is killed" };
            world.note(|| format!("launcher of {} at {} {how}", self.guest, node_name(self.node)));
            *known = Some(ending);
            self.dead.cancel();
            world.machine.ended.notify_waiters();
        }
    }

    fn runs(&self) -> bool {
        self.ending.lock().is_none() && self.report.look(|report| writes(&report.state))
    }

    /// Whether its guest runs, or will for certain.
    pub fn is_live(&self) -> bool {
        self.runs() || (self.ending.lock().is_none() && self.moves.will_run())
    }

    /// Another copy of the guest that lives.
    pub(crate) fn rival(&self, world: &World) -> Option<Arc<Process>> {
        let others = world.machine.living().into_iter();
        others.filter(|other| other.pod_uid != self.pod_uid && other.guest == self.guest).find(|other| other.is_live())
    }

    /// Nothing else runs the guest, and it has not ended by itself.
    pub(crate) fn check_alone(&self, world: &World, how: &str) {
        let here = node_name(self.node);
        if let Some(rival) = self.rival(world) {
            let there = node_name(rival.node);
            world.broken(|| format!("two live copies of {}: it {how} at {here} and lives at {there}", self.guest));
        }
        if world.own_end(&self.guest_uid).is_some() {
            world.broken(|| format!("{} has ended by itself, and {how} at {here}", self.guest));
        }
    }

    /// Whether it has ended, or its guest is gone for good and it will.
    pub(crate) fn is_left(&self) -> bool {
        self.ended().is_some() || self.is_off() || self.moves.has_given_away()
    }

    pub(crate) fn is_off(&self) -> bool {
        self.report.look(|report| matches!(report.state, DomainState::Off(_)))
    }

    pub(crate) fn was_asked_to_end(&self) -> bool {
        self.deadline.borrow().is_some()
    }

    pub(crate) fn change_report(&self, change: impl FnOnce(&mut DomainReport)) {
        self.report.change(change);
    }

    pub(crate) fn enter(&self, state: DomainState) {
        self.change_report(|report| report.state = state);
    }

    /// A guest that moved here runs.
    pub(crate) fn adopt(&self) {
        self.change_report(|report| {
            report.uid = Some(self.guest_uid.clone());
            report.state = DomainState::Running;
        });
    }

    /// Begins to start the guest, unless there was a start before.
    pub(crate) fn begin(self: &Arc<Self>, world: &Arc<World>, uid: &str) {
        if self.report().state != DomainState::Absent {
            return;
        }
        self.check_alone(world, "begins");
        if uid != self.guest_uid {
            world.broken(|| format!("the launcher of {} was given another guest", self.guest));
        }
        self.report.change(|report| {
            report.uid = Some(uid.to_owned());
            report.state = DomainState::Starting;
        });
        let (world, process) = (world.clone(), self.clone());
        tokio::spawn(async move {
            world.pause(50..2_000).await;
            if process.report().state != DomainState::Starting {
                return;
            }
            world.note(|| format!("guest {} runs", process.guest));
            process.enter(DomainState::Running);
            let end = match world.machine.fate(&process.guest, &process.guest_uid) {
                Fate::PowersOff => OffReason::Shutdown,
                Fate::Crashes => OffReason::Crashed,
                Fate::Obedient | Fate::Stubborn => return,
            };
            world.pause(100..8_000).await;
            end_by_itself(&world, &process.guest, &process.guest_uid, end).await;
        });
    }

    /// The guest is off; the first reason stays.
    pub(crate) fn end(&self, world: &World, reason: OffReason) {
        if !self.is_off() {
            world.note(|| format!("guest {} is off at {}: {reason:?}", self.guest, node_name(self.node)));
            self.enter(DomainState::Off(reason));
            self.stop_sending();
        }
    }

    /// The process is gone from one moment to the next, and its guest with it.
    pub fn die(&self, world: &World) {
        self.note_end(world, Ending { words: None });
    }

    /// Somebody wants the guest to end: it must have been asked for.
    fn check_intent(&self, world: &World, who: &str) {
        let is_meant = world.is_end_intended(&self.guest, &self.guest_uid) || world.is_forced(&self.pod_uid);
        if self.is_live() && !is_meant {
            world.broken(|| format!("{who} ends the healthy guest {} without a recorded intent", self.guest));
        }
    }

    /// The guest has this long to power off. Asked again, the deadline can only come nearer.
    pub(crate) fn ask_to_end(&self, world: &World, grace: Duration, who: &str) {
        self.check_intent(world, who);
        let wanted = Instant::now() + grace;
        self.deadline.send_if_modified(|deadline| {
            let nearer = deadline.is_none_or(|before| wanted < before);
            if nearer {
                *deadline = Some(wanted);
            }
            nearer
        });
    }

    /// The guest is killed.
    pub(crate) fn kill(&self, world: &World, who: &str) {
        self.check_intent(world, who);
        let absent = self.report().state == DomainState::Absent;
        self.end(world, if absent { OffReason::Failed } else { OffReason::Destroyed });
    }

    /// The end was noted.
    pub(crate) fn note_done(&self) {
        self.done.notify_one();
    }
}

/// The process' life: it ends after its guest, when that was noted.
async fn live(world: Arc<World>, process: Arc<Process>) {
    let mut reports = process.reports();
    let reason = loop {
        reports.changed().await;
        if let DomainState::Off(reason) = reports.take().state {
            break reason;
        }
    };
    // One whose guest has moved away, or never came, is needed by nobody.
    if reason != OffReason::Migrated && process.report().uid.is_some() {
        let _ = timeout(DONE_PATIENCE, process.done.notified()).await;
    }
    let (message, migration) = ("it was simulated".to_owned(), process.moves.newest());
    process.note_end(&world, Ending { words: Some(FinalWords { reason, message, migration }) });
}

/// A guest ends by itself, wherever it runs then.
pub(crate) async fn end_by_itself(world: &Arc<World>, guest: &str, uid: &str, reason: OffReason) {
    loop {
        let copies: Vec<_> = world.machine.living().into_iter().filter(|process| process.guest_uid == uid).collect();
        if let Some(process) = copies.iter().find(|process| process.runs()) {
            world.ledger.ended_by_itself(guest, reason == OffReason::Crashed);
            world.note_own_end(uid, reason == OffReason::Shutdown);
            return process.end(world, reason);
        }
        if copies.iter().all(|process| process.is_off()) {
            return;
        }
        world.pause(50..500).await;
    }
}

/// What happens once the guest was asked to power off.
async fn bring_about_the_end(world: Arc<World>, process: Arc<Process>) {
    let mut deadlines = process.deadline.subscribe();
    if deadlines.wait_for(Option::is_some).await.is_err() {
        return;
    }
    process.give_up_target(&world);
    if process.report().state == DomainState::Absent {
        return process.end(&world, if process.is_live() { OffReason::Destroyed } else { OffReason::Failed });
    }
    if matches!(process.report().state, DomainState::Running | DomainState::Paused(_))
        && process.report().state != DomainState::Paused(PauseReason::Migration)
    {
        process.enter(DomainState::ShuttingDown);
    }
    let listens = world.machine.fate(&process.guest, &process.guest_uid) != Fate::Stubborn;
    let powers_off = Instant::now() + Duration::from_millis(world.roll(100..4_000));
    loop {
        let deadline = deadlines.borrow_and_update().unwrap_or_else(Instant::now);
        let next = if listens { powers_off.min(deadline) } else { deadline };
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next) => {
                let in_time = listens && powers_off <= deadline;
                return process.end(&world, if in_time { OffReason::Shutdown } else { OffReason::Destroyed });
            }
            changed = deadlines.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ferrovirt_apiserver::internal::Place;
    use ferrovirt_reconcile::Clock;
    use serde_json::{Value, json};

    use super::*;
    use crate::world::NAMESPACE;

    /// A world with one guest, whose uid comes with it.
    pub(crate) async fn world() -> (Arc<World>, String) {
        let keys = tempfile::tempdir().unwrap();
        let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let server = crate::server::start(keys.path(), 1, clock, CancellationToken::new()).unwrap();
        let world = World::new(server, clock, 1);
        world.make_namespace().await.unwrap();
        let guests = world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
        let guest = json!({
            "metadata": {"name": "a", "namespace": NAMESPACE},
            "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        });
        let made = guests.create(guest).await.unwrap();
        let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
        (world, uid)
    }

    pub(crate) async fn running(world: &Arc<World>, pod: &str, uid: &str) -> Arc<Process> {
        Machine::start(world, pod, 0, "a", uid);
        let process = world.machine.process(pod).unwrap();
        process.begin(world, uid);
        process.reports().wait_for(|report| report.state == DomainState::Running).await;
        process
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_live_copy_is_noticed() {
        let (world, uid) = world().await;
        running(&world, "one", &uid).await;
        assert_eq!(world.first_broken(), None);
        running(&world, "two", &uid).await;
        let broken = world.first_broken().unwrap();
        assert!(broken.contains("two live copies of a"), "{broken}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_runs_again_after_its_own_end_is_noticed() {
        let (world, uid) = world().await;
        let process = running(&world, "one", &uid).await;
        end_by_itself(&world, "a", &uid, OffReason::Shutdown).await;
        assert!(process.is_off());
        assert_eq!(world.first_broken(), None);
        running(&world, "two", &uid).await;
        let broken = world.first_broken().unwrap();
        assert!(broken.contains("a has ended by itself, and begins"), "{broken}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_nobody_asked_for_is_noticed() {
        let (world, uid) = world().await;
        let process = running(&world, "one", &uid).await;
        process.ask_to_end(&world, Duration::from_secs(5), "somebody");
        let broken = world.first_broken().unwrap();
        assert!(broken.contains("somebody ends the healthy guest a"), "{broken}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_guest_may_be_ended() {
        let (world, uid) = world().await;
        let process = running(&world, "one", &uid).await;
        let guests = world.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
        guests.delete(&Place::new(NAMESPACE, "a"), &Default::default()).await.unwrap();
        process.kill(&world, "somebody");
        process.note_done();
        world.machine.ended.notified().await;
        assert_eq!(world.first_broken(), None);
        assert_eq!(process.ended().unwrap().words.unwrap().reason, OffReason::Destroyed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_pod_is_noticed() {
        let (world, uid) = world().await;
        let pods = world.server.internal("", "v1", "pods", "test").unwrap();
        let pod = |name: &str| -> Value {
            let owner =
                json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a", "uid": uid});
            json!({
                "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "compute", "image": "i"}]},
            })
        };
        pods.create(pod("one")).await.unwrap();
        world.check_children();
        assert_eq!(world.first_broken(), None);
        pods.create(pod("two")).await.unwrap();
        world.check_children();
        assert!(world.first_broken().unwrap().contains("two pods"));
    }
}
