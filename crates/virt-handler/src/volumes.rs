//! Directories of claims that the launcher's user may use.
//!
//! A pod's `fsGroup` makes volumes the launcher's, but not all of them: a kubelet leaves directories of the node and shared file systems
//! as they are. What is missing is done here, the same way: the volume's own directory and the disk image in it get the launcher's group.
//!
//! What the launcher can change is not trusted: only the root of a mount changes, no link is followed, and only a regular file that has no
//! second name changes its group. Nothing is opened: it may be a device.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_domain::Claims;
use ferrovirt_launcher_rpc::paths::{self, RUNTIME_USER};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, chmod, chownat, fstat, openat2, statx,
};
use rustix::io::Errno;
use rustix::process::Gid;

use crate::process::{IN_CONTAINER, look_at, path_of};

/// What a directory's group needs, and new files in it get the same group.
const DIRECTORY: u32 = 0o2070;
/// What an image's group needs.
const FILE: u32 = 0o060;
/// The image's name.
const IMAGE: &str = "disk.img";

/// Lets the launcher with this root use the guest's claims with file systems. A volume that cannot be changed is left as it is: it may
/// be open to the launcher for other reasons, and QEMU says better what it misses.
pub(crate) fn give(vmi: &VirtualMachineInstance, claims: &Claims, root: &OwnedFd) {
    let has_files = |name: &str| claims.get(name).is_none_or(|claim| claim.mode == VolumeMode::Filesystem);
    for (volume, _) in ferrovirt_pods::claims_of(vmi).filter(|(_, claim)| has_files(claim)) {
        let given = open(root, &paths::volume_directory(volume)).and_then(|directory| {
            if is_mount(&directory)? { give_directory(&directory) } else { Err(Errno::INVAL.into()) }
        });
        match given {
            Ok(()) => {}
            // Nobody writes to it.
            Err(error) if error.raw_os_error() == Some(Errno::ROFS.raw_os_error()) => {}
            Err(error) => tracing::warn!(%error, volume, "the volume cannot be given to the launcher's group"),
        }
    }
}

fn open(root: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // `/var/run` may be a link inside the launcher's root; none may lead out of it.
    Ok(openat2(root, path.trim_start_matches('/'), flags, Mode::empty(), IN_CONTAINER)?)
}

fn is_mount(directory: &OwnedFd) -> io::Result<bool> {
    let found = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn give_directory(directory: &OwnedFd) -> io::Result<()> {
    give_one(directory, DIRECTORY)?;
    let (image, kind) = match look_at(directory, IMAGE, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS) {
        // The launcher makes it, or says what is wrong with it.
        Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
        image => image?,
    };
    if kind != FileType::RegularFile || fstat(&image)?.st_nlink != 1 {
        return Ok(());
    }
    give_one(&image, FILE)
}

/// Gives a file to the launcher's group, with these permissions, unless it is open to the launcher anyway.
fn give_one(file: impl AsFd, wanted: u32) -> io::Result<()> {
    let found = fstat(file.as_fd())?;
    let group = wanted & 0o070;
    let is_owner = found.st_uid == RUNTIME_USER && found.st_mode & (group << 3) == group << 3;
    let is_member = found.st_gid == RUNTIME_USER && found.st_mode & group == group;
    let is_open = found.st_mode & (group >> 3) == group >> 3;
    if is_owner || is_member || is_open {
        return Ok(());
    }
    chownat(file.as_fd(), "", None, Some(Gid::from_raw(RUNTIME_USER)), AtFlags::EMPTY_PATH)?;
    Ok(chmod(path_of(file), Mode::from_raw_mode((found.st_mode | wanted) & 0o7777))?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use super::*;

    fn give_to(directory: &Path) {
        give_directory(&rustix::fs::open(directory, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()).unwrap();
    }

    fn of(path: &Path) -> (u32, u32, u32) {
        let metadata = path.metadata().unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
    }

    #[test]
    fn roots_directory_and_image_get_the_launchers_group() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join(IMAGE);
        fs::write(&image, "").unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o750)).unwrap();
        fs::set_permissions(&image, Permissions::from_mode(0o600)).unwrap();
        for _ in 0..2 {
            give_to(directory.path());
            assert_eq!(of(directory.path()), (0, RUNTIME_USER, 0o2770));
            assert_eq!(of(&image), (0, RUNTIME_USER, 0o660));
        }
    }

    #[test]
    fn what_is_open_to_the_launcher_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        give_to(directory.path());
        assert_eq!(of(directory.path()), (0, 0, 0o777));
    }

    #[test]
    fn links_change_nothing_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
        let image = directory.path().join(IMAGE);
        std::os::unix::fs::symlink(&victim, &image).unwrap();
        give_to(directory.path());
        fs::remove_file(&image).unwrap();
        fs::hard_link(&victim, &image).unwrap();
        give_to(directory.path());
        assert_eq!(of(&victim), (0, 0, 0o600));
    }

    /// A device that is opened may do something, and a pipe that is opened for writing reads from nobody.
    #[test]
    fn what_is_no_file_stays_as_it_is() {
        use rustix::fs::{CWD, makedev, mknodat};
        for kind in [FileType::CharacterDevice, FileType::BlockDevice, FileType::Fifo] {
            let directory = tempfile::tempdir().unwrap();
            let image = directory.path().join(IMAGE);
            // No driver has this number: opening it would be an error.
            mknodat(CWD, &image, kind, Mode::from_raw_mode(0o600), makedev(259, 1 << 19)).unwrap();
            give_to(directory.path());
            assert_eq!(of(&image), (0, 0, 0o600), "{kind:?}");
        }
    }

    #[test]
    fn only_a_mount_is_a_volume() {
        let directory = tempfile::tempdir().unwrap();
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let found = |path: &str| is_mount(&open(&root, path).unwrap()).unwrap();
        assert!(found("/proc"));
        assert!(!found(directory.path().to_str().unwrap()));
    }
}
