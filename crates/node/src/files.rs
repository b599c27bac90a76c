//! Small helpers around files that must be whole or not there.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
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
}
