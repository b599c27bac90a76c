//! Why a request is not done, for the handler and for people.

use ferrovirt_launcher_rpc::messages::Refusal;
use http::StatusCode;

use crate::archive::ArchiveError;

/// Why a request is not done.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such call.
    #[error("there is no {0}")]
    NoSuchCall(String),
    /// The body makes no sense.
    #[error("the request cannot be understood: {0}")]
    Malformed(String),
    /// The body has no end.
    #[error("the request has more than {0} bytes")]
    TooLarge(usize),
    /// The wrong launcher was asked.
    #[error("this launcher serves the guest with uid {ours}, not {theirs}")]
    WrongGuest {
        /// Whom it serves.
        ours: String,
        /// Whom the request is about.
        theirs: String,
    },
    /// The capability cache is no good.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A directory of the pod is missing or not ours.
    #[error("{path} cannot be made: {source}")]
    Directory {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A disk could not be prepared.
    #[error("{0}")]
    Disk(String),
    /// The helper that prepares disks failed itself.
    #[error("disks could not be prepared: {0}")]
    DiskHelper(String),
    /// libvirt refused the domain.
    #[error("the domain was refused: {0}")]
    Define(#[source] ferrovirt_libvirt::Error),
    /// QEMU did not start.
    #[error("the guest could not be started: {0}")]
    Start(#[source] ferrovirt_libvirt::Error),
    /// There is no guest, or not any more.
    #[error("the guest does not run")]
    NotRunning,
    /// The guest is already there.
    #[error("the guest is {0}")]
    WrongState(&'static str),
    /// libvirt is being started (again).
    #[error("libvirt is not there: {0}")]
    NoLibvirt(String),
    /// A call needs the guest agent.
    #[error("the guest agent is not connected: install and start qemu-guest-agent in the guest")]
    NoAgent,
    /// libvirt refused.
    #[error("{0}")]
    Libvirt(#[from] ferrovirt_libvirt::Error),
    /// A socket of the guest cannot be reached.
    #[error("{path} cannot be reached: {source}")]
    Socket {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The move is over, was never heard of, or is not ready.
    #[error("there is no move {0:?} here that wants connections")]
    NoMove(String),
    /// One move at a time.
    #[error("the move {0} is on its way")]
    OtherMove(String),
    /// A descriptor needs an upgrade.
    #[error("this call needs the headers \"Connection: Upgrade\" and \"Upgrade: descriptor\"")]
    NoDescriptorUpgrade,
    /// A stream needs an upgrade.
    #[error("this call needs the headers \"Connection: Upgrade\" and \"Upgrade: plain\"")]
    NoUpgrade,
    /// There is no record of what the guest wrote.
    #[error("the guest's console is not recorded (spec.domain.devices.logSerialConsole is false?): {0}")]
    NoSerialLog(#[source] std::io::Error),
    /// Viewers cost memory.
    #[error("{0} viewers watch the console already")]
    TooManyViewers(usize),
}

impl Refused {
    /// The HTTP code and a word for programs.
    fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoSuchCall(_) => (StatusCode::NOT_FOUND, "NoSuchCall"),
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, "Malformed"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "TooLarge"),
            Self::WrongGuest { .. } => (StatusCode::CONFLICT, "WrongGuest"),
            Self::Archive(ArchiveError::Read { .. } | ArchiveError::Write { .. }) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "NoCache")
            }
            Self::Archive(_) => (StatusCode::BAD_REQUEST, "BadArchive"),
            Self::Directory { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "NoDirectory"),
            Self::Disk(_) => (StatusCode::UNPROCESSABLE_ENTITY, "DiskNotUsable"),
            Self::DiskHelper(_) => (StatusCode::INTERNAL_SERVER_ERROR, "DiskHelperFailed"),
            Self::Define(_) => (StatusCode::UNPROCESSABLE_ENTITY, "DomainRefused"),
            Self::Start(_) => (StatusCode::INTERNAL_SERVER_ERROR, "StartFailed"),
            Self::NotRunning => (StatusCode::CONFLICT, "NotRunning"),
            Self::WrongState(_) => (StatusCode::CONFLICT, "WrongState"),
            Self::NoLibvirt(_) => (StatusCode::SERVICE_UNAVAILABLE, "NoLibvirt"),
            Self::NoAgent => (StatusCode::CONFLICT, "NoAgent"),
            Self::Libvirt(error) if error.is_invalid_operation() => (StatusCode::CONFLICT, "WrongState"),
            Self::Libvirt(error) if error.is_agent() => (StatusCode::BAD_GATEWAY, "AgentFailed"),
            Self::Libvirt(_) => (StatusCode::INTERNAL_SERVER_ERROR, "LibvirtFailed"),
            Self::Socket { .. } => (StatusCode::SERVICE_UNAVAILABLE, "NoSocket"),
            Self::NoMove(_) => (StatusCode::NOT_FOUND, "NoMove"),
            Self::OtherMove(_) => (StatusCode::CONFLICT, "OtherMove"),
            Self::NoUpgrade | Self::NoDescriptorUpgrade => (StatusCode::UPGRADE_REQUIRED, "NoUpgrade"),
            Self::NoSerialLog(_) => (StatusCode::CONFLICT, "NoSerialLog"),
            Self::TooManyViewers(_) => (StatusCode::CONFLICT, "TooManyViewers"),
        }
    }

    /// The HTTP code.
    pub fn status(&self) -> StatusCode {
        self.kind().0
    }

    /// The answer's body.
    pub fn body(&self) -> Refusal {
        Refusal { reason: self.kind().1.to_owned(), message: self.to_string() }
    }
}
