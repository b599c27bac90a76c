//! What the controllers see: one cache for each kind, filled by one watch, with the indexes that they look things up by.

use std::sync::Arc;

use ferrovirt_api::migration::MigrationPhase;
use ferrovirt_api::names::annotations;
use ferrovirt_api::vm::DataVolume;
use ferrovirt_api::{
    KubeVirt, MigrationPolicy, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration,
};
use ferrovirt_kubernetes::ControllerRevision;
use ferrovirt_kubernetes::CustomResourceDefinition;
use ferrovirt_kubernetes::PodDisruptionBudget;
use ferrovirt_kubernetes::{Namespace, Node, PersistentVolumeClaim};
use ferrovirt_pods::{LauncherPod, claims_of, claims_of_volumes};
use ferrovirt_reconcile::controller::standard::owner_uid;
use ferrovirt_reconcile::watch::DuplicateWatch;
use ferrovirt_reconcile::{Cache, Index, ObjectKey, Watches};
use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::ended::Ended;
use crate::image_volumes::{Asked, ImageVolumes, NO_IMAGE_VOLUMES, lacks_image_volumes};
use crate::launcher::Cluster;

/// Launcher pods. The label selects what is worth knowing; whose a pod is, its owner's uid alone says.
const LAUNCHER_PODS: &str = "kubevirt.io=virt-launcher";
/// The resource that a node offers when its processor can run guests.
const KVM: &str = "devices.kubevirt.io/kvm";

/// The definition by which a cluster says that it knows data volumes.
const DATA_VOLUME_DEFINITION: &str = "datavolumes.cdi.kubevirt.io";

/// All caches of the process.
#[derive(Clone)]
pub struct Caches {
    /// Machines.
    pub vms: Cache<VirtualMachine>,
    /// Machines by the claims and data volumes that they name: `namespace/name`.
    pub vms_by_claim: Index<VirtualMachine, ObjectKey>,
    /// What machines were when they were started.
    pub revisions: Cache<ControllerRevision>,
    /// The same by the uid of the machine.
    pub revisions_by_owner: Index<ControllerRevision, String>,
    /// Data volumes; empty where the cluster does not know them.
    pub data_volumes: Cache<DataVolume>,
    /// The definition of data volumes, where there is one.
    pub data_volume_definitions: Cache<CustomResourceDefinition>,
    /// Guests.
    pub vmis: Cache<VirtualMachineInstance>,
    /// Guests by the claims that they use: `namespace/claim`.
    pub vmis_by_claim: Index<VirtualMachineInstance, ObjectKey>,
    /// Guests by the node that owns them.
    pub vmis_by_node: Index<VirtualMachineInstance, String>,
    /// Moves.
    pub migrations: Cache<VirtualMachineInstanceMigration>,
    /// Moves by their guest: `namespace/name`.
    pub migrations_by_vmi: Index<VirtualMachineInstanceMigration, ObjectKey>,
    /// Moves by whether they are over.
    pub migrations_by_end: Index<VirtualMachineInstanceMigration, bool>,
    /// Options of moves for some guests.
    pub policies: Cache<MigrationPolicy>,
    /// Disruption budgets.
    pub budgets: Cache<PodDisruptionBudget>,
    /// Namespaces: their labels.
    pub namespaces: Cache<Namespace>,
    /// Launcher pods: where and from which image they run, and how that goes.
    pub pods: Cache<LauncherPod>,
    /// Launcher pods by the uid of the guest that owns them.
    pub pods_by_owner: Index<LauncherPod, String>,
    /// Target pods by the uid of their move.
    pub pods_by_migration: Index<LauncherPod, String>,
    /// Launcher pods that were seen to end.
    pub ended: Ended,
    /// Claims.
    pub claims: Cache<PersistentVolumeClaim>,
    /// Nodes: their labels, taints, heartbeat, whether they are ready, whether they have KVM, and the versions of what runs pods there.
    pub nodes: Cache<Node>,
    /// Nodes by each of their labels, as `key=value`, by the name of the resource that says KVM, and by what they lack.
    pub nodes_by_trait: Index<Node, String>,
    /// The cluster's configuration: one object, or none.
    pub kubevirts: Cache<KubeVirt>,
    /// What the API server said about image volumes.
    pub image_volumes: Asked,
}

impl Default for Caches {
    fn default() -> Self {
        Self::new()
    }
}

