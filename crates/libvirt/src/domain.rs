//! Domains and what can be done with them.

use crate::connection::Connection;
use crate::error::Error;
use crate::parameters::{PARAMETERS_MAX, TypedParameter};
use crate::procedures as call;
use crate::types::{PausedReason, ShutoffReason};
use crate::xdr::{Decoder, Encoder, XdrError};

const DOMAINS_MAX: usize = 16384;
const INTERFACES_MAX: usize = 2048;
const AFFECT_LIVE: u32 = 1;

/// A domain's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: [u8; 16],
    /// Its number while it runs, else -1.
    pub id: i32,
}

impl Domain {
    pub(crate) fn encode(&self, encoder: Encoder) -> Encoder {
        encoder.string(&self.name).fixed(&self.uuid).i32(self.id)
    }

    pub(crate) fn decode(decoder: &mut Decoder) -> Result<Self, XdrError> {
        Ok(Self { name: decoder.string()?, uuid: decoder.array()?, id: decoder.i32()? })
    }

    pub(crate) fn arguments(&self) -> Encoder {
        self.encode(Encoder::new())
    }
}

/// What a domain does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// libvirt does not know.
    Unknown,
    /// It runs.
    Running,
    /// It does not run for the moment.
    Paused(PausedReason),
    /// The guest powered off; QEMU follows.
    ShuttingDown,
    /// It is off.
    Shutoff(ShutoffReason),
    /// The guest crashed and QEMU was kept.
    Crashed,
    /// The guest sleeps.
    PmSuspended,
}

impl State {
    fn new(state: i32, reason: i32) -> Self {
        match state {
            // "Blocked" is a running domain that waits for something.
            1 | 2 => Self::Running,
            3 => Self::Paused(reason.into()),
            4 => Self::ShuttingDown,
            5 => Self::Shutoff(reason.into()),
            6 => Self::Crashed,
            7 => Self::PmSuspended,
            _ => Self::Unknown,
        }
    }
}

/// How to start a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The guest runs at once.
    Running,
    /// The guest waits for [`Connection::resume`].
    Paused,
}

/// How to ask a guest to power off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// libvirt chooses.
    Default,
    /// The power button.
    Acpi,
    /// The guest agent.
    Agent,
}

/// How to reboot a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reboot {
    /// libvirt chooses.
    Default,
    /// The power button, and a reset instead of the power-off.
    Acpi,
    /// The guest agent.
    Agent,
}

/// How to kill QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destroy {
    /// It may write its caches; libvirt gives up when that takes too long.
    Graceful,
    /// At any price.
    Forced,
}

/// A guest's interface and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddresses {
    /// Its name in the guest.
    pub name: String,
    /// Its hardware address.
    pub mac: Option<String>,
    /// Its addresses, each with its prefix length.
    pub addresses: Vec<(String, u32)>,
}

impl Connection {
    /// QEMU's version as libvirt packs it: `major * 1_000_000 + minor * 1_000 + micro`.
    pub async fn hypervisor_version(&self) -> Result<u64, Error> {
        self.call(call::GET_VERSION, Encoder::new(), Decoder::u64).await
    }

    /// libvirt's own version, packed alike.
    pub async fn libvirt_version(&self) -> Result<u64, Error> {
        self.call(call::GET_LIB_VERSION, Encoder::new(), Decoder::u64).await
    }

    /// What this machine can do, as XML. The first call makes libvirt probe QEMU.
    pub async fn capabilities(&self) -> Result<String, Error> {
        self.call(call::GET_CAPABILITIES, Encoder::new(), Decoder::string).await
    }

    /// What a domain on this machine can have, as XML: machine types, CPU models and their usability, devices.
    pub async fn domain_capabilities(&self) -> Result<String, Error> {
        // The emulator, architecture, machine and virtualisation that libvirt prefers.
        let arguments = Encoder::new().u32(0).u32(0).u32(0).u32(0).u32(0);
        self.call(call::GET_DOMAIN_CAPABILITIES, arguments, Decoder::string).await
    }

    /// All domains, running or not.
    pub async fn domains(&self) -> Result<Vec<Domain>, Error> {
        let arguments = Encoder::new().i32(1).u32(0);
        self.call(call::LIST_DOMAINS, arguments, |reply| reply.list(DOMAINS_MAX, Domain::decode)).await
    }

