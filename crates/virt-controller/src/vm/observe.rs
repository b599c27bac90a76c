//! Everything that a decision about one machine depends on, from caches.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_api::kubevirt::VmRolloutStrategy;
use ferrovirt_api::names::finalizers;
use ferrovirt_api::vm::{DataVolume, VirtualMachineStatus};
use ferrovirt_api::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use ferrovirt_kubernetes::ControllerRevision;
use ferrovirt_kubernetes::PersistentVolumeClaim;
use ferrovirt_pods::claims_of_volumes;
use ferrovirt_reconcile::ObjectKey;
use ferrovirt_reconcile::controller::standard::owner_uid;
use jiff::Timestamp;

use crate::caches::Caches;

/// What there is under one name.
#[derive(Clone, Debug)]
pub enum View {
    /// A machine, with or without a guest.
    Machine(Box<Machine>),
    /// A guest that this controller holds, of a machine that is not there any more.
    Widow(Arc<VirtualMachineInstance>),
}

/// One machine and what surrounds it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The machine.
    pub vm: Arc<VirtualMachine>,
    /// Its status as it is.
    pub status: VirtualMachineStatus,
    /// The guest of the same name, whoever owns it.
    pub namesake: Option<Arc<VirtualMachineInstance>>,
    /// What the machine was at its starts.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The claims that the machine's volumes and data volumes name; `None` is missing.
    pub claims: BTreeMap<String, Option<Arc<PersistentVolumeClaim>>>,
    /// Its data volumes.
    pub data_volumes: DataVolumes,
    /// The cluster's configuration, when somebody has made one.
    pub kubevirt: Option<Arc<KubeVirt>>,
    /// Now.
    pub now: Timestamp,
}

/// The data volumes that a machine names.
#[derive(Clone, Debug, PartialEq)]
pub enum DataVolumes {
    /// The cluster does not know the kind.
    NotServed,
    /// The cluster knows the kind, and they have not been listed yet.
    NotListed,
    /// By name; `None` is missing.
    Listed(BTreeMap<String, Option<Arc<DataVolume>>>),
}

/// Whose the guest is that has the machine's name.
#[derive(Clone, Copy, Debug)]
pub enum Guest<'a> {
    /// There is none.
    None,
    /// This machine's.
    Ours(&'a Arc<VirtualMachineInstance>),
    /// Nobody's: the machine may adopt it.
    Orphan(&'a Arc<VirtualMachineInstance>),
    /// Somebody else's.
    Foreign(&'a Arc<VirtualMachineInstance>),
}

impl Machine {
    /// Whose the guest of this name is. The uid of its controlling owner says so, and nothing else.
    pub fn guest(&self) -> Guest<'_> {
        let Some(vmi) = &self.namesake else { return Guest::None };
        match owner_uid(&**vmi) {
            None => Guest::Orphan(vmi),
            Some(uid) if self.vm.metadata.uid.as_deref() == Some(uid) => Guest::Ours(vmi),
            Some(_) => Guest::Foreign(vmi),
        }
    }

    /// The machine's own guest.
    pub fn own_guest(&self) -> Option<&Arc<VirtualMachineInstance>> {
        if let Guest::Ours(vmi) = self.guest() { Some(vmi) } else { None }
    }

    /// Whether changes of the machine reach a living guest where they can.
    pub fn updates_live(&self) -> bool {
        let configuration = self.kubevirt.as_ref().and_then(|kubevirt| kubevirt.spec.configuration.as_ref());
        configuration.and_then(|configuration| configuration.vm_rollout_strategy) != Some(VmRolloutStrategy::Stage)
    }

    /// The machine's uid.
    pub fn uid(&self) -> &str {
        self.vm.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The machine's name.
    pub fn name(&self) -> &str {
        self.vm.metadata.name.as_deref().unwrap_or_default()
    }

    /// The machine's generation.
    pub fn generation(&self) -> i64 {
        self.vm.metadata.generation.unwrap_or_default()
    }
}

/// Whether this controller holds the guest.
pub(super) fn is_held(vmi: &VirtualMachineInstance) -> bool {
    vmi.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == finalizers::VM_CONTROLLER)
}

pub(super) fn observe(caches: &Caches, key: &ObjectKey, now: Timestamp) -> Option<View> {
    let namesake = caches.vmis.get_key(key);
    let Some(vm) = caches.vms.get_key(key) else {
        return namesake.filter(|vmi| is_held(vmi)).map(View::Widow);
    };
    let names: Vec<String> = volume_names(&vm).map(str::to_owned).collect();
    let claims = names.iter().map(|name| (name.clone(), caches.claims.get(key.namespace(), name)));
    Some(View::Machine(Box::new(Machine {
        status: vm.status.clone().unwrap_or_default(),
        namesake,
        revisions: caches.revisions.by(&caches.revisions_by_owner, vm.metadata.uid.as_deref()?),
        claims: claims.collect(),
        data_volumes: data_volumes(caches, key, &names),
        kubevirt: caches.kubevirt(),
        vm,
        now,
    })))
}

/// Claims and data volumes that a machine names.
fn volume_names(vm: &VirtualMachine) -> impl Iterator<Item = &str> {
    let templates =
        vm.spec.data_volume_templates.iter().filter_map(|template| template.metadata.as_ref()?.name.as_deref());
    templates.chain(claims_of_volumes(&vm.spec.template.spec.volumes).map(|(_, claim)| claim))
}

fn data_volumes(caches: &Caches, key: &ObjectKey, names: &[String]) -> DataVolumes {
    if !caches.serves_data_volumes() {
        return DataVolumes::NotServed;
    }
    if !caches.data_volumes.is_synced() {
        return DataVolumes::NotListed;
    }
    let found = names.iter().map(|name| (name.clone(), caches.data_volumes.get(key.namespace(), name)));
    DataVolumes::Listed(found.collect())
}
