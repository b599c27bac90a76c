//! What the controllers see: one cache for each kind, filled by one watch, with the indexes that they look things up by.

use std::sync::Arc;

use ferrovirt_api::{KubeVirt, VirtualMachineInstance};
use ferrovirt_pods::claims_of;
use ferrovirt_reconcile::controller::standard::owner_uid;
use ferrovirt_reconcile::watch::DuplicateWatch;
use ferrovirt_reconcile::{Cache, Index, ObjectKey, Watches};
use k8s_openapi::api::core::v1::{Node, NodeStatus, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::runtime::watcher;
use kube::{Api, Client};

/// Launcher pods. The label selects what is worth knowing; whose a pod is, its owner's uid alone says.
const LAUNCHER_PODS: &str = "kubevirt.io=virt-launcher";
/// The resource that a node offers when its processor can run guests.
const KVM: &str = "devices.kubevirt.io/kvm";

/// All caches of the process.
#[derive(Clone)]
pub struct Caches {
    /// Guests.
    pub vmis: Cache<VirtualMachineInstance>,
    /// Guests by the claims that they use: `namespace/claim`.
    pub vmis_by_claim: Index<VirtualMachineInstance, ObjectKey>,
    /// Launcher pods.
    pub pods: Cache<Pod>,
    /// Launcher pods by the uid of the guest that owns them.
    pub pods_by_owner: Index<Pod, String>,
    /// Claims.
    pub claims: Cache<PersistentVolumeClaim>,
    /// Nodes: their labels, and whether they have KVM.
    pub nodes: Cache<Node>,
    /// Nodes by each of their labels, as `key=value`, and by the name of the resource that says KVM.
    pub nodes_by_trait: Index<Node, String>,
    /// The cluster's configuration: one object, or none.
    pub kubevirts: Cache<KubeVirt>,
}

impl Default for Caches {
    fn default() -> Self {
        Self::new()
    }
}

impl Caches {
    /// Empty caches.
    pub fn new() -> Self {
        let mut vmis = Cache::<VirtualMachineInstance>::builder();
        let vmis_by_claim = vmis.index(claim_keys);
        let mut pods = Cache::<Pod>::builder();
        let pods_by_owner = pods.index(|pod: &Pod| owner_uid(pod).map(str::to_owned));
        let mut nodes = Cache::<Node>::builder();
        let nodes_by_trait = nodes.index(traits);
        nodes.trim(trim_node);
        Self {
            vmis: vmis.build(),
            vmis_by_claim,
            pods: pods.build(),
            pods_by_owner,
            claims: Cache::builder().build(),
            nodes: nodes.build(),
            nodes_by_trait,
            kubevirts: Cache::builder().build(),
        }
    }

    /// The watches that fill them.
    pub fn watches(&self, client: &Client) -> Result<Watches, DuplicateWatch> {
        let all = watcher::Config::default;
        let mut watches = Watches::new();
        watches.add(Api::all(client.clone()), all(), &self.vmis)?;
        watches.add(Api::all(client.clone()), all().labels(LAUNCHER_PODS), &self.pods)?;
        watches.add(Api::all(client.clone()), all(), &self.claims)?;
        watches.add(Api::all(client.clone()), all(), &self.nodes)?;
        watches.add(Api::all(client.clone()), all(), &self.kubevirts)?;
        Ok(watches)
    }

    /// The cluster's configuration.
    pub fn kubevirt(&self) -> Option<Arc<KubeVirt>> {
        // There may be one only; should there be more, everybody takes the same.
        self.kubevirts.all().into_iter().next()
    }

    /// Whether some node offers KVM.
    pub fn has_kvm(&self) -> bool {
        self.nodes.count_by(&self.nodes_by_trait, KVM) > 0
    }

    /// Whether some node has the label.
    pub fn has_node_with(&self, key: &str, value: &str) -> bool {
        self.nodes.count_by(&self.nodes_by_trait, format!("{key}={value}").as_str()) > 0
    }
}

fn claim_keys(vmi: &VirtualMachineInstance) -> Vec<ObjectKey> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    claims_of(vmi).map(|(_, claim)| ObjectKey::new(namespace, claim)).collect()
}

fn traits(node: &Node) -> Vec<String> {
    let labels = node.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    labels.chain(offers_kvm(node).then(|| KVM.to_owned())).collect()
}

/// Nodes change with every heartbeat and carry long lists of images; a line of labels and one number are read.
fn trim_node(node: &mut Node) {
    let kvm = offers_kvm(node);
    node.metadata.annotations = None;
    node.spec = None;
    let allocatable = kvm.then(|| [(KVM.to_owned(), Quantity("1".to_owned()))].into());
    node.status = Some(NodeStatus { allocatable, ..NodeStatus::default() });
}

fn offers_kvm(node: &Node) -> bool {
    let amount = node.status.as_ref().and_then(|status| status.allocatable.as_ref()?.get(KVM));
    amount.is_some_and(|amount| amount.0 != "0")
}
