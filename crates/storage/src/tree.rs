//! Files below a directory that somebody else filled.
//!
//! Everything is opened relative to a handle of the directory with `openat2`, beneath it, so that no path in an image or a claim
//! can reach a file of the pod. In trees of users symbolic links are refused altogether: what is checked under a name is then what
//! QEMU opens under it. Volumes that a kubelet writes (secrets, config maps) consist of links by design and may have them.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};

use crate::error::{StorageError, io_error};
use crate::iso::{MAX_DEPTH, MAX_FILES, MAX_TOTAL, MediumProblem};

/// Who filled the tree.
#[derive(Clone, Copy)]
pub(crate) enum Links {
    /// A user: no symbolic links.
    Refused,
    /// A kubelet: links that stay inside.
    Inside,
}

/// A directory, for messages of a volume.
pub(crate) struct Tree<'a> {
    volume: &'a str,
    root: &'a str,
    handle: OwnedFd,
    links: Links,
}

impl<'a> Tree<'a> {
    /// Opens the directory `root`. Its own path is ours, and trusted.
    pub(crate) fn open(volume: &'a str, root: &'a str, links: Links) -> Result<Self, StorageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(root, flags, Mode::empty());
        let handle = handle.map_err(|error| io_error(volume, root, "open", error.into()))?;
        Ok(Self { volume, root, handle, links })
    }

    /// The path of a file as the pod sees it.
    pub(crate) fn path(&self, relative: &str) -> String {
        format!("{}/{}", self.root.trim_end_matches('/'), relative.trim_start_matches('/'))
    }

    /// Opens what is at `relative`; `NONBLOCK` so that a pipe cannot hold us.
    pub(crate) fn file(&self, relative: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
        let resolve = match self.links {
            Links::Refused => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Links::Inside => ResolveFlags::BENEATH,
        } | ResolveFlags::NO_MAGICLINKS;
        let relative = relative.trim_start_matches('/');
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::openat2(&self.handle, relative, flags, mode, resolve)?;
        Ok(File::from(opened))
    }

    /// Opens a plain file to read it.
    pub(crate) fn plain_file(&self, relative: &str) -> Result<(File, Metadata), StorageError> {
        let path = self.path(relative);
        let failed = |error| io_error(self.volume, &path, "open", error);
        let file = self.file(relative, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            let (volume, file) = (self.volume.to_owned(), path);
            return Err(StorageError::WrongKind { volume, file, found: kind(&metadata), wanted: "a plain file" });
        }
        Ok((file, metadata))
    }

    /// Names in a directory, sorted; `.` and `..` are not among them.
    pub(crate) fn names(&self, relative: &str) -> Result<Vec<String>, StorageError> {
        let path = self.path(relative);
        let failed = |error| io_error(self.volume, &path, "list", error);
        let place = if relative.trim_matches('/').is_empty() { "." } else { relative };
        let directory = self.file(place, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// All plain files below the directory by their path, as an ISO takes them. Names that start with `..` belong to the kubelet.
    pub(crate) fn contents(&self) -> Result<BTreeMap<String, Vec<u8>>, StorageError> {
        let mut files = BTreeMap::new();
        let mut total = 0;
        self.collect("", 0, &mut files, &mut total)?;
        Ok(files)
    }

    fn collect(
        &self,
        directory: &str,
        depth: usize,
        files: &mut BTreeMap<String, Vec<u8>>,
        total: &mut u64,
    ) -> Result<(), StorageError> {
        let too_much = |problem| StorageError::Medium { volume: self.volume.to_owned(), problem };
        if depth >= MAX_DEPTH {
            return Err(too_much(MediumProblem::TooDeep));
        }
        for name in self.names(directory)?.into_iter().filter(|name| !name.starts_with("..")) {
            let relative = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let failed = |error| io_error(self.volume, &self.path(&relative), "read", error);
            let file = self.file(&relative, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
            if file.metadata().map_err(failed)?.is_dir() {
                self.collect(&relative, depth + 1, files, total)?;
                continue;
            }
            let (file, _) = self.plain_file(&relative)?;
            let mut content = Vec::new();
            file.take(MAX_TOTAL - *total + 1).read_to_end(&mut content).map_err(failed)?;
            *total += content.len() as u64;
            if *total > MAX_TOTAL {
                return Err(too_much(MediumProblem::TooLarge));
            }
            if files.len() >= MAX_FILES {
                return Err(too_much(MediumProblem::TooManyFiles));
            }
            files.insert(relative, content);
        }
        Ok(())
    }
}

/// What something is, for a message.
pub(crate) fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => "a plain file",
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_block_device() => "a block device",
        () if kind.is_char_device() => "a character device",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "something unknown",
    }
}
