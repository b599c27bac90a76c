//! Moving the guest to or from another launcher.
//!
//! | module | what |
//! |---|---|
//! | [`source`], [`target`] | the two sides: `ferrovirt_handover` decides, these do |
//! | [`link`] | what the launchers say to each other |
//! | [`witness`] | whether both sides have the same storage |
//! | [`descriptors`] | connections, as the handlers get them |
//! | [`monitor`], [`policy`] | how far a move is, and what to do when it takes long |
//!
//! A launcher gets at most one guest, and gives away that one.

pub mod descriptors;
mod leftovers;
pub mod link;
pub mod monitor;
pub mod policy;
#[cfg(test)]
mod policy_tests;
pub mod source;
pub mod target;
pub mod witness;

use std::collections::HashMap;
use std::sync::Arc;

use ferrovirt_handover::{Outcome, Source, SourceInput, SourceStage, TargetInput};
use ferrovirt_launcher_rpc::migration::{
    CancelRequest, Channel, Connection, MigrationReport, Mode, SourceRequest, Stage, TargetRequest, VerdictRequest,
};
use http::Request;
use hyper::body::Incoming;
use parking_lot::Mutex;

use self::source::Outgoing;
use self::target::Expected;
use crate::guest::Guest;
use crate::life::Life;
use crate::reaper::Children;
use crate::refusal::Refused;
use crate::server::Answer;
use crate::{disks, start};

