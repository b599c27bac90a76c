//! Features of the processor and the hypervisor that a guest can use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::FeatureState;
use crate::wire::{is_default, or_default};

/// Features of the machine.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Features {
    /// ACPI; on when unset.
    pub acpi: Option<FeatureState>,
    /// Advanced interrupt controller.
    pub apic: Option<FeatureApic>,
    /// Every Hyper-V feature that the host supports.
    pub hyperv_passthrough: Option<HypervPassthrough>,
    /// Hyper-V features, one by one.
    pub hyperv: Option<FeatureHyperv>,
    /// System management mode.
    pub smm: Option<FeatureState>,
    /// KVM's own features.
    pub kvm: Option<FeatureKvm>,
    /// Paravirtual spinlocks.
    pub pvspinlock: Option<FeatureState>,
}

/// Advanced interrupt controller.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureApic {
    /// Whether it is there; yes when unset.
    pub enabled: Option<bool>,
    /// Paravirtual end of interrupt.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub end_of_interrupt: bool,
}

/// KVM's own features.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureKvm {
    /// The guest does not see that it runs on KVM.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub hidden: bool,
}

/// Every Hyper-V feature that the host supports.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HypervPassthrough {
    /// Whether it is on; yes when unset.
    pub enabled: Option<bool>,
}

/// Hyper-V features, for Windows guests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureHyperv {
    /// Relaxed time checks.
    pub relaxed: Option<FeatureState>,
    /// Paravirtual interrupt controller.
    pub vapic: Option<FeatureState>,
    /// Spinlocks that give way to the hypervisor.
    pub spinlocks: Option<FeatureSpinlocks>,
    /// Index of the virtual processor.
    pub vpindex: Option<FeatureState>,
    /// Time that the processor really ran.
    pub runtime: Option<FeatureState>,
    /// Synthetic interrupt controller.
    pub synic: Option<FeatureState>,
    /// Synthetic timers.
    pub synictimer: Option<SynicTimer>,
    /// Reset by the hypervisor.
    pub reset: Option<FeatureState>,
    /// Vendor name of the hypervisor.
    pub vendorid: Option<FeatureVendorId>,
    /// Frequencies of timers and processor.
    pub frequencies: Option<FeatureState>,
    /// Tells the guest when the time source changes on migration.
    pub reenlightenment: Option<FeatureState>,
    /// Flushes the TLB through the hypervisor.
    pub tlbflush: Option<TlbFlush>,
    /// Interrupts between processors through the hypervisor.
    pub ipi: Option<FeatureState>,
    /// Faster nested guests on Intel.
    pub evmcs: Option<FeatureState>,
}

/// Spinlocks that give way to the hypervisor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureSpinlocks {
    /// Whether it is on; yes when unset.
    pub enabled: Option<bool>,
    /// Tries before the guest gives way; at least 4096.
    pub spinlocks: Option<u32>,
}

/// Synthetic timers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SynicTimer {
    /// Whether it is on; yes when unset.
    pub enabled: Option<bool>,
    /// Direct mode.
    pub direct: Option<FeatureState>,
}

/// Vendor name of the hypervisor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureVendorId {
    /// Whether it is on; yes when unset.
    pub enabled: Option<bool>,
    /// The name, at most 12 characters.
    pub vendorid: Option<String>,
}

/// Flushes the TLB through the hypervisor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlbFlush {
    /// Whether it is on; yes when unset.
    pub enabled: Option<bool>,
    /// Direct mode for nested guests.
    pub direct: Option<FeatureState>,
    /// Flushes of single ranges.
    pub extended: Option<FeatureState>,
}
