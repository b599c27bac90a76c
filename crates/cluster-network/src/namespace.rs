//! Named network namespaces: files below `/run/netns`, as `ip netns` makes them.
//!
//! A thread is in one network namespace. What has to happen in another one happens on a thread of its own, which enters the namespace
//! and ends there; a socket that it opened stays in that namespace wherever it is used later.

use std::{
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    thread,
};

use rustix::{
    mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};

use crate::NetworkError;

const DIRECTORY: &str = "/run/netns";
/// Type of the file system that namespaces are on: tells a mounted namespace from an empty file.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// A network namespace by the name that `ip netns` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Namespace {
    path: PathBuf,
}

impl Namespace {
    pub(crate) fn named(name: &str) -> Self {
        Self { path: Path::new(DIRECTORY).join(name) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the namespace is there. An empty file that a crash left is not.
    pub(crate) fn exists(&self) -> bool {
        rustix::fs::statfs(&self.path)
            .is_ok_and(|status| u64::try_from(status.f_type).is_ok_and(|kind| kind == NSFS_MAGIC))
    }

    /// Makes the namespace, unless it is there, and lets `prepare` run inside of a new one before anybody can find it.
    pub(crate) fn ensure(&self, prepare: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), NetworkError> {
        if self.exists() {
            return Ok(());
        }
        share_directory().map_err(|source| self.error("make the directory of", source))?;
        let path = self.path.clone();
        on_own_thread(move || create(&path, prepare)).map_err(|source| self.error("create", source))
    }

    /// Opens the namespace, for a link that is made in it.
    pub(crate) fn open(&self) -> Result<fs::File, NetworkError> {
        fs::File::open(&self.path).map_err(|source| self.error("open", source))
    }

    /// Unmounts the name. The kernel removes the namespace with its links when nothing runs in it any more.
    pub(crate) fn remove(&self) -> Result<(), NetworkError> {
        while self.exists() {
            unmount(&self.path, UnmountFlags::DETACH).map_err(|error| self.error("unmount", error.into()))?;
        }
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(self.error("remove", source)),
            _ => Ok(()),
        }
    }

    /// Runs a function inside of the namespace.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, NetworkError> {
        let path = self.path.clone();
        run_in(&path, function).map_err(|source| self.error("work in", source))
    }

    fn error(&self, operation: &'static str, source: io::Error) -> NetworkError {
        NetworkError::Namespace { operation, path: self.path.clone(), source }
    }
}

/// The names of all namespaces that start with `prefix`.
pub(crate) fn names_with_prefix(prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Runs a function on a thread inside of the network namespace that is mounted at `path`, and waits for it.
///
/// Sockets that it opens stay in that namespace, and `/proc/sys/net` shows that namespace's settings.
///
/// # Errors
/// When the namespace cannot be entered, and whatever the function returns.
pub fn run_in<T: Send + 'static>(
    path: &Path,
    function: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = fs::File::open(path)?;
    on_own_thread(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        function()
    })
}

fn on_own_thread<T: Send + 'static>(function: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let thread = thread::Builder::new().name("netns".to_owned()).spawn(function)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
}

/// The body of a thread that makes a namespace: new namespace, preparation, then the mount that makes it findable.
fn create(path: &Path, prepare: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    fs::OpenOptions::new().create(true).append(true).open(path)?;
    #[expect(
        deprecated,
        reason = "deprecated because unsharing the descriptor table is unsound; the network namespace has no part in that"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    prepare()?;
    mount_bind("/proc/thread-self/ns/net", path)?;
    Ok(())
}

/// `/run/netns` has to be a shared mount, as `ip netns` makes it: a namespace that is unmounted here then goes away in the mount
/// namespaces of other programs too, instead of being kept alive by them.
fn share_directory() -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let share = || mount_change(DIRECTORY, MountPropagationFlags::SHARED);
    if let Err(rustix::io::Errno::INVAL) = share() {
        mount_bind_recursive(DIRECTORY, DIRECTORY)?;
        share()?;
    }
    Ok(())
}