impl Caches {
    /// Empty caches.
    pub fn new() -> Self {
        let mut vms = Cache::<VirtualMachine>::builder();
        let vms_by_claim = vms.index(machine_claim_keys);
        let mut revisions = Cache::<ControllerRevision>::builder();
        let revisions_by_owner =
            revisions.index(|revision: &ControllerRevision| owner_uid(revision).map(str::to_owned));
        revisions.trim(trim_revision);
        let mut definitions = Cache::<CustomResourceDefinition>::builder();
        definitions.trim(|definition| definition.spec = Default::default());
        let mut vmis = Cache::<VirtualMachineInstance>::builder();
        let vmis_by_claim = vmis.index(claim_keys);
        let vmis_by_node = vmis.index(|vmi: &VirtualMachineInstance| vmi.status.as_ref()?.node_name.clone());
        let mut migrations = Cache::<VirtualMachineInstanceMigration>::builder();
        let migrations_by_vmi = migrations.index(|migration| Some(guest_key(migration)));
        let migrations_by_end = migrations.index(|migration| Some(is_over(migration)));
        let mut namespaces = Cache::<Namespace>::builder();
        namespaces.trim(trim_namespace);
        let mut pods = Cache::<LauncherPod>::builder();
        let pods_by_owner = pods.index(|pod: &LauncherPod| owner_uid(pod).map(str::to_owned));
        let pods_by_migration = pods.index(|pod: &LauncherPod| pod.migration_uid().map(str::to_owned));
        let mut nodes = Cache::<Node>::builder();
        let nodes_by_trait = nodes.index(traits);
        nodes.trim(trim_node);
        let (vmis, pods) = (vmis.build(), pods.build());
        // Before anybody else listens to the same caches.
        let ended = Ended::of_caches(&pods, &vmis);
        Self {
            vms: vms.build(),
            vms_by_claim,
            revisions: revisions.build(),
            revisions_by_owner,
            data_volumes: Cache::builder().build(),
            data_volume_definitions: definitions.build(),
            vmis,
            vmis_by_claim,
            vmis_by_node,
            migrations: migrations.build(),
            migrations_by_vmi,
            migrations_by_end,
            policies: Cache::builder().build(),
            budgets: Cache::builder().build(),
            namespaces: namespaces.build(),
            pods,
            ended,
            pods_by_owner,
            pods_by_migration,
            claims: Cache::builder().build(),
            nodes: nodes.build(),
            nodes_by_trait,
            kubevirts: Cache::builder().build(),
            image_volumes: Asked::default(),
        }
    }

    /// The watches that fill them; the one of data volumes is [on its own](Self::watch_data_volumes).
    pub fn watches(&self, client: &Client) -> Result<Watches, DuplicateWatch> {
        let all = watcher::Config::default;
        let mut watches = Watches::new();
        let definition = all().fields(&format!("metadata.name={DATA_VOLUME_DEFINITION}"));
        watches.add(Api::all(client.clone()), definition, &self.data_volume_definitions)?;
        watches.add(Api::all(client.clone()), all(), &self.vms)?;
        watches.add(Api::all(client.clone()), all(), &self.revisions)?;
        watches.add(Api::all(client.clone()), all(), &self.vmis)?;
        watches.add(Api::all(client.clone()), all(), &self.migrations)?;
        watches.add(Api::all(client.clone()), all(), &self.policies)?;
        watches.add(Api::all(client.clone()), all(), &self.namespaces)?;
        watches.add(Api::all(client.clone()), all(), &self.budgets)?;
        watches.add(Api::all(client.clone()), all().labels(LAUNCHER_PODS), &self.pods)?;
        watches.add(Api::all(client.clone()), all(), &self.claims)?;
        watches.add(Api::all(client.clone()), all(), &self.nodes)?;
        watches.add(Api::all(client.clone()), all(), &self.kubevirts)?;
        Ok(watches)
    }

