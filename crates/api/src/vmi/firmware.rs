//! Firmware, what it boots, and what it tells the guest about the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::meta::{Empty, PullPolicy};
use crate::values::FirmwareUuid;

/// Firmware of the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Firmware {
    /// The machine's identity; random when unset.
    pub uuid: Option<FirmwareUuid>,
    /// BIOS or EFI; the machine type decides when unset.
    pub bootloader: Option<Bootloader>,
    /// Serial number that the guest reads.
    pub serial: Option<String>,
    /// Boots a kernel directly.
    pub kernel_boot: Option<KernelBoot>,
    /// Extra ACPI tables.
    pub acpi: Option<Acpi>,
}

/// BIOS or EFI.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootloader {
    /// Legacy BIOS.
    pub bios: Option<Bios>,
    /// EFI.
    pub efi: Option<Efi>,
}

/// Legacy BIOS.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bios {
    /// Boot messages go to the serial console.
    pub use_serial: Option<bool>,
}

/// EFI firmware.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Efi {
    /// Only signed code boots; on when unset.
    pub secure_boot: Option<bool>,
    /// Firmware variables survive a restart of the guest.
    pub persistent: Option<bool>,
}

/// Boots a kernel directly.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelBoot {
    /// The kernel's command line.
    pub kernel_args: Option<String>,
    /// The container image with the kernel.
    pub container: Option<KernelBootContainer>,
}

/// A container image with a kernel and an initial RAM disk.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelBootContainer {
    /// The container image.
    pub image: String,
    /// Secret for the registry.
    pub image_pull_secret: Option<String>,
    /// When to pull the image.
    pub image_pull_policy: Option<PullPolicy>,
    /// Where the kernel is in the image.
    pub kernel_path: Option<String>,
    /// Where the initial RAM disk is in the image.
    pub initrd_path: Option<String>,
}

/// Extra ACPI tables.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acpi {
    /// Volume with the SLIC table.
    pub slic_name_ref: Option<String>,
    /// Volume with the MSDM table.
    pub msdm_name_ref: Option<String>,
}

/// What the guest reads about its chassis in SMBIOS.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Chassis {
    /// Manufacturer.
    pub manufacturer: Option<String>,
    /// Version.
    pub version: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Asset tag.
    pub asset: Option<String>,
    /// SKU number.
    pub sku: Option<String>,
}

/// Encryption of the guest's memory; on s390x an empty object asks for Secure Execution.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LaunchSecurity {
    /// AMD SEV.
    pub sev: Option<Sev>,
    /// AMD SEV-SNP.
    pub snp: Option<Empty>,
    /// Intel TDX.
    pub tdx: Option<Empty>,
}

/// AMD SEV.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sev {
    /// What is protected.
    pub policy: Option<SevPolicy>,
    /// The guest waits until its measurement has been checked.
    pub attestation: Option<Empty>,
    /// The guest owner's session blob, as base64.
    pub session: Option<String>,
    /// The guest owner's Diffie-Hellman certificate, as base64.
    pub dh_cert: Option<String>,
}

/// What SEV protects.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SevPolicy {
    /// Registers are encrypted too (SEV-ES).
    pub encrypted_state: Option<bool>,
}
