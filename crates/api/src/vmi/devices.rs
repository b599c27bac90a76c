//! Devices other than disks and network cards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Disk, Interface};
use crate::meta::{Empty, FeatureState};
use crate::string_enum::string_enum;
use crate::wire::{is_default, or_default};

/// Everything that is plugged into the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// Virtio devices speak the old protocol too, for old guests.
    pub use_virtio_transitional: Option<bool>,
    /// Nothing can be plugged while the guest runs.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub disable_hotplug: bool,
    /// Disks, LUNs and CD drives.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256))]
    pub disks: Vec<Disk>,
    /// Watchdog timer.
    pub watchdog: Option<Watchdog>,
    /// Network cards.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(length(max = 256))]
    pub interfaces: Vec<Interface>,
    /// Tablets and keyboards.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub inputs: Vec<Input>,
    /// A card on the pod network when none is listed; yes when unset.
    pub autoattach_pod_interface: Option<bool>,
    /// A graphics card and VNC; yes when unset.
    pub autoattach_graphics_device: Option<bool>,
    /// A serial console; yes when unset.
    pub autoattach_serial_console: Option<bool>,
    /// The serial console is logged; the cluster decides when unset.
    pub log_serial_console: Option<bool>,
    /// A memory balloon for statistics; yes when unset.
    pub autoattach_mem_balloon: Option<bool>,
    /// A tablet for VNC; no when unset.
    pub autoattach_input_device: Option<bool>,
    /// A virtual socket to the host; no when unset.
    #[serde(rename = "autoattachVSOCK")]
    pub autoattach_vsock: Option<bool>,
    /// Random numbers from the host.
    pub rng: Option<Empty>,
    /// One queue per virtual CPU for each disk.
    pub block_multi_queue: Option<bool>,
    /// One queue per virtual CPU for each network card.
    pub network_interface_multiqueue: Option<bool>,
    /// Graphics processors that are passed through.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub gpus: Vec<Gpu>,
    /// Host metrics over a virtio channel.
    pub downward_metrics: Option<Empty>,
    /// Devices that report a crash of the guest.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub panic_devices: Vec<PanicDevice>,
    /// Directories that are shared with the guest.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub filesystems: Vec<Filesystem>,
    /// Other devices that are passed through.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub host_devices: Vec<HostDevice>,
    /// Lets a client redirect its USB devices to the guest.
    pub client_passthrough: Option<Empty>,
    /// Sound card.
    pub sound: Option<SoundDevice>,
    /// Trusted platform module.
    pub tpm: Option<TpmDevice>,
    /// Graphics card.
    pub video: Option<VideoDevice>,
}

/// Sound card.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoundDevice {
    /// Name of the device.
    pub name: String,
    /// Card; `ich9` when unset.
    pub model: Option<SoundModel>,
}

string_enum! {
    /// Sound cards that can be emulated.
    pub enum SoundModel {
        /// Intel HD Audio
        Ich9 = "ich9",
        /// Intel AC'97
        Ac97 = "ac97",
    }
}

/// Trusted platform module.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TpmDevice {
    /// Whether the guest has it; yes when unset.
    pub enabled: Option<bool>,
    /// Its state survives a restart of the guest.
    pub persistent: Option<bool>,
}

/// Graphics card.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VideoDevice {
    /// Model, such as `virtio`, `vga`, `bochs`, `cirrus` or `ramfb`.
    pub r#type: Option<String>,
}

/// A tablet or keyboard.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Bus; `usb` when unset.
    pub bus: Option<InputBus>,
    /// Kind of device.
    pub r#type: InputType,
    /// Name of the device.
    pub name: String,
}

string_enum! {
    /// Buses of input devices.
    pub enum InputBus {
        /// USB
        Usb = "usb",
        /// Virtio
        Virtio = "virtio",
    }
}

string_enum! {
    /// Kinds of input devices.
    pub enum InputType {
        /// A tablet, with absolute positions.
        Tablet = "tablet",
        /// A keyboard.
        Keyboard = "keyboard",
    }
}

/// A directory that is shared with the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// Name of the volume, and the tag for mounting it.
    pub name: String,
    /// Shared with virtiofs.
    pub virtiofs: Empty,
}

/// A device from a dynamic resource claim.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRequest {
    /// Name of the claim in `spec.resourceClaims`.
    pub claim_name: Option<String>,
    /// Name of the request within the claim.
    pub request_name: Option<String>,
}

/// A graphics processor: named by resource or by claim.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// Name of the device.
    pub name: String,
    /// Resource name, such as `nvidia.com/GV100GL_Tesla_V100`.
    pub device_name: Option<String>,
    /// Name of the claim in `spec.resourceClaims`.
    pub claim_name: Option<String>,
    /// Name of the request within the claim.
    pub request_name: Option<String>,
    /// Options of a mediated GPU.
    #[serde(rename = "virtualGPUOptions")]
    pub virtual_gpu_options: Option<VgpuOptions>,
    /// Tag that the guest finds in its metadata.
    pub tag: Option<String>,
}

/// A device of the host: named by resource or by claim.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDevice {
    /// Name of the device.
    pub name: String,
    /// Resource name of the device.
    pub device_name: Option<String>,
    /// Name of the claim in `spec.resourceClaims`.
    pub claim_name: Option<String>,
    /// Name of the request within the claim.
    pub request_name: Option<String>,
    /// Tag that the guest finds in its metadata.
    pub tag: Option<String>,
}

/// Options of a mediated GPU.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VgpuOptions {
    /// Its display.
    pub display: Option<VgpuDisplayOptions>,
}

/// The display of a mediated GPU.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VgpuDisplayOptions {
    /// Whether it has one; yes when unset.
    pub enabled: Option<bool>,
    /// A boot display in RAM; on when unset.
    #[serde(rename = "ramFB")]
    pub ram_fb: Option<FeatureState>,
}

/// A device that reports a crash of the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PanicDevice {
    /// Kind of device; required on amd64.
    pub model: Option<PanicDeviceModel>,
}

string_enum! {
    /// Kinds of panic devices.
    pub enum PanicDeviceModel {
        /// Hyper-V crash registers
        Hyperv = "hyperv",
        /// ISA pvpanic
        Isa = "isa",
        /// PCI pvpanic
        Pvpanic = "pvpanic",
    }
}

/// Watchdog timer; exactly one kind is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Watchdog {
    /// Name of the device.
    pub name: String,
    /// The PCI watchdog of x86 and arm machines.
    pub i6300esb: Option<I6300EsbWatchdog>,
    /// The watchdog of s390x machines.
    pub diag288: Option<Diag288Watchdog>,
}

/// The PCI watchdog of x86 and arm machines.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct I6300EsbWatchdog {
    /// What happens when the guest stops feeding it; `reset` when unset.
    pub action: Option<WatchdogAction>,
}

/// The watchdog of s390x machines.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diag288Watchdog {
    /// What happens when the guest stops feeding it; `reset` when unset.
    pub action: Option<WatchdogAction>,
}

string_enum! {
    /// What a watchdog does to a hanging guest.
    pub enum WatchdogAction {
        /// Powers it off.
        Poweroff = "poweroff",
        /// Resets it.
        Reset = "reset",
        /// Asks it to shut down.
        Shutdown = "shutdown",
    }
}
