//! What the node runtime is told about its machine.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// One node of a local cluster.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The Node object's name.
    pub name: String,
    /// Everything this node keeps: pods, logs, sockets. Survives a restart of the process.
    pub directory: PathBuf,
    /// What the nodes of this machine share, such as who uses which loop device.
    pub shared_directory: PathBuf,
    /// Where our own programs are. Containers with the host's image see those that they start at [`crate::host_root::BINARIES`].
    pub binaries: PathBuf,
    /// Labels of the Node object besides those every node has.
    pub labels: BTreeMap<String, String>,
    /// The node's own addresses.
    pub addresses: Vec<IpAddr>,
    /// The ranges that pods get their addresses from, such as `10.244.1.0/24`.
    pub pod_ranges: Vec<String>,
    /// The addresses with which the host comes to pods: whatever network policies say, it may.
    pub hosts: Vec<IpAddr>,
    /// Thousandths of a processor to offer; `None`: all the machine has.
    pub cpu_millis: Option<u64>,
    /// Bytes of memory to offer; `None`: all the machine has.
    pub memory_bytes: Option<u64>,
    /// How many pods to take.
    pub max_pods: u32,
    /// A guest really runs with `/dev/kvm`. The device alone proves nothing.
    pub kvm: bool,
    /// The OCI runtime.
    pub crun: PathBuf,
    /// The monitor of one container.
    pub conmon: PathBuf,
    /// Time between two signs of life.
    pub heartbeat: Duration,
}

impl NodeConfig {
    /// A node with this name and directory, and usual values for the rest.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Self {
            name: name.into(),
            shared_directory: directory.join("shared"),
            directory,
            binaries: PathBuf::from("/usr/local/bin"),
            labels: BTreeMap::new(),
            addresses: Vec::new(),
            pod_ranges: Vec::new(),
            hosts: Vec::new(),
            cpu_millis: None,
            memory_bytes: None,
            max_pods: 110,
            kvm: false,
            crun: PathBuf::from("/usr/bin/crun"),
            conmon: PathBuf::from("/usr/bin/conmon"),
            heartbeat: Duration::from_secs(10),
        }
    }
}
