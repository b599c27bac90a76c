//! `fsGroup`: a volume's files belong to a group of the pod.
//!
//! Pods may be writing to the volume at the same time, and they are not trusted: a directory may turn into a link at any moment. So no
//! path is used twice. A file is looked at and changed through one descriptor, every descriptor is opened below the volume's, and links
//! are changed themselves and never followed.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, chownat, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::process::Gid;

/// What the group needs of a directory; new files in it get the same group.
const DIRECTORY: u32 = 0o2770;
/// What the group needs of a file.
const FILE: u32 = 0o660;
/// Opened to look at a file and to change what is said of it. A device or a pipe does not notice.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Gives a volume to a group. Only the root is looked at: when it is right, the rest was done before, and large volumes start fast.
pub(super) fn give_to_group(root: &Path, group: Option<u32>) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    // Where the volume is says its administrator, who may use links.
    let root = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&root)?;
    if found.st_gid == group && found.st_mode & 0o2070 == 0o2070 {
        return Ok(());
    }
    let mut left = Vec::new();
    give_content(&root, Path::new("."), group, &mut left)?;
    while let Some(Left { parent, name }) = left.pop() {
        give_content(&root, &parent.join(OsStr::from_bytes(name.to_bytes())), group, &mut left)?;
    }
    // The root is the mark that all is done.
    give(&root, group).map(drop)
}

/// A directory that has its turn later. There may be millions of them with long paths, so those of one parent share its path.
struct Left {
    parent: Rc<Path>,
    name: CString,
}

/// Gives what is in a directory to the group, and notes the directories among it: they would not fit on the stack, nor into the table of
/// descriptors, if they were nested as deep as a pod likes.
fn give_content(root: &OwnedFd, directory: &Path, group: u32, left: &mut Vec<Left>) -> io::Result<()> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let Some(listed) = unless_gone(openat2(root, directory, LIST, Mode::empty(), resolve))? else { return Ok(()) };
    let parent: Rc<Path> = Rc::from(directory);
    for entry in Dir::read_from(&listed)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // One name below an open directory: there is nothing to follow on the way.
        let Some(file) = unless_gone(openat(&listed, name, LOOK, Mode::empty()))? else { continue };
        if give(&file, group)? == FileType::Directory {
            left.push(Left { parent: parent.clone(), name: name.to_owned() });
        }
    }
    Ok(())
}

/// Gives one file to the group and says what it is.
fn give(file: &OwnedFd, group: u32) -> io::Result<FileType> {
    let found = fstat(file)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    chownat(file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH)?;
    if kind != FileType::Symlink {
        let more = if kind == FileType::Directory { DIRECTORY } else { FILE };
        // A descriptor that only looks takes no mode. The link of the kernel leads to the very file, wherever it is now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        chmod(path, Mode::from_raw_mode(found.st_mode & 0o7777 | more))?;
    }
    Ok(kind)
}

/// What a pod has removed, or replaced by something else, since it was seen is no file of the volume any more.
fn unless_gone(opened: rustix::io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        other => Ok(Some(other?)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{RenameFlags, renameat_with};

    use super::*;

    fn of(path: &Path) -> (u32, u32) {
        fs::symlink_metadata(path).map(|found| (found.gid(), found.mode() & 0o7777)).unwrap()
    }

    #[test]
    fn files_and_directories_become_the_groups() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner/most");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "").unwrap();
        symlink("/etc/hostname", directory.path().join("link")).unwrap();
        give_to_group(directory.path(), Some(107)).unwrap();
        let of = |path: &Path| (of(path).0, of(path).1 & 0o7070);
        assert_eq!(of(directory.path()), (107, 0o2070));
        assert_eq!(of(&inner), (107, 0o2070));
        assert_eq!(of(&inner.join("file")), (107, 0o060));
        assert_eq!(of(&directory.path().join("link")).0, 107);
        assert_ne!(fs::metadata("/etc/hostname").unwrap().gid(), 107);
    }

    #[test]
    fn a_directory_that_became_a_link_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let (volume, victim) = (directory.path().join("volume"), directory.path().join("victim"));
        fs::create_dir_all(victim.join("inner")).unwrap();
        fs::create_dir(&volume).unwrap();
        symlink(&victim, volume.join("seen")).unwrap();
        let (root, before) = (openat(CWD, &volume, LIST, Mode::empty()).unwrap(), of(&victim.join("inner")));
        for path in ["seen", "seen/inner", "../victim", "gone"] {
            let mut left = Vec::new();
            let _ = give_content(&root, Path::new(path), 107, &mut left);
            assert!(left.is_empty(), "{path}");
        }
        assert_eq!(of(&victim.join("inner")), before);
    }

    /// A pod exchanges directories with links while its volume is given to a group.
    #[test]
    fn links_that_appear_meanwhile_change_nothing_elsewhere() {
        const DIRECTORIES: usize = 200;
        let directory = tempfile::tempdir().unwrap();
        let (volume, victim) = (directory.path().join("volume"), directory.path().join("victim"));
        fs::create_dir_all(&volume).unwrap();
        fs::create_dir_all(&victim).unwrap();
        let secret = victim.join("secret");
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        for number in 0..DIRECTORIES {
            fs::create_dir(volume.join(format!("d{number}"))).unwrap();
            symlink(&victim, volume.join(format!("l{number}"))).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for number in 0..DIRECTORIES {
                        let pair = ["d", "l"].map(|kind| volume.join(format!("{kind}{number}")));
                        renameat_with(CWD, &pair[0], CWD, &pair[1], RenameFlags::EXCHANGE).unwrap();
                    }
                }
            });
            let given: Vec<io::Result<()>> = (0..50)
                .map(|_| {
                    lchown(&volume, None, Some(0)).unwrap();
                    give_to_group(&volume, Some(107))
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            for given in given {
                given.unwrap();
            }
        });
        assert_eq!(of(&victim), (0, 0o700));
        assert_eq!(of(&secret), (0, 0o600));
    }
}
