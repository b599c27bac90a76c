//! Pods of threads: each has namespaces and a root of its own, which end with it and leave nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::chroot;
use rustix::thread::gettid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::launcher::{Launchers, PodLaunchers};

const SLOT: &str = "disk_0";

/// A thread in a container.
struct Container {
    pid: i32,
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Container {
    /// In the network namespace of `pod`, or one of its own; `prepare` mounts, and gives the root.
    fn start(pod: Option<i32>, prepare: impl FnOnce() -> PathBuf + Send + 'static) -> Self {
        let ((end, ended), (tell, told)) = (mpsc::channel::<()>(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            match pod {
                Some(pod) => {
                    let network = fs::File::open(format!("/proc/{pod}/ns/net")).unwrap();
                    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                    unshare(UnshareFlags::NEWNS);
                }
                None => unshare(UnshareFlags::NEWNS | UnshareFlags::NEWNET),
            }
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            chroot(prepare()).unwrap();
            tell.send(gettid().as_raw_nonzero().get()).unwrap();
            // Until the test is over, also when it panics.
            let _ = ended.recv();
        });
        Self { pid: told.recv().unwrap(), end: Some(end), thread: Some(thread) }
    }

    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.pid))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.end.take();
        let _ = self.thread.take().unwrap().join();
    }
}

#[expect(deprecated, reason = "as in the code: descriptors stay shared")]
fn unshare(flags: UnshareFlags) {
    rustix::thread::unshare(flags).unwrap();
}

