//! Disk images in directories of the node (`hostDisk`). The launcher runs without privileges and the directory belongs to root, so
//! the image is made here and given to the launcher's user.
//!
//! The launcher may write into the directory once its guest ran, so nothing found there is trusted: no link is followed, and only
//! a regular file that has no second name changes its owner.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::{HostDisk, HostDiskType};
use ferrovirt_launcher_rpc::paths;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, chownat, fstat, fstatvfs, ftruncate, openat2};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::process::{IN_CONTAINER, look_at};

/// The user and the group of a launcher.
const LAUNCHER: u32 = 107;

/// Why a host disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostDiskError {
    #[error("hostDisk {0}: there is no such file on this node; create it, or use type DiskOrCreate with a capacity")]
    Missing(String),
    #[error("hostDisk {0} is not a plain file with one name; only such a file can be a disk")]
    NotPlain(String),
    #[error("hostDisk {path}: {wanted} bytes do not fit, the file system has {free} left; make room or ask for less")]
    NoSpace { path: String, wanted: u64, free: u64 },
    #[error("hostDisk {path}: cannot {operation}")]
    System { path: String, operation: &'static str, source: io::Error },
}

/// Makes every host disk of the guest ready in the file system of its launcher, which has this root.
pub(crate) fn prepare(vmi: &VirtualMachineInstance, root: &OwnedFd) -> Result<(), HostDiskError> {
    let disks = vmi.spec.volumes.iter().filter_map(|volume| Some((&volume.name, volume.host_disk.as_ref()?)));
    for (volume, disk) in disks {
        let (directory, _) = look_at(root, &paths::volume_directory(volume), IN_CONTAINER)
            .map_err(|errno| system(disk, "open its directory", errno))?;
        prepare_one(directory.as_fd(), disk)?;
    }
    Ok(())
}

fn prepare_one(directory: impl AsFd, disk: &HostDisk) -> Result<(), HostDiskError> {
    let name = disk.path.rsplit('/').next().unwrap_or_default();
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match (look_at(directory.as_fd(), name, resolve), disk.r#type, &disk.capacity) {
        (Ok((file, _)), ..) => give(&file, disk),
        (Err(Errno::NOENT), HostDiskType::DiskOrCreate, Some(capacity)) => {
            let size = u64::try_from(capacity.value()).unwrap_or_default();
            let space = fstatvfs(directory.as_fd()).map_err(|errno| system(disk, "ask for free space", errno))?;
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            if free < size {
                return Err(HostDiskError::NoSpace { path: disk.path.clone(), wanted: size, free });
            }
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let file = openat2(directory.as_fd(), name, flags, Mode::from_raw_mode(0o640), resolve)
                .map_err(|errno| system(disk, "create it", errno))?;
            ftruncate(&file, size).map_err(|errno| system(disk, "give it its size", errno))?;
            give(&file, disk)
        }
        (Err(Errno::NOENT), ..) => Err(HostDiskError::Missing(disk.path.clone())),
        (Err(Errno::LOOP), ..) => Err(HostDiskError::NotPlain(disk.path.clone())),
        (Err(errno), ..) => Err(system(disk, "open it", errno)),
    }
}

/// Makes the launcher's user the owner.
fn give(file: &OwnedFd, disk: &HostDisk) -> Result<(), HostDiskError> {
    let stat = fstat(file).map_err(|errno| system(disk, "look at it", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
        return Err(HostDiskError::NotPlain(disk.path.clone()));
    }
    if stat.st_uid == LAUNCHER {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(LAUNCHER), Gid::from_raw(LAUNCHER));
    chownat(file, "", Some(user), Some(group), AtFlags::EMPTY_PATH)
        .map_err(|errno| system(disk, "give it to the launcher's user", errno))
}

fn system(disk: &HostDisk, operation: &'static str, errno: Errno) -> HostDiskError {
    HostDiskError::System { path: disk.path.clone(), operation, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    /// Prepares a disk `disk.img` in `directory`, as if that were the volume's directory in a launcher.
    fn prepare_in(directory: &Path, source: &Value) -> Result<(), HostDiskError> {
        let directory = rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        prepare_one(directory, &serde_json::from_value(source.clone()).unwrap())
    }

    fn create() -> Value {
        json!({"path": "/d/disk.img", "type": "DiskOrCreate", "capacity": "1Mi"})
    }

    #[test]
    fn a_missing_disk_is_made_for_the_launcher_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk.img");
        prepare_in(directory.path(), &create()).unwrap();
        fs::write(&disk, "kept").unwrap();
        prepare_in(directory.path(), &create()).unwrap();
        let metadata = disk.metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (LAUNCHER, LAUNCHER, 0o640));
        assert_eq!(fs::read(disk).unwrap(), b"kept");
    }

    #[test]
    fn what_is_there_is_given_to_the_launcher() {
        let directory = tempfile::tempdir().unwrap();
        let disk = directory.path().join("disk.img");
        fs::write(&disk, "old").unwrap();
        prepare_in(directory.path(), &json!({"path": "/d/disk.img", "type": "Disk"})).unwrap();
        assert_eq!(disk.metadata().unwrap().uid(), LAUNCHER);
    }

    #[test]
    fn a_disk_that_must_be_there_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let error = prepare_in(directory.path(), &json!({"path": "/d/disk.img", "type": "Disk"})).unwrap_err();
        assert!(matches!(error, HostDiskError::Missing(_)), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_change_no_owner() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "secret").unwrap();
        let disk = directory.path().join("disk.img");
        symlink(&victim, &disk).unwrap();
        assert!(matches!(prepare_in(directory.path(), &create()).unwrap_err(), HostDiskError::NotPlain(_)));
        fs::remove_file(&disk).unwrap();
        fs::hard_link(&victim, &disk).unwrap();
        assert!(matches!(prepare_in(directory.path(), &create()).unwrap_err(), HostDiskError::NotPlain(_)));
        assert_eq!(victim.metadata().unwrap().uid(), 0);
    }

    #[test]
    fn more_than_fits_is_refused_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let huge = json!({"path": "/d/disk.img", "type": "DiskOrCreate", "capacity": "4Ei"});
        assert!(matches!(prepare_in(directory.path(), &huge).unwrap_err(), HostDiskError::NoSpace { .. }));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
