//! What libvirt tells unasked.

use tokio::sync::broadcast;

use crate::connection::Connection;
use crate::domain::Domain;
use crate::error::Error;
use crate::parameters::{PARAMETERS_MAX, TypedParameter};
use crate::procedures::{REGISTER_EVENT, events as messages};
use crate::types::{AgentState, IoErrorAction, Lifecycle};
use crate::xdr::{Decoder, Encoder, XdrError};

/// Events that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Start, stop, pause, crash.
    Lifecycle,
    /// The guest rebooted.
    Reboot,
    /// The guest's watchdog fired.
    Watchdog,
    /// A disk failed.
    IoErrorReason,
    /// libvirt lost QEMU's monitor.
    ControlError,
    /// A device is gone.
    DeviceRemoved,
    /// The guest agent came or went.
    AgentLifecycle,
    /// A device is there.
    DeviceAdded,
    /// A migration begins another round over the guest's memory.
    MigrationIteration,
    /// A migration or another job ended.
    JobCompleted,
}

impl EventKind {
    fn number(self) -> i32 {
        match self {
            Self::Lifecycle => 0,
            Self::Reboot => 1,
            Self::Watchdog => 3,
            Self::IoErrorReason => 6,
            Self::ControlError => 7,
            Self::DeviceRemoved => 15,
            Self::AgentLifecycle => 18,
            Self::DeviceAdded => 19,
            Self::MigrationIteration => 20,
            Self::JobCompleted => 21,
        }
    }
}

/// An event of a domain.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Start, stop, pause, crash.
    Lifecycle(Domain, Lifecycle),
    /// The guest rebooted.
    Reboot(Domain),
    /// The guest's watchdog fired; what QEMU did about it, by number.
    Watchdog(Domain, i32),
    /// A disk failed.
    IoError {
        /// Whose.
        domain: Domain,
        /// The image or device.
        path: String,
        /// The disk's alias.
        alias: String,
        /// What QEMU did about it.
        action: IoErrorAction,
        /// Like `enospc`; may be empty.
        reason: String,
    },
    /// libvirt lost QEMU's monitor.
    ControlError(Domain),
    /// The device with this alias is gone.
    DeviceRemoved(Domain, String),
    /// The guest agent came or went.
    Agent(Domain, AgentState),
    /// The device with this alias is there.
    DeviceAdded(Domain, String),
    /// A migration begins this round over the guest's memory.
    MigrationIteration(Domain, i32),
    /// A migration or another job ended, with its figures.
    JobCompleted(Domain, Vec<TypedParameter>),
}

impl Event {
    /// Reads the message number `procedure`; `None` for one that is not known.
    pub(crate) fn decode(procedure: i32, body: Vec<u8>) -> Result<Option<Self>, XdrError> {
        let mut decoder = Decoder::new(body);
        let _callback = decoder.i32()?;
        let event = match procedure {
            messages::LIFECYCLE => {
                let domain = Domain::decode(&mut decoder)?;
                Self::Lifecycle(domain, Lifecycle::new(decoder.i32()?, decoder.i32()?))
            }
            messages::REBOOT => Self::Reboot(Domain::decode(&mut decoder)?),
            messages::WATCHDOG => Self::Watchdog(Domain::decode(&mut decoder)?, decoder.i32()?),
            messages::IO_ERROR_REASON => Self::IoError {
                domain: Domain::decode(&mut decoder)?,
                path: decoder.string()?,
                alias: decoder.string()?,
                action: decoder.i32()?.into(),
                reason: decoder.string()?,
            },
            messages::CONTROL_ERROR => Self::ControlError(Domain::decode(&mut decoder)?),
            messages::DEVICE_REMOVED => Self::DeviceRemoved(Domain::decode(&mut decoder)?, decoder.string()?),
            messages::AGENT_LIFECYCLE => Self::Agent(Domain::decode(&mut decoder)?, decoder.i32()?.into()),
            messages::DEVICE_ADDED => Self::DeviceAdded(Domain::decode(&mut decoder)?, decoder.string()?),
            messages::MIGRATION_ITERATION => Self::MigrationIteration(Domain::decode(&mut decoder)?, decoder.i32()?),
            messages::JOB_COMPLETED => {
                Self::JobCompleted(Domain::decode(&mut decoder)?, decoder.list(PARAMETERS_MAX, TypedParameter::decode)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(event))
    }
}

/// Why there is no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoEvent {
    /// The reader was too slow and some are lost: ask for the state again.
    #[error("{0} events were lost; the domain's state has to be asked for")]
    Lost(u64),
    /// The connection ended.
    #[error("the connection to libvirt is closed")]
    Closed,
}

/// Events of a connection, from the moment of [`Connection::events`] on.
///
/// A guest can cause many of them (by rebooting, by closing its agent's channel): the queue is short, and its overflow is told.
#[derive(Debug)]
pub struct Events {
    pub(crate) receiver: broadcast::Receiver<Event>,
}

impl Events {
    /// Waits for the next one.
    pub async fn next(&mut self) -> Result<Event, NoEvent> {
        self.receiver.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(count) => NoEvent::Lost(count),
            broadcast::error::RecvError::Closed => NoEvent::Closed,
        })
    }
}

impl Connection {
    /// Asks libvirt to send this kind of events, of all domains.
    pub async fn register(&self, kind: EventKind) -> Result<(), Error> {
        let arguments = Encoder::new().i32(kind.number()).u32(0);
        self.call(REGISTER_EVENT, arguments, Decoder::i32).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::StoppedDetail;

    fn domain() -> Domain {
        Domain { name: "guest".to_owned(), uuid: [7; 16], id: 3 }
    }

    #[test]
    fn a_stop_says_why() {
        let body = domain().encode(Encoder::new().i32(1)).i32(5).i32(2).finish();
        let event = Event::decode(messages::LIFECYCLE, body).unwrap();
        assert_eq!(event, Some(Event::Lifecycle(domain(), Lifecycle::Stopped(StoppedDetail::Crashed))));
    }

    #[test]
    fn a_failed_disk_is_named() {
        let body = domain().encode(Encoder::new().i32(1)).string("/a").string("ua-b").i32(1).string("enospc").finish();
        let Some(Event::IoError { path, alias, action, reason, .. }) =
            Event::decode(messages::IO_ERROR_REASON, body).unwrap()
        else {
            panic!("another event");
        };
        assert_eq!((path.as_str(), alias.as_str(), reason.as_str()), ("/a", "ua-b", "enospc"));
        assert_eq!(action, IoErrorAction::Pause);
    }

    #[test]
    fn unknown_events_are_ignored() {
        assert_eq!(Event::decode(9999, vec![0; 4]), Ok(None));
    }
}
