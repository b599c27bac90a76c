//! Everything that a decision about one move depends on, from caches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrovirt_api::migration::{MigrationPhase, VirtualMachineInstanceMigrationStatus};
use ferrovirt_api::vmi::MigrationState;
use ferrovirt_api::{MigrationPolicy, VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_pods::{LauncherPod, claims_of};
use ferrovirt_reconcile::ObjectKey;
use jiff::Timestamp;

use super::turn::{self, Entry, Limits, Standing};
use super::{candidate, policy};
use crate::caches::{Caches, guest_key, is_over};
use crate::launcher::{Claims, Cluster};
use crate::node::is_fenced;
use crate::vmi::Known;

/// One move and what surrounds it.
#[derive(Clone, Debug)]
pub struct View {
    /// The move.
    pub migration: Arc<VirtualMachineInstanceMigration>,
    /// Its status, as it is.
    pub status: VirtualMachineInstanceMigrationStatus,
    /// The guest of that name.
    pub vmi: Option<Arc<VirtualMachineInstance>>,
    /// The guest's pods, by uid.
    pub pods: Vec<Arc<LauncherPod>>,
    /// What is known of them besides.
    pub known: Known,
    /// Other moves of the guest.
    pub siblings: Vec<Arc<VirtualMachineInstanceMigration>>,
    /// All unfinished moves of the cluster.
    pub queue: Vec<Entry>,
    /// How many of them may run.
    pub limits: Limits,
    /// The claims of the guest's volumes.
    pub claims: Claims,
    /// The cluster.
    pub cluster: Cluster,
    /// Options of moves for some guests.
    pub policies: Vec<Arc<MigrationPolicy>>,
    /// Labels of the namespace.
    pub namespace_labels: BTreeMap<String, String>,
    /// Labels of the node that the guest runs on.
    pub node_labels: BTreeMap<String, String>,
    /// The node that the guest moves to is out of service.
    pub is_target_fenced: bool,
    /// Now.
    pub now: Timestamp,
}

impl View {
    /// The move's uid.
    pub(super) fn uid(&self) -> &str {
        self.migration.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The guest, unless it is a later one of the same name than the move was made for.
    pub(super) fn guest(&self) -> Option<&Arc<VirtualMachineInstance>> {
        let created = self.migration.metadata.creation_timestamp.as_ref().map(|time| time.0);
        self.vmi.as_ref().filter(|vmi| vmi.metadata.creation_timestamp.as_ref().map(|time| time.0) <= created)
    }

    /// Where the move is in its life.
    pub(super) fn phase(&self) -> Option<MigrationPhase> {
        self.status.phase
    }
}

pub(super) fn observe(
    caches: &Caches,
    key: &ObjectKey,
    launcher_image: &str,
    started: &BTreeSet<String>,
    now: Timestamp,
) -> Option<View> {
    let migration = caches.migrations.get_key(key)?;
    let vmi = caches.vmis.get_key(&guest_key(&migration));
    let uid = vmi.as_ref().and_then(|vmi| vmi.metadata.uid.as_deref());
    let pods = uid.map(|uid| caches.pods.by(&caches.pods_by_owner, uid)).unwrap_or_default();
    let claims = vmi.iter().flat_map(|vmi| claims_of(vmi));
    let claims = claims.map(|(_, claim)| (claim.to_owned(), caches.claims.get(key.namespace(), claim))).collect();
    let cluster = caches.cluster(launcher_image);
    let node = vmi.as_ref().and_then(|vmi| vmi.status.as_ref()?.node_name.as_deref());
    let node = node.and_then(|node| caches.nodes.get("", node));
    let target = vmi.as_ref().and_then(|vmi| vmi.status.as_ref()?.migration_state.as_ref()?.target_node.clone());
    let target = target.and_then(|target| caches.nodes.get("", &target));
    let namespace = caches.namespaces.get("", key.namespace());
    Some(View {
        status: migration.status.clone().unwrap_or_default(),
        pods,
        known: vmi.as_ref().map(|vmi| Known::of(caches, vmi)).unwrap_or_default(),
        siblings: siblings(caches, &migration),
        queue: queue(caches, started, now),
        limits: limits(&cluster),
        claims,
        policies: caches.policies.all(),
        namespace_labels: namespace.and_then(|it| it.metadata.labels.clone()).unwrap_or_default(),
        node_labels: node.and_then(|it| it.metadata.labels.clone()).unwrap_or_default(),
        is_target_fenced: target.is_some_and(|target| is_fenced(&target)),
        cluster,
        vmi,
        migration,
        now,
    })
}

/// How many moves may run.
pub(crate) fn limits(cluster: &Cluster) -> Limits {
    let none = BTreeMap::new();
    Limits::of(&policy::resolve(cluster.configuration().migrations.as_ref(), &[], &none, &none).1)
}

/// Other moves of the same guest.
fn siblings(caches: &Caches, migration: &VirtualMachineInstanceMigration) -> Vec<Arc<VirtualMachineInstanceMigration>> {
    let all = caches.migrations.by(&caches.migrations_by_vmi, &guest_key(migration));
    all.into_iter().filter(|other| other.metadata.uid != migration.metadata.uid).collect()
}

/// All unfinished moves. `started` are those whose pods were asked for: a cache may not show them yet.
pub(crate) fn queue(caches: &Caches, started: &BTreeSet<String>, now: Timestamp) -> Vec<Entry> {
    let unfinished = caches.migrations.by(&caches.migrations_by_end, &false);
    unfinished.iter().map(|migration| entry(caches, migration, started, now)).collect()
}

fn entry(
    caches: &Caches,
    migration: &VirtualMachineInstanceMigration,
    started: &BTreeSet<String>,
    now: Timestamp,
) -> Entry {
    let uid = migration.metadata.uid.clone().unwrap_or_default();
    let vmi = caches.vmis.get_key(&guest_key(migration));
    let state = vmi.as_ref().and_then(|vmi| record_of(vmi, &uid));
    let node = match state {
        Some(state) => state.source_node.clone(),
        None => vmi.as_ref().and_then(|vmi| vmi.status.as_ref()?.node_name.clone()),
    };
    let phase = migration.status.as_ref().and_then(|status| status.phase);
    let has_pod = caches.pods.by(&caches.pods_by_migration, uid.as_str()).iter().any(|pod| !pod.has_ended());
    let is_waiting = matches!(phase, None | Some(MigrationPhase::Pending));
    let holds = !is_waiting || has_pod || state.is_some() || started.contains(&uid);
    let is_ready = || {
        let siblings = siblings(caches, migration);
        vmi.as_ref().is_some_and(|vmi| candidate::obstacle(migration, vmi, &siblings, now).is_none())
    };
    let standing = match () {
        () if holds => Standing::Holding,
        () if is_ready() => Standing::Ready,
        () => Standing::Blocked,
    };
    let created = migration.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    Entry { uid, node: node.unwrap_or_default(), standing, priority: turn::priority(migration), created }
}

/// The guest's own account of the move with this uid.
pub(crate) fn record_of<'a>(vmi: &'a VirtualMachineInstance, uid: &str) -> Option<&'a MigrationState> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    (state.migration_uid.as_deref() == Some(uid)).then_some(state)
}

/// Forgets moves that are over or gone.
pub(super) fn forget_finished(caches: &Caches, started: &mut BTreeSet<String>) {
    if started.is_empty() {
        return;
    }
    let unfinished = caches.migrations.by(&caches.migrations_by_end, &false);
    debug_assert!(unfinished.iter().all(|migration| !is_over(migration)));
    let unfinished: BTreeSet<_> = unfinished.iter().filter_map(|migration| migration.metadata.uid.clone()).collect();
    started.retain(|uid| unfinished.contains(uid));
}
