//! What is known about one guest; the contract through which the components work together.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Machine, MemoryStatus, MigrationState};
use crate::meta::{AccessMode, Condition, QosClass, VolumeMode};
use crate::string_enum::string_enum;
use crate::values::Quantity;
use crate::wire::{is_default, or_default};

/// What is known about one guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceStatus {
    /// The node that owns the guest.
    pub node_name: Option<String>,
    /// Short word for why the guest is in this phase.
    pub reason: Option<String>,
    /// Single facts, such as `Ready` or `LiveMigratable`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Where the guest is in its life.
    pub phase: Option<VirtualMachineInstancePhase>,
    /// When each phase began.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub phase_transition_timestamps: Vec<PhaseTransitionTimestamp>,
    /// Network cards and their addresses.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub interfaces: Vec<InterfaceStatus>,
    /// What the guest agent says about the operating system.
    #[serde(rename = "guestOSInfo")]
    pub guest_os_info: Option<GuestOsInfo>,
    /// The last or current move to another node.
    pub migration_state: Option<Box<MigrationState>>,
    /// Whether a move copies disks too.
    pub migration_method: Option<MigrationMethod>,
    /// How a move is carried.
    pub migration_transport: Option<MigrationTransport>,
    /// Quality of service of the launcher pod.
    pub qos_class: Option<QosClass>,
    /// The launcher image that the guest runs in.
    pub launcher_container_image_version: Option<String>,
    /// The node that the guest has to leave.
    pub evacuation_node_name: Option<String>,
    /// UIDs of launcher pods with the node of each.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub active_pods: BTreeMap<String, String>,
    /// State of each volume.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_status: Vec<VolumeStatus>,
    /// What was booted directly.
    pub kernel_boot_status: Option<KernelBootStatus>,
    /// `frozen` while the guest's filesystems are frozen.
    pub fs_freeze_status: Option<String>,
    /// Facts about the host that the guest depends on.
    pub topology_hints: Option<TopologyHints>,
    /// The revision of the virtual machine that the guest was started from.
    pub virtual_machine_revision_name: Option<String>,
    /// User id of the launcher; 0 is root.
    pub runtime_user: Option<u64>,
    /// Address of the guest's virtual socket.
    #[serde(rename = "VSOCKCID")]
    pub vsock_cid: Option<u32>,
    /// SELinux context of the launcher.
    pub selinux_context: Option<String>,
    /// The machine type in full.
    pub machine: Option<Machine>,
    /// The processor as it is now.
    #[serde(rename = "currentCPUTopology")]
    pub current_cpu_topology: Option<CpuTopologyStatus>,
    /// Memory as it is now.
    pub memory: Option<MemoryStatus>,
    /// Volumes whose content is moved to others.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
    /// State of changed block tracking.
    #[schemars(extend("nullable" = true))]
    pub changed_block_tracking: Option<Box<ChangedBlockTrackingStatus>>,
}

string_enum! {
    /// Where a guest is in its life.
    pub enum VirtualMachineInstancePhase {
        /// Waiting for its launcher pod.
        Pending = "Pending",
        /// The launcher pod exists and is being placed and started.
        Scheduling = "Scheduling",
        /// A node owns the guest and starts it.
        Scheduled = "Scheduled",
        /// The guest runs or is paused.
        Running = "Running",
        /// The guest ended in order.
        Succeeded = "Succeeded",
        /// The guest ended by a failure.
        Failed = "Failed",
        /// A receiver waits for a guest from another cluster.
        WaitingForSync = "WaitingForSync",
        /// The node cannot be asked.
        Unknown = "Unknown",
    }
}

impl VirtualMachineInstancePhase {
    /// Whether the guest has ended and will not come back.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// When a phase began.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTransitionTimestamp {
    /// The phase.
    pub phase: Option<VirtualMachineInstancePhase>,
    /// When it began.
    pub phase_transition_timestamp: Option<Time>,
}

/// A network card as it is. Parts of it come from inside the guest and are not to be trusted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceStatus {
    /// First address.
    pub ip_address: Option<String>,
    /// Hardware address, as reported.
    pub mac: Option<String>,
    /// Name of the network; empty for cards that only the guest knows.
    pub name: Option<String>,
    /// All addresses.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub ip_addresses: Vec<String>,
    /// Name in the launcher pod.
    pub pod_interface_name: Option<String>,
    /// Name in the guest.
    pub interface_name: Option<String>,
    /// Who reported it: a comma list of `domain`, `guest-agent`, `multus-status`.
    pub info_source: Option<String>,
    /// Number of queues.
    pub queue_count: Option<i32>,
    /// `up` or `down`.
    pub link_state: Option<String>,
}

/// What the guest agent says about the operating system.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestOsInfo {
    /// Name.
    pub name: Option<String>,
    /// Release of the kernel.
    pub kernel_release: Option<String>,
    /// Version.
    pub version: Option<String>,
    /// Name and version for people.
    pub pretty_name: Option<String>,
    /// Version for programs.
    pub version_id: Option<String>,
    /// Build of the kernel.
    pub kernel_version: Option<String>,
    /// Architecture.
    pub machine: Option<String>,
    /// Name for programs.
    pub id: Option<String>,
}

/// The processor as it is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuTopologyStatus {
    /// Cores per socket.
    pub cores: Option<u32>,
    /// Sockets.
    pub sockets: Option<u32>,
    /// Threads per core.
    pub threads: Option<u32>,
}

/// Facts about the host that the guest depends on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyHints {
    /// Frequency of the time stamp counter in hertz.
    pub tsc_frequency: Option<i64>,
}

