//! Elements about features of the hypervisor, the clock and timers.

use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{Flag, State};

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Features {
    pub(crate) acpi: Option<Flag>,
    pub(crate) apic: Option<Apic>,
    pub(crate) hyperv: Option<Hyperv>,
    pub(crate) kvm: Option<Kvm>,
    pub(crate) pvspinlock: Option<State>,
    pub(crate) smm: Option<State>,
    pub(crate) ioapic: Option<IoApic>,
    pub(crate) vmport: Option<State>,
    pub(crate) tcg: Option<Tcg>,
}

/// How instructions are emulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tcg {
    #[serde(rename = "tb-cache")]
    pub(crate) translation_cache: Mebibytes,
}

/// A number of MiB.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Mebibytes {
    #[serde(rename = "@unit")]
    pub(crate) unit: &'static str,
    #[serde(rename = "$text")]
    pub(crate) number: u64,
}

impl Mebibytes {
    pub(crate) fn new(number: u64) -> Self {
        Self { unit: "MiB", number }
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Apic {
    #[serde(rename = "@eoi")]
    pub(crate) eoi: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IoApic {
    #[serde(rename = "@driver")]
    pub(crate) driver: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Kvm {
    pub(crate) hidden: State,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Hyperv {
    #[serde(rename = "@mode")]
    pub(crate) mode: &'static str,
    pub(crate) relaxed: Option<State>,
    pub(crate) vapic: Option<State>,
    pub(crate) spinlocks: Option<Spinlocks>,
    pub(crate) vpindex: Option<State>,
    pub(crate) runtime: Option<State>,
    pub(crate) synic: Option<State>,
    pub(crate) stimer: Option<Detailed>,
    pub(crate) reset: Option<State>,
    pub(crate) vendor_id: Option<VendorId>,
    pub(crate) frequencies: Option<State>,
    pub(crate) reenlightenment: Option<State>,
    pub(crate) tlbflush: Option<Detailed>,
    pub(crate) ipi: Option<State>,
    pub(crate) evmcs: Option<State>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Spinlocks {
    #[serde(rename = "@state")]
    pub(crate) state: &'static str,
    #[serde(rename = "@retries")]
    pub(crate) retries: Option<u32>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VendorId {
    #[serde(rename = "@state")]
    pub(crate) state: &'static str,
    #[serde(rename = "@value")]
    pub(crate) value: Option<String>,
}

/// A Hyper-V feature with variants of its own.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Detailed {
    #[serde(rename = "@state")]
    pub(crate) state: &'static str,
    pub(crate) direct: Option<State>,
    pub(crate) extended: Option<State>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Clock {
    #[serde(rename = "@offset")]
    pub(crate) offset: &'static str,
    #[serde(rename = "@timezone")]
    pub(crate) timezone: Option<String>,
    #[serde(rename = "@adjustment")]
    pub(crate) adjustment: Option<i64>,
    #[serde(rename = "@basis")]
    pub(crate) basis: Option<&'static str>,
    pub(crate) timer: Vec<Timer>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Timer {
    #[serde(rename = "@name")]
    pub(crate) name: &'static str,
    #[serde(rename = "@present")]
    pub(crate) present: Option<&'static str>,
    #[serde(rename = "@tickpolicy")]
    pub(crate) tickpolicy: Option<&'static str>,
    #[serde(rename = "@track")]
    pub(crate) track: Option<&'static str>,
    #[serde(rename = "@frequency")]
    pub(crate) frequency: Option<i64>,
}
