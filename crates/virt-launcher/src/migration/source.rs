//! The source's side of a move: the machine of `ferrovirt_handover` decides, this does.
//!
//! One task per move. Sending runs beside it; everything else happens one after the other, in the order in which the machine wants it.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_handover::{Outcome, Source, SourceAction, SourceInput, SourceStage, ToTarget};
use ferrovirt_launcher_rpc::messages::OffReason;
use ferrovirt_launcher_rpc::migration::{
    Channel, Line, MigrationReport, Mode, Offer, Options, Progress, SourceRequest, Stage,
};
use ferrovirt_libvirt::migration::{Parameters, Verdict, flags};
use ferrovirt_libvirt::{Connection, Destroy, Domain, Error, PausedReason, State};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::sleep;

use super::descriptors::{self, Outbox, Side};
use super::leftovers;
use super::link::{self, Heard, Link};
use super::monitor::{self, Told};
use super::policy::Policy;
use super::witness::Witnesses;
use crate::description::Description;
use crate::emulation;
use crate::guest::Guest;
use crate::life::Life;

/// Between tries of what has to work in the end.
const RETRY: Duration = Duration::from_millis(500);
/// Between links of a source in doubt.
const LINK_PAUSE: Duration = Duration::from_secs(1);
/// How long a target that was told to run the guest may take before its silence is told. It needs moments; the storage below it can be slow.
const ANSWER: Duration = Duration::from_secs(5);
/// libvirt compresses memory on several connections from this version on.
const COMPRESSION_SINCE: u64 = 9_001_000;
/// QEMU can be told from this version on to stop sending on several connections while some of them are still being made. Before, it may wait
/// for them for ever, and no later move can begin; or crash, and the guest with it.
const PARALLEL_SINCE: u64 = 9_000_000;

/// What the task hears.
#[derive(Debug)]
pub enum Event {
    /// For the machine.
    Input(SourceInput),
    /// Everything was sent; libvirt's cookie. Or libvirt says why not.
    Copied(Result<Vec<u8>, String>),
    /// libvirt's answer was lost, for this reason.
    Unanswered(String),
    /// The link.
    Link(Heard),
    /// The monitor.
    Monitor(Told),
    /// The target was told to run the guest some time ago.
    Overdue,
}

impl From<Heard> for Event {
    fn from(heard: Heard) -> Self {
        Self::Link(heard)
    }
}

/// A move that began here.
#[derive(Debug)]
pub struct Outgoing {
    /// The migration's UID.
    pub id: String,
    /// Connections for the handler.
    pub outbox: Arc<Outbox>,
    inbox: UnboundedSender<Event>,
    task: JoinHandle<()>,
}

impl Outgoing {
    /// Begins a move; it waits for the one before it to be tidied up.
    pub fn begin(guest: Arc<Guest>, request: SourceRequest, before: Option<Self>) -> Self {
        let (inbox, events) = mpsc::unbounded_channel();
        let outbox = Arc::new(Outbox::default());
        let id = request.id.clone();
        let (machine, actions) = Source::begin();
        let driver = Driver {
            guest,
            request,
            machine,
            inbox: inbox.clone(),
            outbox: outbox.clone(),
            link: None,
            links: 0,
            terms: None,
            is_live: true,
            is_unanswered: false,
            witnesses: Witnesses::default(),
            cookie: Vec::new(),
            copy: None,
            mode: Mode::default(),
            progress: None,
            doubt: None,
        };
        driver.publish();
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.task.await;
            }
            driver.run(actions, events).await;
        });
        Self { id, outbox, inbox, task }
    }

    /// Tells the machine something. A move that is over does not listen any more.
    pub fn tell(&self, input: SourceInput) {
        let _ = self.inbox.send(Event::Input(input));
    }
}

/// What libvirt was told at the beginning.
#[derive(Debug, Clone)]
struct Terms {
    flags: u32,
    disks: Vec<String>,
    connections: u32,
    compression: bool,
    /// The guest was paused before the move.
    was_paused: bool,
    /// Bytes of the guest's memory.
    memory: u64,
    /// libvirt's cookie for the target.
    cookie: Vec<u8>,
}

