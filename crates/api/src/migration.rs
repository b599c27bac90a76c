//! `VirtualMachineInstanceMigration`: one move of one guest to another node.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Condition;
use crate::object::object;
use crate::string_enum::string_enum;
use crate::vmi::MigrationState;
use crate::wire::{is_default, or_default};

object! {
    /// One move of one guest to another node.
    pub struct VirtualMachineInstanceMigration {
        spec: VirtualMachineInstanceMigrationSpec,
        status: VirtualMachineInstanceMigrationStatus,
    }
    group: "kubevirt.io", version: "v1", older: ["v1alpha3"],
    singular: "virtualmachineinstancemigration", plural: "virtualmachineinstancemigrations", scope: NamespaceResourceScope
}

/// What to move and where to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSpec {
    /// Name of the guest.
    pub vmi_name: String,
    /// More labels that the target node must have.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub added_node_selector: BTreeMap<String, String>,
    /// The guest goes to another cluster.
    pub send_to: Option<MigrationSource>,
    /// The guest comes from another cluster.
    pub receive: Option<MigrationTarget>,
    /// Place in the queue.
    pub priority: Option<MigrationPriority>,
}

/// The cluster that a guest goes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationSource {
    /// Name that both sides know the move by.
    #[serde(rename = "migrationID")]
    pub migration_id: String,
    /// Address of the other side.
    #[serde(rename = "connectURL")]
    pub connect_url: String,
}

/// The move that brings a guest from another cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationTarget {
    /// Name that both sides know the move by.
    #[serde(rename = "migrationID")]
    pub migration_id: String,
}

string_enum! {
    /// Place of a move in the queue.
    pub enum MigrationPriority {
        /// A node is being drained.
        SystemCritical = "system-critical",
        /// Someone asked for it.
        UserTriggered = "user-triggered",
        /// It can wait.
        SystemMaintenance = "system-maintenance",
    }
}

/// How far a move is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationStatus {
    /// Where the move is in its life.
    pub phase: Option<MigrationPhase>,
    /// Single facts, such as `migrationAbortRequested`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
    /// When each phase began.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub phase_transition_timestamps: Vec<MigrationPhaseTransitionTimestamp>,
    /// The guest's own account of the move, kept at the end.
    pub migration_state: Option<Box<MigrationState>>,
    /// Addresses at which a source can reach this cluster.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub synchronization_addresses: Vec<String>,
}

string_enum! {
    /// Where a move is in its life.
    pub enum MigrationPhase {
        /// Waiting for its turn.
        Pending = "Pending",
        /// The target pod is being placed and started.
        Scheduling = "Scheduling",
        /// The target pod runs.
        Scheduled = "Scheduled",
        /// The target node gets ready.
        PreparingTarget = "PreparingTarget",
        /// The target node listens.
        TargetReady = "TargetReady",
        /// Memory is transferred.
        Running = "Running",
        /// The guest runs on the target.
        Succeeded = "Succeeded",
        /// The guest stayed where it was, or was lost.
        Failed = "Failed",
        /// A target waits for its source in another cluster.
        WaitingForSync = "WaitingForSync",
        /// A source is in step with its target in another cluster.
        Synchronizing = "Synchronizing",
    }
}

impl MigrationPhase {
    /// Whether the move is over.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// When a phase began.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPhaseTransitionTimestamp {
    /// The phase.
    pub phase: Option<MigrationPhase>,
    /// When it began.
    pub phase_transition_timestamp: Option<Time>,
}
