//! The Node object and the Lease that says this node is alive.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ferrovirt_kubernetes::{Foreign, Lease, Node};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{self as coordination, LeaseSpec};
use k8s_openapi::api::core::v1::{
    self, AttachedVolume, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::config::NodeConfig;
use crate::context::Context;
use crate::oci::resources::{DEVICE_PREFIX, DEVICES};

/// Where leases of nodes are.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// After this long without a sign of life others may think that the node is gone, as with any kubelet.
const LEASE_SECONDS: i32 = 40;
/// How many containers may use one device.
const DEVICE_USERS: &str = "1000";

/// What the node offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Thousandths of a processor.
    pub cpu_millis: u64,
    /// Bytes.
    pub memory_bytes: u64,
    /// Bytes for logs and emptyDirs.
    pub storage_bytes: u64,
    /// Pods.
    pub pods: u32,
    /// Huge pages by size, such as `2Mi`, in bytes.
    pub huge_pages: BTreeMap<String, u64>,
    /// Devices by name, such as `tun`.
    pub devices: Vec<&'static str>,
}

impl Capacity {
    /// What the machine has and the configuration allows.
    pub fn of(config: &NodeConfig) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let memory = memory_total(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        let storage = rustix::fs::statvfs(&config.directory).map(|disk| disk.f_blocks * disk.f_frsize);
        let devices = DEVICES.iter().filter(|(name, path)| match *name {
            "kvm" => config.kvm,
            _ => Path::new(path).exists(),
        });
        Self {
            cpu_millis: config.cpu_millis.unwrap_or(processors * 1000),
            memory_bytes: config.memory_bytes.unwrap_or(memory),
            storage_bytes: storage.unwrap_or(0),
            pods: config.max_pods,
            huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
            devices: devices.map(|(name, _)| *name).collect(),
        }
    }

    fn resources(&self) -> BTreeMap<String, Quantity> {
        let mut list = BTreeMap::from([
            ("cpu".to_owned(), Quantity(format!("{}m", self.cpu_millis))),
            ("memory".to_owned(), Quantity(self.memory_bytes.to_string())),
            ("ephemeral-storage".to_owned(), Quantity(self.storage_bytes.to_string())),
            ("pods".to_owned(), Quantity(self.pods.to_string())),
        ]);
        list.extend(
            self.huge_pages.iter().map(|(size, bytes)| (format!("hugepages-{size}"), Quantity(bytes.to_string()))),
        );
        for (name, _) in DEVICES {
            let users = if self.devices.contains(name) { DEVICE_USERS } else { "0" };
            list.insert(format!("{DEVICE_PREFIX}{name}"), Quantity(users.to_owned()));
        }
        list
    }
}

/// `MemTotal` in bytes.
fn memory_total(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// `hugepages-2048kB/nr_hugepages` → `2Mi` and bytes.
fn huge_pages(directory: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let pages = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count: u64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        let size = match kilobytes {
            large if large % (1 << 20) == 0 => format!("{}Gi", large >> 20),
            small => format!("{}Mi", small >> 10),
        };
        Some((size, count * kilobytes * 1024))
    });
    pages.collect()
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn labels(config: &NodeConfig) -> BTreeMap<String, String> {
    let mut labels = config.labels.clone();
    for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
        labels.insert(format!("{prefix}/arch"), architecture().to_owned());
        labels.insert(format!("{prefix}/os"), "linux".to_owned());
    }
    labels.insert("kubernetes.io/hostname".to_owned(), config.name.clone());
    labels
}

fn system_info() -> NodeSystemInfo {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let os = read("/etc/os-release");
    let pretty = os.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: "crun://".to_owned() + env!("CARGO_PKG_VERSION"),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        kubelet_version: format!("v{}+ferrovirt", env!("CARGO_PKG_VERSION")),
        machine_id: read("/etc/machine-id"),
        operating_system: "linux".to_owned(),
        os_image: pretty.unwrap_or("Linux").trim_matches('"').to_owned(),
        system_uuid: read("/sys/class/dmi/id/product_uuid"),
        ..NodeSystemInfo::default()
    }
}

fn conditions(old: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
    let wanted = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "the node has memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the node has disk space available"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "the node has process ids available"),
        ("Ready", "True", "KubeletReady", "the node takes pods"),
    ];
    let made = wanted.map(|(kind, status, reason, message)| {
        let before = old.iter().find(|condition| condition.type_ == kind && condition.status == status);
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: before.and_then(|old| old.last_transition_time.clone()).or(Some(Time(now))),
        }
    });
    made.to_vec()
}

