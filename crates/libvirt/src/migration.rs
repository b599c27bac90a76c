//! Moving a domain to another libvirt, one step at a time: the protocol's version 3, driven by the caller and not by libvirt.
//!
//! ```text
//!   source   begin ──────────► perform ──────────────► confirm     ends the domain, or lets it run again
//!                 │           ▲       │               ▲
//!   target        └► prepare ─┘       └► finish ──────┘            starts the guest's processors, or ends the domain
//! ```
//!
//! Each step takes the cookie of the one before it. What libvirt does by itself when the caller's connection ends or the daemon dies:
//! before `perform` the source forgets the move; during `perform` it is cancelled and the guest runs on; after `perform` the guest stands
//! still at the source and nothing happens. A target before `finish` is killed; in the middle of `finish` it is kept only if it runs.

use crate::connection::Connection;
use crate::domain::Domain;
use crate::error::Error;
use crate::parameters::{TypedParameter, TypedValue};
use crate::procedures as call;
use crate::xdr::{Decoder, Encoder};

/// The longest cookie that the protocol allows.
const COOKIE_MAX: usize = 4 * 1024 * 1024;

/// What a move does, as bits.
pub mod flags {
    /// The guest runs meanwhile.
    pub const LIVE: u32 = 1;
    /// The target stores the domain's configuration.
    pub const PERSIST_DEST: u32 = 1 << 3;
    /// The guest does not run on the target.
    pub const PAUSED: u32 = 1 << 5;
    /// Disks are copied, without what is in their backing files.
    pub const NON_SHARED_INC: u32 = 1 << 7;
    /// Nobody changes the domain between the steps. For the source only.
    pub const CHANGE_PROTECTION: u32 = 1 << 8;
    /// libvirt's doubts about caches and shared storage are overruled.
    pub const UNSAFE: u32 = 1 << 9;
    /// Memory is compressed.
    pub const COMPRESSED: u32 = 1 << 11;
    /// The guest is slowed down when its memory changes too fast. For the source only.
    pub const AUTO_CONVERGE: u32 = 1 << 13;
    /// [`super::Connection::start_post_copy`] may be called.
    pub const POSTCOPY: u32 = 1 << 15;
    /// Memory is sent over several connections.
    pub const PARALLEL: u32 = 1 << 17;
    /// What only the source is told.
    pub const OF_SOURCE: u32 = CHANGE_PROTECTION | AUTO_CONVERGE;
}

/// The arguments that the steps share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters {
    /// The domain's XML for the target; only for `prepare`.
    pub domain_xml: Option<String>,
    /// The domain's name on the target; only for `finish`.
    pub name: Option<String>,
    /// The socket for memory: `unix:///…`.
    pub memory_uri: Option<String>,
    /// The socket for disks: `unix:///…`.
    pub disks_uri: Option<String>,
    /// Targets (`vda`) of the disks that are copied.
    pub disks: Vec<String>,
    /// MiB per second; 0: no limit.
    pub bandwidth: u64,
    /// Connections for memory, with [`flags::PARALLEL`].
    pub connections: u32,
    /// The method of compression, with [`flags::COMPRESSED`].
    pub compression: Option<String>,
}

impl Parameters {
    fn list(&self) -> Vec<TypedParameter> {
        let text = |field: &str, value: &Option<String>| {
            value.as_ref().map(|value| TypedParameter::new(field, TypedValue::Text(value.clone())))
        };
        let disks = self.disks.iter().map(|disk| TypedParameter::new("migrate_disks", TypedValue::Text(disk.clone())));
        let connections = i32::try_from(self.connections).unwrap_or(i32::MAX);
        [
            text("destination_xml", &self.domain_xml),
            text("destination_name", &self.name),
            text("migrate_uri", &self.memory_uri),
            text("disks_uri", &self.disks_uri),
            text("compression", &self.compression),
            (self.bandwidth > 0).then(|| TypedParameter::new("bandwidth", TypedValue::Ulong(self.bandwidth))),
            (connections > 0).then(|| TypedParameter::new("parallel.connections", TypedValue::Int(connections))),
        ]
        .into_iter()
        .flatten()
        .chain(disks)
        .collect()
    }

    fn encode(&self, encoder: Encoder) -> Encoder {
        encoder.list(&self.list(), TypedParameter::encode)
    }
}

