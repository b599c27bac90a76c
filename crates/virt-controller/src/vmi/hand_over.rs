//! What a guest's record says when its node takes over, as far as it is known before the guest runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::{AccessMode, ConditionStatus, QosClass};
use ferrovirt_api::names::{annotations, conditions, reasons};
use ferrovirt_api::values::Quantity;
use ferrovirt_api::vmi::{
    InterfaceStatus, MemoryStatus, MigrationTransport, PersistentVolumeClaimInfo, VirtualMachineInstancePhase as Phase,
    VolumeStatus,
};
use ferrovirt_kubernetes::PersistentVolumeClaim;
use ferrovirt_launcher_rpc::paths::RUNTIME_USER;
use ferrovirt_pods::{LauncherPod, claims_of};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as PodQuantity;

use super::conditions::Draft;
use super::{Record, View};
use crate::launcher::volume_mode;

/// The pod's link on the pod network.
const POD_INTERFACE: &str = "eth0";
/// Socket addresses below are reserved: hypervisor, loopback, host.
const FIRST_VSOCK_CID: u32 = 3;

/// The record that makes `node` the owner of the guest that runs in `pod`.
pub(super) fn to_node(view: &View, pod: &LauncherPod, node: &str) -> Record {
    let mut draft = Draft::of(view);
    let created = pod.metadata.creation_timestamp.clone();
    let scheduling_since = created.unwrap_or_else(|| draft.now());
    draft.stamp(Phase::Scheduling, scheduling_since);
    draft.enter(Phase::Scheduled);
    for solved in [conditions::POD_SCHEDULED, conditions::SYNCHRONIZED, conditions::PROVISIONING] {
        draft.remove(solved);
    }
    let message = "the guest has not been started yet";
    draft.set(conditions::READY, ConditionStatus::False, reasons::GUEST_NOT_RUNNING, message);
    if view.vmi.spec.volumes.iter().any(|volume| volume.data_volume.is_some()) {
        draft.set(conditions::DATA_VOLUMES_READY, ConditionStatus::True, reasons::ALL_DVS_READY, "");
    }
    let mut record = draft.record;
    record.node_label = Some(node.to_owned());
    let status = &mut record.status;
    status.node_name = Some(node.to_owned());
    status.active_pods.extend(active_pods(&view.pods));
    status.launcher_container_image_version = pod.image.clone();
    status.qos_class = qos_class(pod);
    status.runtime_user = status.runtime_user.or(Some(u64::from(RUNTIME_USER)));
    status.migration_transport = Some(MigrationTransport::Unix);
    status.volume_status = volume_status(view, &status.volume_status);
    status.interfaces = interfaces(&view.vmi, &status.interfaces);
    if let Some(overhead) = memory_overhead(pod) {
        status.memory.get_or_insert_with(MemoryStatus::default).memory_overhead = Some(overhead);
    }
    if view.vmi.spec.domain.devices.autoattach_vsock == Some(true) && status.vsock_cid.is_none() {
        status.vsock_cid = Some(vsock_cid(view));
    }
    record
}

/// Uids of the pods that are on a node and have not ended.
pub(crate) fn active_pods(pods: &[Arc<LauncherPod>]) -> BTreeMap<String, String> {
    let living = pods.iter().filter(|pod| !pod.has_ended());
    let placed = living.filter_map(|pod| Some((pod.metadata.uid.clone()?, pod.node_name.clone()?)));
    placed.collect()
}

/// The quality of service that the pod got.
pub(super) fn qos_class(pod: &LauncherPod) -> Option<QosClass> {
    pod.status.as_ref()?.qos_class.as_deref()?.parse().ok()
}

/// What was added to the pod when it was made; today's formula may be another one.
fn memory_overhead(pod: &LauncherPod) -> Option<Quantity> {
    let bytes = pod.metadata.annotations.as_ref()?.get(annotations::MEMORY_OVERHEAD_BYTES)?;
    bytes.parse().ok().map(Quantity::from_bytes)
}

/// One entry for each volume, sorted by name; what is known already stays.
fn volume_status(view: &View, known: &[VolumeStatus]) -> Vec<VolumeStatus> {
    let claims: BTreeMap<&str, &str> = claims_of(&view.vmi).collect();
    let info = |volume: &str| {
        let name = claims.get(volume)?;
        let claim = view.claims.get(*name)?.as_ref()?;
        Some(claim_info(name, claim))
    };
    let entries = view.vmi.spec.volumes.iter().map(|volume| {
        let known = known.iter().find(|status| status.name == volume.name).cloned();
        let status = known.unwrap_or_else(|| VolumeStatus { name: volume.name.clone(), ..VolumeStatus::default() });
        VolumeStatus { persistent_volume_claim_info: info(&volume.name), ..status }
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

fn claim_info(name: &str, claim: &PersistentVolumeClaim) -> PersistentVolumeClaimInfo {
    let spec = claim.spec.as_ref();
    let modes = spec.and_then(|spec| spec.access_modes.as_ref()).into_iter().flatten();
    let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    PersistentVolumeClaimInfo {
        claim_name: Some(name.to_owned()),
        access_modes: modes.filter_map(|mode| mode.parse::<AccessMode>().ok()).collect(),
        volume_mode: Some(volume_mode(claim)),
        capacity: quantities(capacity),
        requests: quantities(requests),
        ..PersistentVolumeClaimInfo::default()
    }
}

fn quantities(amounts: Option<&BTreeMap<String, PodQuantity>>) -> BTreeMap<String, Quantity> {
    let amounts = amounts.into_iter().flatten();
    amounts.filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?))).collect()
}

/// The guest's network cards as it asks for them; addresses follow when it runs.
fn interfaces(vmi: &VirtualMachineInstance, known: &[InterfaceStatus]) -> Vec<InterfaceStatus> {
    if !known.is_empty() {
        return known.to_vec();
    }
    let pod_networks = vmi.spec.networks.iter().filter(|network| network.pod.is_some());
    let pod_networks: Vec<&str> = pod_networks.map(|network| network.name.as_str()).collect();
    let interfaces = vmi.spec.domain.devices.interfaces.iter().map(|interface| InterfaceStatus {
        name: Some(interface.name.clone()),
        mac: interface.mac_address.as_ref().map(ToString::to_string),
        pod_interface_name: pod_networks.contains(&interface.name.as_str()).then(|| POD_INTERFACE.to_owned()),
        ..InterfaceStatus::default()
    });
    interfaces.collect()
}

/// An address that follows from the guest's uid, so that a second attempt finds the same, and that no other guest has.
fn vsock_cid(view: &View) -> u32 {
    let uid = view.vmi.metadata.uid.as_deref().unwrap_or_default();
    let seed = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // The last address means "any".
    let room = u32::MAX - FIRST_VSOCK_CID;
    let candidates = (0..=u32::try_from(view.taken_vsock_cids.len()).unwrap_or(u32::MAX))
        .map(|step| FIRST_VSOCK_CID + (seed % room).wrapping_add(step) % room);
    candidates.into_iter().find(|cid| !view.taken_vsock_cids.contains(cid)).unwrap_or(FIRST_VSOCK_CID)
}
