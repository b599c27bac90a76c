//! Small helpers around files that must be whole or not there.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;

/// Writes JSON in one step: a reader, also after a crash, sees the old or the new content.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    let next = path.with_extension("new");
    fs::write(&next, bytes)?;
    fs::rename(&next, path)
}

/// Reads JSON; `None` when there is no file or it makes no sense.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Removes a file that may be gone already.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file, or a directory with everything in it. What is not there is fine, links are not followed, and other file systems that
/// are mounted inside are left alone.
///
/// Pods nest directories as deep as they like, deeper than the stack and the table of descriptors. So nothing here goes down: an inner
/// directory that is not empty is moved up to the outermost one, and has its turn there.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let top = match rustix::fs::openat(CWD, path, FLAGS, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return remove_file(path),
        other => other?,
    };
    let mut moved = 0;
    loop {
        let inner = remove_content(&top, None, &mut moved)?;
        if inner.is_empty() {
            break;
        }
        for name in inner {
            // A pod's directory may be anywhere; what is mounted on it is not the pod's.
            let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let directory = rustix::fs::openat2(&top, &name, FLAGS, Mode::empty(), inside)?;
            remove_content(&directory, Some(&top), &mut moved)?;
            rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes what is directly in a directory. Directories that are not empty are moved to `top`, or else named, some of them at a time:
/// there may be millions.
fn remove_content(directory: &OwnedFd, top: Option<&OwnedFd>, moved: &mut u64) -> io::Result<Vec<CString>> {
    const NAMED: usize = 10_000;
    let mut inner = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if inner.len() >= NAMED {
            break;
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        match (rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR), top) {
            (Ok(()) | Err(Errno::NOENT), _) => {}
            (Err(Errno::NOTEMPTY | Errno::EXIST), None) => inner.push(name.to_owned()),
            (Err(Errno::NOTEMPTY | Errno::EXIST), Some(top)) => move_up(directory, name, top, moved)?,
            (Err(error), _) => return Err(error.into()),
        }
    }
    Ok(inner)
}

/// Moves an inner directory to the outermost one, under a name that is free there.
fn move_up(directory: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        match rustix::fs::renameat(directory, name, top, format!(".removed-{moved}")) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            other => return Ok(other?),
        }
    }
}

/// The last bytes of a file, `most` of them. What containers write may be of any size.
pub(crate) fn end_of(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let most = most as u64;
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut end = Vec::new();
    // It may be growing.
    file.take(most).read_to_end(&mut end)?;
    Ok(end)
}

/// The text of a file below `root`, as somebody sees it who has `root` as root: where its links lead elsewhere, they lead nowhere. Cut to
/// `most` bytes; what is no file is not read.
pub(crate) fn read_inside(root: &Path, path: &str, most: u64) -> io::Result<String> {
    let flags = OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, root, flags | OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // Opening a pipe would wait for its writer.
    let file = rustix::fs::openat2(&root, path, flags | OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty(), resolve)?;
    let file = fs::File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is no text"))
}

/// A file for one call of the runtime, which goes away with its owner.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A name that nobody else has; the file is not made.
    pub(crate) fn new(node: &Context, suffix: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(node.layout.scratch().join(format!("{}-{number}.{suffix}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_do_not_lead_out_of_a_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(directory.path().join("outside"), "secret").unwrap();
        fs::write(root.join("inside"), "text").unwrap();
        for (name, target) in [("up", "../../outside"), ("absolute", "/inside"), ("device", "/dev/zero")] {
            std::os::unix::fs::symlink(target, root.join("etc").join(name)).unwrap();
        }
        rustix::fs::mknodat(CWD, root.join("etc/pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        read_inside(&root, "etc/up", 100).unwrap_err();
        read_inside(&root, "etc/device", 100).unwrap_err();
        read_inside(&root, "etc/pipe", 100).unwrap_err();
        assert_eq!(read_inside(&root, "etc/absolute", 100).unwrap(), "text");
        assert_eq!(read_inside(&root, "inside", 2).unwrap(), "te");
    }

    #[test]
    fn of_a_file_of_any_size_the_end_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs::write(&path, "abcdef").unwrap();
        assert_eq!(end_of(&path, 3).unwrap(), b"def");
        assert_eq!(end_of(&path, 100).unwrap(), b"abcdef");
        // A hole costs its author nothing.
        fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(end_of(&path, 4).unwrap(), [0; 4]);
        end_of(&directory.path().join("none"), 1).unwrap_err();
    }

    #[test]
    fn a_tree_is_removed_however_deep_it_is_and_nothing_outside() {
        let directory = tempfile::tempdir().unwrap();
        // In memory: there are disks that take their time for each directory.
        let home = directory.path().join("home");
        crate::mounts::memory(&home, "tmpfs", "").unwrap();
        let (tree, outside) = (home.join("tree"), home.join("outside"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir_all(tree.join(".removed-1/full")).unwrap();
        fs::write(tree.join(".removed-2"), "").unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        for link in ["link", "a/link", "a/b/link"] {
            std::os::unix::fs::symlink(&outside, tree.join(link)).unwrap();
        }
        // More than threads have stack for, and more than a process has descriptors.
        let mut inner = rustix::fs::openat(CWD, tree.join("a/b"), OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..30_000 {
            rustix::fs::mkdirat(&inner, "deep", Mode::RWXU).unwrap();
            inner = rustix::fs::openat(&inner, "deep", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        rustix::fs::mknodat(&inner, "pipe", rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        drop(inner);
        let removed = [&tree, &home.join("gone"), &outside.join("file")].map(|path| remove_tree(path));
        let kept = outside.join("kept").exists();
        let left: Vec<_> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().path()).collect();
        crate::mounts::unmount_below(directory.path()).unwrap();
        assert!(removed.iter().all(Result::is_ok), "{removed:?}");
        assert!(kept, "a link was followed");
        assert_eq!(left, [outside]);
    }

    #[test]
    fn what_is_mounted_in_a_tree_is_not_emptied_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let (tree, machine) = (directory.path().join("tree"), directory.path().join("machine"));
        for path in [&tree.join("inner/mounted"), &machine.join("programs")] {
            fs::create_dir_all(path).unwrap();
        }
        rustix::mount::mount_bind(&machine, tree.join("inner/mounted")).unwrap();
        remove_tree(&tree).unwrap_err();
        remove_tree(&tree).unwrap_err();
        crate::mounts::unmount_below(directory.path()).unwrap();
        assert!(machine.join("programs").exists());
        remove_tree(&tree).unwrap();
    }
}