/// How far the other side came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well: the target starts the guest, the source ends the domain.
    Success,
    /// It is given up: the target ends the domain, the source lets the guest run again.
    Cancelled,
}

impl Verdict {
    fn number(self) -> i32 {
        match self {
            Self::Success => 0,
            Self::Cancelled => 1,
        }
    }
}

fn cookie(reply: &mut Decoder) -> Result<Vec<u8>, crate::xdr::XdrError> {
    reply.bytes(COOKIE_MAX)
}

impl Connection {
    /// At the source: the cookie and the domain's XML for the target.
    pub async fn migrate_begin(
        &self,
        domain: &Domain,
        parameters: &Parameters,
        flags: u32,
    ) -> Result<(Vec<u8>, String), Error> {
        let arguments = parameters.encode(domain.arguments()).u32(flags);
        self.call(call::MIGRATE_BEGIN, arguments, |reply| Ok((cookie(reply)?, reply.string()?))).await
    }

    /// At the target: QEMU is started and waits for data. The domain is killed when this connection ends before `finish`.
    pub async fn migrate_prepare(
        &self,
        parameters: &Parameters,
        cookie_in: &[u8],
        flags: u32,
    ) -> Result<Vec<u8>, Error> {
        let arguments = parameters.encode(Encoder::new()).bytes(cookie_in).u32(flags & !flags::OF_SOURCE);
        self.call(call::MIGRATE_PREPARE, arguments, cookie).await
    }

    /// At the source: everything is sent; the guest stands still afterwards. Takes as long as it takes.
    pub async fn migrate_perform(
        &self,
        domain: &Domain,
        parameters: &Parameters,
        cookie_in: &[u8],
        flags: u32,
    ) -> Result<Vec<u8>, Error> {
        // No address of the other libvirt: it is not libvirt that calls it.
        let arguments = parameters.encode(domain.arguments().u32(0)).bytes(cookie_in).u32(flags);
        self.call(call::MIGRATE_PERFORM, arguments, cookie).await
    }

    /// At the target: the guest runs, or the domain is ended.
    pub async fn migrate_finish(
        &self,
        parameters: &Parameters,
        cookie_in: &[u8],
        flags: u32,
        verdict: Verdict,
    ) -> Result<(Domain, Vec<u8>), Error> {
        let arguments = parameters.encode(Encoder::new()).bytes(cookie_in).u32(flags & !flags::OF_SOURCE);
        let arguments = arguments.i32(verdict.number());
        self.call(call::MIGRATE_FINISH, arguments, |reply| Ok((Domain::decode(reply)?, cookie(reply)?))).await
    }

    /// At the source: the domain is ended, or runs again.
    pub async fn migrate_confirm(
        &self,
        domain: &Domain,
        cookie_in: &[u8],
        flags: u32,
        verdict: Verdict,
    ) -> Result<(), Error> {
        let arguments = Parameters::default().encode(domain.arguments()).bytes(cookie_in).u32(flags);
        self.order(call::MIGRATE_CONFIRM, arguments.i32(verdict.number())).await
    }

    /// How long the guest may stand still at the end of a move.
    pub async fn set_max_downtime(&self, domain: &Domain, milliseconds: u64) -> Result<(), Error> {
        self.order(call::MIGRATE_SET_MAX_DOWNTIME, domain.arguments().u64(milliseconds).u32(0)).await
    }

    /// How many MiB per second a move may send.
    pub async fn set_max_speed(&self, domain: &Domain, mebibytes: u64) -> Result<(), Error> {
        self.order(call::MIGRATE_SET_MAX_SPEED, domain.arguments().u64(mebibytes).u32(0)).await
    }

    /// The guest goes on at the target with the memory that is there; the rest follows.
    pub async fn start_post_copy(&self, domain: &Domain) -> Result<(), Error> {
        self.order(call::MIGRATE_START_POST_COPY, domain.arguments().u32(0)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_set_is_sent_and_each_disk_by_itself() {
        let none = Parameters::default();
        assert!(none.list().is_empty());
        let some = Parameters {
            memory_uri: Some("unix:///m".to_owned()),
            disks: vec!["vda".to_owned(), "vdb".to_owned()],
            bandwidth: 7,
            ..Parameters::default()
        };
        let fields: Vec<String> = some.list().into_iter().map(|parameter| parameter.field).collect();
        assert_eq!(fields, ["migrate_uri", "bandwidth", "migrate_disks", "migrate_disks"]);
    }
}
