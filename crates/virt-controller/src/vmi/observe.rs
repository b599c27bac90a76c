//! Everything that a decision about one guest depends on, from caches.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::labels;
use ferrovirt_api::vmi::VirtualMachineInstanceStatus;
use ferrovirt_pods::{LauncherPod, claims_of};
use ferrovirt_reconcile::ObjectKey;
use jiff::Timestamp;

use super::unaccounted::Known;
use crate::caches::Caches;
use crate::launcher::{Claims, Cluster};

/// The part of a guest's object that this controller writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Who must let go before the object can vanish.
    pub finalizers: Vec<String>,
    /// The label by which a node's virt-handler finds its guests.
    pub node_label: Option<String>,
    /// The label by which a node's virt-handler finds guests whose vanished pods it is asked about.
    pub asked_node: Option<String>,
    /// The status.
    pub status: VirtualMachineInstanceStatus,
}

impl Record {
    /// The part as it is.
    pub fn of(vmi: &VirtualMachineInstance) -> Self {
        let label = |name: &str| vmi.metadata.labels.as_ref().and_then(|all| all.get(name).cloned());
        Self {
            finalizers: vmi.metadata.finalizers.clone().unwrap_or_default(),
            node_label: label(labels::NODE_NAME),
            asked_node: label(labels::ASKED_NODE),
            status: vmi.status.clone().unwrap_or_default(),
        }
    }
}

/// One guest and what surrounds it.
#[derive(Clone, Debug)]
pub struct View {
    /// The guest.
    pub vmi: Arc<VirtualMachineInstance>,
    /// What this controller may change of it, as it is.
    pub record: Record,
    /// Launcher pods that the guest owns, by uid.
    pub pods: Vec<Arc<LauncherPod>>,
    /// What is known of the guest's pods besides.
    pub known: Known,
    /// The claims that the guest's volumes name, by name; `None` is missing.
    pub claims: Claims,
    /// The cluster.
    pub cluster: Cluster,
    /// Labels that the guest's pod needs and that no node has. Only filled for a pod that no node takes.
    pub missing_node_labels: Vec<String>,
    /// Socket addresses of other guests. Only filled for a guest that needs one.
    pub taken_vsock_cids: BTreeSet<u32>,
    /// Now.
    pub now: Timestamp,
}

pub(super) fn observe(caches: &Caches, key: &ObjectKey, launcher_image: &str, now: Timestamp) -> Option<View> {
    let vmi = caches.vmis.get_key(key)?;
    let pods = caches.pods.by(&caches.pods_by_owner, vmi.metadata.uid.as_deref()?);
    let claims = claims_of(&vmi).map(|(_, claim)| (claim.to_owned(), caches.claims.get(key.namespace(), claim)));
    Some(View {
        record: Record::of(&vmi),
        claims: claims.collect(),
        cluster: caches.cluster(launcher_image),
        missing_node_labels: missing_node_labels(caches, &pods),
        known: Known::of(caches, &vmi),
        taken_vsock_cids: taken_vsock_cids(caches, &vmi),
        pods,
        vmi,
        now,
    })
}

/// What a scheduler's message does not say: which label stands in the way.
fn missing_node_labels(caches: &Caches, pods: &[Arc<LauncherPod>]) -> Vec<String> {
    let waiting = pods.iter().filter(|pod| pod.node_name.is_none());
    let labels = waiting.flat_map(|pod| &pod.node_selector);
    let missing = labels.filter(|(key, value)| !caches.has_node_with(key, value));
    missing.map(|(key, value)| format!("{key}={value}")).collect()
}

/// Rare enough for a look at every guest.
fn taken_vsock_cids(caches: &Caches, vmi: &VirtualMachineInstance) -> BTreeSet<u32> {
    if vmi.spec.domain.devices.autoattach_vsock != Some(true) {
        return BTreeSet::new();
    }
    let others = caches.vmis.all().into_iter().filter(|other| other.metadata.uid != vmi.metadata.uid);
    others.filter_map(|other| other.status.as_ref()?.vsock_cid).collect()
}
