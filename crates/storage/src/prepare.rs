//! One task at a time: check what is there, make what is missing.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileTypeExt;

use ferrovirt_launcher_rpc::disks::DiskTask;
use rustix::fs::{Mode, OFlags};

use crate::error::{StorageError, io_error};
use crate::image::{ImageFormat, ImageInfo, ImageProblem, inspect_file};
use crate::iso::Medium;
use crate::qemu_img::{From, create, exists, make_parent};
use crate::seed;
use crate::tree::{Links, Tree, kind};

/// For messages of tasks that belong to no volume.
const KERNEL_BOOT: &str = "kernelBoot";

/// A task that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// What QEMU opens; for [`DiskTask::KernelBoot`] the tree.
    pub path: String,
    /// It was not there before.
    pub made: bool,
}

/// Does one task. Blocking; harmless when repeated: an image, overlay or medium that is there stays as it is.
pub fn prepare(task: &DiskTask) -> Result<Prepared, StorageError> {
    match task {
        DiskTask::ContainerDisk { volume, tree, path, overlay } => {
            container_disk(volume, tree, path.as_deref(), overlay)
        }
        DiskTask::Overlay { volume, backing, overlay } => claim_overlay(volume, backing, overlay),
        DiskTask::RawImage { volume, path, create } => raw_image(volume, path, *create),
        DiskTask::BlockDevice { volume, path } => block_device(volume, path),
        DiskTask::EmptyDisk { volume, path, capacity } => {
            let made = create(volume, path, &From::Empty(*capacity))?;
            Ok(Prepared { path: path.clone(), made })
        }
        DiskTask::CloudInit { volume, path, seed } => {
            medium(volume, path, seed::label(seed.layout), || seed::files(volume, seed))
        }
        DiskTask::ConfigMedia { volume, path, source, label, required } => {
            medium(volume, path, label, || config_files(volume, source, required))
        }
        DiskTask::KernelBoot { tree, kernel, initrd } => kernel_boot(tree, kernel.as_deref(), initrd.as_deref()),
    }
}

fn container_disk(volume: &str, root: &str, path: Option<&str>, overlay: &str) -> Result<Prepared, StorageError> {
    if !exists(volume, overlay)? {
        let tree = Tree::open(volume, root, Links::Refused)?;
        let relative = match path {
            Some(path) => path.to_owned(),
            None => only_file(volume, &tree)?,
        };
        let (file, metadata) = tree.plain_file(&relative)?;
        let backing = tree.path(&relative);
        let info = inspected(volume, &backing, &file, metadata.len())?;
        create(volume, overlay, &From::Backing(&backing, info.format))?;
        return Ok(Prepared { path: overlay.to_owned(), made: true });
    }
    Ok(Prepared { path: overlay.to_owned(), made: false })
}

/// The file in `/disk`, if it is the only one.
fn only_file(volume: &str, tree: &Tree<'_>) -> Result<String, StorageError> {
    let names = match tree.names("disk") {
        Err(StorageError::Missing { .. }) => Vec::new(),
        names => names?,
    };
    match names.as_slice() {
        [] => Err(StorageError::NoImageInTree { volume: volume.to_owned() }),
        [name] => Ok(format!("disk/{name}")),
        _ => {
            let files = names.iter().take(5).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            Err(StorageError::SeveralImagesInTree { volume: volume.to_owned(), files })
        }
    }
}

fn inspected(volume: &str, path: &str, file: &File, length: u64) -> Result<ImageInfo, StorageError> {
    inspect_file(file, length)
        .map_err(|error| io_error(volume, path, "read", error))?
        .map_err(|problem| refused(volume, path, problem))
}

fn refused(volume: &str, path: &str, problem: ImageProblem) -> StorageError {
    StorageError::Image { volume: volume.to_owned(), file: path.to_owned(), problem }
}

/// Claims hold raw images. QEMU is told so and never guesses, so another format would only give a guest that does not boot.
fn must_be_raw(volume: &str, path: &str, file: &File, length: u64) -> Result<(), StorageError> {
    match inspected(volume, path, file, length)?.format {
        ImageFormat::Raw => Ok(()),
        ImageFormat::Qcow2 => Err(refused(volume, path, ImageProblem::NotRaw)),
    }
}

fn claim_overlay(volume: &str, backing: &str, overlay: &str) -> Result<Prepared, StorageError> {
    if !exists(volume, overlay)? {
        let (file, metadata) = open_beneath_parent(volume, backing, OFlags::RDONLY)?;
        let length = match metadata.file_type() {
            kind if kind.is_file() => metadata.len(),
            kind if kind.is_block_device() => device_size(volume, backing, &file)?,
            _ => return Err(wrong_kind(volume, backing, &metadata, "a raw image or a block device")),
        };
        must_be_raw(volume, backing, &file, length)?;
        create(volume, overlay, &From::Backing(backing, ImageFormat::Raw))?;
        return Ok(Prepared { path: overlay.to_owned(), made: true });
    }
    Ok(Prepared { path: overlay.to_owned(), made: false })
}

