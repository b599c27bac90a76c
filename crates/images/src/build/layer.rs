//! A layer of an image that is being made: a tar archive that depends on names, contents and permissions alone.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tar::{Builder, EntryType, Header};

use crate::ImageError;

/// Of a file's permissions; the bits that change the user or group of a process are no image's to give.
const FILE_PERMISSIONS: u32 = 0o777;
/// Of a directory's permissions: `/tmp` is one where only owners may remove.
const DIRECTORY_PERMISSIONS: u32 = 0o1777;

/// Entries in order. Directories above them need not be named, and all of them have the same owner and the time 0.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: Vec<(PathBuf, Entry)>,
    owner: u32,
}

#[derive(Clone, Debug)]
enum Entry {
    Content(Vec<u8>, u32),
    File(PathBuf, u32),
    Link(PathBuf),
    Directory(u32),
}

impl Layer {
    /// An empty layer, whose entries belong to root.
    pub fn new() -> Self {
        Self::default()
    }

    /// All that is in a directory, sorted by name. Other owners, times, and bits that change a program's user are not taken along.
    ///
    /// # Errors
    /// When something in it cannot be read, or is neither a file, a directory nor a symbolic link.
    pub fn directory(root: &Path) -> Result<Self, ImageError> {
        let mut layer = Self::new();
        layer.walk(root, Path::new(""))?;
        Ok(layer)
    }

    /// The user and group that everything in the layer belongs to.
    #[must_use]
    pub fn owned_by(self, owner: u32) -> Self {
        Self { owner, ..self }
    }

    /// A file of the host, with these permissions.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>, source: &Path, mode: u32) -> Self {
        self.entries.push((path.into(), Entry::File(source.to_owned(), mode)));
        self
    }

    /// A file with that content and mode.
    #[must_use]
    pub fn content(mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entries.push((path.into(), Entry::Content(content.into(), mode)));
        self
    }

    /// A symbolic link.
    #[must_use]
    pub fn symbolic_link(mut self, path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        self.entries.push((path.into(), Entry::Link(target.into())));
        self
    }

    /// Adds what is in a directory of the host, which is `inside` of the image.
    fn walk(&mut self, directory: &Path, inside: &Path) -> Result<(), ImageError> {
        let failed = |source| ImageError::storage("read", directory, source);
        let listing = fs::read_dir(directory).map_err(failed)?;
        let names = listing.map(|entry| Ok(entry?.file_name())).collect::<io::Result<BTreeSet<_>>>().map_err(failed)?;
        for name in names {
            let (path, source) = (inside.join(&name), directory.join(&name));
            let entry = Entry::of(&source).map_err(|error| ImageError::storage("pack", &source, error))?;
            let is_directory = matches!(entry, Entry::Directory(_));
            self.entries.push((path.clone(), entry));
            if is_directory {
                self.walk(&source, &path)?;
            }
        }
        Ok(())
    }

    /// Writes the layer as a tar archive.
    pub(crate) fn write(&self, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(out);
        for directory in self.unnamed_directories() {
            self.append(&mut archive, &directory, &Entry::Directory(0o755))?;
        }
        for (path, entry) in &self.entries {
            self.append(&mut archive, path, entry)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", entry.source(path).display())))?;
        }
        archive.into_inner()?.flush()
    }

    fn append(&self, archive: &mut Builder<impl Write>, path: &Path, entry: &Entry) -> io::Result<()> {
        match entry {
            Entry::Content(content, mode) => {
                let length = u64::try_from(content.len()).unwrap_or_default();
                archive.append_data(&mut self.header(EntryType::Regular, length, *mode), path, content.as_slice())
            }
            Entry::File(source, mode) => {
                let source = File::open(source)?;
                let length = source.metadata()?.len();
                archive.append_data(&mut self.header(EntryType::Regular, length, *mode), path, source.take(length))
            }
            Entry::Link(target) => archive.append_link(&mut self.header(EntryType::Symlink, 0, 0o777), path, target),
            Entry::Directory(mode) => {
                archive.append_data(&mut self.header(EntryType::Directory, 0, *mode), path, io::empty())
            }
        }
    }

    fn header(&self, kind: EntryType, size: u64, mode: u32) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(mode);
        header.set_uid(self.owner.into());
        header.set_gid(self.owner.into());
        header.set_mtime(0);
        header
    }

    /// The directories above all entries that are no entries themselves, outer ones first.
    fn unnamed_directories(&self) -> BTreeSet<PathBuf> {
        let parents = self.entries.iter().flat_map(|(path, _)| path.ancestors().skip(1));
        let mut all: BTreeSet<_> = parents.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).collect();
        for (path, entry) in &self.entries {
            if matches!(entry, Entry::Directory(_)) {
                all.remove(path);
            }
        }
        all
    }
}

impl Entry {
    /// What is at that path of the host.
    fn of(source: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(source)?;
        let mode = metadata.permissions().mode();
        if metadata.is_symlink() {
            Ok(Self::Link(fs::read_link(source)?))
        } else if metadata.is_dir() {
            Ok(Self::Directory(mode & DIRECTORY_PERMISSIONS))
        } else if metadata.is_file() {
            Ok(Self::File(source.to_owned(), mode & FILE_PERMISSIONS))
        } else {
            let reason = "it is neither a file, a directory nor a symbolic link: remove it";
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    }

    /// Where it comes from, for an error.
    fn source<'a>(&'a self, path: &'a Path) -> &'a Path {
        if let Self::File(source, _) = self { source } else { path }
    }
}