fn status(config: &NodeConfig, capacity: &Capacity, old: &[NodeCondition], now: Timestamp) -> NodeStatus {
    let mut addresses: Vec<NodeAddress> = config
        .addresses
        .iter()
        .map(|address| NodeAddress { type_: "InternalIP".to_owned(), address: address.to_string() })
        .collect();
    addresses.push(NodeAddress { type_: "Hostname".to_owned(), address: config.name.clone() });
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(capacity.resources()),
        allocatable: Some(capacity.resources()),
        conditions: Some(conditions(old, now)),
        node_info: Some(system_info()),
        volumes_attached: None::<Vec<AttachedVolume>>,
        ..NodeStatus::default()
    }
}

/// Makes the Node object or brings it up to date; labels, annotations and taints of others stay.
async fn register(context: &Context) -> kube::Result<()> {
    let (config, capacity) = (&context.config, &context.capacity);
    let api: Api<Node> = Api::all(context.client.clone());
    let spec = NodeSpec {
        pod_cidr: config.pod_ranges.first().cloned(),
        pod_cidrs: Some(config.pod_ranges.clone()).filter(|ranges| !ranges.is_empty()),
        ..NodeSpec::default()
    };
    let node = match api.get_opt(&config.name).await? {
        Some(node) => node,
        None => {
            let metadata =
                ObjectMeta { name: Some(config.name.clone()), labels: Some(labels(config)), ..ObjectMeta::default() };
            api.create(&PostParams::default(), &Foreign(v1::Node { metadata, spec: Some(spec), status: None })).await?
        }
    };
    let missing =
        labels(config).iter().any(|(key, value)| node.metadata.labels.as_ref().and_then(|l| l.get(key)) != Some(value));
    if missing {
        let patch = json!({"metadata": {"labels": labels(config)}});
        api.patch(&config.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    let old = node.0.status.and_then(|status| status.conditions).unwrap_or_default();
    let mut patch = json!({"status": status(config, capacity, &old, Timestamp::now())});
    // The list's merge key is the type, which the addresses of both families share: merged, one would be lost.
    if let Some(addresses) = patch["status"]["addresses"].as_array_mut() {
        addresses.push(json!({"$patch": "replace"}));
    }
    api.patch_status(&config.name, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// Writes a sign of life. The lease belongs to the node, so that it goes away with it.
async fn beat(client: &Client, config: &NodeConfig) -> kube::Result<()> {
    let api: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let renew = json!({"spec": {"renewTime": MicroTime(Timestamp::now()), "holderIdentity": config.name, "leaseDurationSeconds": LEASE_SECONDS}});
    match api.patch(&config.name, &PatchParams::default(), &Patch::Merge(renew)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => return other.map(|_| ()),
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let owner = nodes.get(&config.name).await?.0.metadata.uid.unwrap_or_default();
    let lease = Foreign(coordination::Lease {
        metadata: serde_json::from_value(json!({
            "name": config.name,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": config.name, "uid": owner}],
        }))
        .unwrap_or_default(),
        spec: Some(LeaseSpec {
            holder_identity: Some(config.name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    });
    api.create(&PostParams::default(), &lease).await.map(|_| ())
}

/// Whether the Node object still says what it should: somebody may have deleted it or taken it over.
async fn is_registered(context: &Context) -> kube::Result<bool> {
    let api: Api<Node> = Api::all(context.client.clone());
    let node = api.get_opt(&context.config.name).await?;
    let conditions = node.and_then(|node| node.0.status).and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

/// Registers the node and keeps it alive until `stop`.
pub(crate) async fn keep(context: Arc<Context>, stop: CancellationToken) {
    let mut registered = false;
    loop {
        let done = async {
            if !registered || !is_registered(&context).await? {
                register(&context).await?;
                registered = true;
            }
            beat(&context.client, &context.config).await
        };
        let pause = match done.await {
            Ok(()) => context.config.heartbeat,
            Err(error) => {
                tracing::warn!(%error, node = context.config.name, "the node could not report");
                context.config.heartbeat.min(std::time::Duration::from_secs(1))
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_devices_are_offered() {
        assert_eq!(memory_total("MemFree: 1 kB\nMemTotal:       16 kB\n"), 16384);
        let capacity = Capacity {
            cpu_millis: 2000,
            memory_bytes: 1 << 30,
            storage_bytes: 5,
            pods: 110,
            huge_pages: BTreeMap::from([("2Mi".to_owned(), 0)]),
            devices: vec!["tun"],
        };
        let resources = capacity.resources();
        assert_eq!(resources["devices.kubevirt.io/tun"].0, "1000");
        assert_eq!(resources["devices.kubevirt.io/kvm"].0, "0");
        assert_eq!(resources["cpu"].0, "2000m");
        assert_eq!(resources["hugepages-2Mi"].0, "0");
    }
}
