//! The guest's processor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::Empty;
use crate::string_enum::string_enum;
use crate::values::{CpuTopology, TooManyCpus};
use crate::wire::{is_default, or_default};

/// Processor of the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    /// Cores per socket; 1 when unset.
    pub cores: Option<u32>,
    /// Sockets; 1 when unset.
    pub sockets: Option<u32>,
    /// Sockets that can be plugged while the guest runs.
    pub max_sockets: Option<u32>,
    /// Threads per core; 1 when unset.
    pub threads: Option<u32>,
    /// A model name, `host-model` or `host-passthrough`.
    pub model: Option<String>,
    /// Single CPU features.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub features: Vec<CpuFeature>,
    /// Each virtual CPU gets a host CPU for itself.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub dedicated_cpu_placement: bool,
    /// How the host's NUMA nodes show in the guest.
    pub numa: Option<Numa>,
    /// One more host CPU carries the emulator.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub isolate_emulator_thread: bool,
    /// Tunes the virtual CPUs for real-time work.
    pub realtime: Option<Realtime>,
}

impl Cpu {
    /// Sockets, cores and threads with the defaults filled in.
    pub fn topology(&self) -> Result<CpuTopology, TooManyCpus> {
        CpuTopology::new(self.sockets.unwrap_or(1), self.cores.unwrap_or(1), self.threads.unwrap_or(1))
    }
}

/// One CPU feature.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuFeature {
    /// Name of the feature.
    pub name: String,
    /// How it is treated; `require` when unset.
    pub policy: Option<CpuFeaturePolicy>,
}

string_enum! {
    /// How a CPU feature is treated.
    pub enum CpuFeaturePolicy {
        /// Present even if the host lacks it.
        Force = "force",
        /// Present; the guest does not start where the host lacks it.
        Require = "require",
        /// Present where the host has it.
        Optional = "optional",
        /// Hidden from the guest.
        Disable = "disable",
        /// The guest does not start where the host has it.
        Forbid = "forbid",
    }
}

/// How the host's NUMA nodes show in the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Numa {
    /// The guest's nodes follow those of its dedicated CPUs.
    pub guest_mapping_passthrough: Option<Empty>,
}

/// Real-time tuning.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Realtime {
    /// Virtual CPUs that are tuned, such as `0-3,^1`; all of them when unset.
    pub mask: Option<String>,
}
