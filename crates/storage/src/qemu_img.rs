//! Calls of `qemu-img create`. A new image appears under its name only when it is complete, so one that is there can be kept.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{StorageError, io_error};
use crate::image::ImageFormat;

/// What a new qcow2 starts from.
pub(crate) enum From<'a> {
    /// An image that takes no writes.
    Backing(&'a str, ImageFormat),
    /// Nothing: this many bytes of zeros.
    Empty(u64),
}

/// Makes a qcow2 at `path` unless one is there; says whether it made one.
pub(crate) fn create(volume: &str, path: &str, from: &From<'_>) -> Result<bool, StorageError> {
    if exists(volume, path)? {
        return Ok(false);
    }
    make_parent(volume, path)?;
    let unfinished = format!("{path}.new");
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2"]);
    match from {
        From::Backing(backing, format) => command.args(["-F", format.name(), "-b", backing, &unfinished]),
        From::Empty(size) => command.args([&unfinished, &size.to_string()]),
    };
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| StorageError::NoQemuImg { volume: volume.to_owned(), source })?;
    if !output.status.success() {
        let _ = fs::remove_file(&unfinished);
        let message = complaint(&output.stderr, output.status);
        return Err(StorageError::QemuImg { volume: volume.to_owned(), file: path.to_owned(), message });
    }
    fs::rename(&unfinished, path).map_err(|error| io_error(volume, path, "create", error))?;
    Ok(true)
}

/// Whether something is at `path`; a symbolic link counts.
pub(crate) fn exists(volume: &str, path: &str) -> Result<bool, StorageError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_error(volume, path, "look at", error)),
    }
}

/// Makes the directories above `path`.
pub(crate) fn make_parent(volume: &str, path: &str) -> Result<(), StorageError> {
    match Path::new(path).parent() {
        Some(parent) => {
            fs::create_dir_all(parent).map_err(|error| io_error(volume, path, "make the directory of", error))
        }
        None => Ok(()),
    }
}

/// The program's words on one line, without its own name, and cut: an image's strings can be in them.
fn complaint(stderr: &[u8], status: std::process::ExitStatus) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let joined = lines.join("; ");
    let said = joined.strip_prefix("qemu-img: ").unwrap_or(&joined);
    if said.is_empty() { status.to_string() } else { said.chars().filter(|c| !c.is_control()).take(600).collect() }
}
