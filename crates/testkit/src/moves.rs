//! Launchers that give their guest away and take one, with the real machines of a move.
//!
//! Their hypervisors are simulated: memory is a few bytes on a connection of its own, and a guest that was sent stands still. What
//! a launcher has to do it does a little later, as a real one, and what it will do for certain counts as done when promises are checked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrovirt_handover::{
    Outcome, Source, SourceAction, SourceInput, SourceStage, Target, TargetAction, TargetInput, TargetStage, ToTarget,
};
use ferrovirt_launcher_rpc::messages::{DomainState, OffReason, PauseReason, Refusal};
use ferrovirt_launcher_rpc::migration::{
    CancelRequest, Channel, Line, MigrationReport, Mode, SourceRequest, Stage, TargetRequest, VerdictRequest,
};
use ferrovirt_virt_handler::launcher::LauncherError;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::machine::{Process, node_name};
use crate::world::World;

/// What is sent of a guest.
const MEMORY: [&[u8]; 3] = [b"first round", b"second round", b"the rest"];
/// How long a target waits for the last of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The moves of one launcher, the newest last. None is forgotten: a call may come late.
#[derive(Default)]
pub(crate) struct Moves {
    known: Mutex<Vec<Move>>,
    /// The source has a connection to make.
    wants: Notify,
    /// Memory arrived, or will not.
    memory: Notify,
    /// The copy will run: it was told to, or lets go of what it stood still for.
    will_run: AtomicBool,
}

struct Move {
    id: String,
    side: Side,
    link: Option<mpsc::UnboundedSender<Line>>,
    wanted: VecDeque<Channel>,
    stop: CancellationToken,
    /// All memory is here; `None`: not yet.
    received: Option<bool>,
}

enum Side {
    Source(Source),
    Target(Target),
}

impl Move {
    fn new(id: &str, side: Side) -> Self {
        let (link, wanted) = (None, VecDeque::new());
        Self { id: id.to_owned(), side, link, wanted, stop: CancellationToken::new(), received: None }
    }

    fn report(&self) -> MigrationReport {
        let stage = match &self.side {
            Side::Source(machine) => Stage::Source(machine.stage().clone()),
            Side::Target(machine) => Stage::Target(machine.stage().clone()),
        };
        MigrationReport { id: self.id.clone(), stage, mode: Mode::default(), progress: None, doubt: None }
    }
}

impl Moves {
    /// Whether the copy runs for certain, though it does not yet.
    pub(crate) fn will_run(&self) -> bool {
        self.will_run.load(Ordering::Relaxed)
    }

    /// The newest move, as it is.
    pub(crate) fn newest(&self) -> Option<MigrationReport> {
        self.known.lock().last().map(Move::report)
    }

    /// Whether the guest was given away, or lost on its way.
    pub(crate) fn has_given_away(&self) -> bool {
        let stage = self.newest().map(|report| report.stage);
        matches!(stage, Some(Stage::Source(SourceStage::Over(Outcome::Moved | Outcome::Lost))))
    }

    fn with<T>(&self, id: &str, then: impl FnOnce(&mut Move) -> T) -> Option<T> {
        self.known.lock().iter_mut().find(|known| known.id == id).map(then)
    }

    fn want(&self, id: &str, channel: Channel) {
        self.with(id, |known| known.wanted.push_back(channel));
        self.wants.notify_waiters();
    }
}

fn refused(message: &str) -> LauncherError {
    LauncherError::Refused(Refusal { reason: "Simulated".to_owned(), message: message.to_owned() })
}

/// Calls of the handler.
impl Process {
    pub(crate) fn prepare_target(self: &Arc<Self>, world: &World, request: &TargetRequest) {
        if request.uid != self.guest_uid {
            world.broken(|| format!("a launcher of {} was made the target of another guest", self.guest));
        }
        let mut known = self.moves.known.lock();
        if known.is_empty() {
            known.push(Move::new(&request.id, Side::Target(Target::default())));
        }
        drop(known);
        self.tell_moves();
    }

