//! A directory that foreign archives are unpacked into.
//!
//! Every path is resolved by the kernel with the directory as its root (`openat2` with `RESOLVE_IN_ROOT`): symbolic links in it work as
//! they will inside of a container, and none of them leads out. The last component of a path is never followed.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, fchmod, fchown, linkat, mkdirat, openat, openat2,
        readlink, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const MAX_COMPONENTS: usize = 128;
const MAX_LENGTH: usize = 4096;
/// Unit of the search for holes: what file systems allocate at least.
const BLOCK: usize = 64 * 1024;

/// A path of an archive that is fit to be used: relative, without `.` and `..`, not too long, not too deep.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryPath(PathBuf);

impl EntryPath {
    /// The path with leading slashes and dots left out; `None` for the directory itself.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, String> {
        let shown = String::from_utf8_lossy(bytes);
        if bytes.len() > MAX_LENGTH || bytes.contains(&0) {
            return Err(format!("path of {} bytes is too long or contains a zero byte", bytes.len()));
        }
        let mut path = PathBuf::new();
        let components = bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        for (count, component) in components.enumerate() {
            if component == b".." {
                return Err(format!("path {shown:?} leads out of the image"));
            }
            if component.len() > 255 || count >= MAX_COMPONENTS {
                return Err(format!("path {shown:?} is too deep or has a name that is too long"));
            }
            path.push(OsStr::from_bytes(component));
        }
        Ok((!path.as_os_str().is_empty()).then_some(Self(path)))
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }

    /// The last component.
    pub(crate) fn name(&self) -> &OsStr {
        self.0.file_name().unwrap_or_default()
    }

    /// Everything before the last component; empty for the directory itself.
    pub(crate) fn parent(&self) -> &Path {
        self.0.parent().unwrap_or(Path::new(""))
    }
}

/// Who owns an entry, and who may do what with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Access {
    /// Without the bits that lend the owner's rights to whoever runs the file.
    fn mode(self) -> Mode {
        Mode::from_raw_mode(self.mode & 0o1777)
    }

    fn apply(self, file: impl AsFd) -> io::Result<()> {
        fchown(&file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        Ok(fchmod(&file, self.mode())?)
    }
}

/// The directory.
pub(crate) struct Tree {
    root: OwnedFd,
}

impl Tree {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        Ok(Self { root })
    }

    /// Opens a file to read, following symbolic links inside of the directory.
    pub(crate) fn read(&self, path: &Path) -> io::Result<File> {
        // Not blocking: opening a pipe would wait for somebody to write.
        let file = File::from(self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no file", path.display())));
        }
        Ok(file)
    }

    /// Sets the owner and mode of the directory itself.
    pub(crate) fn set_root_access(&self, access: Access) -> io::Result<()> {
        access.apply(&self.root)
    }

    /// Makes a directory. One that is there keeps its content; anything else of that name goes.
    pub(crate) fn directory(&self, path: &EntryPath, access: Access) -> io::Result<()> {
        let parent = self.parent(path)?;
        let present = statat(&parent, path.name(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let is_directory = present.is_some_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Directory);
        if !is_directory {
            remove(&parent, path.name())?;
            mkdirat(&parent, path.name(), Mode::RWXU)?;
        }
        let directory = openat(&parent, path.name(), DIRECTORY, Mode::empty())?;
        check_depth(&directory)?;
        access.apply(directory)
    }

    /// Makes a file in place of what is there. Blocks of zeros become holes.
    pub(crate) fn file(&self, path: &EntryPath, access: Access, content: &mut impl Read) -> io::Result<u64> {
        let parent = self.parent(path)?;
        remove(&parent, path.name())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&parent, path.name(), flags, Mode::RUSR | Mode::WUSR)?);
        let length = copy_sparse(content, &mut file)?;
        access.apply(&file)?;
        Ok(length)
    }

    /// Makes a symbolic link in place of what is there. Where it leads does not matter: nothing here follows it outside.
    pub(crate) fn symbolic_link(&self, path: &EntryPath, target: &Path) -> io::Result<()> {
        let parent = self.parent(path)?;
        remove(&parent, path.name())?;
        Ok(symlinkat(target, &parent, path.name())?)
    }

    /// Makes another name for a file of the directory.
    pub(crate) fn hard_link(&self, path: &EntryPath, target: &EntryPath) -> io::Result<()> {
        let from = self.resolve(target.parent(), DIRECTORY)?;
        let status = statat(&from, target.name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a hard link to a directory"));
        }
        if path == target {
            return Ok(());
        }
        let parent = self.parent(path)?;
        remove(&parent, path.name())?;
        Ok(linkat(&from, target.name(), &parent, path.name(), AtFlags::empty())?)
    }

    /// Removes an entry with everything below it. One that is not there is fine.
    pub(crate) fn remove(&self, path: &EntryPath) -> io::Result<()> {
        match self.resolve(path.parent(), DIRECTORY) {
            Ok(parent) => remove(&parent, path.name()),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes what is in a directory, except for paths that `keep` wants.
    pub(crate) fn clear(&self, path: &Path, keep: &impl Fn(&Path) -> bool) -> io::Result<()> {
        let directory = match self.resolve(path, DIRECTORY) {
            Ok(directory) => directory,
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        for name in names(&directory)? {
            let child = path.join(&name);
            if !keep(&child) {
                remove(&directory, &name)?;
            } else if is_directory(&directory, &name)? {
                self.clear(&child, keep)?;
            }
        }
        Ok(())
    }

    /// The directory that an entry goes into; what is missing of it is made.
    fn parent(&self, path: &EntryPath) -> io::Result<OwnedFd> {
        match self.resolve(path.parent(), DIRECTORY) {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            other => return other,
        }
        let mut prefix = PathBuf::new();
        let mut directory = self.resolve(&prefix, DIRECTORY)?;
        for component in path.parent().components() {
            prefix.push(component);
            directory = match self.resolve(&prefix, DIRECTORY) {
                Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                    mkdirat(&directory, component.as_os_str(), Mode::from_raw_mode(0o755))?;
                    self.resolve(&prefix, DIRECTORY)?
                }
                other => other?,
            };
            check_depth(&directory)?;
        }
        Ok(directory)
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // The flag would refuse a symbolic link to a directory, which is a good parent.
        let flags = flags.difference(OFlags::NOFOLLOW);
        Ok(openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)?)
    }
}

