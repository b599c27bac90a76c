//! What can go wrong, in words for the owner of the guest.

use std::io;

use crate::image::ImageProblem;

/// Why a disk, a medium or a boot file is not there.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// An image is not one that a guest may use.
    #[error("volume {volume}: {file} cannot be used: {problem}")]
    Image {
        /// The VMI's volume.
        volume: String,
        /// The image.
        file: String,
        /// What is wrong with it, and the fix.
        problem: ImageProblem,
    },
    /// A container disk has no image where it should be.
    #[error(
        "volume {volume}: the image has no file in /disk: put one raw or qcow2 disk image there, or set containerDisk.path"
    )]
    NoImageInTree {
        /// The VMI's volume.
        volume: String,
    },
    /// A container disk has more than one image.
    #[error(
        "volume {volume}: the image has several files in /disk ({files}): set containerDisk.path to the one to use"
    )]
    SeveralImagesInTree {
        /// The VMI's volume.
        volume: String,
        /// Their names.
        files: String,
    },
    /// A path leaves its tree or goes through a symbolic link.
    #[error(
        "volume {volume}: {file} is or goes through a symbolic link, or leaves its volume: store the file itself there"
    )]
    Outside {
        /// The VMI's volume.
        volume: String,
        /// The path.
        file: String,
    },
    /// A file is missing.
    #[error("volume {volume}: {file} does not exist")]
    Missing {
        /// The VMI's volume.
        volume: String,
        /// The path.
        file: String,
    },
    /// Something is there, but not what the task needs.
    #[error("volume {volume}: {file} is {found}, and {wanted} is needed")]
    WrongKind {
        /// The VMI's volume.
        volume: String,
        /// The path.
        file: String,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// The guest's user may not use a file.
    #[error("volume {volume}: no permission to {action} {file}: it must be usable by uid {uid}")]
    Permission {
        /// The VMI's volume.
        volume: String,
        /// The path.
        file: String,
        /// What was tried.
        action: &'static str,
        /// Who tried.
        uid: u32,
    },
    /// A file operation failed.
    #[error("volume {volume}: cannot {action} {file}: {source}")]
    Io {
        /// The VMI's volume.
        volume: String,
        /// The path.
        file: String,
        /// What was tried.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// `qemu-img` did not start.
    #[error("volume {volume}: cannot run qemu-img: {source}: install QEMU's image tools")]
    NoQemuImg {
        /// The VMI's volume.
        volume: String,
        /// Why.
        source: io::Error,
    },
    /// `qemu-img` refused.
    #[error("volume {volume}: qemu-img cannot make {file}: {message}")]
    QemuImg {
        /// The VMI's volume.
        volume: String,
        /// The image to be made.
        file: String,
        /// What it said.
        message: String,
    },
    /// The secret of a cloud-init volume has none of the keys.
    #[error("volume {volume}: the secret has no key {keys}: add one of them")]
    NoSeedKey {
        /// The VMI's volume.
        volume: String,
        /// The keys that were looked for.
        keys: String,
    },
    /// A seed's text is not text.
    #[error("volume {volume}: {what} is not UTF-8 text")]
    NotText {
        /// The VMI's volume.
        volume: String,
        /// Which part.
        what: String,
    },
    /// The tagged devices of a config drive are no JSON.
    #[error("volume {volume}: the list of tagged devices is no JSON: {source}")]
    Devices {
        /// The VMI's volume.
        volume: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A sysprep volume lacks its answer file.
    #[error("volume {volume}: none of the files {files} is there: add one of them as a key")]
    NoRequiredFile {
        /// The VMI's volume.
        volume: String,
        /// The names.
        files: String,
    },
    /// A volume has more files than a medium may hold.
    #[error("volume {volume}: {problem}")]
    Medium {
        /// The VMI's volume.
        volume: String,
        /// Which limit.
        problem: crate::iso::MediumProblem,
    },
}

impl StorageError {
    /// A short CamelCase word for programs, as a condition's reason has it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Image { .. } => "ImageRefused",
            Self::NoImageInTree { .. } | Self::SeveralImagesInTree { .. } => "ImageNotFound",
            Self::Missing { .. } => "FileNotFound",
            Self::Outside { .. } => "PathRefused",
            Self::WrongKind { .. } => "WrongFileType",
            Self::Permission { .. } => "PermissionDenied",
            Self::NoQemuImg { .. } | Self::QemuImg { .. } => "ImageCreationFailed",
            Self::NoSeedKey { .. } | Self::NotText { .. } | Self::Devices { .. } => "InvalidCloudInit",
            Self::NoRequiredFile { .. } | Self::Medium { .. } => "InvalidConfigMedia",
            Self::Io { .. } => "StorageFailed",
        }
    }
}

/// What an [`io::Error`] means for a file of a volume.
pub(crate) fn io_error(volume: &str, file: &str, action: &'static str, source: io::Error) -> StorageError {
    use rustix::io::Errno;
    let (volume, file) = (volume.to_owned(), file.to_owned());
    match Errno::from_io_error(&source) {
        Some(Errno::LOOP | Errno::XDEV) => StorageError::Outside { volume, file },
        Some(Errno::NOENT | Errno::NOTDIR) => StorageError::Missing { volume, file },
        Some(Errno::ACCESS | Errno::PERM) => {
            StorageError::Permission { volume, file, action, uid: rustix::process::geteuid().as_raw() }
        }
        _ => StorageError::Io { volume, file, action, source },
    }
}
