//! What has to be known about a node and a guest's claims before its domain can be written.

use std::collections::BTreeMap;
use std::fmt;

use ferrovirt_api::meta::VolumeMode;

/// Facts about the node that runs the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Who executes the guest's instructions.
    pub accelerator: Accelerator,
    /// `/dev/vhost-net` can be used in the pod.
    pub vhost_net: bool,
    /// libvirt's version.
    pub libvirt: Version,
    /// QEMU's version.
    pub qemu: Version,
    /// The emulator, where it is not the one that libvirt finds by itself.
    pub emulator: Option<String>,
    /// EFI images.
    pub ovmf: Ovmf,
    /// The machine type of guests that name none.
    pub default_machine: String,
    /// The machine types that QEMU knows; when empty, any q35 is handed to libvirt.
    pub machines: Vec<String>,
    /// The CPUs that the launcher's container may use; only guests with dedicated CPUs need them.
    pub cpus: Vec<HostCpu>,
    /// What guests read about their manufacturer.
    pub smbios: Smbios,
    /// Serial consoles are logged unless the guest says otherwise.
    pub log_serial_console: bool,
    /// Files in the pod's emptyDirs can be opened for direct IO.
    pub ephemeral_direct_io: bool,
    /// The guest's claims by name; a data volume's claim has the data volume's name.
    pub claims: Claims,
}

/// Facts about claims, by claim name.
pub type Claims = BTreeMap<String, Claim>;

impl Default for NodeFacts {
    /// Debian 12 without KVM: whatever works there works with newer versions.
    fn default() -> Self {
        Self {
            accelerator: Accelerator::Tcg,
            vhost_net: false,
            libvirt: Version(9, 0),
            qemu: Version(7, 2),
            emulator: None,
            ovmf: Ovmf::default(),
            default_machine: "q35".to_owned(),
            machines: Vec::new(),
            cpus: Vec::new(),
            smbios: Smbios::default(),
            log_serial_console: true,
            ephemeral_direct_io: false,
            claims: Claims::new(),
        }
    }
}

/// Who executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor, through KVM.
    Kvm,
    /// QEMU translates them.
    Tcg,
}

/// Major and minor version of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// EFI images: code and the template of its variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ovmf {
    /// Without secure boot.
    pub plain: FirmwareImage,
    /// With secure boot; the template has the keys enrolled.
    pub secure: FirmwareImage,
}

impl Default for Ovmf {
    fn default() -> Self {
        let image = |code: &str, variables: &str| FirmwareImage {
            code: format!("/usr/share/OVMF/{code}"),
            variables: format!("/usr/share/OVMF/{variables}"),
        };
        Self {
            plain: image("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd"),
            secure: image("OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd"),
        }
    }
}

/// One EFI image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirmwareImage {
    /// The read-only code.
    pub code: String,
    /// The variables that a new guest starts with.
    pub variables: String,
}

/// A CPU of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCpu {
    /// Its number.
    pub id: u32,
    /// Its core; CPUs of one core are threads of each other.
    pub core: u32,
    /// Its NUMA node.
    pub node: u32,
}

/// What guests read about their manufacturer in SMBIOS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Smbios {
    /// Manufacturer.
    pub manufacturer: String,
    /// Product.
    pub product: String,
    /// Family.
    pub family: String,
    /// Version; not shown when empty.
    pub version: String,
    /// SKU number; not shown when empty.
    pub sku: String,
}

impl Default for Smbios {
    /// What KubeVirt's configuration says by default: images and licences are known to look at it.
    fn default() -> Self {
        let [manufacturer, product, family] = ["KubeVirt", "None", "KubeVirt"].map(str::to_owned);
        Self { manufacturer, product, family, version: String::new(), sku: String::new() }
    }
}

/// Facts about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// File system or block device.
    pub mode: VolumeMode,
    /// Its size in bytes.
    pub capacity: u64,
    /// Direct IO is known to work.
    pub direct_io: bool,
    /// Logical and physical block size in bytes, where known.
    pub block_size: Option<(u32, u32)>,
}

impl Claim {
    /// A claim with a file system of which nothing but the size is known.
    #[must_use]
    pub const fn filesystem(capacity: u64) -> Self {
        Self { mode: VolumeMode::Filesystem, capacity, direct_io: false, block_size: None }
    }

    /// A block device; direct IO always works on one.
    #[must_use]
    pub const fn block(capacity: u64) -> Self {
        Self { mode: VolumeMode::Block, capacity, direct_io: true, block_size: None }
    }
}
