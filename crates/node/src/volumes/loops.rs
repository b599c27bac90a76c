//! Loop devices for claims in block mode. All pods of the machine that use one file use one device: two devices on one file would
//! each keep their own copy of it in memory, and a guest that moves from one node to the other would see the old one.
//!
//! ```text
//! <shared>/loops/lock
//!               loop3/<pod uid>      an empty file per user; the last one detaches the device
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};

use crate::files;
use crate::layout::PodLayout;

/// The machine's loop devices that pods use.
#[derive(Debug, Clone)]
pub struct LoopDevices {
    directory: PathBuf,
}

impl LoopDevices {
    /// Kept below the directory that all nodes of the machine share.
    pub fn new(shared: &Path) -> Self {
        Self { directory: shared.join("loops") }
    }

    fn lock(&self) -> io::Result<fs::File> {
        fs::create_dir_all(&self.directory)?;
        let file = fs::File::create(self.directory.join("lock"))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// A device for a file; a path that is a device already is left alone.
    pub(crate) fn attach(&self, path: &Path, pod: &PodLayout) -> io::Result<PathBuf> {
        if fs::metadata(path)?.file_type().is_block_device() {
            return Ok(path.to_owned());
        }
        let _lock = self.lock()?;
        let device = match self.device_of(path)? {
            Some(device) => device,
            None => new_device(path)?,
        };
        let users = self.directory.join(device.file_name().unwrap_or_default());
        fs::create_dir_all(&users)?;
        fs::File::create(users.join(pod.root().file_name().unwrap_or_default()))?;
        Ok(device)
    }

    /// The device that one of our pods uses for the file.
    fn device_of(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let output = losetup(&["--associated", &path.to_string_lossy(), "--noheadings", "--output", "NAME"])?;
        let devices = output.lines().map(|line| PathBuf::from(line.trim()));
        Ok(devices.into_iter().find(|device| device.file_name().is_some_and(|name| self.directory.join(name).exists())))
    }

    /// The pod uses its devices no more.
    pub(crate) fn release(&self, uid: &str) -> io::Result<()> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Ok(()) };
        let _lock = self.lock()?;
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            let users = entry.path();
            if !users.join(uid).exists() {
                continue;
            }
            files::remove_file(&users.join(uid))?;
            if fs::read_dir(&users)?.next().is_none() {
                let device = Path::new("/dev").join(entry.file_name());
                losetup(&["--detach", &device.to_string_lossy()])?;
                fs::remove_dir(&users)?;
            }
        }
        Ok(())
    }
}

fn new_device(path: &Path) -> io::Result<PathBuf> {
    let path = path.to_string_lossy();
    // Without direct IO every block would be in memory twice. Not every file system can.
    let made =
        losetup(&["--find", "--show", "--direct-io=on", &path]).or_else(|_| losetup(&["--find", "--show", &path]))?;
    Ok(PathBuf::from(made.trim()))
}

fn losetup(arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("losetup").args(arguments).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