string_enum! {
    /// How a move is carried.
    pub enum MigrationTransport {
        /// Through Unix sockets and the node agents.
        Unix = "Unix",
    }
}

string_enum! {
    /// Whether a move copies disks too.
    pub enum MigrationMethod {
        /// Disks are copied with the memory.
        BlockMigration = "BlockMigration",
        /// Disks are shared, only memory is copied.
        LiveMigration = "LiveMigration",
    }
}

/// State of a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Name of the volume.
    pub name: String,
    /// Name of the device in the guest.
    pub target: String,
    /// How far the volume is.
    pub phase: Option<VolumePhase>,
    /// Short word for why.
    pub reason: Option<String>,
    /// The same for people.
    pub message: Option<String>,
    /// The claim behind it.
    pub persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
    /// The pod that attaches it.
    pub hotplug_volume: Option<HotplugVolumeStatus>,
    /// Size in bytes.
    pub size: Option<i64>,
    /// The dump that is written to it.
    pub memory_dump_volume: Option<DomainMemoryDumpInfo>,
    /// The container disk behind it.
    pub container_disk_volume: Option<Checksum>,
}

string_enum! {
    /// How far a volume is.
    pub enum VolumePhase {
        /// Waiting for its claim.
        Pending = "Pending",
        /// The claim is bound.
        Bound = "Bound",
        /// Attached to the node.
        AttachedToNode = "AttachedToNode",
        /// Mounted into the launcher pod.
        MountedToPod = "MountedToPod",
        /// The guest has it.
        Ready = "Ready",
        /// On its way out.
        Detaching = "Detaching",
        /// No longer in the launcher pod.
        UnMountedFromPod = "UnMountedFromPod",
        /// A memory dump was written.
        MemoryDumpCompleted = "MemoryDumpCompleted",
        /// A memory dump is being written.
        MemoryDumpInProgress = "MemoryDumpInProgress",
        /// A memory dump failed.
        MemoryDumpFailed = "MemoryDumpFailed",
    }
}

/// Facts about a claim.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimInfo {
    /// Name of the claim.
    pub claim_name: Option<String>,
    /// Access modes of the claim.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access_modes: Vec<AccessMode>,
    /// Filesystem or block.
    pub volume_mode: Option<VolumeMode>,
    /// What the claim has.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub capacity: BTreeMap<String, Quantity>,
    /// What the claim asked for.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub requests: BTreeMap<String, Quantity>,
    /// All of its space is allocated.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub preallocated: bool,
    /// Share of the space that the filesystem takes, such as `0.055`.
    #[schemars(extend("pattern" = r"^(0(\.[0-9]{1,3})?|1)$"))]
    pub filesystem_overhead: Option<String>,
}

/// The pod that attaches a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HotplugVolumeStatus {
    /// Name of the pod.
    pub attach_pod_name: Option<String>,
    /// UID of the pod.
    #[serde(rename = "attachPodUID")]
    pub attach_pod_uid: Option<String>,
}

/// A memory dump.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainMemoryDumpInfo {
    /// When it began.
    pub start_timestamp: Option<Time>,
    /// When it ended.
    pub end_timestamp: Option<Time>,
    /// The claim that it is written to.
    pub claim_name: Option<String>,
    /// Name of the file in the claim.
    pub target_file_name: Option<String>,
}

/// What was booted or attached, in short.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checksum {
    /// Deprecated and no longer set.
    pub checksum: Option<u32>,
}

/// What was booted directly.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelBootStatus {
    /// The kernel.
    pub kernel_info: Option<Checksum>,
    /// The initial RAM disk.
    pub initrd_info: Option<Checksum>,
}

/// A volume whose content is moved to another.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageMigratedVolumeInfo {
    /// Name of the volume.
    pub volume_name: String,
    /// The claim it comes from.
    #[serde(rename = "sourcePVCInfo")]
    pub source_pvc_info: Option<PersistentVolumeClaimInfo>,
    /// The claim it goes to.
    #[serde(rename = "destinationPVCInfo")]
    pub destination_pvc_info: Option<PersistentVolumeClaimInfo>,
}

/// State of changed block tracking.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedBlockTrackingStatus {
    /// Whether blocks are tracked.
    pub state: ChangedBlockTrackingState,
    /// The last or current backup.
    #[schemars(extend("nullable" = true))]
    pub backup_status: Option<BackupStatus>,
}

string_enum! {
    /// Whether changed blocks are tracked.
    pub enum ChangedBlockTrackingState {
        /// Nothing is known.
        Undefined = "",
        /// Deprecated: takes effect at the next start.
        PendingRestart = "PendingRestart",
        /// Being set up.
        Initializing = "Initializing",
        /// Blocks are tracked.
        Enabled = "Enabled",
        /// Blocks are not tracked.
        Disabled = "Disabled",
        /// Wanted, but the cluster has the feature off.
        FeatureGateDisabled = "IncrementalBackupFeatureGateDisabled",
    }
}

/// A backup of the guest's disks.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// Name of the backup.
    pub backup_name: Option<String>,
    /// When it began.
    pub start_timestamp: Option<Time>,
    /// When it ended.
    pub end_timestamp: Option<Time>,
    /// It ended.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub completed: bool,
    /// It ended by a failure.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub failed: bool,
    /// What went wrong.
    pub backup_msg: Option<String>,
    /// The checkpoint that the next backup builds on.
    pub checkpoint_name: Option<String>,
    /// Volumes in the backup.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volumes: Vec<BackupVolumeInfo>,
    /// Whether the guest's filesystems were frozen for it.
    pub quiesce_status: Option<String>,
}

/// A volume in a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupVolumeInfo {
    /// Name of the volume.
    pub volume_name: String,
}