    pub(crate) fn begin_move(self: &Arc<Self>, world: &Arc<World>, request: &SourceRequest) {
        let mut known = self.moves.known.lock();
        let is_busy = known.iter().any(|known| match &known.side {
            Side::Source(machine) => !machine.is_over(),
            Side::Target(machine) => *machine.stage() != TargetStage::Started,
        });
        if is_busy || known.iter().any(|known| known.id == request.id) || !self.is_live() {
            return;
        }
        let (machine, actions) = Source::begin();
        known.push(Move::new(&request.id, Side::Source(machine)));
        drop(known);
        world.note(|| format!("{} begins to move away from {}", self.guest, node_name(self.node)));
        self.tell_moves();
        for action in actions {
            self.source_does(world, &request.id, action);
        }
    }

    pub(crate) fn cancel_move(self: &Arc<Self>, world: &Arc<World>, request: &CancelRequest) {
        let side = self.moves.with(&request.id, |known| matches!(known.side, Side::Source(_)));
        match side {
            Some(true) => self.on_source(world, &request.id, SourceInput::Cancel(request.reason.clone())),
            Some(false) => self.on_target(world, &request.id, TargetInput::Discard(request.reason.clone())),
            None => self.call_off(world, request),
        }
    }

    /// A move that it never heard of will not begin later.
    fn call_off(self: &Arc<Self>, world: &Arc<World>, request: &CancelRequest) {
        let is_source = self.report().uid.is_some();
        let side = match is_source {
            true => Side::Source(Source::called_off(request.reason.clone())),
            false => Side::Target(Target::default()),
        };
        self.moves.known.lock().push(Move::new(&request.id, side));
        self.tell_moves();
        if !is_source {
            self.on_target(world, &request.id, TargetInput::Discard(request.reason.clone()));
        }
    }

    pub(crate) fn tell_verdict(self: &Arc<Self>, world: &Arc<World>, request: &VerdictRequest) {
        self.on_source(world, &request.id, SourceInput::Told(request.verdict));
    }

    /// The next connection that the source makes.
    pub(crate) async fn outgoing(
        self: &Arc<Self>,
        world: &Arc<World>,
        id: &str,
    ) -> Result<(Channel, DuplexStream), LauncherError> {
        loop {
            let wants = self.moves.wants.notified();
            let next = self.moves.with(id, |known| known.wanted.pop_front());
            match next {
                None => return Err(refused("there is no such move")),
                Some(Some(channel)) => {
                    let (mine, theirs) = tokio::io::duplex(4096);
                    let (process, world, id) = (self.clone(), world.clone(), id.to_owned());
                    match channel {
                        Channel::Link => process.link_source(&world, &id, mine),
                        _ => drop(tokio::spawn(async move { process.send_memory(&world, &id, mine).await })),
                    }
                    return Ok((channel, theirs));
                }
                Some(None) => wants.await,
            }
        }
    }

    /// A connection to the target.
    pub(crate) fn incoming(
        self: &Arc<Self>,
        world: &Arc<World>,
        id: &str,
        channel: Channel,
    ) -> Result<DuplexStream, LauncherError> {
        let is_target = self.moves.with(id, |known| matches!(known.side, Side::Target(_)));
        if is_target != Some(true) {
            return Err(refused("there is no such move"));
        }
        let (mine, theirs) = tokio::io::duplex(4096);
        let (process, world, id) = (self.clone(), world.clone(), id.to_owned());
        match channel {
            Channel::Link => process.link_target(&world, &id, mine),
            _ => drop(tokio::spawn(async move { process.receive_memory(&world, &id, mine).await })),
        }
        Ok(theirs)
    }
}

/// The machines, and what they want done.
impl Process {
    fn on_source(self: &Arc<Self>, world: &Arc<World>, id: &str, input: SourceInput) {
        if self.ended().is_some() {
            return;
        }
        let actions = self.moves.with(id, |known| match &mut known.side {
            Side::Source(machine) => {
                let before = machine.stage().clone();
                let actions = machine.on(input);
                if *machine.stage() != before {
                    world.note(|| format!("source of {}: {:?}", self.guest, machine.stage()));
                }
                if machine.is_over() {
                    known.link = None;
                }
                actions
            }
            Side::Target(_) => Vec::new(),
        });
        self.tell_moves();
        for action in actions.unwrap_or_default() {
            self.source_does(world, id, action);
        }
    }

