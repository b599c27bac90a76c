//! What the launcher makes or checks before a domain starts. It happens inside the pod, without privileges: images are hostile.

use serde::{Deserialize, Serialize};

/// One disk, medium or boot file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DiskTask {
    /// A container disk: one image file in a read-only tree gets an overlay.
    ContainerDisk {
        /// The VMI's volume, for messages.
        volume: String,
        /// Root of the image's file tree.
        tree: String,
        /// The file in the tree; without it the only file below `/disk`.
        #[serde(default)]
        path: Option<String>,
        /// The overlay to make.
        overlay: String,
    },
    /// A claim that is only read gets an overlay.
    Overlay {
        /// The VMI's volume.
        volume: String,
        /// A raw image or a block device.
        backing: String,
        /// The overlay to make.
        overlay: String,
    },
    /// A raw image on a claim with a file system, or a host disk: made sparse where it is missing and `create` says how large.
    RawImage {
        /// The VMI's volume.
        volume: String,
        /// The image.
        path: String,
        /// Size of a new image in bytes; `None`: a missing image is an error.
        #[serde(default)]
        create: Option<u64>,
    },
    /// A block device that must be there.
    BlockDevice {
        /// The VMI's volume.
        volume: String,
        /// The device.
        path: String,
    },
    /// A new empty qcow2.
    EmptyDisk {
        /// The VMI's volume.
        volume: String,
        /// The image.
        path: String,
        /// Its size in bytes.
        capacity: u64,
    },
    /// A cloud-init seed.
    CloudInit {
        /// The VMI's volume.
        volume: String,
        /// The ISO to make.
        path: String,
        /// What it holds.
        seed: CloudInitSeed,
    },
    /// An ISO with the files of a directory (configMap, secret, serviceAccount, downwardAPI, sysprep).
    ConfigMedia {
        /// The VMI's volume.
        volume: String,
        /// The ISO to make.
        path: String,
        /// Whose files.
        source: String,
        /// The medium's label.
        label: String,
        /// Sysprep: one of these files must be there (names compare without case).
        #[serde(default)]
        required: Vec<String>,
    },
    /// Kernel and initrd in an image's tree: they must be plain files below it.
    KernelBoot {
        /// Root of the image's file tree.
        tree: String,
        /// The kernel in the tree.
        #[serde(default)]
        kernel: Option<String>,
        /// The initrd in the tree.
        #[serde(default)]
        initrd: Option<String>,
    },
}

/// The two layouts of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CloudInitLayout {
    /// Label `cidata`.
    NoCloud,
    /// Label `config-2`.
    ConfigDrive,
}

/// A cloud-init seed before it is an ISO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitSeed {
    /// The layout.
    pub layout: CloudInitLayout,
    /// User data, or where it is.
    #[serde(default)]
    pub user_data: Option<SeedText>,
    /// Network data, or where it is.
    #[serde(default)]
    pub network_data: Option<SeedText>,
    /// `<name>.<namespace>`.
    pub instance_id: String,
    /// The guest's host name.
    pub hostname: String,
    /// The domain's uuid.
    #[serde(default)]
    pub uuid: Option<String>,
    /// The instancetype's name.
    #[serde(default)]
    pub instance_type: Option<String>,
    /// Directories whose files are public keys (access credentials).
    #[serde(default)]
    pub public_key_directories: Vec<String>,
    /// ConfigDrive: tagged devices, as JSON for `meta_data.json`.
    #[serde(default)]
    pub devices: Option<String>,
}

/// Text of a seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SeedText {
    /// The text itself.
    Inline(String),
    /// The first of `keys` that is a file in `directory` (a mounted secret).
    File {
        /// The directory.
        directory: String,
        /// File names, the preferred one first.
        keys: Vec<String>,
    },
}
