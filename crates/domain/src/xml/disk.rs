//! The `disk` element.

use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{Address, Alias, Boot, Flag, Typed};

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Disk {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@device")]
    pub(crate) device: &'static str,
    #[serde(rename = "@model")]
    pub(crate) model: Option<&'static str>,
    pub(crate) driver: Driver,
    pub(crate) source: Option<Source>,
    #[serde(rename = "backingStore")]
    pub(crate) backing_store: Option<BackingStore>,
    pub(crate) target: Target,
    pub(crate) blockio: Option<BlockIo>,
    pub(crate) serial: Option<String>,
    pub(crate) readonly: Option<Flag>,
    pub(crate) shareable: Option<Flag>,
    pub(crate) boot: Option<Boot>,
    pub(crate) alias: Alias,
    pub(crate) address: Option<Address>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Driver {
    #[serde(rename = "@name")]
    pub(crate) name: &'static str,
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "@cache")]
    pub(crate) cache: Option<&'static str>,
    #[serde(rename = "@error_policy")]
    pub(crate) error_policy: Option<&'static str>,
    #[serde(rename = "@io")]
    pub(crate) io: Option<&'static str>,
    #[serde(rename = "@discard")]
    pub(crate) discard: Option<&'static str>,
    #[serde(rename = "@iothread")]
    pub(crate) iothread: Option<u32>,
    #[serde(rename = "@queues")]
    pub(crate) queues: Option<u32>,
    pub(crate) iothreads: Option<IoThreads>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IoThreads {
    pub(crate) iothread: Vec<IoThread>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IoThread {
    #[serde(rename = "@id")]
    pub(crate) id: u32,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Source {
    #[serde(rename = "@file")]
    pub(crate) file: Option<String>,
    #[serde(rename = "@dev")]
    pub(crate) dev: Option<String>,
}

/// What is below an overlay; without fields: nothing, and libvirt does not look.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct BackingStore {
    #[serde(rename = "@type")]
    pub(crate) kind: Option<&'static str>,
    pub(crate) format: Option<Typed>,
    pub(crate) source: Option<Source>,
    #[serde(rename = "backingStore")]
    pub(crate) end: Option<Flag>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Target {
    #[serde(rename = "@dev")]
    pub(crate) dev: String,
    #[serde(rename = "@bus")]
    pub(crate) bus: &'static str,
    #[serde(rename = "@tray")]
    pub(crate) tray: Option<&'static str>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct BlockIo {
    #[serde(rename = "@logical_block_size")]
    pub(crate) logical: Option<u32>,
    #[serde(rename = "@physical_block_size")]
    pub(crate) physical: Option<u32>,
    #[serde(rename = "@discard_granularity")]
    pub(crate) discard: Option<u32>,
}