fn wrong_kind(volume: &str, path: &str, metadata: &Metadata, wanted: &'static str) -> StorageError {
    StorageError::WrongKind { volume: volume.to_owned(), file: path.to_owned(), found: kind(metadata), wanted }
}

/// The directory of `path` is ours; what is in it may be anybody's.
fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((directory, name)) => (directory, name),
        None => (".", path),
    }
}

fn open_beneath_parent(volume: &str, path: &str, flags: OFlags) -> Result<(File, Metadata), StorageError> {
    let (directory, name) = split(path);
    let tree = Tree::open(volume, directory, Links::Refused)?;
    let failed = |error| io_error(volume, path, "open", error);
    let file = tree.file(name, flags, Mode::empty()).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    Ok((file, metadata))
}

/// An image of length zero is one that was never finished: it gets its size as a missing one does.
fn raw_image(volume: &str, path: &str, size: Option<u64>) -> Result<Prepared, StorageError> {
    let found = match open_beneath_parent(volume, path, OFlags::RDONLY) {
        Err(StorageError::Missing { .. }) if size.is_some() => None,
        found => Some(found?),
    };
    match (found, size) {
        (Some((_, metadata)), _) if !metadata.is_file() => Err(wrong_kind(volume, path, &metadata, "a plain file")),
        (Some((_, metadata)), Some(size)) if metadata.len() == 0 => new_raw_image(volume, path, size),
        (Some((file, metadata)), _) => {
            must_be_raw(volume, path, &file, metadata.len())?;
            Ok(Prepared { path: path.to_owned(), made: false })
        }
        (None, Some(size)) => new_raw_image(volume, path, size),
        (None, None) => Err(StorageError::Missing { volume: volume.to_owned(), file: path.to_owned() }),
    }
}

fn new_raw_image(volume: &str, path: &str, size: u64) -> Result<Prepared, StorageError> {
    let (directory, name) = split(path);
    let tree = Tree::open(volume, directory, Links::Refused)?;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP;
    let failed = |error| io_error(volume, path, "create", error);
    let file = tree.file(name, OFlags::CREATE | OFlags::WRONLY, mode).map_err(failed)?;
    file.set_len(size).map_err(failed)?;
    Ok(Prepared { path: path.to_owned(), made: true })
}

fn block_device(volume: &str, path: &str) -> Result<Prepared, StorageError> {
    let (file, metadata) = open_beneath_parent(volume, path, OFlags::RDONLY)?;
    if !metadata.file_type().is_block_device() {
        return Err(wrong_kind(volume, path, &metadata, "a block device"));
    }
    must_be_raw(volume, path, &file, device_size(volume, path, &file)?)?;
    Ok(Prepared { path: path.to_owned(), made: false })
}

fn device_size(volume: &str, path: &str, mut file: &File) -> Result<u64, StorageError> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::End(0)).map_err(|error| io_error(volume, path, "measure", error))
}

fn config_files(volume: &str, source: &str, required: &[String]) -> Result<BTreeMap<String, Vec<u8>>, StorageError> {
    let files = Tree::open(volume, source, Links::Inside)?.contents()?;
    let is_there = |wanted: &String| files.keys().any(|name| name.eq_ignore_ascii_case(wanted));
    if !required.is_empty() && !required.iter().any(is_there) {
        return Err(StorageError::NoRequiredFile { volume: volume.to_owned(), files: required.join(", ") });
    }
    Ok(files)
}

/// Makes an ISO unless one is there; it gets its name when it is complete.
fn medium(
    volume: &str,
    path: &str,
    label: &str,
    files: impl FnOnce() -> Result<BTreeMap<String, Vec<u8>>, StorageError>,
) -> Result<Prepared, StorageError> {
    if exists(volume, path)? {
        return Ok(Prepared { path: path.to_owned(), made: false });
    }
    let files = files()?;
    let medium =
        Medium::new(label, &files).map_err(|problem| StorageError::Medium { volume: volume.to_owned(), problem })?;
    make_parent(volume, path)?;
    let unfinished = format!("{path}.new");
    let write = || {
        let mut out = BufWriter::new(File::create(&unfinished)?);
        medium.write(&mut out)?;
        out.flush()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|error| io_error(volume, path, "create", error))?;
    Ok(Prepared { path: path.to_owned(), made: true })
}

fn kernel_boot(root: &str, kernel: Option<&str>, initrd: Option<&str>) -> Result<Prepared, StorageError> {
    let tree = Tree::open(KERNEL_BOOT, root, Links::Refused)?;
    for file in [kernel, initrd].into_iter().flatten() {
        let (_, metadata) = tree.plain_file(file)?;
        if metadata.len() == 0 {
            let (volume, file) = (KERNEL_BOOT.to_owned(), tree.path(file));
            return Err(StorageError::WrongKind {
                volume,
                file,
                found: "an empty file",
                wanted: "a kernel or an initrd",
            });
        }
    }
    Ok(Prepared { path: root.to_owned(), made: false })
}