struct Driver {
    guest: Arc<Guest>,
    request: SourceRequest,
    machine: Source,
    inbox: UnboundedSender<Event>,
    outbox: Arc<Outbox>,
    link: Option<Link>,
    links: u64,
    /// Set once libvirt has begun.
    terms: Option<Terms>,
    /// The guest may run while its memory is sent.
    is_live: bool,
    /// Sending began, and libvirt has not said how it ended.
    is_unanswered: bool,
    witnesses: Witnesses,
    /// The newest cookie of the other side, or of our own sending.
    cookie: Vec<u8>,
    copy: Option<Tasks>,
    mode: Mode,
    progress: Option<Progress>,
    /// Why a target that was told to run the guest does not answer.
    doubt: Option<String>,
}

/// Tasks that end together.
#[derive(Debug, Default)]
struct Tasks(Vec<AbortHandle>);

impl Tasks {
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.push(tokio::spawn(task).abort_handle());
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Driver {
    async fn run(mut self, actions: Vec<SourceAction>, mut events: UnboundedReceiver<Event>) {
        let mut tasks = Tasks::default();
        tasks.spawn(cancel_at_the_end(self.guest.clone(), self.inbox.clone()));
        self.act(actions).await;
        while !self.machine.is_over() {
            let Some(event) = events.recv().await else { return };
            let Some(input) = self.understand(event) else { continue };
            tracing::info!(id = self.request.id, ?input, stage = ?self.machine.stage(), "the move");
            let was_sure = !self.is_in_doubt();
            let actions = self.machine.on(input);
            self.publish();
            if was_sure && self.is_in_doubt() {
                tasks.spawn(remind(self.inbox.clone()));
            }
            self.act(actions).await;
        }
        self.outbox.close();
        tracing::info!(id = self.request.id, stage = ?self.machine.stage(), "the move is over");
    }

    /// What an event means to the machine, if anything.
    fn understand(&mut self, event: Event) -> Option<SourceInput> {
        match event {
            Event::Input(input) => Some(input),
            Event::Copied(answer) => {
                self.copy = None;
                self.is_unanswered = false;
                Some(answer.map_or_else(SourceInput::CopyFailed, |cookie| {
                    self.cookie = cookie;
                    SourceInput::Copied
                }))
            }
            Event::Unanswered(reason) => {
                self.copy = None;
                Some(SourceInput::CopyFailed(reason))
            }
            Event::Link(Heard::Line(number, Line::Target { word, cookie, without })) if self.is_current(number) => {
                self.do_without(without);
                if cookie.is_some() {
                    self.cookie = link::decode(cookie.as_deref());
                }
                Some(SourceInput::Heard(word))
            }
            Event::Link(Heard::Line(number, _) | Heard::Cut(number)) if self.is_current(number) => {
                self.link = None;
                self.doubt = Some("the connection to the target was lost".to_owned());
                Some(SourceInput::LinkLost)
            }
            Event::Link(_) => None,
            Event::Monitor(Told::Progress(mode, progress)) => {
                self.mode = mode;
                self.progress = Some(*progress);
                self.publish();
                None
            }
            Event::Monitor(Told::GiveUp(reason)) => Some(SourceInput::Cancel(reason)),
            Event::Overdue => {
                // With post-copy the answer comes when the last page was fetched.
                if self.mode != Mode::PostCopy {
                    self.doubt.get_or_insert_with(|| "the target does not answer".to_owned());
                    self.publish();
                }
                None
            }
        }
    }

    fn is_in_doubt(&self) -> bool {
        *self.machine.stage() == SourceStage::Doubtful
    }

    fn is_current(&self, number: u64) -> bool {
        self.link.as_ref().is_some_and(|link| link.number == number)
    }

    /// What the target cannot do is not done.
    fn do_without(&mut self, without: u32) {
        if let Some(terms) = self.terms.as_mut().filter(|terms| terms.flags & without & flags::POSTCOPY != 0) {
            tracing::warn!("the target cannot do post-copy");
            terms.flags &= !flags::POSTCOPY;
            self.request.options.post_copy = false;
        }
    }

    fn publish(&self) {
        self.guest.set_move(MigrationReport {
            id: self.request.id.clone(),
            stage: Stage::Source(self.machine.stage().clone()),
            mode: self.mode,
            progress: self.progress.clone(),
            doubt: self.doubt.clone().filter(|_| self.is_in_doubt()),
        });
    }

    fn tell_myself(&self, input: SourceInput) {
        let _ = self.inbox.send(Event::Input(input));
    }

    async fn act(&mut self, actions: Vec<SourceAction>) {
        for action in actions {
            match action {
                SourceAction::OpenLink => self.open_link().await,
                SourceAction::Say(ToTarget::Prepare) => self.offer().await,
                SourceAction::Say(word) => {
                    let cookie = link::encode(&self.cookie);
                    self.say(Line::Source { word, cookie, offer: None });
                }
                SourceAction::Copy => self.copy().await,
                SourceAction::StopCopying => self.stop_copying(),
                SourceAction::Resume => self.resume().await,
                SourceAction::Release => self.release().await,
            }
        }
    }

    fn say(&self, line: Line) {
        if let Some(link) = &self.link {
            link.say(line);
        }
    }

    async fn open_link(&mut self) {
        if self.links > 0 {
            sleep(LINK_PAUSE).await;
        }
        self.links += 1;
        match descriptors::pair() {
            Ok((ours, theirs)) => {
                self.link = Some(Link::new(self.links, ours, self.inbox.clone()));
                // Lines wait in the socket until the handlers have joined its other end with the target.
                self.outbox.put((Channel::Link, theirs));
                self.tell_myself(SourceInput::Linked);
            }
            Err(error) => {
                tracing::error!(%error, "there is no link");
                self.tell_myself(SourceInput::LinkLost);
            }
        }
    }

    async fn offer(&mut self) {
        match self.begin().await {
            Ok(offer) => {
                let cookie = self.terms.as_ref().and_then(|terms| link::encode(&terms.cookie));
                self.say(Line::Source { word: ToTarget::Prepare, cookie, offer: Some(Box::new(offer)) });
            }
            Err(reason) => self.tell_myself(SourceInput::CopyFailed(reason)),
        }
    }

    async fn begin(&mut self) -> Result<Offer, String> {
        let text = |error: Error| error.to_string();
        let (libvirt, domain) = self.guest.alive().map_err(|refused| refused.to_string())?;
        let was_paused = matches!(libvirt.state(&domain).await.map_err(text)?, State::Paused(_));
        let xml = libvirt.xml(&domain).await.map_err(text)?;
        let description = Description::parse(&xml).map_err(|error| error.to_string())?;
        let disks = copied_disks(&description, &self.request.copied_volumes);
        let qemu = libvirt.hypervisor_version().await.map_err(text)?;
        self.request.options = bearable(self.request.options.clone(), qemu);
        let compression =
            self.request.options.compression && libvirt.libvirt_version().await.map_err(text)? >= COMPRESSION_SINCE;
        self.is_live = !emulation::loses_changes(&xml, description.emulated, qemu);
        let (witnesses, unproven) = Witnesses::place(&description, &disks, &self.request.id);
        let mut terms = terms(&self.request.options, self.is_live, disks, compression, was_paused);
        terms.memory = description.memory.unwrap_or_default();
        if unproven.is_empty() {
            terms.flags |= flags::UNSAFE;
        } else {
            tracing::warn!(?unproven, "whether these volumes are shared is libvirt's judgement");
        }
        leftovers::remove(&libvirt, &domain, &terms.disks).await;
        let (cookie, domain_xml) = libvirt
            .migrate_begin(&domain, &terms.parameters(&self.request.options), terms.flags)
            .await
            .map_err(text)?;
        terms.cookie = cookie;
        let offer = Offer {
            domain_xml,
            flags: terms.flags & !flags::OF_SOURCE,
            parallel_connections: terms.connections,
            compression: terms.compression,
            copied_disks: terms.disks.clone(),
            paused: was_paused,
            witnesses: witnesses.list().to_vec(),
        };
        self.witnesses = witnesses;
        self.terms = Some(terms);
        Ok(offer)
    }

    async fn copy(&mut self) {
        // The target has seen them.
        self.witnesses = Witnesses::default();
        let begun = self.guest.alive().map_err(|refused| refused.to_string()).and_then(|alive| {
            let terms = self.terms.clone().ok_or("the move was not begun")?;
            Ok((alive, terms))
        });
        let ((libvirt, domain), terms) = match begun {
            Ok(begun) => begun,
            Err(reason) => return self.tell_myself(SourceInput::CopyFailed(reason)),
        };
        if let Err(error) = self.listen(&terms) {
            let reason = format!("the sockets for QEMU cannot be made: {error}");
            return self.tell_myself(SourceInput::CopyFailed(reason));
        }
        let options = self.request.options.clone();
        let policy = Policy::new(options.clone(), self.is_live);
        let first = policy.allowed_ms();
        if let Err(error) = libvirt.set_max_downtime(&domain, first).await {
            tracing::warn!(%error, "the allowed downtime could not be set");
        }
        let inbox = self.inbox.clone();
        let watch = monitor::watch(libvirt.clone(), domain.clone(), policy, terms.memory, move |told| {
            let _ = inbox.send(Event::Monitor(told));
        });
        let (inbox, cookie) = (self.inbox.clone(), self.cookie.clone());
        // Never stopped half way: libvirt would go on, and nobody would know.
        tokio::spawn(async move {
            let parameters = terms.parameters(&options);
            let event = match libvirt.migrate_perform(&domain, &parameters, &cookie, terms.flags).await {
                Ok(cookie) => Event::Copied(Ok(cookie)),
                Err(Error::Remote(error)) => Event::Copied(Err(error.message)),
                Err(error) => Event::Unanswered(error.to_string()),
            };
            let _ = inbox.send(event);
        });
        self.is_unanswered = true;
        if let Some(tasks) = &mut self.copy {
            tasks.spawn(watch);
        }
    }

    /// QEMU connects to sockets of ours; each connection goes to the handler.
    fn listen(&mut self, terms: &Terms) -> std::io::Result<()> {
        descriptors::make_room(Side::Source)?;
        let mut tasks = Tasks::default();
        let channels = [Some(Channel::Memory), (!terms.disks.is_empty()).then_some(Channel::Disks)];
        for channel in channels.into_iter().flatten() {
            let listener = descriptors::listen(channel)?;
            tasks.spawn(descriptors::accept(listener, channel, self.outbox.clone()));
        }
        self.copy = Some(tasks);
        Ok(())
    }

    /// Asks libvirt to stop, until sending has ended. QEMU may still be making connections: it hears at once that they lead nowhere.
    fn stop_copying(&mut self) {
        self.outbox.close();
        let (guest, Some(tasks)) = (self.guest.clone(), &mut self.copy) else { return };
        tasks.spawn(async move {
            loop {
                if let Ok((libvirt, domain)) = guest.alive()
                    && let Err(error) = libvirt.abort_job(&domain).await
                {
                    tracing::debug!(%error, "the copy could not be stopped yet");
                }
                sleep(RETRY).await;
            }
        });
    }

    /// Lets the guest run here again.
    async fn resume(&mut self) {
        (self.copy, self.link) = (None, None);
        self.witnesses = Witnesses::default();
        let Some(terms) = self.terms.clone() else { return };
        while self.guest.life().is_alive() {
            match self.try_to_resume(&terms).await {
                Ok(()) => return,
                Err(reason) => tracing::warn!(reason, "the guest does not go on yet"),
            }
            sleep(RETRY).await;
        }
    }

    async fn try_to_resume(&self, terms: &Terms) -> Result<(), String> {
        let (libvirt, domain) = self.guest.alive().map_err(|refused| refused.to_string())?;
        let text = |error: Error| error.to_string();
        if is_past_return(&libvirt, &domain).await.map_err(text)? {
            tracing::error!("post-copy did not come to its end; the guest is ended");
            return libvirt.destroy(&domain, Destroy::Forced).await.map_err(text);
        }
        if has_job(&libvirt, &domain).await.map_err(text)? {
            if self.is_unanswered && self.is_sending(&libvirt, &domain).await {
                return Err("only the connection to libvirt broke, and it goes on sending".to_owned());
            }
            // libvirt waits for the last step.
            if let Err(error) = libvirt.migrate_confirm(&domain, &[], terms.flags, Verdict::Cancelled).await {
                tracing::debug!(%error, "libvirt has forgotten the move already");
            }
        }
        let state = libvirt.state(&domain).await.map_err(text)?;
        let is_ours = matches!(state, State::Paused(PausedReason::Migration | PausedReason::Unknown));
        if is_ours && !terms.was_paused {
            libvirt.resume(&domain).await.map_err(text)?;
        }
        let state = libvirt.state(&domain).await.map_err(text)?;
        self.guest.change(|life| life.observe(state));
        if has_job(&libvirt, &domain).await.map_err(text)? {
            return Err("libvirt is not done with the move".to_owned());
        }
        Ok(())
    }

    /// Whether libvirt still sends what nobody waits for any more; then it is told to stop.
    async fn is_sending(&self, libvirt: &Connection, domain: &Domain) -> bool {
        // Once everything is sent the guest stands still, and so it is before the last step.
        let stands_still = matches!(libvirt.state(domain).await, Ok(State::Paused(PausedReason::Migration)));
        if !stands_still {
            let _ = libvirt.abort_job(domain).await;
        }
        !stands_still
    }

    /// Ends the copy here.
    async fn release(&mut self) {
        (self.copy, self.link) = (None, None);
        let is_moved = *self.machine.stage() == SourceStage::Over(Outcome::Moved);
        self.guest.change(|life| life.leave(if is_moved { OffReason::Migrated } else { OffReason::Unknown }));
        while self.guest.life().is_alive() {
            match self.try_to_release(is_moved).await {
                Ok(()) => break,
                Err(reason) => tracing::warn!(reason, "the copy here is not gone yet"),
            }
            sleep(RETRY).await;
        }
        self.guest.change(Life::left);
    }

    async fn try_to_release(&self, is_moved: bool) -> Result<(), String> {
        let (libvirt, domain) = self.guest.alive().map_err(|refused| refused.to_string())?;
        let flags = self.terms.as_ref().map_or(0, |terms| terms.flags);
        if is_moved && libvirt.migrate_confirm(&domain, &self.cookie, flags, Verdict::Success).await.is_ok() {
            return Ok(());
        }
        // libvirt has forgotten the move, or the target never told: the copy is ended like any other domain.
        match libvirt.destroy(&domain, Destroy::Forced).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_no_domain() || error.is_invalid_operation() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The launcher is told to end: the guest is not moved any more.
async fn cancel_at_the_end(guest: Arc<Guest>, inbox: UnboundedSender<Event>) {
    if guest.deadline().wait_for(Option::is_some).await.is_ok() {
        let reason = "the guest is to end".to_owned();
        let _ = inbox.send(Event::Input(SourceInput::Cancel(reason)));
    }
}

/// After some time in doubt, that is worth a word.
async fn remind(inbox: UnboundedSender<Event>) {
    sleep(ANSWER).await;
    let _ = inbox.send(Event::Overdue);
}

/// libvirt has no way back from post-copy: it ends the guest when everything was sent, and else never lets it run again, even if the target
/// did not run it. So it is ended at once, and can be started anew.
async fn is_past_return(libvirt: &Connection, domain: &Domain) -> Result<bool, Error> {
    let state = libvirt.state(domain).await?;
    Ok(matches!(state, State::Paused(PausedReason::Postcopy | PausedReason::PostcopyFailed)))
}

async fn has_job(libvirt: &Connection, domain: &Domain) -> Result<bool, Error> {
    Ok(libvirt.job_stats(domain).await?.0 != 0)
}

/// The disks of these volumes. What can only be read is made on the target, not copied.
fn copied_disks(description: &Description, volumes: &[String]) -> Vec<String> {
    let mut disks = Vec::new();
    for volume in volumes {
        let disk = description.disks.iter().find(|(name, _)| name == volume);
        // A volume without a disk has nothing of the guest's.
        disks.extend(disk.map(|(_, target)| target.clone()).filter(|target| !description.read_only.contains(target)));
    }
    disks
}

/// What this QEMU can do without harm.
fn bearable(wanted: Options, qemu: u64) -> Options {
    if qemu >= PARALLEL_SINCE {
        return wanted;
    }
    Options { parallel_connections: 0, compression: false, ..wanted }
}

fn terms(options: &Options, is_live: bool, disks: Vec<String>, compression: bool, was_paused: bool) -> Terms {
    // QEMU cannot fetch memory over several connections.
    let connections = if options.post_copy { 0 } else { options.parallel_connections };
    let connections = if connections > 1 || compression { connections.max(2) } else { 0 };
    let compression = compression && connections > 0;
    let wishes = [
        (!disks.is_empty(), flags::NON_SHARED_INC),
        (was_paused, flags::PAUSED),
        (is_live, flags::LIVE),
        (is_live && options.auto_converge, flags::AUTO_CONVERGE),
        (is_live && options.post_copy, flags::POSTCOPY),
        (connections > 0, flags::PARALLEL),
        (compression, flags::COMPRESSED),
        (options.unsafe_override, flags::UNSAFE),
    ];
    let always = flags::PERSIST_DEST | flags::CHANGE_PROTECTION;
    let flags = wishes.iter().filter(|(wanted, _)| *wanted).fold(always, |all, (_, flag)| all | flag);
    Terms { flags, disks, connections, compression, was_paused, memory: 0, cookie: Vec::new() }
}

impl Terms {
    fn parameters(&self, options: &Options) -> Parameters {
        Parameters {
            memory_uri: Some(descriptors::uri(Side::Source, Channel::Memory)),
            disks_uri: (!self.disks.is_empty()).then(|| descriptors::uri(Side::Source, Channel::Disks)),
            disks: self.disks.clone(),
            bandwidth: options.bandwidth.div_ceil(1 << 20),
            connections: self.connections,
            compression: self.compression.then(|| "zstd".to_owned()),
            ..Parameters::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_disks_that_can_be_written_are_copied() {
        let disk = |volume: &str, target: &str| (volume.to_owned(), target.to_owned());
        let description = Description {
            disks: vec![disk("root", "vda"), disk("seed", "sda"), disk("data", "vdb")],
            read_only: vec!["sda".to_owned()],
            ..Description::default()
        };
        let volumes = ["root", "seed", "nowhere"].map(str::to_owned);
        assert_eq!(copied_disks(&description, &volumes), ["vda"]);
    }

    #[test]
    fn what_was_asked_for_becomes_flags() {
        let plain = terms(&Options::default(), true, Vec::new(), false, false);
        assert_eq!(plain.flags, flags::LIVE | flags::PERSIST_DEST | flags::CHANGE_PROTECTION);
        let options = Options { auto_converge: true, parallel_connections: 8, ..Options::default() };
        let more = terms(&options, true, vec!["vda".to_owned()], false, true);
        let wanted = flags::AUTO_CONVERGE | flags::PARALLEL | flags::NON_SHARED_INC | flags::PAUSED;
        assert_eq!((more.flags & !plain.flags, more.connections), (wanted, 8));
        let parameters = more.parameters(&Options { bandwidth: 1, ..options });
        assert_eq!((parameters.bandwidth, parameters.connections), (1, 8));
        assert!(parameters.disks_uri.is_some() && plain.parameters(&Options::default()).disks_uri.is_none());
    }

    #[test]
    fn an_older_qemu_sends_on_one_connection() {
        let wanted = Options { parallel_connections: 8, compression: true, auto_converge: true, ..Options::default() };
        assert_eq!(bearable(wanted.clone(), PARALLEL_SINCE), wanted);
        let older = bearable(wanted.clone(), 7_002_022);
        assert_eq!(older, Options { parallel_connections: 0, compression: false, ..wanted });
    }

    #[test]
    fn post_copy_has_one_connection_and_a_guest_that_stands_still_needs_neither() {
        let options = Options { post_copy: true, auto_converge: true, parallel_connections: 8, ..Options::default() };
        let live = terms(&options, true, Vec::new(), false, false);
        assert_eq!((live.connections, live.flags & flags::PARALLEL), (0, 0));
        assert_ne!(live.flags & flags::POSTCOPY, 0);
        let still = terms(&options, false, Vec::new(), false, false);
        assert_eq!(still.flags & (flags::LIVE | flags::POSTCOPY | flags::AUTO_CONVERGE), 0);
    }
}
