//! Limits and options of moves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::string_enum::string_enum;
use crate::values::Quantity;

/// Limits and options of moves.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationConfiguration {
    /// Deprecated: taint that drains a node.
    pub node_drain_taint_key: Option<String>,
    /// Moves at once from a node; 2 when unset.
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Moves at once; 5 when unset.
    pub parallel_migrations_per_cluster: Option<u32>,
    /// A guest is slowed down when its memory changes faster than it can be sent.
    pub allow_auto_converge: Option<bool>,
    /// Bytes per second at most; 0 is no limit.
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per GiB of memory until a move is given up, or ends by other means.
    #[serde(rename = "completionTimeoutPerGiB")]
    pub completion_timeout_per_gib: Option<i64>,
    /// Milliseconds that a guest may stand still at the end.
    #[schemars(range(min = 1, max = 2000000))]
    pub max_downtime_ms: Option<u64>,
    /// Seconds without progress until a move is given up; 150 when unset.
    pub progress_timeout: Option<i64>,
    /// Seconds to wait for utility volumes; 150 when unset.
    pub utility_volumes_timeout: Option<i64>,
    /// Moves guests that the hypervisor thinks unsafe to move.
    pub unsafe_migration_override: Option<bool>,
    /// A guest may run at the target before all memory is there.
    pub allow_post_copy: Option<bool>,
    /// A guest may be paused to get the move done.
    pub allow_workload_disruption: Option<bool>,
    /// Moves are not encrypted.
    #[serde(rename = "disableTLS")]
    pub disable_tls: Option<bool>,
    /// Network attachment definition of a network for moves.
    pub network: Option<String>,
    /// The target gets the source's SELinux level; yes when unset.
    #[serde(rename = "matchSELinuxLevelOnMigration")]
    pub match_se_linux_level_on_migration: Option<bool>,
}

/// The options that apply to one move.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationOptions {
    /// Deprecated: taint that drains a node.
    pub node_drain_taint_key: Option<String>,
    /// Moves at once from a node.
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Moves at once.
    pub parallel_migrations_per_cluster: Option<u32>,
    /// The guest is slowed down when its memory changes faster than it can be sent.
    pub allow_auto_converge: Option<bool>,
    /// Bytes per second at most; 0 is no limit.
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per GiB of memory until the move is given up, or ends by other means.
    #[serde(rename = "completionTimeoutPerGiB")]
    pub completion_timeout_per_gib: Option<i64>,
    /// Milliseconds that the guest may stand still at the end.
    #[schemars(range(min = 1, max = 2000000))]
    pub max_downtime_ms: Option<u64>,
    /// Seconds without progress until the move is given up.
    pub progress_timeout: Option<i64>,
    /// Seconds to wait for utility volumes.
    pub utility_volumes_timeout: Option<i64>,
    /// Moves the guest even if the hypervisor thinks it unsafe.
    pub unsafe_migration_override: Option<bool>,
    /// The guest may run at the target before all memory is there.
    pub allow_post_copy: Option<bool>,
    /// The guest may be paused to get the move done.
    pub allow_workload_disruption: Option<bool>,
    /// The move is not encrypted.
    #[serde(rename = "disableTLS")]
    pub disable_tls: Option<bool>,
    /// Network attachment definition of a network for moves.
    pub network: Option<String>,
    /// The target gets the source's SELinux level.
    #[serde(rename = "matchSELinuxLevelOnMigration")]
    pub match_se_linux_level_on_migration: Option<bool>,
    /// Options that may go away.
    pub experimental: Option<ExperimentalMigrationOptions>,
}

/// Options that may go away.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExperimentalMigrationOptions {
    /// Notices moves that do not get anywhere.
    pub stall_detector: Option<StallDetectorOptions>,
    /// Raises the allowed downtime step by step.
    pub downtime_tuning: Option<DowntimeTuningOptions>,
    /// Compression of the transfer.
    pub compression: Option<MigrationCompression>,
}

/// Notices moves that do not get anywhere.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StallDetectorOptions {
    /// Percent of change that counts as none.
    #[schemars(range(min = 0, max = 100))]
    pub stall_margin: Option<i64>,
    /// Weight of the newest sample, 0 to 1.
    pub ewma_alpha: Option<Quantity>,
    /// Seconds without progress that count as a stall.
    #[schemars(range(min = 0))]
    pub stall_progress_timeout: Option<i64>,
    /// Seconds until a switch of method is forced.
    #[schemars(range(min = 0))]
    pub switchover_timeout: Option<i64>,
    /// How much faster than change the transfer must be.
    pub precopy_possible_factor: Option<Quantity>,
    /// How fast patience ends.
    pub patience_window_decay_factor: Option<Quantity>,
    /// Waits for a moment with little left to send.
    pub search_local_minima: Option<bool>,
    /// Factor on the completion timeout.
    pub completion_timeout_factor: Option<Quantity>,
}

/// Raises the allowed downtime step by step.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DowntimeTuningOptions {
    /// Milliseconds at first.
    #[schemars(range(min = 1))]
    pub initial_ms: Option<i64>,
    /// Number of steps.
    #[schemars(range(min = 1))]
    pub steps: Option<i32>,
    /// Rounds before the first step.
    #[schemars(range(min = 1))]
    pub start_after_iteration: Option<i64>,
    /// Seconds between steps.
    #[schemars(range(min = 1))]
    pub cooldown_seconds: Option<i32>,
}

string_enum! {
    /// Compression of a transfer.
    pub enum MigrationCompression {
        /// None
        None = "none",
        /// Zstandard
        Zstd = "zstd",
    }
}
