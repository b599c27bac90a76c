//! The virtual machine: processor, memory, firmware, clock, features, devices.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Chassis, Clock, Cpu, Devices, Features, Firmware, LaunchSecurity};
use crate::string_enum::string_enum;
use crate::values::Quantity;
use crate::wire::{is_default, or_default};

/// The virtual hardware of a guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainSpec {
    /// CPU and memory that the launcher pod asks for.
    pub resources: Option<ResourceRequirements>,
    /// Processor.
    pub cpu: Option<Cpu>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Machine type.
    pub machine: Option<Machine>,
    /// Firmware and what it boots.
    pub firmware: Option<Firmware>,
    /// Clock and timers.
    pub clock: Option<Clock>,
    /// Hypervisor and processor features.
    pub features: Option<Features>,
    /// Disks, network cards and everything else that is plugged in.
    pub devices: Devices,
    /// How disks share threads for their IO.
    pub io_threads_policy: Option<IoThreadsPolicy>,
    /// Details for the policy `supplementalPool`.
    pub io_threads: Option<DiskIoThreads>,
    /// What the guest reads about its chassis in SMBIOS.
    pub chassis: Option<Box<Chassis>>,
    /// Encryption of the guest's memory.
    pub launch_security: Option<LaunchSecurity>,
    /// What a reboot inside the guest does.
    pub reboot_policy: Option<RebootPolicy>,
}

/// Resources of the launcher pod on behalf of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// What the scheduler reserves.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub requests: BTreeMap<String, Quantity>,
    /// What the guest may use at most.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub limits: BTreeMap<String, Quantity>,
    /// Leaves the hypervisor's own memory out of the request.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub overcommit_guest_overhead: bool,
}

/// Memory of the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    /// Backs the memory with huge pages.
    pub hugepages: Option<Hugepages>,
    /// What the guest sees; the pod's memory request when unset.
    pub guest: Option<Quantity>,
    /// The most that can be plugged while the guest runs.
    pub max_guest: Option<Quantity>,
    /// Memory that is reserved on top for the hypervisor.
    pub reserved_overhead: Option<ReservedOverhead>,
}

/// Huge pages behind the guest's memory.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hugepages {
    /// Size of a page, such as `2Mi` or `1Gi`.
    pub page_size: Option<String>,
}

/// Memory on top of the computed overhead.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservedOverhead {
    /// How much to add.
    pub added_overhead: Option<Quantity>,
    /// Whether the memory must be locked.
    pub mem_lock: Option<MemLockRequirement>,
}

string_enum! {
    /// Whether the guest's memory must be locked.
    pub enum MemLockRequirement {
        /// All of it is locked.
        Required = "Required",
        /// It need not be.
        NotRequired = "NotRequired",
    }
}

/// Machine type.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// QEMU's name of the machine, such as `q35`.
    pub r#type: Option<String>,
}

/// Threads for disk IO.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskIoThreads {
    /// Number of threads in the pool.
    pub supplemental_pool_thread_count: Option<u32>,
}

string_enum! {
    /// How disks share threads for their IO.
    pub enum IoThreadsPolicy {
        /// One thread for all disks without one of their own.
        Shared = "shared",
        /// Disks are spread over a number of threads that depends on the CPU count.
        Auto = "auto",
        /// All disks use one pool of threads.
        SupplementalPool = "supplementalPool",
    }
}

string_enum! {
    /// What a reboot inside the guest does.
    pub enum RebootPolicy {
        /// The same instance boots again.
        Reboot = "Reboot",
        /// The instance ends, and its owner starts a new one.
        Terminate = "Terminate",
    }
}

/// Memory of a running guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// What it started with.
    pub guest_at_boot: Option<Quantity>,
    /// What it has now.
    pub guest_current: Option<Quantity>,
    /// What it was asked to have.
    pub guest_requested: Option<Quantity>,
    /// What the hypervisor needs on top.
    pub memory_overhead: Option<Quantity>,
}
