//! Labels, annotations and the owner of a launcher pod.

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::{annotations, labels};
use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::{COMPUTE, names};

/// The value of [`labels::APP`] on launcher pods.
const LAUNCHER: &str = "virt-launcher";
/// Which container `kubectl logs` and `kubectl exec` mean.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// Labels of the guest that are about the guest's own object.
const OWN_LABELS: [&str; 4] =
    [labels::NODE_NAME, labels::MIGRATION_TARGET_NODE_NAME, labels::OUTDATED_LAUNCHER_IMAGE, labels::ASKED_NODE];
/// Annotations of the guest that are about the guest's own object.
const OWN_ANNOTATIONS: [&str; 4] = [
    annotations::VOUCHED_PODS,
    "kubectl.kubernetes.io/last-applied-configuration",
    annotations::API_LATEST_OBSERVED,
    annotations::API_STORAGE_OBSERVED,
];

pub(crate) fn of(vmi: &VirtualMachineInstance, overhead: u64) -> ObjectMeta {
    ObjectMeta {
        name: Some(names::pod_name(vmi)),
        namespace: vmi.metadata.namespace.clone(),
        labels: Some(labels_of(vmi)),
        annotations: Some(annotations_of(vmi, overhead)),
        owner_references: Some(vec![owner(vmi)]),
        ..ObjectMeta::default()
    }
}

/// The guest's labels, so that services find the pod, and those of the system over them.
fn labels_of(vmi: &VirtualMachineInstance) -> BTreeMap<String, String> {
    let mut all = inherited(vmi.metadata.labels.as_ref(), &OWN_LABELS);
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    all.insert(labels::APP.to_owned(), LAUNCHER.to_owned());
    all.insert(labels::CREATED_BY.to_owned(), uid);
    all.insert(labels::VM_NAME.to_owned(), names::hostname(vmi));
    all.insert(labels::VMI_ID.to_owned(), names::id_label(vmi));
    all
}

fn annotations_of(vmi: &VirtualMachineInstance, overhead: u64) -> BTreeMap<String, String> {
    let mut all = inherited(vmi.metadata.annotations.as_ref(), &OWN_ANNOTATIONS);
    all.insert(annotations::DOMAIN.to_owned(), vmi.metadata.name.clone().unwrap_or_default());
    all.insert(DEFAULT_CONTAINER.to_owned(), COMPUTE.to_owned());
    all.insert(annotations::MIGRATION_TRANSPORT_UNIX.to_owned(), "true".to_owned());
    all.insert(annotations::MEMORY_OVERHEAD_BYTES.to_owned(), overhead.to_string());
    all.insert(annotations::DESCHEDULER_REQUEST_EVICT_ONLY.to_owned(), String::new());
    all
}

fn inherited(entries: Option<&BTreeMap<String, String>>, without: &[&str]) -> BTreeMap<String, String> {
    let entries = entries.into_iter().flatten().filter(|(key, _)| !without.contains(&key.as_str()));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The pod belongs to its guest by uid; nothing else proves it.
fn owner(vmi: &VirtualMachineInstance) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachineInstance::API_VERSION.to_owned(),
        kind: VirtualMachineInstance::KIND.to_owned(),
        name: vmi.metadata.name.clone().unwrap_or_default(),
        uid: vmi.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
