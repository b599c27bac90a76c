//! Elements of devices other than disks and network cards.

use serde::Serialize;
use serde_with::skip_serializing_none;

use super::disk::Disk;
use super::interface::Interface;
use super::{Address, Alias, Kibibytes};

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Devices {
    pub(crate) emulator: Option<String>,
    pub(crate) controller: Vec<Controller>,
    pub(crate) disk: Vec<Disk>,
    pub(crate) filesystem: Vec<Filesystem>,
    pub(crate) interface: Vec<Interface>,
    pub(crate) serial: Option<Serial>,
    pub(crate) channel: Vec<Channel>,
    pub(crate) input: Vec<Input>,
    pub(crate) tpm: Option<Tpm>,
    pub(crate) graphics: Option<Graphics>,
    pub(crate) audio: Option<Audio>,
    pub(crate) sound: Option<Sound>,
    pub(crate) video: Option<Video>,
    pub(crate) watchdog: Option<Watchdog>,
    pub(crate) rng: Option<Rng>,
    pub(crate) memory: Option<MemoryDevice>,
    pub(crate) memballoon: Option<Balloon>,
    pub(crate) panic: Vec<Panic>,
    pub(crate) iommu: Option<Iommu>,
    pub(crate) vsock: Option<Vsock>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Controller {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@index")]
    pub(crate) index: u32,
    #[serde(rename = "@model")]
    pub(crate) model: Option<&'static str>,
    #[serde(rename = "@ports")]
    pub(crate) ports: Option<u32>,
    #[serde(rename = "model")]
    pub(crate) hardware: Option<Named>,
    pub(crate) target: Option<PortTarget>,
    pub(crate) pcihole64: Option<Kibibytes>,
    pub(crate) driver: Option<ControllerDriver>,
    pub(crate) address: Option<Address>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Named {
    #[serde(rename = "@name")]
    pub(crate) name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PortTarget {
    #[serde(rename = "@chassis")]
    pub(crate) chassis: u32,
    #[serde(rename = "@port")]
    pub(crate) port: String,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct ControllerDriver {
    #[serde(rename = "@queues")]
    pub(crate) queues: Option<u32>,
    #[serde(rename = "@iothread")]
    pub(crate) iothread: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Filesystem {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    pub(crate) driver: FilesystemDriver,
    pub(crate) source: Socket,
    pub(crate) target: Directory,
    pub(crate) alias: Alias,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FilesystemDriver {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@queue")]
    pub(crate) queue: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Socket {
    #[serde(rename = "@socket")]
    pub(crate) socket: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Directory {
    #[serde(rename = "@dir")]
    pub(crate) dir: String,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Serial {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    pub(crate) source: UnixSource,
    pub(crate) log: Option<Log>,
    pub(crate) target: Port,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct UnixSource {
    #[serde(rename = "@mode")]
    pub(crate) mode: &'static str,
    #[serde(rename = "@path")]
    pub(crate) path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Log {
    #[serde(rename = "@file")]
    pub(crate) file: String,
    #[serde(rename = "@append")]
    pub(crate) append: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Port {
    #[serde(rename = "@port")]
    pub(crate) port: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Channel {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    pub(crate) target: ChannelTarget,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChannelTarget {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@name")]
    pub(crate) name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Input {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@bus")]
    pub(crate) bus: &'static str,
    pub(crate) alias: Alias,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tpm {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    pub(crate) backend: TpmBackend,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TpmBackend {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@version")]
    pub(crate) version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Graphics {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    pub(crate) listen: Listen,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Listen {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@socket")]
    pub(crate) socket: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Audio {
    #[serde(rename = "@id")]
    pub(crate) id: u32,
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sound {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    pub(crate) alias: Alias,
    pub(crate) address: Address,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Video {
    pub(crate) model: VideoModel,
    pub(crate) address: Option<Address>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VideoModel {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@heads")]
    pub(crate) heads: Option<u32>,
    #[serde(rename = "@vram")]
    pub(crate) vram: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Watchdog {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    #[serde(rename = "@action")]
    pub(crate) action: &'static str,
    pub(crate) alias: Alias,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rng {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    pub(crate) backend: RngBackend,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RngBackend {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    #[serde(rename = "$text")]
    pub(crate) device: &'static str,
}

/// Memory that can grow while the guest runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MemoryDevice {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    pub(crate) target: MemoryTarget,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MemoryTarget {
    pub(crate) size: Kibibytes,
    pub(crate) node: u32,
    pub(crate) block: Kibibytes,
    pub(crate) requested: Kibibytes,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Balloon {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    #[serde(rename = "@freePageReporting")]
    pub(crate) free_page_reporting: Option<&'static str>,
    pub(crate) stats: Option<Stats>,
    pub(crate) address: Option<Address>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Stats {
    #[serde(rename = "@period")]
    pub(crate) period: u32,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Panic {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    pub(crate) address: Option<Address>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Iommu {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    pub(crate) driver: IommuDriver,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IommuDriver {
    #[serde(rename = "@intremap")]
    pub(crate) intremap: &'static str,
    #[serde(rename = "@eim")]
    pub(crate) eim: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Vsock {
    #[serde(rename = "@model")]
    pub(crate) model: &'static str,
    pub(crate) cid: Cid,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cid {
    #[serde(rename = "@auto")]
    pub(crate) auto: &'static str,
    #[serde(rename = "@address")]
    pub(crate) address: u32,
}
