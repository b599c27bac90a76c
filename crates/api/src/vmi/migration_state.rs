//! One move of a guest, as its own status tells it; source and target write it in turns.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kubevirt::MigrationOptions;
use crate::string_enum::string_enum;
use crate::values::Quantity;
use crate::wire::{is_default, or_default};

/// One move of a guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationState {
    /// When the transfer began.
    #[schemars(extend("nullable" = true))]
    pub start_timestamp: Option<Time>,
    /// When the move ended.
    #[schemars(extend("nullable" = true))]
    pub end_timestamp: Option<Time>,
    /// When the guest ran on the target.
    pub target_node_domain_ready_timestamp: Option<Time>,
    /// The guest was seen on the target.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub target_node_domain_detected: bool,
    /// Address of the target's node agent.
    pub target_node_address: Option<String>,
    /// Ports of the target's node agent, with the port each stands for.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub target_direct_migration_node_ports: BTreeMap<String, i32>,
    /// Node that the guest moves to.
    pub target_node: Option<String>,
    /// Launcher pod that the guest moves to.
    pub target_pod: Option<String>,
    /// UID of the target's attachment pod.
    #[serde(rename = "targetAttachmentPodUID")]
    pub target_attachment_pod_uid: Option<String>,
    /// Node that the guest comes from.
    pub source_node: Option<String>,
    /// Launcher pod that the guest comes from.
    pub source_pod: Option<String>,
    /// The move is over.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub completed: bool,
    /// The move failed.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub failed: bool,
    /// Someone asked to stop the move.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub abort_requested: bool,
    /// How far stopping it is.
    pub abort_status: Option<MigrationAbortStatus>,
    /// Why the move failed.
    pub failure_reason: Option<String>,
    /// UID of the migration object.
    pub migration_uid: Option<String>,
    /// How memory is transferred now.
    pub mode: Option<MigrationMode>,
    /// The policy that applied.
    pub migration_policy_name: Option<String>,
    /// The options that apply to this move.
    pub migration_configuration: Option<MigrationOptions>,
    /// Host CPUs of the target.
    #[serde(rename = "targetCPUSet", default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub target_cpu_set: Vec<i64>,
    /// Topology of the target's host, as JSON.
    pub target_node_topology: Option<String>,
    /// Claim with the guest's firmware and TPM state at the source.
    #[serde(rename = "sourcePersistentStatePVCName")]
    pub source_persistent_state_pvc_name: Option<String>,
    /// Claim with the guest's firmware and TPM state at the target.
    #[serde(rename = "targetPersistentStatePVCName")]
    pub target_persistent_state_pvc_name: Option<String>,
    /// The source's part.
    pub source_state: Option<MigrationSourceState>,
    /// The target's part.
    pub target_state: Option<MigrationTargetState>,
    /// The network that carries the move.
    pub migration_network_type: Option<MigrationNetworkType>,
    /// What the hypervisor needs on top at the target.
    pub target_memory_overhead: Option<Quantity>,
    /// Ours: the move failed and the target never ran the guest, so a source that waits for word may go on.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub source_may_resume: bool,
    /// Ours: how far the move is.
    pub progress: Option<MigrationProgress>,
}

/// How far a move is. Bytes are of memory and copied disks together.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationProgress {
    /// Of a hundred; never goes back.
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<u32>,
    /// All that is to be sent once.
    pub total_bytes: Option<i64>,
    /// What was sent so far, pages that changed again counted again.
    pub sent_bytes: Option<i64>,
    /// What is left.
    pub remaining_bytes: Option<i64>,
    /// Bytes per second that are sent.
    pub bandwidth: Option<i64>,
    /// Bytes per second of memory that change.
    pub dirty_rate: Option<i64>,
    /// Rounds over memory.
    pub iteration: Option<i64>,
    /// The downtime that is allowed now, in milliseconds.
    pub allowed_downtime_ms: Option<i64>,
    /// Seconds until the end if it goes on like this; unset: it does not end like this.
    pub remaining_seconds: Option<i64>,
    /// How long the guest stood still, in milliseconds, once it has moved.
    pub downtime_ms: Option<i64>,
    /// What to know about it: that it does not converge, and what is done about it; or that the source is in doubt.
    pub message: Option<String>,
}

impl MigrationProgress {
    /// How the message of a source begins that has told the target to run the guest and has no answer.
    pub const IN_DOUBT: &'static str = "in doubt";
}

/// The source's part of a move.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationSourceState {
    /// Its node.
    pub node: Option<String>,
    /// Its launcher pod.
    pub pod: Option<String>,
    /// UID of its migration object.
    #[serde(rename = "migrationUID")]
    pub migration_uid: Option<String>,
    /// Name of the guest there.
    pub domain_name: Option<String>,
    /// Namespace of the guest there.
    pub domain_namespace: Option<String>,
    /// Address for keeping both clusters in step.
    pub sync_address: Option<String>,
    /// Claim with the guest's firmware and TPM state.
    #[serde(rename = "persistentStatePVCName")]
    pub persistent_state_pvc_name: Option<String>,
    /// SELinux context of the launcher.
    pub selinux_context: Option<String>,
    /// UID of the guest's object.
    #[serde(rename = "virtualMachineInstanceUID")]
    pub virtual_machine_instance_uid: Option<String>,
    /// Node labels that the target has to have too.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub node_selectors: BTreeMap<String, String>,
}

/// The target's part of a move.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationTargetState {
    /// Its node.
    pub node: Option<String>,
    /// Its launcher pod.
    pub pod: Option<String>,
    /// UID of its migration object.
    #[serde(rename = "migrationUID")]
    pub migration_uid: Option<String>,
    /// Name of the guest there.
    pub domain_name: Option<String>,
    /// Namespace of the guest there.
    pub domain_namespace: Option<String>,
    /// Address for keeping both clusters in step.
    pub sync_address: Option<String>,
    /// Claim with the guest's firmware and TPM state.
    #[serde(rename = "persistentStatePVCName")]
    pub persistent_state_pvc_name: Option<String>,
    /// SELinux context of the launcher.
    pub selinux_context: Option<String>,
    /// UID of the guest's object.
    #[serde(rename = "virtualMachineInstanceUID")]
    pub virtual_machine_instance_uid: Option<String>,
    /// When the guest ran.
    pub domain_ready_timestamp: Option<Time>,
    /// The guest was seen.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub domain_detected: bool,
    /// Address of the node agent.
    pub node_address: Option<String>,
    /// Ports of the node agent, with the port each stands for.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub direct_migration_node_ports: BTreeMap<String, i32>,
    /// UID of the attachment pod.
    #[serde(rename = "attachmentPodUID")]
    pub attachment_pod_uid: Option<String>,
    /// Host CPUs.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cpu_set: Vec<i64>,
    /// Topology of the host, as JSON.
    pub node_topology: Option<String>,
}

string_enum! {
    /// How far stopping a move is.
    pub enum MigrationAbortStatus {
        /// It was stopped.
        Succeeded = "Succeeded",
        /// It could not be stopped.
        Failed = "Failed",
        /// It is being stopped.
        Aborting = "Aborting",
    }
}

string_enum! {
    /// How memory is transferred.
    pub enum MigrationMode {
        /// While the guest runs at the source.
        PreCopy = "PreCopy",
        /// While the guest runs at the target.
        PostCopy = "PostCopy",
        /// While the guest is paused.
        Paused = "Paused",
    }
}

string_enum! {
    /// The network that carries a move.
    pub enum MigrationNetworkType {
        /// The pod network.
        Pod = "Pod",
        /// The network set aside for it.
        Migration = "Migration",
    }
}
