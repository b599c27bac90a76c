//! What a machine makes at a start: its guest, and a revision that keeps what the machine was then.
//!
//! What the author left open (disks for volumes, network, inputs, CPU, memory) is filled in at the guest's admission, in one place
//! for all guests. Here is only what makes it this machine's guest.

use ferrovirt_api::names::{annotations, finalizers};
use ferrovirt_api::values::FirmwareUuid;
use ferrovirt_api::vm::StateChangeRequest;
use ferrovirt_api::vmi::{StartStrategy, VirtualMachineInstanceStatus};
use ferrovirt_api::{ToJson, VirtualMachine, VirtualMachineInstance};
use ferrovirt_kubernetes::{ControllerRevision, Foreign};
use ferrovirt_reconcile::controller::{Category, Failure};
use k8s_openapi::Resource;
use k8s_openapi::api::apps::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::json;

use super::observe::Machine;
use super::requests;
use super::strategy::Wish;

/// The namespace of identities that follow from a machine's name.
const LEGACY_UUIDS: u128 = 0x6a1a_24a1_4061_4607_8bf4_a396_3d0c_5895;

/// The machine's guest, as its first request wants it.
pub(super) fn guest(machine: &Machine, requests: &[StateChangeRequest]) -> VirtualMachineInstance {
    let template = &machine.vm.spec.template;
    let of_template = template.metadata.clone().unwrap_or_default();
    let mut notes = of_template.annotations.unwrap_or_default();
    notes.insert(annotations::VM_GENERATION.to_owned(), machine.generation().to_string());
    if requests::wish(requests) == Wish::Start {
        notes.insert(annotations::START_REQUEST.to_owned(), "true".to_owned());
    }
    let mut spec = template.spec.clone();
    if requests::starts_paused(requests) {
        spec.start_strategy = Some(StartStrategy::Paused);
    }
    VirtualMachineInstance {
        metadata: ObjectMeta {
            name: machine.vm.metadata.name.clone(),
            namespace: machine.vm.metadata.namespace.clone(),
            labels: of_template.labels,
            annotations: Some(notes),
            finalizers: Some(vec![finalizers::VM_CONTROLLER.to_owned()]),
            owner_references: Some(vec![owner(&machine.vm)]),
            ..ObjectMeta::default()
        },
        spec,
        status: Some(VirtualMachineInstanceStatus {
            virtual_machine_revision_name: Some(revision_name(machine.uid(), machine.generation())),
            ..VirtualMachineInstanceStatus::default()
        }),
    }
}

/// The reference that makes something the machine's.
pub(super) fn owner(vm: &VirtualMachine) -> OwnerReference {
    OwnerReference {
        api_version: VirtualMachine::API_VERSION.to_owned(),
        kind: VirtualMachine::KIND.to_owned(),
        name: vm.metadata.name.clone().unwrap_or_default(),
        uid: vm.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// What the revision of a start is called.
pub(super) fn revision_name(machine_uid: &str, generation: i64) -> String {
    format!("{}{generation}", revision_prefix(machine_uid))
}

fn revision_prefix(machine_uid: &str) -> String {
    format!("revision-start-vm-{machine_uid}-")
}

/// What the machine is now.
pub(super) fn revision(machine: &Machine) -> Result<ControllerRevision, Failure> {
    let spec = (machine.vm.spec.to_json())
        .map_err(|error| Failure::new(Category::Internal, "write a machine as JSON", error))?;
    Ok(Foreign(v1::ControllerRevision {
        metadata: ObjectMeta {
            name: Some(revision_name(machine.uid(), machine.generation())),
            namespace: machine.vm.metadata.namespace.clone(),
            owner_references: Some(vec![owner(&machine.vm)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({ "spec": spec }))),
        revision: machine.generation(),
    }))
}

/// Revisions of the starts before this one.
pub(super) fn outdated_revisions(machine: &Machine) -> impl Iterator<Item = &std::sync::Arc<ControllerRevision>> {
    let current = revision_name(machine.uid(), machine.generation());
    let prefix = revision_prefix(machine.uid());
    machine.revisions.iter().filter(move |revision| {
        let name = revision.metadata.name.as_deref().unwrap_or_default();
        name.starts_with(&prefix) && name != current
    })
}

/// The identity of a machine that has none of its own: that of its guest, or one that follows from its name.
pub(super) fn firmware_uuid(machine: &Machine) -> FirmwareUuid {
    let guest = machine.namesake.as_ref().and_then(|vmi| vmi.spec.domain.firmware.as_ref()?.uuid.clone());
    guest.unwrap_or_else(|| uuid_of_name(machine.name()))
}

/// A UUID of version 5.
fn uuid_of_name(name: &str) -> FirmwareUuid {
    let named = [&LEGACY_UUIDS.to_be_bytes(), name.as_bytes()].concat();
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &named);
    let number = hash.as_ref().iter().take(16).fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    let version = 5_u128 << 76;
    let variant = 2_u128 << 62;
    FirmwareUuid::from_u128(number & !(0xf << 76) & !(0x3 << 62) | version | variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_a_version_five_uuid() {
        // As `uuidgen --sha1 --namespace 6a1a24a1-4061-4607-8bf4-a3963d0c5895 --name testvm` says.
        assert_eq!(uuid_of_name("testvm").to_string(), "5a9fc181-957e-5c32-9e5a-2de5e9673531");
    }
}
