//! The target's side of a move: the machine of `ferrovirt_handover` decides, this does.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_handover::{Target, TargetAction, TargetInput, TargetStage, ToSource};
use ferrovirt_launcher_rpc::migration::{Channel, Line, MigrationReport, Mode, Offer, Progress, Stage};
use ferrovirt_libvirt::migration::{Parameters, Verdict, flags};
use ferrovirt_libvirt::{Connection, Destroy, Domain, Error, State};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{sleep, timeout};

use super::descriptors::{self, Side};
use super::link::{self, Heard, Link};
use super::{monitor, witness};
use crate::follow::refresh;
use crate::guest::Guest;
use crate::life::Life;
use crate::{lease, operations};

/// Between tries of what has to work in the end.
const RETRY: Duration = Duration::from_millis(500);
/// How long the last figures of a move may hold up the word that the guest has arrived. They come at once unless the node is overloaded, and
/// what comes later is not in the record of the move, which users look at.
const FIGURES_PATIENCE: Duration = Duration::from_secs(1);

/// What the task hears.
#[derive(Debug)]
pub enum Event {
    /// For the machine.
    Input(TargetInput),
    /// The source calls.
    Linked(UnixStream),
    /// The link.
    Link(Heard),
    /// The libvirt that was prepared is gone, and with it what it received.
    LibvirtEnded,
}

impl From<Heard> for Event {
    fn from(heard: Heard) -> Self {
        Self::Link(heard)
    }
}

/// The move that this launcher waits for.
#[derive(Debug)]
pub struct Expected {
    /// The migration's UID.
    pub id: String,
    inbox: UnboundedSender<Event>,
}

impl Expected {
    /// Waits for the guest of this name.
    ///
    /// One that was called off already, for a reason, never runs it.
    pub fn new(guest: Arc<Guest>, id: String, name: String, called_off: Option<String>) -> Self {
        let (inbox, events) = mpsc::unbounded_channel();
        let driver = Driver {
            guest,
            id: id.clone(),
            name,
            machine: Target::default(),
            inbox: inbox.clone(),
            link: None,
            links: 0,
            order: None,
            cookie: Vec::new(),
            progress: None,
            without: 0,
            arrival: None,
        };
        match called_off {
            Some(reason) => driver.tell_myself(TargetInput::Discard(reason)),
            None => driver.publish(),
        }
        tokio::spawn(driver.run(events));
        Self { id, inbox }
    }

    /// Tells the machine something.
    pub fn tell(&self, input: TargetInput) {
        let _ = self.inbox.send(Event::Input(input));
    }

    /// The source's launcher calls; the other end of its connection is ours.
    pub fn link(&self, socket: UnixStream) {
        let _ = self.inbox.send(Event::Linked(socket));
    }
}

/// What the source wants to send.
#[derive(Debug, Clone)]
struct Order {
    offer: Offer,
    cookie: Vec<u8>,
}

struct Driver {
    guest: Arc<Guest>,
    id: String,
    /// The domain's.
    name: String,
    machine: Target,
    inbox: UnboundedSender<Event>,
    link: Option<Link>,
    links: u64,
    order: Option<Order>,
    /// The newest cookie of libvirt's, for the next line.
    cookie: Vec<u8>,
    progress: Option<Progress>,
    /// Flags of the offer that cannot be had here.
    without: u32,
    arrival: Option<Arrival>,
}

/// A guest that runs here since a moment ago.
#[derive(Debug)]
enum Arrival {
    /// libvirt has it, and this is whether it is paused.
    Here(Connection, Domain, bool),
    /// QEMU is gone, and whether it ran the guest before is not known: then it did, and has ended.
    Gone,
}

