//! One container's `config.json`.

use std::path::{Path, PathBuf};

use ferrovirt_kubernetes::Pod;
use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::resources;
use super::seccomp;
use super::security;
use super::spec::{Device, DeviceRule, Linux, Mount, Namespace, Process, Root, Spec, User};

/// Paths of the kernel that a container does not see. Some are the machine's root's alone, and that is who a container's root is.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/allocinfo",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/pagetypeinfo",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// Paths of the kernel that a container does not change.
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// Where a container without a wish leaves its last words.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// A volume of the pod as it is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedVolume {
    /// The volume's name.
    pub name: String,
    /// A directory, a file or a device.
    pub source: PathBuf,
    /// Takes no writes, whatever the mount says.
    pub read_only: bool,
    /// The image that it is, as container statuses name images.
    pub image: Option<String>,
}

/// A device node of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDevice {
    /// Path in the container.
    pub path: String,
    /// `c` or `b`.
    pub kind: char,
    /// Number.
    pub major: u32,
    /// Number.
    pub minor: u32,
}

/// Everything that makes a container, collected.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its container.
    pub container: &'a Container,
    /// The file tree.
    pub root: &'a Path,
    /// The tree takes no writes.
    pub root_read_only: bool,
    /// Mounts that belong to the tree.
    pub root_mounts: Vec<Mount>,
    /// Whom it runs as.
    pub user: User,
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// `NAME=value`
    pub environment: Vec<String>,
    /// Where it starts.
    pub working_directory: &'a str,
    /// Sources of the container's volume mounts, in their order.
    pub volume_mounts: Vec<PathBuf>,
    /// Volumes that take no writes.
    pub read_only_volumes: Vec<String>,
    /// Devices.
    pub devices: Vec<HostDevice>,
    /// The directory of `hosts`, `hostname` and `resolv.conf`.
    pub etc: &'a Path,
    /// The file for last words.
    pub termination_log: &'a Path,
    /// The pod's network namespace.
    pub network: &'a Path,
    /// Shared with the pod's other containers: IPC namespace and shared memory.
    pub shared: Option<(PathBuf, PathBuf)>,
    /// The container's control group.
    pub cgroup: String,
}

/// The control group of a container.
pub fn cgroup(node: &str, uid: &str, container: &str) -> String {
    format!("{}/{container}", pod_cgroup(node, uid))
}

/// The control group of a pod.
pub fn pod_cgroup(node: &str, uid: &str) -> String {
    format!("/ferrovirt/{node}/pod{uid}")
}

