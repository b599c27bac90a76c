//! Small types that many objects share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::string_enum::string_enum;

/// A setting without details: what counts is that it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// A feature that is on, off, or left to its default.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureState {
    /// Whether it is on; yes when unset.
    pub enabled: Option<bool>,
}

impl FeatureState {
    /// Whether a feature that is listed is on: `{}` means yes.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.enabled.unwrap_or(true)
    }
}

/// One fact about an object, and since when it holds.
///
/// The types are open: a virtual machine repeats whatever conditions its guest has. Those that the components know are
/// in [`crate::names::conditions`].
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the fact is about.
    pub r#type: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When it was last looked at.
    #[schemars(extend("nullable" = true))]
    pub last_probe_time: Option<Time>,
    /// When the status last changed.
    #[schemars(extend("nullable" = true))]
    pub last_transition_time: Option<Time>,
    /// Short word for why.
    pub reason: Option<String>,
    /// The same for people.
    pub message: Option<String>,
}

impl Condition {
    /// A condition without times, reason or message.
    #[must_use]
    pub fn new(r#type: impl Into<String>, status: ConditionStatus) -> Self {
        let r#type = r#type.into();
        Self { r#type, status, last_probe_time: None, last_transition_time: None, reason: None, message: None }
    }

    /// Whether the fact is known to hold.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// The condition of a type, when the list has it.
#[must_use]
pub fn find_condition<'a>(conditions: &'a [Condition], r#type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.r#type == r#type)
}

string_enum! {
    /// Whether a fact holds.
    pub enum ConditionStatus {
        /// It does.
        True = "True",
        /// It does not.
        False = "False",
        /// Nobody can tell.
        Unknown = "Unknown",
    }
}

string_enum! {
    /// When to pull an image.
    pub enum PullPolicy {
        /// Every time.
        Always = "Always",
        /// Never; it must be on the node.
        Never = "Never",
        /// When it is not on the node.
        IfNotPresent = "IfNotPresent",
    }
}

string_enum! {
    /// Where name servers come from.
    pub enum DnsPolicy {
        /// The cluster's, also on the host's network.
        ClusterFirstWithHostNet = "ClusterFirstWithHostNet",
        /// The cluster's.
        ClusterFirst = "ClusterFirst",
        /// The node's.
        Default = "Default",
        /// Only those in `dnsConfig`.
        None = "None",
    }
}

string_enum! {
    /// Quality of service of a pod.
    pub enum QosClass {
        /// Requests equal limits.
        Guaranteed = "Guaranteed",
        /// Some requests.
        Burstable = "Burstable",
        /// No requests.
        BestEffort = "BestEffort",
    }
}

string_enum! {
    /// How a volume can be mounted.
    pub enum AccessMode {
        /// Read and write, on one node.
        ReadWriteOnce = "ReadWriteOnce",
        /// Read, on many nodes.
        ReadOnlyMany = "ReadOnlyMany",
        /// Read and write, on many nodes.
        ReadWriteMany = "ReadWriteMany",
        /// Read and write, by one pod.
        ReadWriteOncePod = "ReadWriteOncePod",
    }
}

string_enum! {
    /// How a volume is used.
    pub enum VolumeMode {
        /// As a raw device.
        Block = "Block",
        /// With a filesystem.
        Filesystem = "Filesystem",
    }
}
