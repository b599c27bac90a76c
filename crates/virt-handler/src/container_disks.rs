//! Images of container disks that sidecars hold: each is mounted where the launcher looks for it.
//!
//! ```text
//!   sidecar, its root is the image          launcher
//!     /  ──── clone of that one mount ────►   /var/run/kubevirt-image-volume/disk_0     an empty directory, mounted read-only
//! ```
//!
//! What is below the sidecar's root (its volumes, `/proc`) does not come along. The mount is the launcher's alone and goes with it.
//!
//! Neither pods nor images are trusted, and what is cloned must never be the node's own root:
//!
//! - whoever holds an image is a [process of the pod](crate::process) in the launcher's network namespace, which is not the node's;
//! - paths in the launcher are resolved below its root, and only an empty root of a mount is mounted over;
//! - all that happens inside of foreign namespaces works on handles, without paths.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::paths;
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags, fstat, fstatvfs, openat2, stat, statx,
};
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::fchdir;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::launcher::{Holder, Launcher, LauncherError, SHORT};
use crate::process::{IN_CONTAINER, PodProcess};

/// Why the launcher does not have an image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerDiskError {
    #[error("the container with the image of volume {volume} does not answer")]
    Unreachable { volume: String, source: LauncherError },
    #[error("the container with the image of volume {volume} does not answer")]
    Silent { volume: String, source: io::Error },
    #[error("the process that answers for the image of volume {0} is not of the launcher's pod")]
    Foreign(String),
    #[error(
        "the root of the container with the image of volume {0} can be written to; its pod must say readOnlyRootFilesystem"
    )]
    Writable(String),
    #[error("{0} in the launcher is no volume")]
    NoVolume(String),
    #[error("volume {volume}: cannot {operation}")]
    System { volume: String, operation: &'static str, source: io::Error },
}

impl ContainerDiskError {
    /// The sidecar may just have been started.
    pub(crate) fn is_early(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Silent { .. })
    }
}

/// Gives the launcher all images that sidecars of its pod hold. What it has already stays.
pub(crate) async fn mount(
    vmi: &VirtualMachineInstance,
    pod: &Pod,
    launcher: &dyn Launcher,
) -> Result<(), ContainerDiskError> {
    let Some(process) = launcher.process().filter(|_| has_sidecars(pod)) else { return Ok(()) };
    for (slot, volume) in ferrovirt_pods::image_slots(vmi) {
        mount_one(launcher, process, &slot, &volume).await?;
    }
    Ok(())
}

/// The pod says how its images come. A guest's own volume of that name is no emptyDir.
fn has_sidecars(pod: &Pod) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|volume| volume.name == paths::HOLDERS_VOLUME && volume.empty_dir.is_some())
}

async fn mount_one(
    launcher: &dyn Launcher,
    process: &Arc<PodProcess>,
    slot: &str,
    volume: &str,
) -> Result<(), ContainerDiskError> {
    let failed = |source| system(volume, "open its place in the launcher", source);
    let namespace = process.namespace("mnt").map_err(failed)?;
    let (path, name) = (paths::image(slot), volume.to_owned());
    let place = process.with_root(move |root| Place::open(root, namespace, path, &name)).await.map_err(failed)??;
    if place.state == State::Done {
        return Ok(());
    }
    let unreachable = |source| ContainerDiskError::Unreachable { volume: volume.to_owned(), source };
    let mut holder = launcher.holder(slot).await.map_err(unreachable)?;
    let (launching, sidecar, name) = (process.clone(), holder.process.clone(), volume.to_owned());
    let image = holder.process.with_root(move |root| Image::open(&launching, &sidecar, root, &name)).await;
    let image = image.map_err(|source| system(volume, "open its container", source))??;
    let silent = |source| ContainerDiskError::Silent { volume: volume.to_owned(), source };
    is_alive(&mut holder).await.map_err(silent)?;
    let (answer, answered) = tokio::sync::oneshot::channel();
    let work = move || {
        // Nobody listens any more when this handler is on its way out; the next one finds what was done.
        let _ = answer.send(attach(&image, &place));
    };
    let system = |source| system(volume, "enter its container", source);
    // A thread of its own: it leaves our mount namespace for ever.
    std::thread::Builder::new().name("container-disk".to_owned()).spawn(work).map_err(system)?;
    answered.await.unwrap_or_else(|_| Err(system(io::Error::other("the thread ended early"))))
}

