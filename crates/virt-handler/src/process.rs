//! A process of a pod, held so that no other one can take its place.
//!
//! The kernel says which process listens on a pod's socket, but only by its number, and it says so also when that process has ended and
//! another one has got the number. So a process is held by its directory in `/proc`, which is never that of a later one, and it has to see
//! the volume with the socket where containers of that pod see it: no process of another pod does, nor one of the node.
//!
//! A pod arranges its own files. They may be on a server that does not answer, so whoever works on them does it apart, with an end, and
//! one at a time for each process: a pod holds up one thread and no more.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use tokio::sync::Semaphore;

/// How long files of a pod may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Links inside of a container's root lead to places in that root.
pub(crate) const IN_CONTAINER: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Which file it is, whatever leads to it: device and inode.
type Identity = (u64, u64);

fn identity(file: impl AsFd) -> io::Result<Identity> {
    let found = fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

/// One process of a pod.
pub struct PodProcess {
    /// Its directory in `/proc`: gone when the process is.
    directory: OwnedFd,
    /// A volume that only its pod has, and where its containers see it.
    volume: Identity,
    seen_at: String,
    turn: Arc<Semaphore>,
}

impl PodProcess {
    /// The process of this number, if it sees `volume` at the path `seen_at`. Blocks as long as its files do.
    pub(crate) fn seeing(volume: &OwnedFd, seen_at: &str, pid: i32) -> io::Result<Self> {
        let directory = rustix::fs::open(format!("/proc/{pid}"), DIRECTORY, Mode::empty())?;
        let (volume, seen_at) = (identity(volume)?, seen_at.to_owned());
        let process = Self { directory, volume, seen_at, turn: Arc::new(Semaphore::new(1)) };
        process.root()?;
        Ok(process)
    }

    /// Its root directory. Blocks as long as its files do.
    pub(crate) fn root(&self) -> io::Result<OwnedFd> {
        let root = openat(&self.directory, "root", DIRECTORY, Mode::empty())?;
        let seen = openat2(&root, self.seen_at.trim_start_matches('/'), DIRECTORY, Mode::empty(), IN_CONTAINER);
        match seen.map_err(io::Error::from).and_then(identity) {
            Ok(seen) if seen == self.volume => Ok(root),
            _ => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("whoever listens does not see its pod's volume at {}", self.seen_at),
            )),
        }
    }

    /// One of its namespaces, such as `net`.
    pub(crate) fn namespace(&self, kind: &str) -> io::Result<OwnedFd> {
        Ok(openat(&self.directory, format!("ns/{kind}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Works on its files, apart from whoever waits.
    pub(crate) async fn with_root<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&OwnedFd) -> T + Send + 'static,
    ) -> io::Result<T> {
        let stuck = |_| io::Error::new(io::ErrorKind::TimedOut, "files of the pod do not answer");
        let turn = tokio::time::timeout(PATIENCE, self.turn.clone().acquire_owned()).await.map_err(stuck)?;
        let process = self.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            Ok(work(&process.root()?))
        });
        tokio::time::timeout(PATIENCE, work).await.map_err(stuck)?.map_err(io::Error::other)?
    }
}

/// The path of a file that is held: works where the handle itself may only be looked at.
pub(crate) fn path_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// A file in somebody else's directory, to be looked at and not opened: opening a device or a pipe has effects.
pub(crate) fn look_at(
    directory: impl AsFd,
    path: &str,
    resolve: ResolveFlags,
) -> rustix::io::Result<(OwnedFd, FileType)> {
    let path = path.trim_start_matches('/');
    let file = openat2(directory, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    Ok((file, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, DIRECTORY, Mode::empty()).unwrap()
    }

    #[tokio::test]
    async fn a_process_is_of_the_pod_whose_volume_it_sees() {
        let (volume, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (here, elsewhere) = (directory(volume.path()), directory(other.path()));
        let seen_at = volume.path().to_str().unwrap();
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let process = Arc::new(PodProcess::seeing(&here, seen_at, me).unwrap());
        let is_root = process.with_root(|root| identity(root).unwrap() == identity(directory("/".as_ref())).unwrap());
        assert!(is_root.await.unwrap());
        let kind = |result: io::Result<PodProcess>| result.map(drop).unwrap_err().kind();
        assert_eq!(kind(PodProcess::seeing(&elsewhere, seen_at, me)), io::ErrorKind::PermissionDenied);
        assert_eq!(kind(PodProcess::seeing(&here, "/nowhere", me)), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_process_that_has_ended_has_neither_files_nor_namespaces() {
        let volume = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = PodProcess::seeing(&directory(volume.path()), volume.path().to_str().unwrap(), pid);
        child.kill().unwrap();
        child.wait().unwrap();
        let process = process.unwrap();
        assert!(process.root().is_err());
        assert!(process.namespace("net").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_do_not_answer_hold_up_one_thread() {
        let volume = tempfile::tempdir().unwrap();
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let process = PodProcess::seeing(&directory(volume.path()), volume.path().to_str().unwrap(), me).unwrap();
        let process = Arc::new(process);
        let _stuck = process.turn.clone().acquire_owned().await.unwrap();
        let error = process.with_root(|_| panic!("the work before it has not ended")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
