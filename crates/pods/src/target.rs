//! The pod that a guest moves to: the guest's own launcher pod, on another node that can go on with what the guest has seen of its
//! processor, with the very images that the guest runs from.

use std::collections::BTreeMap;

use ferrovirt_api::names::{annotations, conditions, labels};
use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::paths;
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodAntiAffinity, PodReadinessGate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::images::{self, GuestImage};
use crate::{LauncherConfig, LauncherPod, Unsupported, launcher_pod, names, placement};

/// What "another node" means.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What a target pod depends on besides its guest.
#[derive(Debug, Clone, Copy)]
pub struct Move<'a> {
    /// The move.
    pub migration: &'a VirtualMachineInstanceMigration,
    /// The pod that the guest runs in.
    pub source: &'a LauncherPod,
    /// Labels of the node that the guest runs on.
    pub source_node: &'a BTreeMap<String, String>,
}

/// The pod that `vmi` moves to. Its name depends on the migration's uid alone, so a second attempt can only find the first one's pod.
pub fn target_pod(
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    movement: &Move<'_>,
) -> Result<Pod, Unsupported> {
    let mut pod = launcher_pod(vmi, config)?;
    let migration = &movement.migration.metadata;
    pod.metadata.name = Some(names::target_pod_name(vmi, movement.migration));
    let uid = migration.uid.clone().unwrap_or_default();
    pod.metadata.labels.get_or_insert_default().insert(labels::MIGRATION_JOB.to_owned(), uid);
    let name = migration.name.clone().unwrap_or_default();
    pod.metadata.annotations.get_or_insert_default().insert(annotations::MIGRATION_JOB_NAME.to_owned(), name);
    pin_images(&mut pod, vmi, movement.source);
    let spec = pod.spec.get_or_insert_default();
    // Its container is ready long before the guest is in it.
    let gate = PodReadinessGate { condition_type: conditions::POD_UNPAUSED.to_owned() };
    spec.readiness_gates.get_or_insert_default().push(gate);
    let affinity = spec.affinity.get_or_insert_default();
    keep_apart(affinity, vmi.metadata.uid.as_deref().unwrap_or_default());
    let selector = spec.node_selector.get_or_insert_default();
    selector.extend(processor_selector(vmi, config, movement));
    for (key, value) in &movement.migration.spec.added_node_selector {
        // Whoever asks for the move may narrow the choice, and change nothing that the guest needs.
        selector.entry(key.clone()).or_insert_with(|| value.clone());
    }
    Ok(pod)
}

/// No node that has a pod of this guest, which also keeps later targets away from this one.
fn keep_apart(affinity: &mut Affinity, uid: &str) {
    let anti = affinity.pod_anti_affinity.get_or_insert_with(PodAntiAffinity::default);
    let required = anti.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    required.push(PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some([(labels::CREATED_BY.to_owned(), uid.to_owned())].into()),
            match_expressions: None,
        }),
        topology_key: HOSTNAME.to_owned(),
        ..PodAffinityTerm::default()
    });
}

/// Labels of nodes that have the processor which the guest knows: the same vendor, and for a guest that follows its host the model and
/// features of the host that it started on. From its second move on, those are known from its pod alone.
fn processor_selector(
    vmi: &VirtualMachineInstance,
    config: &LauncherConfig,
    movement: &Move<'_>,
) -> BTreeMap<String, String> {
    let on_node = |prefix: &'static str| {
        movement.source_node.keys().filter_map(move |key| key.strip_prefix(prefix).map(str::to_owned))
    };
    let mut keys: Vec<String> =
        on_node(labels::CPU_VENDOR_PREFIX).map(|vendor| format!("{}{vendor}", labels::CPU_VENDOR_PREFIX)).collect();
    if placement::follows_host_model(vmi, config) {
        let has_moved = movement.source.migration_uid().is_some();
        let kept = movement.source.node_selector.keys().filter(|key| {
            key.starts_with(labels::CPU_MODEL_MIGRATION_PREFIX) || key.starts_with(labels::CPU_FEATURE_PREFIX)
        });
        if has_moved {
            keys.extend(kept.cloned());
        } else {
            let models = on_node(labels::HOST_MODEL_CPU_PREFIX);
            keys.extend(models.map(|model| format!("{}{model}", labels::CPU_MODEL_MIGRATION_PREFIX)));
            let features = on_node(labels::HOST_MODEL_REQUIRED_FEATURES_PREFIX);
            keys.extend(features.map(|feature| format!("{}{feature}", labels::CPU_FEATURE_PREFIX)));
        }
    }
    keys.into_iter().map(|key| (key, "true".to_owned())).collect()
}

/// A tag may mean another image by now. The source's node says which one it took, in the status of the mount or of the sidecar; an image that
/// has no digest in a registry (one that was loaded by hand) cannot be named any better than the guest does.
fn pin_images(pod: &mut Pod, vmi: &VirtualMachineInstance, source: &LauncherPod) {
    let images = images::of(vmi);
    let taken = taken_images(&images, source);
    let Some(spec) = &mut pod.spec else { return };
    for image in &images {
        let Some(reference) = taken.get(image.slot.as_str()) else { continue };
        let path = paths::image(&image.slot);
        let mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
        let volume = mounts.into_iter().find(|mount| mount.mount_path == path).map(|mount| mount.name.clone());
        let volumes = spec.volumes.iter_mut().flatten().filter(|found| Some(&found.name) == volume.as_ref());
        for source in volumes.filter_map(|volume| volume.image.as_mut()) {
            source.reference = Some(reference.clone());
        }
        let sidecars = spec.init_containers.iter_mut().flatten();
        for sidecar in sidecars.filter(|sidecar| sidecar.name == image.container) {
            sidecar.image = Some(reference.clone());
        }
    }
}

/// The images that the source took, by their names in the pod, whichever way they came into it.
fn taken_images<'a>(images: &'a [GuestImage<'_>], source: &LauncherPod) -> BTreeMap<&'a str, String> {
    let status = source.status.clone().unwrap_or_default();
    let mounts = status.container_statuses.iter().flatten().filter_map(|container| container.volume_mounts.as_ref());
    let mounts = mounts.flatten().filter_map(|mount| {
        let reference = mount.volume_status.as_ref()?.image.as_ref()?.image_ref.clone();
        let slot = images.iter().find(|image| paths::image(&image.slot) == mount.mount_path)?;
        Some((slot.slot.as_str(), reference))
    });
    let sidecars = status.init_container_statuses.iter().flatten().filter_map(|container| {
        let slot = images.iter().find(|image| image.container == container.name)?;
        Some((slot.slot.as_str(), container.image_id.clone()))
    });
    mounts.chain(sidecars).filter(|(_, reference)| reference.contains("@sha256:")).collect()
}