    fn source_does(self: &Arc<Self>, world: &Arc<World>, id: &str, action: SourceAction) {
        let (process, world) = (self.clone(), world.clone());
        match action {
            SourceAction::OpenLink => self.moves.want(id, Channel::Link),
            SourceAction::Say(word) => self.say(id, Line::Source { word, cookie: None, offer: None }),
            SourceAction::Copy => self.moves.want(id, Channel::Memory),
            SourceAction::StopCopying => {
                let waits = self.moves.with(id, |known| {
                    known.stop.cancel();
                    known.wanted.iter().any(|wanted| *wanted == Channel::Memory)
                });
                // Nobody has made its connection yet.
                if waits == Some(true) {
                    self.moves.with(id, |known| known.wanted.clear());
                    self.on_source(&world, id, SourceInput::CopyFailed("stopped".to_owned()));
                }
            }
            SourceAction::Resume => {
                if self.report().state == DomainState::Paused(PauseReason::Migration) {
                    self.moves.will_run.store(true, Ordering::Relaxed);
                    self.check_alone(&world, "goes on");
                    drop(tokio::spawn(async move { process.resume(&world).await }));
                }
            }
            SourceAction::Release => {
                if self.is_live() {
                    world.broken(|| format!("{} is let go of while it runs", self.guest));
                }
                drop(tokio::spawn(async move {
                    world.pause(0..300).await;
                    let moved = matches!(
                        process.moves.newest().map(|report| report.stage),
                        Some(Stage::Source(SourceStage::Over(Outcome::Moved)))
                    );
                    process.end(&world, if moved { OffReason::Migrated } else { OffReason::Unknown });
                }));
            }
        }
    }

    async fn resume(&self, world: &World) {
        world.pause(0..300).await;
        if self.report().state == DomainState::Paused(PauseReason::Migration) {
            self.check_alone(world, "goes on");
            world.note(|| format!("guest {} goes on at {}", self.guest, node_name(self.node)));
            self.enter(if self.was_asked_to_end() { DomainState::ShuttingDown } else { DomainState::Running });
        }
        self.moves.will_run.store(false, Ordering::Relaxed);
    }

    pub(crate) fn on_target(self: &Arc<Self>, world: &Arc<World>, id: &str, input: TargetInput) {
        if self.ended().is_some() {
            return;
        }
        let actions = self.moves.with(id, |known| match &mut known.side {
            Side::Target(machine) => {
                let before = machine.stage().clone();
                let actions = machine.on(input);
                if *machine.stage() != before {
                    world.note(|| format!("target of {}: {:?}", self.guest, machine.stage()));
                }
                actions
            }
            Side::Source(_) => Vec::new(),
        });
        self.tell_moves();
        for action in actions.unwrap_or_default() {
            self.target_does(world, id, action);
        }
    }

    fn target_does(self: &Arc<Self>, world: &Arc<World>, id: &str, action: TargetAction) {
        let (process, world, id) = (self.clone(), world.clone(), id.to_owned());
        match action {
            TargetAction::Prepare => drop(tokio::spawn(async move {
                world.pause(20..600).await;
                let fails = world.hypervisor_fails();
                let input = if fails { TargetInput::Failed("no room".to_owned()) } else { TargetInput::Prepared };
                process.on_target(&world, &id, input);
            })),
            TargetAction::Finish => {
                self.moves.will_run.store(true, Ordering::Relaxed);
                self.check_alone(&world, "is finished");
                drop(tokio::spawn(async move { process.finish(&world, &id).await }));
            }
            TargetAction::Say(word) => self.say(&id, Line::Target { word, cookie: None, without: 0 }),
            // There is nothing that could run, and nothing will: see `finish`.
            TargetAction::Discard => {}
        }
    }

    /// Runs the guest here, if all of it arrived.
    async fn finish(self: Arc<Self>, world: &Arc<World>, id: &str) {
        world.pause(10..300).await;
        let arrived = async {
            loop {
                let memory = self.moves.memory.notified();
                if let Some(Some(received)) = self.moves.with(id, |known| known.received) {
                    return received;
                }
                memory.await;
            }
        };
        let arrived = timeout(PATIENCE, arrived).await.unwrap_or(false);
        self.moves.will_run.store(false, Ordering::Relaxed);
        if self.ended().is_some() || self.is_off() {
            return;
        }
        if !arrived || world.hypervisor_fails() {
            return self.on_target(world, id, TargetInput::Failed("the hypervisor gave up".to_owned()));
        }
        self.check_alone(world, "runs");
        world.note(|| format!("guest {} runs at {}", self.guest, node_name(self.node)));
        self.adopt();
        self.on_target(world, id, TargetInput::Finished);
    }

