//! Elements about firmware: what boots, and what it tells the guest about the machine.

use serde::Serialize;
use serde_with::skip_serializing_none;

use super::Mode;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Os {
    #[serde(rename = "type")]
    pub(crate) kind: Machine,
    pub(crate) loader: Option<Loader>,
    pub(crate) nvram: Option<Nvram>,
    pub(crate) kernel: Option<String>,
    pub(crate) initrd: Option<String>,
    pub(crate) cmdline: Option<String>,
    pub(crate) bootmenu: Option<BootMenu>,
    pub(crate) smbios: Mode,
    pub(crate) bios: Option<Bios>,
    pub(crate) acpi: Option<Acpi>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Machine {
    #[serde(rename = "@arch")]
    pub(crate) arch: &'static str,
    #[serde(rename = "@machine")]
    pub(crate) machine: String,
    #[serde(rename = "$text")]
    pub(crate) kind: &'static str,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Loader {
    #[serde(rename = "@readonly")]
    pub(crate) readonly: &'static str,
    #[serde(rename = "@secure")]
    pub(crate) secure: &'static str,
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "$text")]
    pub(crate) path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Nvram {
    #[serde(rename = "@template")]
    pub(crate) template: String,
    #[serde(rename = "$text")]
    pub(crate) path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct BootMenu {
    #[serde(rename = "@enable")]
    pub(crate) enable: &'static str,
    #[serde(rename = "@timeout")]
    pub(crate) timeout: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Bios {
    #[serde(rename = "@useserial")]
    pub(crate) use_serial: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Acpi {
    pub(crate) table: Vec<AcpiTable>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AcpiTable {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    #[serde(rename = "$text")]
    pub(crate) path: String,
}

/// SMBIOS tables (`system`, `chassis`) or firmware configuration (`entry`).
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sysinfo {
    #[serde(rename = "@type")]
    pub(crate) kind: &'static str,
    pub(crate) system: Option<Entries>,
    pub(crate) chassis: Option<Entries>,
    pub(crate) entry: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Entries {
    pub(crate) entry: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Entry {
    #[serde(rename = "@name")]
    pub(crate) name: &'static str,
    #[serde(rename = "$text")]
    pub(crate) value: String,
}
