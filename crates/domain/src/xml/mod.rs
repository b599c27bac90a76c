//! libvirt's domain XML as types: one struct for each element, in libvirt's own names.
//!
//! A field that starts with `@` is an attribute, `$text` is the text of an element; what is `None` or empty is not written.

pub(crate) mod cpu;
pub(crate) mod devices;
pub(crate) mod disk;
pub(crate) mod features;
pub(crate) mod interface;
pub(crate) mod os;

use serde::Serialize;
use serde_with::skip_serializing_none;

/// A libvirt domain, ready to be defined.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Domain {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) metadata: Metadata,
    #[serde(rename = "maxMemory")]
    pub(crate) max_memory: Option<MaxMemory>,
    pub(crate) memory: Kibibytes,
    #[serde(rename = "memoryBacking")]
    pub(crate) memory_backing: Option<MemoryBacking>,
    pub(crate) vcpu: cpu::Vcpu,
    pub(crate) vcpus: Option<cpu::Vcpus>,
    pub(crate) iothreads: Option<u32>,
    pub(crate) cputune: Option<cpu::CpuTune>,
    pub(crate) numatune: Option<cpu::NumaTune>,
    pub(crate) sysinfo: Vec<os::Sysinfo>,
    pub(crate) os: os::Os,
    pub(crate) features: features::Features,
    pub(crate) cpu: cpu::Cpu,
    pub(crate) clock: features::Clock,
    pub(crate) on_poweroff: &'static str,
    pub(crate) on_reboot: &'static str,
    pub(crate) on_crash: &'static str,
    pub(crate) devices: devices::Devices,
}

impl Domain {
    /// The name that libvirt knows the guest by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The guest's identity, as its firmware reports it.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The document that libvirt takes.
    ///
    /// # Panics
    ///
    /// Never: the types hold nothing that XML cannot express, and a test writes all of them.
    #[must_use]
    #[expect(clippy::expect_used, reason = "strings and numbers in fixed elements always serialise")]
    pub fn to_xml(&self) -> String {
        let mut text = String::new();
        let mut serializer =
            quick_xml::se::Serializer::with_root(&mut text, Some("domain")).expect("`domain` is an element name");
        serializer.indent(' ', 2);
        self.serialize(serializer).expect("a domain is elements, attributes and text");
        text.push('\n');
        text
    }
}

/// What is kept with the domain for us.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Metadata {
    pub(crate) kubevirt: KubevirtMetadata,
}

/// In KubeVirt's namespace, so that its tools find it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct KubevirtMetadata {
    #[serde(rename = "@xmlns")]
    pub(crate) namespace: &'static str,
    pub(crate) uid: String,
    pub(crate) graceperiod: GracePeriod,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GracePeriod {
    #[serde(rename = "deletionGracePeriodSeconds")]
    pub(crate) seconds: i64,
}

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Kibibytes {
    #[serde(rename = "@unit")]
    unit: &'static str,
    #[serde(rename = "$text")]
    amount: u64,
}

impl Kibibytes {
    /// libvirt counts in KiB and rounds up itself.
    pub(crate) fn from_bytes(bytes: u64) -> Self {
        Self { unit: "KiB", amount: bytes.div_ceil(1024) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MaxMemory {
    #[serde(rename = "@slots")]
    pub(crate) slots: u32,
    #[serde(rename = "@unit")]
    pub(crate) unit: &'static str,
    #[serde(rename = "$text")]
    pub(crate) amount: u64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct MemoryBacking {
    pub(crate) hugepages: Option<Hugepages>,
    pub(crate) nosharepages: Option<Flag>,
    pub(crate) source: Option<Typed>,
    pub(crate) access: Option<Mode>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Hugepages {
    pub(crate) page: Page,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Page {
    #[serde(rename = "@size")]
    pub(crate) size: u64,
    #[serde(rename = "@unit")]
    pub(crate) unit: &'static str,
    #[serde(rename = "@nodeset")]
    pub(crate) nodeset: Option<String>,
}

/// An element whose presence is all it says.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(crate) struct Flag {}

/// An element with a `type`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Typed {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
}

/// An element with a `mode`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Mode {
    #[serde(rename = "@mode")]
    pub(crate) mode: &'static str,
}

/// An element with a `state`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct State {
    #[serde(rename = "@state")]
    pub(crate) state: &'static str,
}

impl State {
    pub(crate) fn of(on: bool) -> Self {
        Self { state: on_off(on) }
    }
}

/// The handle of a device. The prefix `ua-` tells libvirt that it comes from outside and stays.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Alias {
    #[serde(rename = "@name")]
    name: String,
}

impl Alias {
    pub(crate) fn of(name: &str) -> Self {
        Self { name: format!("ua-{name}") }
    }
}

/// Place in the boot order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Boot {
    #[serde(rename = "@order")]
    pub(crate) order: u32,
}

/// Where a device sits.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Address {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@domain")]
    pub(crate) domain: Option<&'static str>,
    #[serde(rename = "@controller")]
    pub(crate) controller: Option<u32>,
    #[serde(rename = "@bus")]
    pub(crate) bus: Option<String>,
    #[serde(rename = "@slot")]
    pub(crate) slot: Option<String>,
    #[serde(rename = "@function")]
    pub(crate) function: Option<String>,
    #[serde(rename = "@multifunction")]
    pub(crate) multifunction: Option<&'static str>,
    #[serde(rename = "@target")]
    pub(crate) target: Option<u32>,
    #[serde(rename = "@unit")]
    pub(crate) unit: Option<u32>,
    #[serde(rename = "@port")]
    pub(crate) port: Option<u32>,
}

impl Address {
    /// A disk on a SCSI or SATA controller.
    pub(crate) fn drive(controller: u32, unit: u32) -> Self {
        let (bus, target) = (Some("0".to_owned()), Some(0));
        Self { kind: "drive", controller: Some(controller), bus, target, unit: Some(unit), ..Self::default() }
    }

    /// A port of the USB controller.
    pub(crate) fn usb(port: u32) -> Self {
        Self { kind: "usb", bus: Some("0".to_owned()), port: Some(port), ..Self::default() }
    }

    /// A port of the virtio serial controller.
    pub(crate) fn virtio_serial(port: u32) -> Self {
        let bus = Some("0".to_owned());
        Self { kind: "virtio-serial", controller: Some(0), bus, port: Some(port), ..Self::default() }
    }
}

/// libvirt's word for a switch.
pub(crate) fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// libvirt's other word for a switch.
pub(crate) fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
