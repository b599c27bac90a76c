//! What a user wants to last: a template for guests and when one shall run.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::DataVolumeTemplateSpec;
use crate::string_enum::string_enum;
use crate::vmi::VirtualMachineInstanceSpec;
use crate::wire::{is_default, or_default};

/// The lasting intent behind a guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSpec {
    /// Deprecated: `runStrategy` says more. True means `Always`, false means `Halted`.
    pub running: Option<bool>,
    /// When a guest shall run; not together with `running`.
    pub run_strategy: Option<RunStrategy>,
    /// The instance type that sizes the guest.
    pub instancetype: Option<InstancetypeMatcher>,
    /// Preferences that fill what is left open.
    pub preference: Option<PreferenceMatcher>,
    /// The guest to make.
    pub template: VirtualMachineInstanceTemplateSpec,
    /// Data volumes that are made for this machine and go with it.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub data_volume_templates: Vec<DataVolumeTemplateSpec>,
    /// What a change of volumes does to a running guest.
    pub update_volumes_strategy: Option<UpdateVolumesStrategy>,
}

impl VirtualMachineSpec {
    /// When a guest shall run, whichever of the two fields says so; `None` when neither does.
    #[must_use]
    pub fn effective_run_strategy(&self) -> Option<RunStrategy> {
        let from_running = |running| if running { RunStrategy::Always } else { RunStrategy::Halted };
        self.run_strategy.or(self.running.map(from_running))
    }
}

/// The guest to make.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceTemplateSpec {
    /// Labels and annotations of the guest.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true, "nullable" = true))]
    pub metadata: Option<ObjectMeta>,
    /// Its shape.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: VirtualMachineInstanceSpec,
}

string_enum! {
    /// When a guest shall run.
    pub enum RunStrategy {
        /// Always; it is started again whenever it ends.
        Always = "Always",
        /// Never.
        Halted = "Halted",
        /// When asked; nothing is started by itself.
        Manual = "Manual",
        /// Until it ends in order; it is started again after a failure.
        RerunOnFailure = "RerunOnFailure",
        /// Once; it is never started again.
        Once = "Once",
        /// A guest is awaited from another cluster.
        WaitAsReceiver = "WaitAsReceiver",
    }
}

string_enum! {
    /// What a change of volumes does to a running guest.
    pub enum UpdateVolumesStrategy {
        /// The content moves to the new volumes while the guest runs.
        Migration = "Migration",
        /// The new volumes are used from the next start on.
        Replacement = "Replacement",
    }
}

/// An instance type: by name, or inferred from a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstancetypeMatcher {
    /// Name of the instance type.
    pub name: Option<String>,
    /// Its kind; the cluster-wide kind when unset.
    pub kind: Option<String>,
    /// The revision to use, fixed at the first start.
    pub revision_name: Option<String>,
    /// Volume whose labels name the instance type.
    pub infer_from_volume: Option<String>,
    /// What a failure to infer does.
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

/// Preferences: by name, or inferred from a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreferenceMatcher {
    /// Name of the preference.
    pub name: Option<String>,
    /// Its kind; the cluster-wide kind when unset.
    pub kind: Option<String>,
    /// The revision to use, fixed at the first start.
    pub revision_name: Option<String>,
    /// Volume whose labels name the preference.
    pub infer_from_volume: Option<String>,
    /// What a failure to infer does.
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
}

string_enum! {
    /// What a failure to infer from a volume does.
    pub enum InferFromVolumeFailurePolicy {
        /// The machine is refused.
        Reject = "Reject",
        /// The machine goes without.
        Ignore = "Ignore",
    }
}
