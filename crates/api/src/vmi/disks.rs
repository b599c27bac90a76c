//! Disks, LUNs and CD drives.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::FeatureState;
use crate::string_enum::string_enum;
use crate::wire::{is_default, or_default};

/// A drive of the guest, backed by the volume of the same name; at most one of `disk`, `lun`, `cdrom` is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Name of the volume behind it.
    pub name: String,
    /// A disk.
    pub disk: Option<DiskTarget>,
    /// A SCSI device that is passed through.
    pub lun: Option<LunTarget>,
    /// A CD drive.
    pub cdrom: Option<CdRomTarget>,
    /// Place in the boot order, counted from 1.
    pub boot_order: Option<u32>,
    /// Serial number that the guest reads.
    pub serial: Option<String>,
    /// Has an IO thread of its own.
    #[serde(rename = "dedicatedIOThread")]
    pub dedicated_io_thread: Option<bool>,
    /// How the host caches writes.
    pub cache: Option<DriverCache>,
    /// How the host does its IO.
    pub io: Option<DriverIo>,
    /// Tag that the guest finds in its metadata.
    pub tag: Option<String>,
    /// Size of blocks that the guest sees.
    pub block_size: Option<BlockSize>,
    /// Other guests write to it at the same time.
    pub shareable: Option<bool>,
    /// What an IO error does; `stop` when unset.
    pub error_policy: Option<DiskErrorPolicy>,
    /// Changed blocks are tracked for incremental backup.
    pub changed_block_tracking: Option<bool>,
}

/// A disk.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskTarget {
    /// Bus; `virtio` when unset.
    pub bus: Option<DiskBus>,
    /// The guest cannot write.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub readonly: bool,
    /// Address on the guest's PCI bus, such as `0000:81:01.10`.
    pub pci_address: Option<String>,
}

/// A SCSI device that is passed through.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LunTarget {
    /// Bus; `scsi` unless told otherwise.
    pub bus: Option<DiskBus>,
    /// The guest cannot write.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub readonly: bool,
    /// The guest may make SCSI persistent reservations.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub reservation: bool,
}

/// A CD drive.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdRomTarget {
    /// Bus; `sata` when unset.
    pub bus: Option<DiskBus>,
    /// The guest cannot write; true when unset.
    pub readonly: Option<bool>,
    /// Position of the tray; `closed` when unset.
    pub tray: Option<TrayState>,
}

string_enum! {
    /// Buses of drives.
    pub enum DiskBus {
        /// SCSI
        Scsi = "scsi",
        /// SATA
        Sata = "sata",
        /// Virtio
        Virtio = "virtio",
        /// USB
        Usb = "usb",
    }
}

string_enum! {
    /// Position of a CD drive's tray.
    pub enum TrayState {
        /// Open
        Open = "open",
        /// Closed
        Closed = "closed",
    }
}

string_enum! {
    /// How the host caches writes.
    pub enum DriverCache {
        /// Bypasses the host's page cache.
        None = "none",
        /// Every write reaches the storage before it is acknowledged.
        WriteThrough = "writethrough",
        /// Writes are acknowledged from the host's page cache.
        WriteBack = "writeback",
    }
}

string_enum! {
    /// How the host does its IO.
    pub enum DriverIo {
        /// A pool of threads.
        Threads = "threads",
        /// The kernel's asynchronous IO.
        Native = "native",
    }
}

string_enum! {
    /// What an IO error does.
    pub enum DiskErrorPolicy {
        /// Pauses the guest.
        Stop = "stop",
        /// Is not told to the guest.
        Ignore = "ignore",
        /// Is told to the guest.
        Report = "report",
        /// Pauses the guest when space ran out; tells the guest otherwise.
        Enospace = "enospace",
    }
}

/// Size of blocks that the guest sees.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockSize {
    /// Given sizes.
    pub custom: Option<CustomBlockSize>,
    /// The sizes of the volume behind it.
    pub match_volume: Option<FeatureState>,
}

/// Given block sizes in bytes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomBlockSize {
    /// Smallest unit that the guest addresses.
    pub logical: Option<u32>,
    /// Smallest unit that the storage writes.
    pub physical: Option<u32>,
    /// Smallest unit that the guest can discard.
    pub discard_granularity: Option<u32>,
}
