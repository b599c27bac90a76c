//! Moving the guest to another launcher. Who may run it when is decided by `ferrovirt_handover`; here is what travels.
//!
//! The data never passes through launchers. Each connection of a move is a socket that a launcher has or makes inside of its pod, and it
//! hands the connected descriptor to its handler (`SCM_RIGHTS`); the two handlers join such sockets over TLS. No path crosses the line.
//!
//! | call | side | what |
//! |---|---|---|
//! | `PUT /v1/migration/target` | target | [`TargetRequest`]: disks are made, DHCP waits, libvirt starts; 204 when the launcher can be called. Repeated: 204 |
//! | `PUT /v1/migration/source` | source | [`SourceRequest`]: the move begins; 204 at once, the rest is told by reports. Repeated: 204, nothing happens |
//! | `POST /v1/migration/cancel` | either | [`CancelRequest`]: source: called off if it is not too late, and one that never began will not; target: never runs the guest, if it does not yet. 204 in any case: the report says what came of it |
//! | `POST /v1/migration/verdict` | source | [`VerdictRequest`]: for a source in doubt. 204 in any case |
//! | `GET /v1/migration/outgoing?id=` | source | with `Upgrade: descriptor`: waits until the launcher has a connection to make; 101, then one message with a line of JSON ([`Connection`]) and one descriptor |
//! | `GET /v1/migration/incoming?id=&channel=` | target | with `Upgrade: descriptor`: 101, then one message with an empty line and one descriptor, connected to that channel. Connections of a channel must be made in the order in which the source made them: QEMU tells them apart by it |
//!
//! Reports ([`crate::messages::DomainReport::migration`]) tell the rest.

use ferrovirt_handover::{SourceStage, TargetStage, ToSource, ToTarget, Verdict};
use serde::{Deserialize, Serialize};

use crate::disks::DiskTask;
use crate::network::DhcpServer;

/// The three kinds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Channel {
    /// The launchers' own: lines of [`Line`] in both directions.
    Link,
    /// QEMU's memory and device state; several with parallel connections.
    Memory,
    /// Disks that are copied (NBD); one for each disk and more.
    Disks,
}

impl Channel {
    /// Its name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Memory => "memory",
            Self::Disks => "disks",
        }
    }

    /// The channel of a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Link, Self::Memory, Self::Disks].into_iter().find(|channel| channel.name() == name)
    }
}

/// What comes with a descriptor of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// What it is for.
    pub channel: Channel,
}

/// Get ready to receive this guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRequest {
    /// UID of the migration; a target launcher serves one.
    pub id: String,
    /// The VMI's uid.
    pub uid: String,
    /// The domain's name.
    pub name: String,
    /// What to make or check first, in order, as for a start: copied disks are made with the size of the source's.
    #[serde(default)]
    pub disks: Vec<DiskTask>,
    /// DHCP servers to run.
    #[serde(default)]
    pub dhcp: Vec<DhcpServer>,
}

/// Move the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceRequest {
    /// UID of the migration.
    pub id: String,
    /// How.
    #[serde(default)]
    pub options: Options,
    /// Volumes whose disks are copied, because the target has disks of its own for them.
    #[serde(default)]
    pub copied_volumes: Vec<String>,
}

/// How a move is done. Zero means: no limit, or off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// Bytes per second at most.
    pub bandwidth: u64,
    /// Connections for memory; up to 1: one.
    pub parallel_connections: u32,
    /// Memory is compressed (multifd with zstd).
    pub compression: bool,
    /// The guest is slowed down when its memory changes too fast.
    pub auto_converge: bool,
    /// The guest may run on the target before all of its memory is there.
    pub post_copy: bool,
    /// The guest may be paused to get the move done.
    pub may_pause: bool,
    /// libvirt's doubts are overruled.
    pub unsafe_override: bool,
    /// Seconds for the whole move.
    pub completion_timeout: u64,
    /// Seconds without progress.
    pub progress_timeout: u64,
    /// How long the guest may stand still at the end, at most, in milliseconds.
    pub max_downtime_ms: u64,
    /// How long it may at first; raised step by step up to the most when that is not enough.
    pub first_downtime_ms: u64,
    /// Seconds in which a move that does not get nearer to its end is noticed.
    pub stall_timeout: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bandwidth: 0,
            parallel_connections: 0,
            compression: false,
            auto_converge: false,
            post_copy: false,
            may_pause: false,
            unsafe_override: false,
            completion_timeout: 0,
            progress_timeout: 150,
            max_downtime_ms: 900,
            first_downtime_ms: 100,
            stall_timeout: 40,
        }
    }
}

/// Call a move off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelRequest {
    /// UID of the migration.
    pub id: String,
    /// Why, for people.
    pub reason: String,
}