    /// From now on it is the newest move that reports tell of.
    fn tell_moves(&self) {
        let newest = self.moves.newest();
        self.change_report(|report| report.migration = newest);
    }

    /// A launcher that is told to end: a target that has no guest never takes one.
    pub(crate) fn give_up_target(self: &Arc<Self>, world: &Arc<World>) {
        let newest = self.moves.newest();
        if let Some(MigrationReport { id, stage: Stage::Target(_), .. }) = newest {
            self.on_target(world, &id, TargetInput::Discard("the launcher was told to end".to_owned()));
        }
    }

    /// The guest has ended: there is nothing left to send.
    pub(crate) fn stop_sending(&self) {
        for known in self.moves.known.lock().iter() {
            known.stop.cancel();
        }
    }
}

/// Connections.
impl Process {
    fn say(&self, id: &str, line: Line) {
        self.moves.with(id, |known| known.link.as_ref().map(|link| link.send(line)));
    }

    fn link_source(self: &Arc<Self>, world: &Arc<World>, id: &str, stream: DuplexStream) {
        let (say, words) = mpsc::unbounded_channel();
        self.moves.with(id, |known| known.link = Some(say));
        let (process, world, id) = (self.clone(), world.clone(), id.to_owned());
        self.on_source(&world, &id, SourceInput::Linked);
        tokio::spawn(async move {
            let hear = |line| {
                if let Line::Target { word, .. } = line {
                    process.on_source(&world, &id, SourceInput::Heard(word));
                }
            };
            speak(stream, words, hear).await;
            process.on_source(&world, &id, SourceInput::LinkLost);
        });
    }

    fn link_target(self: &Arc<Self>, world: &Arc<World>, id: &str, stream: DuplexStream) {
        let (say, words) = mpsc::unbounded_channel();
        self.moves.with(id, |known| known.link = Some(say));
        let (process, world, id) = (self.clone(), world.clone(), id.to_owned());
        tokio::spawn(async move {
            let hear = |line| {
                if let Line::Source { word, .. } = line {
                    if word == ToTarget::Finish {
                        world.note(|| format!("the target of {} is told to finish", process.guest));
                    }
                    process.on_target(&world, &id, TargetInput::Heard(word));
                }
            };
            speak(stream, words, hear).await;
            process.on_target(&world, &id, TargetInput::LinkLost);
        });
    }

    /// The copy: the guest runs until the last of it is to be sent.
    async fn send_memory(self: Arc<Self>, world: &Arc<World>, id: &str, mut stream: DuplexStream) {
        let Some(stop) = self.moves.with(id, |known| known.stop.clone()) else { return };
        let sent = async {
            for (round, bytes) in MEMORY.iter().enumerate() {
                world.pause(20..800).await;
                if round + 1 == MEMORY.len() && !self.stand_still() {
                    return false;
                }
                if stream.write_all(bytes).await.is_err() {
                    return false;
                }
            }
            matches!(stream.read(&mut [0]).await, Ok(1))
        };
        let sent = tokio::select! {
            biased;
            sent = sent => sent && !world.hypervisor_fails(),
            () = stop.cancelled() => false,
            () = self.dies() => return,
        };
        let failed = || SourceInput::CopyFailed("the connection broke, or it was told to stop".to_owned());
        self.on_source(world, id, if sent { SourceInput::Copied } else { failed() });
    }

    /// A copy that was sent is of use only if nothing runs any more.
    fn stand_still(&self) -> bool {
        if self.is_live() {
            self.enter(DomainState::Paused(PauseReason::Migration));
        }
        self.report().state == DomainState::Paused(PauseReason::Migration)
    }

    async fn receive_memory(self: Arc<Self>, world: &Arc<World>, id: &str, mut stream: DuplexStream) {
        let mut memory = vec![0; MEMORY.iter().map(|bytes| bytes.len()).sum()];
        let whole = tokio::select! {
            biased;
            read = stream.read_exact(&mut memory) => read.is_ok() && memory == MEMORY.concat(),
            () = self.dies() => return,
        };
        self.moves.with(id, |known| known.received = Some(whole));
        self.moves.memory.notify_waiters();
        if whole {
            let _ = stream.write_all(b"k").await;
        } else if let Some(true) = self.moves.with(id, |known| match &known.side {
            Side::Target(machine) => *machine.stage() == TargetStage::Receiving,
            Side::Source(_) => false,
        }) {
            self.on_target(world, id, TargetInput::Failed("the connection for memory broke".to_owned()));
        }
    }
}