    /// The domain of this name.
    pub async fn lookup(&self, name: &str) -> Result<Domain, Error> {
        self.call(call::LOOKUP_BY_NAME, Encoder::new().string(name), Domain::decode).await
    }

    /// The domain with this uuid.
    pub async fn lookup_uuid(&self, uuid: &[u8; 16]) -> Result<Domain, Error> {
        self.call(call::LOOKUP_BY_UUID, Encoder::new().fixed(uuid), Domain::decode).await
    }

    /// Stores a domain's configuration.
    pub async fn define(&self, xml: &str) -> Result<Domain, Error> {
        self.call(call::DEFINE, Encoder::new().string(xml).u32(0), Domain::decode).await
    }

    /// Starts a domain; the answer knows its number.
    pub async fn create(&self, domain: &Domain, start: Start) -> Result<Domain, Error> {
        let flags = match start {
            Start::Running => 0,
            Start::Paused => 1,
        };
        self.call(call::CREATE, domain.arguments().u32(flags), Domain::decode).await
    }

    /// What a domain does.
    pub async fn state(&self, domain: &Domain) -> Result<State, Error> {
        let decode = |reply: &mut Decoder| Ok(State::new(reply.i32()?, reply.i32()?));
        self.call(call::GET_STATE, domain.arguments().u32(0), decode).await
    }

    /// A domain's XML: of the running one, if it runs.
    pub async fn xml(&self, domain: &Domain) -> Result<String, Error> {
        self.call(call::GET_XML, domain.arguments().u32(0), Decoder::string).await
    }

    /// Asks the guest to power off. It may not listen.
    pub async fn shutdown(&self, domain: &Domain, how: Shutdown) -> Result<(), Error> {
        let flags = match how {
            Shutdown::Default => 0,
            Shutdown::Acpi => 1,
            Shutdown::Agent => 2,
        };
        self.order(call::SHUTDOWN, domain.arguments().u32(flags)).await
    }

    /// Asks the guest to reboot. It may not listen.
    pub async fn reboot(&self, domain: &Domain, how: Reboot) -> Result<(), Error> {
        let flags = match how {
            Reboot::Default => 0,
            Reboot::Acpi => 1,
            Reboot::Agent => 2,
        };
        self.order(call::REBOOT, domain.arguments().u32(flags)).await
    }

    /// Presses the reset button.
    pub async fn reset(&self, domain: &Domain) -> Result<(), Error> {
        self.order(call::RESET, domain.arguments().u32(0)).await
    }

    /// Stops the guest's processors.
    pub async fn suspend(&self, domain: &Domain) -> Result<(), Error> {
        self.order(call::SUSPEND, domain.arguments()).await
    }

    /// Lets the guest's processors run.
    pub async fn resume(&self, domain: &Domain) -> Result<(), Error> {
        self.order(call::RESUME, domain.arguments()).await
    }

    /// Wakes a guest that sleeps.
    pub async fn wake_up(&self, domain: &Domain) -> Result<(), Error> {
        self.order(call::WAKE_UP, domain.arguments().u32(0)).await
    }

    /// Kills QEMU.
    pub async fn destroy(&self, domain: &Domain, how: Destroy) -> Result<(), Error> {
        let flags = match how {
            Destroy::Graceful => 1,
            Destroy::Forced => 0,
        };
        self.order(call::DESTROY, domain.arguments().u32(flags)).await
    }

    /// Forgets a domain's configuration, with saved memory, snapshots and checkpoints, and keeps its EFI variables.
    pub async fn undefine(&self, domain: &Domain) -> Result<(), Error> {
        const MANAGED_SAVE: u32 = 1;
        const SNAPSHOTS: u32 = 1 << 1;
        const KEEP_NVRAM: u32 = 1 << 3;
        const CHECKPOINTS: u32 = 1 << 4;
        let flags = MANAGED_SAVE | SNAPSHOTS | KEEP_NVRAM | CHECKPOINTS;
        self.order(call::UNDEFINE, domain.arguments().u32(flags)).await
    }

    /// Plugs a device in.
    pub async fn attach_device(&self, domain: &Domain, xml: &str) -> Result<(), Error> {
        self.order(call::ATTACH_DEVICE, domain.arguments().string(xml).u32(AFFECT_LIVE)).await
    }

