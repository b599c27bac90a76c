//! What is known about a virtual machine, and the requests that wait for its controller.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{InferFromVolumeFailurePolicy, RunStrategy};
use crate::meta::Condition;
use crate::string_enum::string_enum;
use crate::vmi::{ChangedBlockTrackingStatus, Disk, HotplugVolumeSource, StorageMigratedVolumeInfo};
use crate::wire::{is_default, or_default};

/// What is known about a virtual machine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    /// Name of the snapshot that is being taken.
    pub snapshot_in_progress: Option<String>,
    /// Name of the restore that is being done.
    pub restore_in_progress: Option<String>,
    /// A guest exists.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub created: bool,
    /// The guest is ready.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub ready: bool,
    /// One word for people.
    #[schemars(extend("x-default" = "Stopped"))]
    pub printable_status: Option<PrintableStatus>,
    /// Single facts, such as `Ready` or `RestartRequired`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// Starts and stops that wait; only the first is looked at.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub state_change_requests: Vec<StateChangeRequest>,
    /// Volumes that wait to be plugged or unplugged.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_requests: Vec<VolumeRequest>,
    /// Whether each volume can be in a snapshot.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
    /// Failed starts in a row.
    #[schemars(extend("nullable" = true))]
    pub start_failure: Option<StartFailure>,
    /// A memory dump that was asked for.
    #[schemars(extend("nullable" = true))]
    pub memory_dump_request: Option<MemoryDumpRequest>,
    /// Generation that the running guest was made from.
    pub observed_generation: Option<i64>,
    /// Generation of the machine.
    pub desired_generation: Option<i64>,
    /// The strategy at the last reconciliation.
    pub run_strategy: Option<RunStrategy>,
    /// Volumes that are being replaced.
    pub volume_update_state: Option<VolumeUpdateState>,
    /// State of changed block tracking.
    #[schemars(extend("nullable" = true))]
    pub changed_block_tracking: Option<Box<ChangedBlockTrackingStatus>>,
    /// The instance type in use.
    #[schemars(extend("nullable" = true))]
    pub instancetype_ref: Option<InstancetypeStatusRef>,
    /// The preference in use.
    #[schemars(extend("nullable" = true))]
    pub preference_ref: Option<InstancetypeStatusRef>,
}

string_enum! {
    /// A virtual machine's state in one word.
    pub enum PrintableStatus {
        /// No guest, and none is wanted.
        Stopped = "Stopped",
        /// Its volumes are being filled.
        Provisioning = "Provisioning",
        /// A guest is on its way up.
        Starting = "Starting",
        /// The guest runs.
        Running = "Running",
        /// The guest is paused.
        Paused = "Paused",
        /// The guest is on its way down.
        Stopping = "Stopping",
        /// The machine is being deleted.
        Terminating = "Terminating",
        /// Starts failed; the next one waits.
        CrashLoopBackOff = "CrashLoopBackOff",
        /// The guest moves to another node.
        Migrating = "Migrating",
        /// The guest's state is not known.
        Unknown = "Unknown",
        /// No node takes the guest.
        ErrorUnschedulable = "ErrorUnschedulable",
        /// An image cannot be pulled.
        ErrImagePull = "ErrImagePull",
        /// An image cannot be pulled; the next try waits.
        ImagePullBackOff = "ImagePullBackOff",
        /// A claim is missing.
        ErrorPvcNotFound = "ErrorPvcNotFound",
        /// A data volume failed.
        DataVolumeError = "DataVolumeError",
        /// A claim is not bound yet.
        WaitingForVolumeBinding = "WaitingForVolumeBinding",
        /// A guest is awaited from another cluster.
        WaitingForReceiver = "WaitingForReceiver",
    }
}

/// A start or stop that waits.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateChangeRequest {
    /// What was asked for.
    pub action: StateChangeAction,
    /// Details, such as `paused: "true"`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub data: BTreeMap<String, String>,
    /// The guest that a stop is meant for.
    pub uid: Option<String>,
}

string_enum! {
    /// What was asked of a virtual machine.
    pub enum StateChangeAction {
        /// Start a guest.
        Start = "Start",
        /// Stop the guest.
        Stop = "Stop",
    }
}

/// A volume that waits to be plugged or unplugged; one of the two is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRequest {
    /// Plug this in.
    pub add_volume_options: Option<AddVolumeOptions>,
    /// Take this out.
    pub remove_volume_options: Option<RemoveVolumeOptions>,
}

/// A volume to plug into a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddVolumeOptions {
    /// Name of the volume and the disk.
    pub name: String,
    /// The disk.
    pub disk: Disk,
    /// What is behind it.
    pub volume_source: HotplugVolumeSource,
    /// `All` checks the request without acting on it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Vec<String>,
}

/// A volume to take out of a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveVolumeOptions {
    /// Name of the volume.
    pub name: String,
    /// `All` checks the request without acting on it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Vec<String>,
}

/// Whether a volume can be in a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// Name of the volume.
    pub name: String,
    /// It can.
    pub enabled: bool,
    /// Why it cannot.
    pub reason: Option<String>,
}

/// Failed starts in a row.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartFailure {
    /// How many.
    pub consecutive_fail_count: Option<i64>,
    /// UID of the guest that failed last.
    #[serde(rename = "lastFailedVMIUID")]
    pub last_failed_vmi_uid: Option<String>,
    /// Not before then is the next try.
    pub retry_after_timestamp: Option<Time>,
}

/// A memory dump that was asked for.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryDumpRequest {
    /// The claim that it is written to.
    pub claim_name: String,
    /// How far it is.
    pub phase: MemoryDumpPhase,
    /// The claim is to be released.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub remove: bool,
    /// When it began.
    pub start_timestamp: Option<Time>,
    /// When it ended.
    pub end_timestamp: Option<Time>,
    /// Name of the file in the claim.
    pub file_name: Option<String>,
    /// What went wrong.
    pub message: Option<String>,
}

string_enum! {
    /// How far a memory dump is.
    pub enum MemoryDumpPhase {
        /// The claim is being attached.
        Associating = "Associating",
        /// Memory is being written.
        InProgress = "InProgress",
        /// The claim is being detached.
        Unmounting = "Unmounting",
        /// It is done.
        Completed = "Completed",
        /// The claim is being released.
        Dissociating = "Dissociating",
        /// It failed.
        Failed = "Failed",
    }
}

/// Volumes that are being replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeUpdateState {
    /// Volumes whose content is on the move.
    pub volume_migration_state: Option<VolumeMigrationState>,
}

/// Volumes whose content is on the move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMigrationState {
    /// The volumes.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub migrated_volumes: Vec<StorageMigratedVolumeInfo>,
}

/// The instance type or preference in use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstancetypeStatusRef {
    /// Its name.
    pub name: Option<String>,
    /// Its kind.
    pub kind: Option<String>,
    /// The revision that holds its copy.
    pub controller_revision_ref: Option<ControllerRevisionRef>,
    /// The volume it was inferred from.
    pub infer_from_volume: Option<String>,
    /// What a failure to infer does.
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// A controller revision of the same namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerRevisionRef {
    /// Its name.
    pub name: Option<String>,
}