/// A launcher with an empty volume at the image's place.
fn launcher(directory: &Path) -> Container {
    let (root, volume) = (directory.join("launcher"), directory.join("empty"));
    let place = root.join(paths::image(SLOT).trim_start_matches('/'));
    fs::create_dir_all(&place).unwrap();
    fs::create_dir_all(&volume).unwrap();
    Container::start(None, move || {
        mount_bind(&volume, &place).unwrap();
        mount_remount(&place, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        root
    })
}

/// A sidecar whose root has a disk, and a volume that is nobody else's business.
fn sidecar(directory: &Path, pod: Option<i32>, flags: MountFlags) -> Container {
    let (root, volume) = (directory.join("image"), directory.join("sockets"));
    fs::create_dir_all(root.join("disk")).unwrap();
    fs::create_dir_all(root.join("volume")).unwrap();
    fs::create_dir_all(&volume).unwrap();
    fs::write(root.join("disk/image.raw"), "bytes").unwrap();
    fs::write(volume.join("secret"), "").unwrap();
    Container::start(pod, move || {
        mount_bind(&root, &root).unwrap();
        mount_bind(&volume, root.join("volume")).unwrap();
        mount_remount(&root, MountFlags::BIND | flags, "").unwrap();
        root
    })
}

/// On a thread of its own, as there is no way back from it.
fn attach_apart(image: Image, place: Place) -> Result<(), ContainerDiskError> {
    std::thread::spawn(move || attach(&image, &place)).join().unwrap()
}

/// Each of these containers sees its own root: which pod it belongs to is another test's business.
fn process(pid: i32) -> PodProcess {
    let root = rustix::fs::open(format!("/proc/{pid}/root"), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    PodProcess::seeing(&root, ".", pid).unwrap()
}

fn place(launcher: &Container) -> Result<Place, ContainerDiskError> {
    let process = process(launcher.pid);
    Place::open(&process.root().unwrap(), process.namespace("mnt").unwrap(), paths::image(SLOT), "root")
}

fn image(launcher: i32, sidecar: i32) -> Result<Image, ContainerDiskError> {
    let sidecar = process(sidecar);
    Image::open(&process(launcher), &sidecar, &sidecar.root().unwrap(), "root")
}

#[test]
fn the_launcher_reads_the_image_and_nobody_else_sees_the_mount() {
    let directory = TempDir::new().unwrap();
    let launcher = launcher(directory.path());
    let sidecar = sidecar(directory.path(), Some(launcher.pid), MountFlags::RDONLY);
    attach_apart(image(launcher.pid, sidecar.pid).unwrap(), place(&launcher).unwrap()).unwrap();

    let tree = launcher.path(&paths::image(SLOT));
    assert_eq!(fs::read_to_string(tree.join("disk/image.raw")).unwrap(), "bytes");
    assert_eq!(fs::read_dir(tree.join("volume")).unwrap().count(), 0, "mounts below the root stay where they are");
    assert_eq!(fs::write(tree.join("new"), "").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    let flags = || rustix::fs::statvfs(&tree).unwrap().f_flag;
    assert!(flags().contains(HARD), "{:?}", flags());
    let outside = directory.path().join("launcher").join(paths::image(SLOT).trim_start_matches('/'));
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);

    assert_eq!(place(&launcher).unwrap().state, State::Done, "once is enough");
    soften(&launcher);
    let soft = place(&launcher).unwrap();
    assert_eq!(soft.state, State::Soft);
    attach_apart(image(launcher.pid, sidecar.pid).unwrap(), soft).unwrap();
    assert!(flags().contains(HARD), "{:?}", flags());
    drop(sidecar);
    assert_eq!(fs::read_to_string(tree.join("disk/image.raw")).unwrap(), "bytes", "the image outlives its container");
}

/// As somebody leaves it who ends before it is hardened.
fn soften(launcher: &Container) {
    let place = place(launcher).unwrap();
    let soften = move || {
        unshare(UnshareFlags::FS);
        enter(&place.namespace).unwrap();
        fchdir(&place.directory).unwrap();
        mount_remount(".", MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    };
    std::thread::spawn(soften).join().unwrap();
}

#[test]
fn a_root_that_can_be_written_to_is_not_shown() {
    let directory = TempDir::new().unwrap();
    let launcher = launcher(directory.path());
    let sidecar = sidecar(directory.path(), Some(launcher.pid), MountFlags::empty());
    let error = attach_apart(image(launcher.pid, sidecar.pid).unwrap(), place(&launcher).unwrap()).unwrap_err();
    assert!(matches!(error, ContainerDiskError::Writable(_)), "{error}");
    assert_eq!(place(&launcher).unwrap().state, State::Free, "nothing was mounted");
}

#[test]
fn processes_of_other_pods_and_of_the_node_are_foreign() {
    let directory = TempDir::new().unwrap();
    let launcher = launcher(directory.path());
    let stranger = sidecar(directory.path(), None, MountFlags::RDONLY);
    let me = rustix::process::getpid().as_raw_nonzero().get();
    // The last one: a launcher in the node's network, whose pod nobody could tell from the node.
    for (launcher, sidecar) in [(launcher.pid, stranger.pid), (launcher.pid, me), (me, me)] {
        let error = image(launcher, sidecar).map(drop).unwrap_err();
        assert!(matches!(error, ContainerDiskError::Foreign(_)), "{error}");
    }
}

#[test]
fn only_a_volume_is_mounted_over_and_links_stay_inside() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("plain");
    fs::create_dir_all(root.join("run/kubevirt-image-volume").join(SLOT)).unwrap();
    fs::create_dir_all(root.join("var")).unwrap();
    std::os::unix::fs::symlink("/run", root.join("var/run")).unwrap();
    let plain = Container::start(None, {
        let root = root.clone();
        move || root
    });
    let error = place(&plain).map(drop).unwrap_err();
    assert!(matches!(error, ContainerDiskError::NoVolume(_)), "{error}");
    fs::remove_file(root.join("var/run")).unwrap();
    std::os::unix::fs::symlink("../../../../../../run", root.join("var/run")).unwrap();
    let error = place(&plain).map(drop).unwrap_err();
    assert!(matches!(error, ContainerDiskError::NoVolume(_)), "a way out leads to the same root: {error}");
    fs::remove_dir(root.join("run/kubevirt-image-volume").join(SLOT)).unwrap();
    assert!(matches!(place(&plain).map(drop).unwrap_err(), ContainerDiskError::System { .. }));
}

#[tokio::test]
async fn a_holder_has_to_answer() {
    let answer = |answer: Option<u8>| async move {
        let (connection, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        let theirs = tokio::spawn(async move {
            let question = theirs.read_u8().await.unwrap();
            if let Some(change) = answer {
                theirs.write_u8(question ^ change).await.unwrap();
            }
        });
        let process = Arc::new(process(rustix::process::getpid().as_raw_nonzero().get()));
        let answered = is_alive(&mut Holder { connection, process }).await;
        theirs.await.unwrap();
        answered.map_err(|error| error.kind())
    };
    assert_eq!(answer(Some(0)).await, Ok(()));
    assert_eq!(answer(Some(1)).await, Err(io::ErrorKind::InvalidData));
    assert_eq!(answer(None).await, Err(io::ErrorKind::UnexpectedEof));
}

#[tokio::test]
async fn holders_are_found_below_the_pods_directory_and_nowhere_else() {
    let pods = TempDir::new().unwrap();
    let volumes = pods.path().join("uid/volumes/kubernetes.io~empty-dir");
    let listen = |volume: &str, socket: &str| {
        fs::create_dir_all(volumes.join(volume)).unwrap();
        tokio::net::UnixListener::bind(volumes.join(volume).join(socket)).unwrap()
    };
    let _launcher = listen(paths::SOCKETS_VOLUME, paths::LAUNCHER_SOCKET);
    let _holder = listen(paths::HOLDERS_VOLUME, "disk_0.sock");
    let path = |volume: &str| volumes.join(volume).to_str().unwrap().to_owned();
    let (sockets, holders) = (path(paths::SOCKETS_VOLUME), path(paths::HOLDERS_VOLUME));
    let launcher = PodLaunchers::seeing(pods.path().to_owned(), &sockets, &holders).connect("uid").await.unwrap();
    assert!(launcher.process().is_some());
    assert!(launcher.holder(SLOT).await.is_ok());
    assert!(matches!(launcher.holder("disk_1").await.map(drop), Err(LauncherError::Unreachable(_))));
    fs::rename(volumes.join(paths::HOLDERS_VOLUME), pods.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(pods.path().join("elsewhere"), volumes.join(paths::HOLDERS_VOLUME)).unwrap();
    assert!(matches!(launcher.holder(SLOT).await.map(drop), Err(LauncherError::Unreachable(_))));
}

/// Whoever can write to a launcher's directory cannot make it another launcher: neither by a link, nor by listening from another pod.
#[tokio::test]
async fn a_socket_of_somebody_else_is_not_the_launchers() {
    let pods = TempDir::new().unwrap();
    let volumes = |pod: &str| pods.path().join(pod).join("volumes/kubernetes.io~empty-dir").join(paths::SOCKETS_VOLUME);
    let (own, victim) = (volumes("own"), volumes("victim"));
    fs::create_dir_all(&own).unwrap();
    fs::create_dir_all(&victim).unwrap();
    let _victim = tokio::net::UnixListener::bind(victim.join(paths::LAUNCHER_SOCKET)).unwrap();
    let connect = |seen_at: &Path| {
        let launchers = PodLaunchers::seeing(pods.path().to_owned(), seen_at.to_str().unwrap(), "/");
        async move { launchers.connect("own").await.map(drop).map_err(|error| error.to_string()) }
    };
    std::os::unix::fs::symlink(victim.join(paths::LAUNCHER_SOCKET), own.join(paths::LAUNCHER_SOCKET)).unwrap();
    assert!(connect(&own).await.is_err(), "a link");
    fs::remove_file(own.join(paths::LAUNCHER_SOCKET)).unwrap();
    fs::write(own.join(paths::LAUNCHER_SOCKET), "").unwrap();
    assert!(connect(&own).await.unwrap_err().contains("something else than a socket"));
    fs::remove_file(own.join(paths::LAUNCHER_SOCKET)).unwrap();
    let _own = tokio::net::UnixListener::bind(own.join(paths::LAUNCHER_SOCKET)).unwrap();
    assert_eq!(connect(&own).await, Ok(()));
    assert!(connect(&victim).await.unwrap_err().contains("does not see its pod's volume"));
}

#[test]
fn the_pod_says_whether_it_has_sidecars() {
    let pod = |volumes: Value| {
        let pod = json!({"metadata": {}, "spec": {"containers": [], "volumes": volumes}});
        has_sidecars(&serde_json::from_value(pod).unwrap())
    };
    assert!(pod(json!([{"name": "sockets", "emptyDir": {}}, {"name": "container-disks", "emptyDir": {}}])));
    assert!(!pod(json!([{"name": "sockets", "emptyDir": {}}])));
    assert!(!pod(json!([{"name": "container-disks", "persistentVolumeClaim": {"claimName": "c"}}])));
}