impl Driver {
    async fn run(mut self, mut events: UnboundedReceiver<Event>) {
        let (guest, inbox) = (self.guest.clone(), self.inbox.clone());
        tokio::spawn(async move {
            if guest.deadline().wait_for(Option::is_some).await.is_ok() {
                let _ = inbox.send(Event::Input(TargetInput::Discard("the guest is to end".to_owned())));
            }
        });
        while let Some(event) = events.recv().await {
            let Some(input) = self.understand(event) else { continue };
            tracing::info!(id = self.id, ?input, stage = ?self.machine.stage(), "the move");
            let was_settled = self.is_settled();
            let actions = self.machine.on(input);
            // That the guest never runs here is only told when its copy is gone.
            if !self.is_never() {
                self.publish();
            }
            self.act(actions).await;
            if self.is_never() && !was_settled {
                self.guest.change_with_move(self.report(), Life::give_up);
            }
            if self.is_settled()
                && let Some(arrival) = self.arrival.take()
            {
                self.settle(arrival).await;
            }
        }
    }

    fn is_never(&self) -> bool {
        matches!(self.machine.stage(), TargetStage::Never(_))
    }

    fn is_settled(&self) -> bool {
        matches!(self.machine.stage(), TargetStage::Never(_) | TargetStage::Started)
    }

    fn understand(&mut self, event: Event) -> Option<TargetInput> {
        match event {
            Event::Input(input) => Some(input),
            // Once the guest was told to run, only `finish` knows whether it does; it finds out, and its word comes after this one.
            Event::LibvirtEnded if matches!(self.machine.stage(), TargetStage::Starting) => None,
            Event::LibvirtEnded => Some(TargetInput::Failed("libvirt ended".to_owned())),
            Event::Linked(socket) => {
                self.links += 1;
                self.link = Some(Link::new(self.links, socket, self.inbox.clone()));
                None
            }
            Event::Link(Heard::Line(number, Line::Source { word, cookie, offer })) if self.is_current(number) => {
                let cookie = link::decode(cookie.as_deref());
                match offer {
                    // The first offer counts.
                    Some(offer) if self.order.is_none() => self.order = Some(Order { offer: *offer, cookie }),
                    _ => self.cookie = cookie,
                }
                Some(TargetInput::Heard(word))
            }
            Event::Link(Heard::Line(number, _) | Heard::Cut(number)) if self.is_current(number) => {
                self.link = None;
                Some(TargetInput::LinkLost)
            }
            Event::Link(_) => None,
        }
    }

    fn is_current(&self, number: u64) -> bool {
        self.link.as_ref().is_some_and(|link| link.number == number)
    }

    fn report(&self) -> MigrationReport {
        MigrationReport {
            id: self.id.clone(),
            stage: Stage::Target(self.machine.stage().clone()),
            mode: Mode::default(),
            progress: self.progress.clone(),
            doubt: None,
        }
    }

    /// Tells the stage; with the last one, that the guest is here.
    fn publish(&self) {
        self.guest.change_with_move(self.report(), |life| match (self.machine.stage(), &self.arrival) {
            (TargetStage::Started, Some(Arrival::Here(_, _, paused))) => life.created(*paused),
            (TargetStage::Started, Some(Arrival::Gone)) => {
                life.created(false);
                life.vanished();
            }
            _ => {}
        });
    }

    fn tell_myself(&self, input: TargetInput) {
        let _ = self.inbox.send(Event::Input(input));
    }

    async fn act(&mut self, actions: Vec<TargetAction>) {
        for action in actions {
            match action {
                TargetAction::Prepare => {
                    let done = self.prepare().await;
                    self.tell_myself(done.map_or_else(TargetInput::Failed, |()| TargetInput::Prepared));
                }
                TargetAction::Finish => {
                    let done = self.finish().await;
                    self.tell_myself(done.map_or_else(TargetInput::Failed, |()| TargetInput::Finished));
                }
                TargetAction::Discard => self.discard().await,
                TargetAction::Say(word) => self.say(word),
            }
        }
    }