/// Lines in both directions, until the connection ends or nobody wants to say anything any more.
async fn speak(stream: DuplexStream, mut words: mpsc::UnboundedReceiver<Line>, hear: impl Fn(Line)) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    loop {
        tokio::select! {
            biased;
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return };
                if let Ok(line) = serde_json::from_str(&line) {
                    hear(line);
                }
            }
            word = words.recv() => {
                let Some(word) = word else { return };
                let line = serde_json::to_string(&word).unwrap_or_default() + "\n";
                if write.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrovirt_handover::Verdict;

    use super::*;
    use crate::machine::Machine;
    use crate::machine::tests::{running, world};

    const ID: &str = "move";

    fn stage(process: &Process) -> Stage {
        process.report().migration.unwrap().stage
    }

    /// A guest that runs, and a launcher that waits for it.
    async fn pair() -> (Arc<World>, Arc<Process>, Arc<Process>) {
        let (world, uid) = world().await;
        let source = running(&world, "one", &uid).await;
        Machine::start(&world, "two", 1, "a", &uid);
        let target = world.machine.process("two").unwrap();
        let request =
            TargetRequest { id: ID.to_owned(), uid, name: "a".to_owned(), disks: Vec::new(), dhcp: Vec::new() };
        target.prepare_target(&world, &request);
        let request = SourceRequest { id: ID.to_owned(), options: Default::default(), copied_volumes: Vec::new() };
        source.begin_move(&world, &request);
        source.begin_move(&world, &request);
        (world, source, target)
    }

    /// Joins what the source makes with what the target has, as handlers do.
    async fn join(world: Arc<World>, source: Arc<Process>, target: Arc<Process>) {
        while let Ok((channel, mut near)) = source.outgoing(&world, ID).await {
            let Ok(mut far) = target.incoming(&world, ID, channel) else { return };
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    }

    async fn over(process: &Process) -> Stage {
        let mut reports = process.reports();
        let is_over =
            |stage: &Stage| matches!(stage, Stage::Source(SourceStage::Over(_)) | Stage::Target(TargetStage::Started));
        let report = reports.wait_for(|report| is_over(&report.migration.as_ref().unwrap().stage)).await;
        report.migration.unwrap().stage
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_moves() {
        let (world, source, target) = pair().await;
        tokio::spawn(join(world.clone(), source.clone(), target.clone()));
        assert_eq!(over(&source).await, Stage::Source(SourceStage::Over(Outcome::Moved)));
        assert_eq!(stage(&target), Stage::Target(TargetStage::Started));
        source.dies().await;
        assert_eq!(source.ended().unwrap().words.unwrap().reason, OffReason::Migrated);
        assert!(target.is_live());
        assert_eq!(world.first_broken(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_stays_when_its_target_dies_early() {
        let (world, source, target) = pair().await;
        target.die(&world);
        tokio::spawn(join(world.clone(), source.clone(), target.clone()));
        let (_, link) = source.outgoing(&world, ID).await.unwrap();
        drop(link);
        assert!(matches!(over(&source).await, Stage::Source(SourceStage::Over(Outcome::Stayed(_)))));
        assert!(source.is_live());
        assert_eq!(world.first_broken(), None);
    }

    /// The check itself: a false word makes two copies, and that is noticed.
    #[tokio::test(start_paused = true)]
    async fn a_false_word_is_noticed() {
        let (world, source, target) = pair().await;
        tokio::spawn(join(world.clone(), source.clone(), target.clone()));
        let mut reports = source.reports();
        let doubtful = Stage::Source(SourceStage::Doubtful);
        reports.wait_for(|report| report.migration.as_ref().unwrap().stage == doubtful).await;
        // The target hears its word a moment later, and nobody hears the target.
        let verdict = VerdictRequest { id: ID.to_owned(), verdict: Verdict::Never };
        source.tell_verdict(&world, &verdict);
        over(&target).await;
        assert!(world.first_broken().unwrap().contains("two live copies of a"));
    }
}
