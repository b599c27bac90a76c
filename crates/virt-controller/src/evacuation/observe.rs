//! Everything that a decision about one node's guests depends on, from caches.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferrovirt_api::vmi::EvictionStrategy;
use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_kubernetes::Node;
use ferrovirt_pods::LauncherPod;
use ferrovirt_reconcile::ObjectKey;
use jiff::Timestamp;

use crate::caches::Caches;
use crate::migration::observe::{limits, queue};
use crate::migration::turn::{Entry, Limits};

/// The taint that drains a node unless the cluster names another.
const DRAIN_TAINT: &str = "kubevirt.io/drain";

/// One node and its guests.
#[derive(Clone, Debug)]
pub struct View {
    /// The node's name.
    pub node: String,
    /// Everybody has to leave it.
    pub is_drained: bool,
    /// What guests do that do not say themselves.
    pub strategy: Option<EvictionStrategy>,
    /// Guests on it.
    pub guests: Vec<Guest>,
    /// All unfinished moves of the cluster.
    pub queue: Vec<Entry>,
    /// How many of them may run.
    pub limits: Limits,
    /// What was said before.
    pub told: BTreeSet<String>,
}

/// One guest.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its object.
    pub vmi: Arc<VirtualMachineInstance>,
    /// Its moves.
    pub migrations: Vec<Arc<VirtualMachineInstanceMigration>>,
    /// How many of its pods have not ended.
    pub pods: usize,
}

pub(super) fn observe(
    caches: &Caches,
    node: &str,
    launcher_image: &str,
    started: &BTreeSet<String>,
    told: BTreeSet<String>,
    now: Timestamp,
) -> View {
    let cluster = caches.cluster(launcher_image);
    let configuration = cluster.configuration();
    let key = configuration.migrations.as_ref().and_then(|migrations| migrations.node_drain_taint_key.as_deref());
    let is_drained = caches.nodes.get("", node).is_some_and(|node| has_taint(&node, key.unwrap_or(DRAIN_TAINT)));
    let guests = caches.vmis.by(&caches.vmis_by_node, node).into_iter().map(|vmi| guest(caches, vmi));
    View {
        node: node.to_owned(),
        is_drained,
        strategy: configuration.eviction_strategy,
        guests: guests.collect(),
        queue: queue(caches, started, now),
        limits: limits(&cluster),
        told,
    }
}

fn guest(caches: &Caches, vmi: Arc<VirtualMachineInstance>) -> Guest {
    let pods = vmi.metadata.uid.as_deref().map(|uid| caches.pods.by(&caches.pods_by_owner, uid)).unwrap_or_default();
    let migrations = ObjectKey::of(&*vmi).map(|key| caches.migrations.by(&caches.migrations_by_vmi, &key));
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    let pods = pods.iter().filter(|pod| !pod.has_ended() && !is_left_elsewhere(pod, node)).count();
    Guest { migrations: migrations.unwrap_or_default(), pods, vmi }
}

/// A pod that is on its way out on another node than the guest's. If that node is dead it stays for long, and targets keep away from it.
fn is_left_elsewhere(pod: &LauncherPod, node: Option<&str>) -> bool {
    let on = pod.node_name.as_deref();
    pod.metadata.deletion_timestamp.is_some() && on != node
}

fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == key && taint.effect == "NoSchedule")
}
