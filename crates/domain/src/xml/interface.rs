//! The `interface` element.

use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{Address, Alias, Boot, State, Typed};

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Interface {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    pub(crate) mac: Mac,
    pub(crate) target: Tap,
    pub(crate) model: Typed,
    pub(crate) driver: Option<Driver>,
    pub(crate) boot: Option<Boot>,
    pub(crate) mtu: Mtu,
    pub(crate) link: Option<State>,
    pub(crate) rom: Option<Rom>,
    pub(crate) acpi: Option<AcpiIndex>,
    pub(crate) alias: Alias,
    pub(crate) address: Address,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Mac {
    #[serde(rename = "@address")]
    pub(crate) address: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tap {
    #[serde(rename = "@dev")]
    pub(crate) dev: String,
    #[serde(rename = "@managed")]
    pub(crate) managed: &'static str,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Driver {
    #[serde(rename = "@name")]
    pub(crate) name: &'static str,
    #[serde(rename = "@queues")]
    pub(crate) queues: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Mtu {
    #[serde(rename = "@size")]
    pub(crate) size: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rom {
    #[serde(rename = "@enabled")]
    pub(crate) enabled: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AcpiIndex {
    #[serde(rename = "@index")]
    pub(crate) index: i64,
}