/// Symbolic links can add up to a tree that is deeper than any path, which programs that walk it do not survive.
fn check_depth(directory: &OwnedFd) -> io::Result<()> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let fits = readlink(link, Vec::new()).is_ok_and(|path| path.as_bytes().len() < MAX_LENGTH);
    if fits { Ok(()) } else { Err(Errno::NAMETOOLONG.into()) }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_directory(parent: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let status = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(status.st_mode) == FileType::Directory)
}

fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Removes an entry of a directory with everything below it, following nothing.
fn remove(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let directory = openat(parent, name, DIRECTORY, Mode::empty())?;
    for child in names(&directory)? {
        remove(&directory, &child)?;
    }
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Copies with holes where the content is zero: disk images are mostly that.
pub(crate) fn copy_sparse(content: &mut impl Read, file: &mut File) -> io::Result<u64> {
    let mut buffer = vec![0; BLOCK];
    let mut length = 0_u64;
    loop {
        let count = fill(content, &mut buffer)?;
        if count == 0 {
            break;
        }
        let block = buffer.get(..count).unwrap_or_default();
        if block.iter().any(|byte| *byte != 0) {
            file.seek(SeekFrom::Start(length))?;
            io::Write::write_all(file, block)?;
        }
        length += u64::try_from(count).unwrap_or_default();
    }
    file.set_len(length)?;
    Ok(length)
}

fn fill(content: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match content.read(rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn paths_are_made_relative_or_refused() {
        let parse = |text: &str| EntryPath::parse(text.as_bytes()).map(|path| path.map(|path| path.0));
        assert_eq!(parse("./usr//bin/./sh").unwrap(), Some("usr/bin/sh".into()));
        assert_eq!(parse("/etc/passwd").unwrap(), Some("etc/passwd".into()));
        assert_eq!(parse("./").unwrap(), None);
        assert!(parse("a/../../b").unwrap_err().contains("leads out"));
        assert!(parse(&"a/".repeat(200)).is_err());
        assert!(parse(&"a".repeat(300)).is_err());
        assert!(parse("a\0b").is_err());
    }

    #[test]
    fn zeros_become_holes() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = File::create_new(directory.path().join("disk")).unwrap();
        let mut content = vec![0; 8 * 1024 * 1024];
        content[5_000_000] = 1;
        assert_eq!(copy_sparse(&mut content.as_slice(), &mut file).unwrap(), 8 * 1024 * 1024);
        assert_eq!(std::fs::read(directory.path().join("disk")).unwrap(), content);
        assert!(file.metadata().unwrap().blocks() * 512 < 1024 * 1024);
    }
}
