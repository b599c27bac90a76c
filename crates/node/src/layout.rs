//! Where things are below the node's directory. Volumes are laid out as a kubelet lays them out, since others look for them there.
//!
//! ```text
//! <node>/pods/<uid>/pod.json                                  the pod as it was when it was started
//!                   etc/{hosts,hostname,resolv.conf}
//!                   volumes/kubernetes.io~empty-dir/<volume>/
//!                   containers/<name>/record.json             what became of it
//!                                     config.json, overlay/   the OCI bundle, and its root
//!                                     log.<attempt>, termination-log, pid, monitor.pid, exit/<id>
//! ```

use std::path::{Path, PathBuf};

/// The node's directory.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// A node that lives in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The socket of the node's API.
    pub fn socket(&self) -> PathBuf {
        self.root.join("node.sock")
    }

    /// All pods.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// One pod.
    pub fn pod(&self, uid: &str) -> PodLayout {
        PodLayout { root: self.pods().join(uid) }
    }

    /// What containers with the host's image have below their layers.
    pub fn host_root(&self) -> PathBuf {
        self.root.join("host-tree")
    }

    /// What the OCI runtime remembers.
    pub fn runtime_state(&self) -> PathBuf {
        self.root.join("runtime")
    }

    /// The program that starts the OCI runtime.
    pub fn runtime_wrapper(&self) -> PathBuf {
        self.root.join("oci-runtime")
    }

    /// Files that only live during one call.
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }
}

/// One pod's directory.
#[derive(Debug, Clone)]
pub struct PodLayout {
    root: PathBuf,
}

impl PodLayout {
    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The pod as it was started, for a restart after the object is gone.
    pub fn pod(&self) -> PathBuf {
        self.root.join("pod.json")
    }

    /// Files that every container sees in `/etc`.
    pub fn etc(&self) -> PathBuf {
        self.root.join("etc")
    }

    /// A volume's directory; `plugin` as a kubelet names it, such as `empty-dir`.
    pub fn volume(&self, plugin: &str, volume: &str) -> PathBuf {
        self.root.join("volumes").join(format!("kubernetes.io~{plugin}")).join(volume)
    }

    /// The block devices that were attached for the pod.
    pub fn devices(&self) -> PathBuf {
        self.root.join("devices.json")
    }

    /// Parts of volumes that are mounted by themselves.
    pub fn sub_path(&self, container: &str, index: usize) -> PathBuf {
        self.root.join("volume-subpaths").join(container).join(index.to_string())
    }

    /// Shared memory of a pod with several containers.
    pub fn shared_memory(&self) -> PathBuf {
        self.root.join("shm")
    }

    /// The IPC namespace of a pod with several containers.
    pub fn ipc_namespace(&self) -> PathBuf {
        self.root.join("ipc")
    }

    /// All containers.
    pub fn containers(&self) -> PathBuf {
        self.root.join("containers")
    }

    /// One container.
    pub fn container(&self, name: &str) -> ContainerLayout {
        ContainerLayout { root: self.containers().join(name) }
    }
}

/// One container's directory, which is also its OCI bundle.
#[derive(Debug, Clone)]
pub struct ContainerLayout {
    root: PathBuf,
}

impl ContainerLayout {
    /// The directory itself.
    pub fn bundle(&self) -> &Path {
        &self.root
    }

    /// What the node remembers about the container.
    pub fn record(&self) -> PathBuf {
        self.root.join("record.json")
    }

    /// The OCI runtime's configuration.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.json")
    }

    /// The layers of the container's root.
    pub fn overlay(&self) -> PathBuf {
        self.root.join("overlay")
    }

    /// Output of attempt number `attempt`.
    pub fn log(&self, attempt: u32) -> PathBuf {
        self.root.join(format!("log.{attempt}"))
    }

    /// The container's last words.
    pub fn termination_log(&self) -> PathBuf {
        self.root.join("termination-log")
    }

    /// Process id of the container's first process.
    pub fn pid(&self) -> PathBuf {
        self.root.join("pid")
    }

    /// Process id of the monitor.
    pub fn monitor_pid(&self) -> PathBuf {
        self.root.join("monitor.pid")
    }

    /// Where the monitor reports whether it could make the container.
    pub fn monitor_pipe(&self) -> PathBuf {
        self.root.join("monitor.pipe")
    }

    /// Where the monitor writes exit codes.
    pub fn exits(&self) -> PathBuf {
        self.root.join("exit")
    }
}