/// The host name that a pod's containers see.
pub fn hostname(pod: &Pod) -> String {
    const LONGEST: usize = 63;
    let set = pod.spec.as_ref().and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    let name = set.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    let cut: String = name.chars().take(LONGEST).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// The whole configuration.
pub fn spec(inputs: &Inputs<'_>) -> Spec {
    let container = inputs.container;
    let context = container.security_context.clone().unwrap_or_default();
    let mut limits = resources::limits(container.resources.as_ref());
    limits.devices.extend(inputs.devices.iter().map(|device| DeviceRule {
        allow: true,
        kind: Some(device.kind.to_string()),
        major: Some(device.major),
        minor: Some(device.minor),
        access: "rwm".to_owned(),
    }));
    Spec {
        oci_version: "1.0.2".to_owned(),
        process: Process {
            terminal: container.tty == Some(true),
            user: inputs.user.clone(),
            args: inputs.arguments.clone(),
            env: inputs.environment.clone(),
            cwd: if inputs.working_directory.is_empty() { "/".to_owned() } else { inputs.working_directory.to_owned() },
            capabilities: security::capabilities(container),
            // Whatever `allowPrivilegeEscalation` says: the image's author would decide what its programs gain.
            no_new_privileges: true,
        },
        root: Root {
            path: inputs.root.to_owned(),
            readonly: inputs.root_read_only || context.read_only_root_filesystem == Some(true),
        },
        hostname: Some(hostname(inputs.pod)),
        mounts: mounts(inputs),
        linux: Linux {
            cgroups_path: inputs.cgroup.clone(),
            resources: limits,
            devices: inputs.devices.iter().map(|device| device_node(device, &inputs.user)).collect(),
            namespaces: namespaces(inputs),
            sysctl: security::sysctls(inputs.pod.spec.as_ref()),
            masked_paths: MASKED.iter().map(|&path| path.to_owned()).collect(),
            readonly_paths: READ_ONLY.iter().map(|&path| path.to_owned()).collect(),
            seccomp: Some(seccomp::filter()),
        },
    }
}

/// A device belongs to whoever the container runs as: that is what asking for it means.
fn device_node(device: &HostDevice, user: &User) -> Device {
    Device {
        path: device.path.clone(),
        kind: device.kind.to_string(),
        major: device.major,
        minor: device.minor,
        file_mode: 0o660,
        uid: user.uid,
        gid: user.gid,
    }
}

fn namespaces(inputs: &Inputs<'_>) -> Vec<Namespace> {
    let new = |kind: &str| Namespace { kind: kind.to_owned(), path: None };
    let join = |kind: &str, path: &Path| Namespace { kind: kind.to_owned(), path: Some(path.to_owned()) };
    let ipc = match &inputs.shared {
        Some((ipc, _)) => join("ipc", ipc),
        None => new("ipc"),
    };
    vec![new("pid"), new("mount"), new("uts"), ipc, join("network", inputs.network)]
}

fn mounts(inputs: &Inputs<'_>) -> Vec<Mount> {
    let mut mounts = vec![
        Mount::kernel("proc", "/proc", &["nosuid", "noexec", "nodev"]),
        Mount::tmpfs("/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        Mount::kernel(
            "devpts",
            "/dev/pts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        Mount::kernel("mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"]),
        Mount::kernel("sysfs", "/sys", &["nosuid", "noexec", "nodev", "ro"]),
    ];
    mounts.push(match &inputs.shared {
        Some((_, memory)) => Mount::bind("/dev/shm", memory, &["rbind", "rw", "nosuid", "noexec", "nodev"]),
        None => Mount::tmpfs("/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
    });
    mounts.extend(inputs.root_mounts.iter().cloned());
    for file in ["hosts", "hostname", "resolv.conf"] {
        let destination = format!("/etc/{file}");
        let taken = inputs.container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == destination);
        if !taken {
            mounts.push(Mount::bind(&destination, inputs.etc.join(file), &["bind", "rw", "nosuid", "nodev", "noexec"]));
        }
    }
    let last_words = inputs.container.termination_message_path.as_deref().unwrap_or(TERMINATION_LOG);
    mounts.push(Mount::bind(last_words, inputs.termination_log, &["bind", "rw", "nosuid", "nodev", "noexec"]));
    mounts.extend(volume_mounts(inputs));
    mounts
}

/// The container's own mounts, outer ones before those inside of them.
fn volume_mounts(inputs: &Inputs<'_>) -> Vec<Mount> {
    let wanted = inputs.container.volume_mounts.iter().flatten().zip(&inputs.volume_mounts);
    let mut wanted: Vec<(&VolumeMount, &PathBuf)> = wanted.collect();
    wanted.sort_by_key(|(mount, _)| mount.mount_path.split('/').filter(|part| !part.is_empty()).count());
    let made = wanted.into_iter().map(|(mount, source)| {
        let read_only = mount.read_only == Some(true) || inputs.read_only_volumes.contains(&mount.name);
        let mut options = vec!["rbind", if read_only { "ro" } else { "rw" }, "nosuid", "nodev"];
        if mount.mount_propagation.as_deref() == Some("HostToContainer") {
            options.push("rslave");
        }
        Mount::bind(&mount.mount_path, source, &options)
    });
    made.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "virt-launcher-web-8f3a9", "namespace": "shop", "uid": "u1"},
            "spec": {
                "hostname": "web",
                "securityContext": {"fsGroup": 107, "sysctls": [{"name": "net.ipv4.ping_group_range", "value": "0 1"}]},
                "containers": [{
                    "name": "compute",
                    "resources": {"limits": {"memory": "128Mi", "devices.kubevirt.io/tun": "1"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                    },
                    "volumeMounts": [
                        {"name": "sockets", "mountPath": "/var/run/kubevirt/sockets"},
                        {"name": "public", "mountPath": "/var/run/kubevirt"},
                        {"name": "disk", "mountPath": "/disk", "readOnly": true},
                    ],
                }],
            },
        }))
        .unwrap()
    }

    fn inputs(pod: &Pod) -> Inputs<'_> {
        Inputs {
            pod,
            container: &pod.spec.as_ref().unwrap().containers[0],
            root: Path::new("/pod/overlay/root/merged"),
            root_read_only: true,
            root_mounts: crate::host_root::mounted(
                Path::new("/pod/overlay/usr/merged"),
                &["/opt/bin/virt-launcher".into()],
            ),
            user: User { uid: 107, gid: 107, additional_gids: vec![107] },
            arguments: vec!["virt-launcher".to_owned()],
            environment: vec!["PATH=/bin".to_owned()],
            working_directory: "",
            volume_mounts: ["/v/sockets", "/v/public", "/v/disk"].map(PathBuf::from).to_vec(),
            read_only_volumes: Vec::new(),
            devices: vec![HostDevice { path: "/dev/net/tun".to_owned(), kind: 'c', major: 10, minor: 200 }],
            etc: Path::new("/pod/etc"),
            termination_log: Path::new("/pod/termination-log"),
            network: Path::new("/run/netns/pod"),
            shared: None,
            cgroup: cgroup("node1", "u1", "compute"),
        }
    }

    #[test]
    fn a_launcher() {
        let pod = example();
        let mut spec = spec(&inputs(&pod));
        // Long, and tested by itself.
        assert_eq!(spec.linux.seccomp.take(), Some(seccomp::filter()));
        insta::assert_json_snapshot!(spec);
    }

    #[test]
    fn no_container_loosens_what_holds_it() {
        let mut pod = example();
        let context = json!({
            "allowPrivilegeEscalation": true, "procMount": "Unmasked", "seccompProfile": {"type": "Unconfined"},
            "capabilities": {"add": ["SYS_ADMIN"]},
        });
        pod.spec.as_mut().unwrap().containers[0].security_context = Some(serde_json::from_value(context).unwrap());
        let spec = spec(&inputs(&pod));
        assert!(spec.process.no_new_privileges);
        assert_eq!(spec.linux.seccomp, Some(seccomp::filter()));
        assert_eq!((spec.linux.masked_paths.len(), spec.linux.readonly_paths.len()), (MASKED.len(), READ_ONLY.len()));
        assert!(!spec.process.capabilities.bounding.contains(&"CAP_SYS_ADMIN".to_owned()));
    }

    #[test]
    fn containers_of_one_pod_share_memory_and_ipc() {
        let pod = example();
        let mut inputs = inputs(&pod);
        inputs.shared = Some((PathBuf::from("/pod/ipc"), PathBuf::from("/pod/shm")));
        let spec = spec(&inputs);
        let ipc = spec.linux.namespaces.iter().find(|namespace| namespace.kind == "ipc").unwrap();
        assert_eq!(ipc.path.as_deref(), Some(Path::new("/pod/ipc")));
        let memory = spec.mounts.iter().find(|mount| mount.destination == "/dev/shm").unwrap();
        assert_eq!(memory.source, Path::new("/pod/shm"));
    }

    #[test]
    fn host_names_are_cut_to_what_the_kernel_takes() {
        let mut pod = example();
        pod.spec.as_mut().unwrap().hostname = None;
        pod.metadata.name = Some(format!("{}-x", "a".repeat(62)));
        assert_eq!(hostname(&pod), "a".repeat(62));
    }
}