/// A sidecar that answers is up: its image is there.
async fn is_alive(holder: &mut Holder) -> io::Result<()> {
    const QUESTION: u8 = b'?';
    let exchange = async {
        holder.connection.write_u8(QUESTION).await?;
        holder.connection.read_u8().await
    };
    match tokio::time::timeout(SHORT, exchange).await {
        Ok(Ok(QUESTION)) => Ok(()),
        Ok(Ok(_)) => Err(io::ErrorKind::InvalidData.into()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// What is at an image's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing.
    Free,
    /// The image, by somebody who ended before it was hardened.
    Soft,
    /// The image.
    Done,
}

/// Where an image goes.
struct Place {
    volume: String,
    namespace: OwnedFd,
    directory: OwnedFd,
    state: State,
}

impl Place {
    /// The place in the launcher, which has this root and mount namespace. An image's root is never empty: runtimes make mount points in it.
    fn open(root: &OwnedFd, namespace: OwnedFd, path: String, volume: &str) -> Result<Self, ContainerDiskError> {
        let failed = |source| system(volume, "open its place in the launcher", source);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // `/var/run` may be a link inside the launcher's root; none may lead out of it.
        let directory = openat2(root, path.trim_start_matches('/'), flags, Mode::empty(), IN_CONTAINER);
        let directory = directory.map_err(|errno| failed(errno.into()))?;
        let found = statx(&directory, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        if !found.map_err(|errno| failed(errno.into()))?.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return Err(ContainerDiskError::NoVolume(path));
        }
        let flags = fstatvfs(&directory).map_err(|errno| failed(errno.into()))?.f_flag;
        let state = match is_empty(&directory).map_err(failed)? {
            true => State::Free,
            false if flags.contains(HARD) => State::Done,
            false => State::Soft,
        };
        Ok(Self { volume: volume.to_owned(), namespace, directory, state })
    }
}

/// Files are read and nothing else.
const HARD: StatVfsMountFlags = StatVfsMountFlags::RDONLY
    .union(StatVfsMountFlags::NOSUID)
    .union(StatVfsMountFlags::NODEV)
    .union(StatVfsMountFlags::NOEXEC);

fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What goes there.
struct Image {
    namespace: OwnedFd,
    root: OwnedFd,
}

impl Image {
    /// The sidecar, a process of the launcher's pod, with this root.
    fn open(
        launcher: &PodProcess,
        sidecar: &PodProcess,
        root: &OwnedFd,
        volume: &str,
    ) -> Result<Self, ContainerDiskError> {
        let failed = |source| system(volume, "open its container", source);
        let image =
            Self { root: root.try_clone().map_err(failed)?, namespace: sidecar.namespace("mnt").map_err(failed)? };
        let network = |process: &PodProcess| -> io::Result<_> { Ok(fstat(process.namespace("net")?)?.st_ino) };
        let pods = network(launcher).map_err(failed)?;
        let ours = stat("/proc/self/ns/net").map_err(|errno| failed(errno.into()))?.st_ino;
        // Containers of a pod share its network namespace, and nobody else has it.
        if network(sidecar).map_err(failed)? != pods || ours == pods {
            return Err(ContainerDiskError::Foreign(volume.to_owned()));
        }
        Ok(image)
    }
}

/// The body of a thread that nobody needs afterwards. The kernel copies only mounts of the namespace that one is in, and adds them only
/// there.
fn attach(image: &Image, place: &Place) -> Result<(), ContainerDiskError> {
    let failed = |operation| move |errno: rustix::io::Errno| system(&place.volume, operation, errno.into());
    #[expect(
        deprecated,
        reason = "deprecated because unsharing the descriptor table is unsound; root and working directory have no part in that"
    )]
    rustix::thread::unshare(UnshareFlags::FS).map_err(failed("leave our working directory"))?;
    if place.state == State::Soft {
        enter(&place.namespace).map_err(failed("enter the launcher"))?;
        return harden(&place.directory).map_err(failed("harden the mount"));
    }
    enter(&image.namespace).map_err(failed("enter its container"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&image.root, "", flags).map_err(failed("copy the mount"))?;
    let is_read_only = fstatvfs(&tree).map_err(failed("look at the mount"))?.f_flag.contains(StatVfsMountFlags::RDONLY);
    if !is_read_only {
        return Err(ContainerDiskError::Writable(place.volume.clone()));
    }
    enter(&place.namespace).map_err(failed("enter the launcher"))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", &place.directory, "", flags).map_err(failed("add the mount"))?;
    harden(&tree).map_err(failed("harden the mount"))
}

fn enter(namespace: &OwnedFd) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
}

/// Options of a mount are set by its path: here, the working directory.
fn harden(tree: &OwnedFd) -> rustix::io::Result<()> {
    fchdir(tree)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let hardened = mount_remount(".", flags, "");
    if hardened.is_err() {
        // Nobody shall read from it.
        unmount(".", UnmountFlags::DETACH)?;
    }
    hardened
}

fn system(volume: &str, operation: &'static str, source: io::Error) -> ContainerDiskError {
    ContainerDiskError::System { volume: volume.to_owned(), operation, source }
}

#[cfg(test)]
#[path = "container_disks_tests.rs"]
mod tests;