/// All moves of this launcher.
#[derive(Debug)]
pub struct Moves {
    guest: Arc<Guest>,
    children: Children,
    source: Mutex<Option<Outgoing>>,
    target: Mutex<Option<Expected>>,
    /// Moves that were called off before they began, and why.
    called_off: Mutex<HashMap<String, String>>,
    /// One preparation at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Moves {
    /// Moves `guest`.
    pub fn new(guest: Arc<Guest>, children: Children) -> Arc<Self> {
        Arc::new(Self {
            guest,
            children,
            source: Mutex::default(),
            target: Mutex::default(),
            called_off: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Gets ready to receive the guest.
    pub async fn expect(&self, request: TargetRequest) -> Result<(), Refused> {
        let guest = &self.guest;
        if request.uid != guest.identity.uid {
            return Err(Refused::WrongGuest { ours: guest.identity.uid.clone(), theirs: request.uid });
        }
        let _turn = self.turn.lock().await;
        if let Some(expected) = &*self.target.lock() {
            return if expected.id == request.id { Ok(()) } else { Err(Refused::OtherMove(expected.id.clone())) };
        }
        if !guest.change(Life::begin_start) {
            return Err(Refused::WrongState("here already: it cannot be received"));
        }
        guest.publish(|report| report.uid = Some(request.uid.clone()));
        guest.libvirt_wanted.notify_one();
        let prepared = self.prepare(&request).await;
        // Called off meanwhile: then it does not matter whether all is ready.
        let called_off = self.called_off.lock().get(&request.id).cloned();
        if let (Err(error), None) = (prepared, &called_off) {
            tracing::error!(%error, "the guest cannot be received");
            guest.change(Life::start_failed);
            return Err(error);
        }
        self.wait_for_guest(request.id, request.name, called_off);
        Ok(())
    }

    async fn prepare(&self, request: &TargetRequest) -> Result<(), Refused> {
        start::make_directories(&request.uid, &request.name)?;
        // libvirt starts while disks are made.
        let (prepared, libvirt) =
            tokio::join!(disks::prepare(&self.children, &request.disks), self.guest.wait_for_libvirt());
        prepared?;
        libvirt?;
        request.dhcp.iter().for_each(|server| start::serve_dhcp(&self.guest, server));
        Ok(())
    }

    fn wait_for_guest(&self, id: String, name: String, called_off: Option<String>) {
        *self.target.lock() = Some(Expected::new(self.guest.clone(), id, name, called_off));
    }

    /// Begins to move the guest away.
    pub fn begin(&self, request: SourceRequest) -> Result<(), Refused> {
        let guest = &self.guest;
        let mut source = self.source.lock();
        let is_known = source.as_ref().is_some_and(|outgoing| outgoing.id == request.id);
        if is_known || self.called_off.lock().contains_key(&request.id) {
            return Ok(());
        }
        if let Some(outgoing) = &*source
            && guest.is_leaving()
        {
            return Err(Refused::OtherMove(outgoing.id.clone()));
        }
        guest.alive()?;
        let before = source.take();
        *source = Some(Outgoing::begin(guest.clone(), request, before));
        Ok(())
    }

    /// Calls a move off, from or to this launcher, also one that has not begun.
    pub fn cancel(&self, request: CancelRequest) {
        let CancelRequest { id, reason } = request;
        if let Some(outgoing) = self.source.lock().as_ref().filter(|outgoing| outgoing.id == id) {
            return outgoing.tell(SourceInput::Cancel(reason));
        }
        if let Some(expected) = self.target.lock().as_ref().filter(|expected| expected.id == id) {
            return expected.tell(TargetInput::Discard(reason));
        }
        self.called_off.lock().insert(id.clone(), reason.clone());
        let life = self.guest.life();
        if life.is_alive() {
            self.stay(id, reason);
        } else if life.is_absent() && self.guest.change(Life::begin_start) {
            // Only a target has no guest.
            self.wait_for_guest(id, String::new(), Some(reason));
        }
    }

    /// Reports a move that will never begin, unless there is one that matters more.
    fn stay(&self, id: String, reason: String) {
        if !self.guest.is_leaving() {
            let stage = Stage::Source(Source::called_off(reason).stage().clone());
            self.guest.set_move(MigrationReport { id, stage, mode: Mode::default(), progress: None, doubt: None });
        }
    }

    /// Tells a source in doubt how its move ended.
    pub fn judge(&self, request: &VerdictRequest) {
        if let Some(outgoing) = self.source.lock().as_ref().filter(|outgoing| outgoing.id == request.id) {
            outgoing.tell(SourceInput::Told(request.verdict));
        }
    }

    /// Waits for the next connection that a move wants to make, and hands it over.
    pub async fn outgoing(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        descriptors::check(&request)?;
        let id = parameter(&request, "id");
        let outbox = self.source.lock().as_ref().filter(|outgoing| outgoing.id == id).map(|it| it.outbox.clone());
        let outbox = outbox.ok_or_else(|| Refused::NoMove(id.clone()))?;
        let (channel, socket) = outbox.take().await.ok_or(Refused::NoMove(id))?;
        Ok(descriptors::hand_over(request, Some(Connection { channel }), socket))
    }

    /// Connects the caller with a channel of the move that is received here.
    pub async fn incoming(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        descriptors::check(&request)?;
        let (id, channel) = (parameter(&request, "id"), parameter(&request, "channel"));
        let channel = Channel::named(&channel).ok_or(Refused::Malformed(format!("channel={channel}")))?;
        if self.target.lock().as_ref().is_none_or(|expected| expected.id != id) {
            return Err(Refused::NoMove(id));
        }
        let failed = |source| Refused::Socket { path: channel.name().to_owned(), source };
        let socket = match channel {
            Channel::Link => {
                let (ours, theirs) = descriptors::pair().map_err(failed)?;
                if let Some(expected) = &*self.target.lock() {
                    expected.link(ours);
                }
                theirs
            }
            Channel::Memory | Channel::Disks => descriptors::connect(channel).await.map_err(failed)?,
        };
        Ok(descriptors::hand_over(request, None, socket))
    }
}

/// Whether the guest is on its way, or may be, or was: all but a source that knows that it keeps the guest.
pub fn is_leaving(report: Option<&MigrationReport>) -> bool {
    match report.map(|report| &report.stage) {
        Some(Stage::Source(stage)) => !matches!(stage, SourceStage::Over(Outcome::Stayed(_))),
        _ => false,
    }
}

/// Whether the target was told to run the guest and nobody knows yet what came of it.
pub fn is_in_doubt(report: Option<&MigrationReport>) -> bool {
    matches!(report.map(|report| &report.stage), Some(Stage::Source(SourceStage::Doubtful)))
}

/// A parameter of the query. UIDs and channels need no escaping.
fn parameter(request: &Request<Incoming>, name: &str) -> String {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}