    /// Watches data volumes as soon as the cluster knows them; does not end.
    pub async fn watch_data_volumes(&self, client: &Client) {
        let (told, mut served) = watch::channel(self.serves_data_volumes());
        self.data_volume_definitions.on_change(move |change| {
            told.send_replace(change.new.as_deref().is_some_and(is_established));
        });
        // The sender lives as long as the cache; the watcher itself bears with a kind that goes again.
        if served.wait_for(|served| *served).await.is_ok() {
            let mut watches = Watches::new();
            let api = Api::<DataVolume>::all(client.clone());
            if watches.add(api, watcher::Config::default(), &self.data_volumes).is_ok() {
                watches.run().await;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Whether the cluster knows data volumes.
    pub fn serves_data_volumes(&self) -> bool {
        self.data_volume_definitions
            .get("", DATA_VOLUME_DEFINITION)
            .is_some_and(|definition| is_established(&definition))
    }

    /// The cluster's configuration.
    pub fn kubevirt(&self) -> Option<Arc<KubeVirt>> {
        // There may be one only; should there be more, everybody takes the oldest.
        self.kubevirts.all().into_iter().min_by_key(|kubevirt| kubevirt.metadata.creation_timestamp.clone())
    }

    /// What launcher pods depend on besides their guests.
    pub fn cluster(&self, launcher_image: &str) -> Cluster {
        Cluster {
            kubevirt: self.kubevirt(),
            launcher_image: launcher_image.to_owned(),
            has_kvm: self.has_kvm(),
            image_volumes: self.image_volumes(),
        }
    }

    /// Whether some node offers KVM.
    pub fn has_kvm(&self) -> bool {
        self.nodes.count_by(&self.nodes_by_trait, KVM) > 0
    }

    /// Who knows image volumes.
    pub fn image_volumes(&self) -> ImageVolumes {
        let lacking = || self.nodes.count_by(&self.nodes_by_trait, NO_IMAGE_VOLUMES);
        match self.image_volumes.answer() {
            None => ImageVolumes::Everywhere,
            Some(false) => ImageVolumes::Nowhere,
            Some(true) if lacking() > 0 => ImageVolumes::SomeNodes,
            Some(true) => ImageVolumes::Everywhere,
        }
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

fn machine_claim_keys(vm: &VirtualMachine) -> Vec<ObjectKey> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let templates =
        vm.spec.data_volume_templates.iter().filter_map(|template| template.metadata.as_ref()?.name.as_deref());
    let claims = claims_of_volumes(&vm.spec.template.spec.volumes).map(|(_, claim)| claim);
    let mut keys: Vec<_> = templates.chain(claims).map(|name| ObjectKey::new(namespace, name)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Other controllers keep revisions too, large ones; only those of machines are read.
fn trim_revision(revision: &mut ControllerRevision) {
    let owners = revision.metadata.owner_references.as_deref().unwrap_or_default();
    if owners.iter().all(|owner| owner.kind != "VirtualMachine") {
        revision.data = None;
    }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

fn traits(node: &Node) -> Vec<String> {
    let labels = node.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let lacks = lacks_image_volumes(node).then(|| NO_IMAGE_VOLUMES.to_owned());
    labels.chain(offers_kvm(node).then(|| KVM.to_owned())).chain(lacks).collect()
}

/// Nodes carry long lists of images and conditions; a few lines are read.
fn trim_node(node: &mut Node) {
    let kvm = offers_kvm(node);
    let heartbeat =
        |(key, _): &(&String, &mut String)| [annotations::NODE_HEARTBEAT, crate::node::SILENCE].contains(&key.as_str());
    if let Some(all) = &mut node.metadata.annotations {
        let kept = all.iter_mut().filter(heartbeat).map(|(key, value)| (key.clone(), std::mem::take(value)));
        *all = kept.collect();
    }
    let taints = node.spec.take().and_then(|spec| spec.taints);
    node.spec = Some(NodeSpec { taints, ..NodeSpec::default() });
    let NodeStatus { conditions, node_info, .. } = node.status.take().unwrap_or_default();
    let conditions = conditions.unwrap_or_default();
    let ready = conditions.into_iter().filter(|condition| condition.type_ == "Ready");
    let ready =
        ready.map(|ready| NodeCondition { type_: ready.type_, status: ready.status, ..NodeCondition::default() });
    let capacity = kvm.then(|| [(KVM.to_owned(), Quantity("1".to_owned()))].into());
    let node_info = node_info.map(|NodeSystemInfo { kubelet_version, container_runtime_version, .. }| NodeSystemInfo {
        kubelet_version,
        container_runtime_version,
        ..NodeSystemInfo::default()
    });
    let conditions = Some(ready.collect());
    node.status = Some(NodeStatus { capacity, conditions, node_info, ..NodeStatus::default() });
}

fn trim_namespace(namespace: &mut Namespace) {
    namespace.metadata.annotations = None;
    namespace.spec = None;
    namespace.status = None;
}

/// The guest of a move.
pub(crate) fn guest_key(migration: &VirtualMachineInstanceMigration) -> ObjectKey {
    ObjectKey::new(migration.metadata.namespace.as_deref().unwrap_or_default(), &migration.spec.vmi_name)
}

/// Whether a move is over.
pub(crate) fn is_over(migration: &VirtualMachineInstanceMigration) -> bool {
    migration.status.as_ref().and_then(|status| status.phase).is_some_and(MigrationPhase::is_final)
}

/// By its capacity: what can be allocated is nothing for a moment whenever virt-handler restarts, and guests that come then shall not be
/// emulated.
fn offers_kvm(node: &Node) -> bool {
    let amount = node.status.as_ref().and_then(|status| status.capacity.as_ref()?.get(KVM));
    amount.is_some_and(|amount| amount.0 != "0")
}