    fn say(&self, word: ToSource) {
        if let Some(link) = &self.link {
            link.say(Line::Target { word, cookie: link::encode(&self.cookie), without: self.without });
        }
    }

    async fn prepare(&mut self) -> Result<(), String> {
        let order = self.order.as_mut().ok_or("the source did not say what it wants to send")?;
        witness::check(&order.offer.witnesses, &self.id)?;
        descriptors::make_room(Side::Target).map_err(|error| format!("the sockets cannot be made: {error}"))?;
        let libvirt = self.guest.wait_for_libvirt().await.map_err(|refused| refused.to_string())?;
        let mut prepared = libvirt.migrate_prepare(&order.parameters(), &order.cookie, order.offer.flags).await;
        if let Err(error) = &prepared
            && order.offer.flags & flags::POSTCOPY != 0
        {
            // Most often it is this: QEMU needs vm.unprivileged_userfaultfd=1 on the node for it.
            tracing::warn!(%error, "receiving with post-copy is not possible; it is tried without");
            self.without = flags::POSTCOPY;
            order.offer.flags &= !flags::POSTCOPY;
            prepared = libvirt.migrate_prepare(&order.parameters(), &order.cookie, order.offer.flags).await;
        }
        self.cookie = prepared.map_err(|error| error.to_string())?;
        // libvirt kills what was prepared when its connection ends.
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            libvirt.closed().await;
            let _ = inbox.send(Event::LibvirtEnded);
        });
        Ok(())
    }

    /// Lets the guest run. An error means that it did not and does not.
    async fn finish(&mut self) -> Result<(), String> {
        let order = self.order.clone().ok_or("the source did not say what it wants to send")?;
        let libvirt = self.guest.libvirt().map_err(|refused| refused.to_string())?;
        let parameters = Parameters { name: Some(self.name.clone()), ..order.parameters() };
        // The source has stopped: from here on this launcher writes. Whatever fails below gives it back.
        let leases = lease::seize(&order.offer.domain_xml, &order.offer.copied_disks)?;
        let finished = self.run_guest(libvirt, &parameters, &order).await;
        if finished.is_ok() {
            lease::keep(&self.guest, leases);
        }
        finished
    }

    async fn run_guest(&mut self, libvirt: Connection, parameters: &Parameters, order: &Order) -> Result<(), String> {
        match libvirt.migrate_finish(parameters, &self.cookie, order.offer.flags, Verdict::Success).await {
            Ok((domain, cookie)) => {
                self.cookie = cookie;
                // The guest runs already: its last figures go with the news of it, and cost no second write of its object.
                self.progress = timeout(FIGURES_PATIENCE, progress(&libvirt, &domain)).await.unwrap_or_default();
                self.arrive(libvirt, domain, order.offer.paused);
                Ok(())
            }
            Err(Error::Remote(error)) => self.refused(libvirt, order, error.message).await,
            Err(error) => self.find_out(order, error.to_string()).await,
        }
    }

    fn arrive(&mut self, libvirt: Connection, domain: Domain, paused: bool) {
        tracing::info!(name = domain.name, paused, "the guest has arrived");
        self.guest.set_domain(domain.clone());
        self.arrival = Some(Arrival::Here(libvirt, domain, paused));
    }

    /// What can wait until the source knows.
    async fn settle(&mut self, arrival: Arrival) {
        let Arrival::Here(libvirt, domain, _) = arrival else { return };
        let (libvirt, domain) = (&libvirt, &domain);
        if self.progress.is_none() {
            self.progress = progress(libvirt, domain).await;
            self.publish();
        }
        // An end in between was not followed.
        if let Ok(state) = libvirt.state(domain).await {
            self.guest.change(|life| life.observe_after_gap(state));
        }
        if let Err(error) = refresh(&self.guest, libvirt, domain).await {
            tracing::warn!(%error, "the domain's XML could not be read");
        }
        operations::clock_after_move(&self.guest, libvirt, domain);
    }

    /// libvirt says that the guest was not started; with post-copy it may have run before that.
    async fn refused(&mut self, libvirt: Connection, order: &Order, reason: String) -> Result<(), String> {
        if order.offer.flags & flags::POSTCOPY == 0 {
            return Err(reason);
        }
        match look(&libvirt, &self.name).await {
            Ok(Some(domain)) => {
                tracing::error!(reason, "the guest ran here, and the rest of its memory did not come");
                self.arrive(libvirt.clone(), domain.clone(), false);
                if let Err(error) = libvirt.destroy(&domain, Destroy::Forced).await {
                    tracing::error!(%error, "what is left of the guest could not be ended");
                }
                Ok(())
            }
            Ok(None) => Err(reason),
            Err(error) => self.find_out(order, format!("{reason}; {error}")).await,
        }
    }

    /// libvirt's answer was lost: does the guest run?
    async fn find_out(&mut self, order: &Order, reason: String) -> Result<(), String> {
        loop {
            if let Ok(libvirt) = self.guest.wait_for_libvirt().await {
                match look(&libvirt, &self.name).await {
                    Ok(Some(domain)) => {
                        self.arrive(libvirt, domain, order.offer.paused);
                        return Ok(());
                    }
                    Ok(None) => return self.gone(order, reason),
                    Err(error) => tracing::warn!(%error, "whether the guest runs is not known yet"),
                }
            }
            sleep(RETRY).await;
        }
    }

    fn gone(&mut self, order: &Order, reason: String) -> Result<(), String> {
        if order.offer.paused {
            return Err(reason);
        }
        tracing::error!(reason, "the guest may have run here before QEMU ended");
        self.arrival = Some(Arrival::Gone);
        Ok(())
    }

    /// Ends whatever libvirt has of the guest.
    async fn discard(&mut self) {
        // Without an order nothing was prepared.
        if self.order.is_none() {
            return;
        }
        loop {
            match self.try_to_discard().await {
                Ok(()) => return,
                Err(reason) => tracing::warn!(reason, "what was received is not gone yet"),
            }
            sleep(RETRY).await;
        }
    }

    async fn try_to_discard(&self) -> Result<(), String> {
        let libvirt = self.guest.wait_for_libvirt().await.map_err(|refused| refused.to_string())?;
        let domain = match libvirt.lookup(&self.name).await {
            Ok(domain) => domain,
            Err(error) if error.is_no_domain() => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        match libvirt.destroy(&domain, Destroy::Forced).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_no_domain() || error.is_invalid_operation() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The domain, if there is a QEMU for it, whatever its guest does.
async fn look(libvirt: &Connection, name: &str) -> Result<Option<Domain>, Error> {
    let domain = match libvirt.lookup(name).await {
        Ok(domain) => domain,
        Err(error) if error.is_no_domain() => return Ok(None),
        Err(error) => return Err(error),
    };
    let state = libvirt.state(&domain).await?;
    Ok((!matches!(state, State::Shutoff(_))).then_some(domain))
}

/// How long it took and how long the guest stood still, if libvirt knows.
async fn progress(libvirt: &Connection, domain: &Domain) -> Option<Progress> {
    let figures = libvirt.completed_job_stats(domain).await.ok()?;
    monitor::read(&figures).map(|(_, progress)| progress)
}

impl Order {
    fn parameters(&self) -> Parameters {
        let Offer { domain_xml, parallel_connections, compression, copied_disks, .. } = &self.offer;
        Parameters {
            domain_xml: Some(domain_xml.clone()),
            memory_uri: Some(descriptors::uri(Side::Target, Channel::Memory)),
            disks_uri: (!copied_disks.is_empty()).then(|| descriptors::uri(Side::Target, Channel::Disks)),
            disks: copied_disks.clone(),
            connections: *parallel_connections,
            compression: compression.then(|| "zstd".to_owned()),
            ..Parameters::default()
        }
    }
}
