//! Requests and answers.

use serde::{Deserialize, Serialize};

use crate::disks::DiskTask;
use crate::migration::MigrationReport;
use crate::network::DhcpServer;

/// What a launcher is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The launcher's version.
    pub launcher: String,
    /// The newest version of this contract that it speaks.
    pub protocol: u32,
}

/// The version of the contract in this crate.
pub const PROTOCOL: u32 = 1;

/// Start this domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartRequest {
    /// The VMI's uid; a launcher serves one guest in its life.
    pub uid: String,
    /// The domain's name.
    pub name: String,
    /// libvirt's domain XML.
    pub domain_xml: String,
    /// What to make or check first, in order.
    #[serde(default)]
    pub disks: Vec<DiskTask>,
    /// DHCP servers to run.
    #[serde(default)]
    pub dhcp: Vec<DhcpServer>,
    /// Leave the guest paused.
    #[serde(default)]
    pub paused: bool,
}

/// Power off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownRequest {
    /// How long the guest may take before it is killed.
    pub grace_seconds: u64,
}

/// Freeze the guest's file systems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreezeRequest {
    /// They thaw by themselves after this time; 0: never.
    pub thaw_after_seconds: u64,
}

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// A short CamelCase word, stable for programs.
    pub reason: String,
    /// For people: what, why and what to do.
    pub message: String,
}

/// The guest as the launcher sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainReport {
    /// The VMI's uid, once there was a start request.
    #[serde(default)]
    pub uid: Option<String>,
    /// The state.
    #[serde(default)]
    pub state: DomainState,
    /// `qemu-img`-style version of the emulator, like `7.2.22`.
    #[serde(default)]
    pub qemu_version: Option<String>,
    /// The machine type that libvirt resolved.
    #[serde(default)]
    pub machine_type: Option<String>,
    /// The guest's instructions are emulated.
    #[serde(default)]
    pub emulated: bool,
    /// The guest's network interfaces.
    #[serde(default)]
    pub interfaces: Vec<DomainInterface>,
    /// The disks' targets: the VMI's volume and `vda`.
    #[serde(default)]
    pub disks: Vec<(String, String)>,
    /// What the guest agent says.
    #[serde(default)]
    pub agent: AgentReport,
    /// Memory that the guest has, in bytes.
    #[serde(default)]
    pub memory: Option<u64>,
    /// The newest move, from or to this launcher.
    #[serde(default)]
    pub migration: Option<MigrationReport>,
    /// Of a guest that ended without anybody's wish: how QEMU's process ended, and the last that it wrote.
    #[serde(default)]
    pub ending: Option<String>,
}

/// The states of a domain that matter to a VMI.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", content = "reason", rename_all = "camelCase")]
pub enum DomainState {
    /// There was no start request yet, or it was refused and may be repeated.
    #[default]
    Absent,
    /// Being prepared or started.
    Starting,
    /// Runs.
    Running,
    /// Exists, does not run, and can go on.
    Paused(PauseReason),
    /// Was asked to power off and has not yet.
    ShuttingDown,
    /// Ended.
    Off(OffReason),
}

/// Why a domain is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PauseReason {
    /// By a request.
    User,
    /// A disk failed or is full.
    IoError,
    /// The migration monitor did.
    Migration,
    /// A post-copy migration broke.
    PostcopyFailed,
    /// The guest suspended itself to memory.
    Suspended,
    /// Anything else.
    Other,
}

/// Why a domain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OffReason {
    /// The guest powered off.
    Shutdown,
    /// It was killed by us: the grace period ran out, or a kill request.
    Destroyed,
    /// QEMU ended by itself or was killed by somebody.
    Crashed,
    /// The guest's kernel panicked.
    Panicked,
    /// It moved away.
    Migrated,
    /// It was saved to a file, or ended with a snapshot.
    Saved,
    /// It never started.
    Failed,
    /// libvirt does not say.
    Unknown,
}

/// One of the guest's network interfaces as libvirt knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainInterface {
    /// The VMI's interface.
    pub name: String,
    /// Its address.
    pub mac: String,
    /// The tap device.
    pub tap: String,
    /// Its queues.
    pub queues: u32,
    /// The cable is plugged.
    pub link_up: bool,
}

/// What the guest agent says. Everything in here comes from the guest: it is cut to sane lengths and never trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// It answers.
    #[serde(default)]
    pub connected: bool,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
    /// Host name.
    #[serde(default)]
    pub hostname: Option<String>,
    /// The operating system.
    #[serde(default)]
    pub os: Option<GuestOs>,
    /// Time zone and offset, as `guest-get-timezone` tells.
    #[serde(default)]
    pub timezone: Option<String>,
    /// Interfaces.
    #[serde(default)]
    pub interfaces: Vec<AgentInterface>,
    /// File systems are frozen.
    #[serde(default)]
    pub frozen: bool,
}

/// `guest-get-osinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestOs {
    /// Name.
    pub name: String,
    /// Kernel release.
    pub kernel_release: String,
    /// Version.
    pub version: String,
    /// Pretty name.
    pub pretty_name: String,
    /// Version id.
    pub version_id: String,
    /// Kernel version.
    pub kernel_version: String,
    /// Machine.
    pub machine: String,
    /// Id.
    pub id: String,
}

/// An interface as the agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentInterface {
    /// The guest's name for it.
    pub name: String,
    /// Its address.
    pub mac: String,
    /// Its IP addresses.
    pub addresses: Vec<String>,
}

/// A logged-in user.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentUser {
    /// Name.
    pub user: String,
    /// Windows domain.
    pub domain: Option<String>,
    /// Seconds since 1970.
    pub login_time: f64,
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentFilesystem {
    /// Disk name.
    pub name: String,
    /// Mount point.
    pub mountpoint: String,
    /// Type.
    pub kind: String,
    /// Used bytes.
    pub used_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// The disks below it: serial and bus type.
    pub disks: Vec<(String, String)>,
}

/// The launcher's last words: its termination message. The exit code is 0 when the guest ended
/// as asked, else 1, so that the pod's phase says the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FinalWords {
    /// How the guest ended.
    pub reason: OffReason,
    /// For people.
    pub message: String,
    /// The newest move, where it was then. A source says by it whether the target was told to run the guest, a target whether it did;
    /// without it nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationReport>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_missing_fields_are_no_error() {
        let report: DomainReport =
            serde_json::from_str(r#"{"state":{"state":"paused","reason":"ioError"},"fromTheFuture":1}"#).unwrap();
        assert_eq!(report.state, DomainState::Paused(PauseReason::IoError));
        assert_eq!(serde_json::from_str::<DomainReport>("{}").unwrap(), DomainReport::default());
    }

    #[test]
    fn states_survive_a_round_trip() {
        for state in [DomainState::Absent, DomainState::Running, DomainState::Off(OffReason::Panicked)] {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<DomainState>(&text).unwrap(), state, "{text}");
        }
    }
}