/// How a move in doubt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictRequest {
    /// UID of the migration.
    pub id: String,
    /// How.
    pub verdict: Verdict,
}

/// The launcher's newest move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationReport {
    /// UID of the migration.
    pub id: String,
    /// Where it is.
    pub stage: Stage,
    /// How memory is transferred.
    #[serde(default)]
    pub mode: Mode,
    /// How far it is; changes about once a second while memory is sent.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Why a source in doubt has no answer, for people; unset while an answer can be expected.
    #[serde(default)]
    pub doubt: Option<String>,
}

/// Where a move is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// In the launcher that has the guest.
    Source(SourceStage),
    /// In the launcher that gets it.
    Target(TargetStage),
}

/// How memory is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// While the guest runs at the source.
    #[default]
    PreCopy,
    /// While the guest runs at the target.
    PostCopy,
    /// While the guest is paused, because it did not end otherwise.
    Paused,
}

/// How far a move is. Bytes are of memory and copied disks together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// Milliseconds since the copy began.
    pub elapsed_ms: u64,
    /// All that is to be sent once.
    pub total_bytes: u64,
    /// What was sent so far, pages that changed again counted again.
    pub sent_bytes: u64,
    /// What is left now.
    pub remaining_bytes: u64,
    /// Bytes per second that are sent.
    pub bandwidth: u64,
    /// Bytes per second of memory that change.
    pub dirty_rate: u64,
    /// Rounds over memory.
    pub iteration: u64,
    /// The downtime that is allowed now, in milliseconds.
    pub allowed_downtime_ms: u64,
    /// Milliseconds until the end, if it goes on like this; `None`: it does not end like this.
    pub remaining_ms: Option<u64>,
    /// What the launcher makes of it, for people; set when it does not converge.
    pub note: Option<String>,
    /// How long the guest stood still, once it is known.
    pub downtime_ms: Option<u64>,
}

/// A line on the link: JSON, ended by a line feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The source speaks.
    Source {
        /// The word.
        word: ToTarget,
        /// libvirt's cookie, in base64.
        #[serde(default)]
        cookie: Option<String>,
        /// With `Prepare`: what the target's libvirt has to know.
        #[serde(default)]
        offer: Option<Box<Offer>>,
    },
    /// The target answers.
    Target {
        /// The word.
        word: ToSource,
        /// libvirt's cookie, in base64.
        #[serde(default)]
        cookie: Option<String>,
        /// With `Prepared`: flags of the offer that cannot be had here; the move goes on without them.
        #[serde(default)]
        without: u32,
    },
}

/// What the target's libvirt has to know before it can receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The domain.
    pub domain_xml: String,
    /// libvirt's migration flags: both sides must have the same.
    pub flags: u32,
    /// Connections for memory.
    #[serde(default)]
    pub parallel_connections: u32,
    /// Memory is compressed.
    #[serde(default)]
    pub compression: bool,
    /// Targets (`vda`) of the disks that are copied.
    #[serde(default)]
    pub copied_disks: Vec<String>,
    /// The guest was paused by its user and stays so.
    #[serde(default)]
    pub paused: bool,
    /// Files that the source has made beside disks that are not copied: who does not see them has other disks.
    #[serde(default)]
    pub witnesses: Vec<Witness>,
}

/// The proof that both sides have the same storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Witness {
    /// The VMI's volume.
    pub volume: String,
    /// The file; it holds the migration's UID.
    pub path: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_a_round_trip() {
        let offer = Offer {
            domain_xml: "<domain/>".to_owned(),
            flags: 3,
            parallel_connections: 2,
            compression: false,
            copied_disks: vec!["vda".to_owned()],
            paused: false,
            witnesses: vec![Witness { volume: "data".to_owned(), path: "/a/b".to_owned() }],
        };
        let lines = [
            Line::Source { word: ToTarget::Prepare, cookie: Some("YQ==".to_owned()), offer: Some(Box::new(offer)) },
            Line::Target { word: ToSource::Never("full".to_owned()), cookie: None, without: 0 },
        ];
        for line in lines {
            let text = serde_json::to_string(&line).unwrap();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
    }

    #[test]
    fn channels_have_names() {
        for channel in [Channel::Link, Channel::Memory, Channel::Disks] {
            assert_eq!(Channel::named(channel.name()), Some(channel));
        }
        assert_eq!(Channel::named("else"), None);
    }

    #[test]
    fn an_old_side_may_leave_things_out() {
        assert_eq!(serde_json::from_str::<Options>("{}").unwrap(), Options::default());
        let report = r#"{"id":"m","stage":{"source":"copying"}}"#;
        let report: MigrationReport = serde_json::from_str(report).unwrap();
        assert_eq!(report.stage, Stage::Source(SourceStage::Copying));
    }
}
