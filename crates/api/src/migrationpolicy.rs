//! `MigrationPolicy`: migration options for the guests that labels select.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::kubevirt::ExperimentalMigrationOptions;
use crate::object::object;
use crate::values::Quantity;
use crate::wire::{is_default, or_default};

object! {
    /// Migration options for the guests that labels select.
    pub struct MigrationPolicy {
        spec: MigrationPolicySpec,
        status: MigrationPolicyStatus,
    }
    group: "migrations.kubevirt.io", version: "v1alpha1", older: [],
    singular: "migrationpolicy", plural: "migrationpolicies", scope: ClusterResourceScope
}

/// Which guests, and the options that override the cluster's.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPolicySpec {
    /// The guests that it is for.
    pub selectors: Selectors,
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
    /// The guest may run at the target before all memory is there.
    pub allow_post_copy: Option<bool>,
    /// The guest may be paused to get the move done.
    pub allow_workload_disruption: Option<bool>,
    /// Options that may go away.
    pub experimental: Option<ExperimentalMigrationOptions>,
}

/// Nothing yet; the API keeps the place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("nullable" = true))]
pub struct MigrationPolicyStatus {}

/// The guests that a policy is for; all labels must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selectors {
    /// Labels of the namespace.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub namespace_selector: BTreeMap<String, String>,
    /// Labels of the guest.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub virtual_machine_instance_selector: BTreeMap<String, String>,
}