    /// Asks the guest to let a device go; an event tells when it did.
    pub async fn detach_device(&self, domain: &Domain, xml: &str) -> Result<(), Error> {
        self.order(call::DETACH_DEVICE, domain.arguments().string(xml).u32(AFFECT_LIVE)).await
    }

    /// Changes a device: a link's state, a medium.
    pub async fn update_device(&self, domain: &Domain, xml: &str) -> Result<(), Error> {
        self.order(call::UPDATE_DEVICE, domain.arguments().string(xml).u32(AFFECT_LIVE)).await
    }

    /// Tells a running guest that its disk has `bytes`.
    pub async fn block_resize(&self, domain: &Domain, disk: &str, bytes: u64) -> Result<(), Error> {
        const IN_BYTES: u32 = 1;
        self.order(call::BLOCK_RESIZE, domain.arguments().string(disk).u64(bytes).u32(IN_BYTES)).await
    }

    /// Figures of the job that runs: its type by number, and named values.
    pub async fn job_stats(&self, domain: &Domain) -> Result<(i32, Vec<TypedParameter>), Error> {
        let decode = |reply: &mut Decoder| Ok((reply.i32()?, reply.list(PARAMETERS_MAX, TypedParameter::decode)?));
        self.call(call::GET_JOB_STATS, domain.arguments().u32(0), decode).await
    }

    /// Figures of the last job that ended well; they are forgotten by asking.
    pub async fn completed_job_stats(&self, domain: &Domain) -> Result<Vec<TypedParameter>, Error> {
        const COMPLETED: u32 = 1;
        let decode = |reply: &mut Decoder| {
            let _kind = reply.i32()?;
            reply.list(PARAMETERS_MAX, TypedParameter::decode)
        };
        self.call(call::GET_JOB_STATS, domain.arguments().u32(COMPLETED), decode).await
    }

    /// Gives up the job that runs.
    pub async fn abort_job(&self, domain: &Domain) -> Result<(), Error> {
        self.order(call::ABORT_JOB, domain.arguments()).await
    }

    /// Freezes all of the guest's file systems, through the agent; how many.
    pub async fn freeze(&self, domain: &Domain) -> Result<i32, Error> {
        self.call(call::FREEZE, domain.arguments().u32(0).u32(0), Decoder::i32).await
    }

    /// Thaws them; how many.
    pub async fn thaw(&self, domain: &Domain) -> Result<i32, Error> {
        self.call(call::THAW, domain.arguments().u32(0).u32(0), Decoder::i32).await
    }

    /// Sets the guest's clock, through the agent.
    pub async fn set_time(&self, domain: &Domain, since_epoch: std::time::Duration) -> Result<(), Error> {
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        let arguments = domain.arguments().i64(seconds).u32(since_epoch.subsec_nanos()).u32(0);
        self.order(call::SET_TIME, arguments).await
    }

    /// Interfaces and addresses that the guest agent tells.
    pub async fn interface_addresses(&self, domain: &Domain) -> Result<Vec<InterfaceAddresses>, Error> {
        const FROM_AGENT: u32 = 1;
        let arguments = domain.arguments().u32(FROM_AGENT).u32(0);
        self.call(call::INTERFACE_ADDRESSES, arguments, |reply| reply.list(INTERFACES_MAX, interface)).await
    }

    /// Everything that the guest agent tells about users, system, time zone, host name, file systems and interfaces.
    pub async fn guest_info(&self, domain: &Domain) -> Result<Vec<TypedParameter>, Error> {
        // Kinds that the agent does not know are left out instead of being an error.
        let arguments = domain.arguments().u32(0).u32(0);
        self.call(call::GUEST_INFO, arguments, |reply| reply.list(PARAMETERS_MAX, TypedParameter::decode)).await
    }

    /// A call whose reply says nothing.
    pub(crate) async fn order(&self, procedure: call::Procedure, arguments: Encoder) -> Result<(), Error> {
        self.call(procedure, arguments, |_| Ok(())).await
    }
}

fn interface(reply: &mut Decoder) -> Result<InterfaceAddresses, XdrError> {
    Ok(InterfaceAddresses {
        name: reply.string()?,
        mac: reply.optional(Decoder::string)?,
        addresses: reply.list(INTERFACES_MAX, |address| {
            let _family = address.i32()?;
            Ok((address.string()?, address.u32()?))
        })?,
    })
}
