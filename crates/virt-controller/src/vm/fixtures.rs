//! Machines and guests for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::instance;
use super::observe::{DataVolumes, Machine, View};

pub(super) const UID: &str = "4c7b1f6e-0d5a-4f3e-9b7e-1a2b3c4d5e6f";
pub(super) const GUEST_UID: &str = "8f3a92c1-77aa-4d52-9d0e-0a1b2c3d4e5f";
pub(super) const FIRMWARE_UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";

/// The time of every view.
pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// A machine that was admitted as it should be.
pub(super) fn vm(strategy: &str) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": UID, "resourceVersion": "7", "generation": 3,
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"],
        },
        "spec": {"runStrategy": strategy, "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"note": "of the template"}},
            "spec": {"domain": {"memory": {"guest": "128Mi"}, "devices": {}, "firmware": {"uuid": FIRMWARE_UUID}}},
        }},
    })
}

/// The machine's guest in a phase, made a minute ago.
pub(super) fn guest(phase: &str) -> Value {
    let has_run = phase == "Running";
    let stamps = if has_run { json!([{"phase": "Running"}]) } else { json!([]) };
    let ready = if has_run { "True" } else { "False" };
    json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": GUEST_UID, "resourceVersion": "9",
            "creationTimestamp": "2026-01-01T11:59:00Z",
            "annotations": {"kubevirt.io/vm-generation": "3"},
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize", "kubevirt.io/foregroundDeleteVirtualMachine"],
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "uid": UID, "controller": true,
            }],
        },
        "spec": {"domain": {"memory": {"guest": "128Mi"}, "devices": {}, "firmware": {"uuid": FIRMWARE_UUID}}},
        "status": {
            "phase": phase, "phaseTransitionTimestamps": stamps, "conditions": [{"type": "Ready", "status": ready}],
            "virtualMachineRevisionName": format!("revision-start-vm-{UID}-3"),
        },
    })
}

/// The same, deleted.
pub(super) fn leaving(phase: &str) -> Value {
    let mut guest = guest(phase);
    guest["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:30Z");
    guest
}

/// A machine with its guest and the revision of its start.
pub(super) fn machine(vm: Value, guest: Option<Value>) -> Machine {
    let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
    let namesake = guest.map(|guest| Arc::new(serde_json::from_value::<VirtualMachineInstance>(guest).unwrap()));
    let mut machine = Machine {
        status: vm.status.clone().unwrap_or_default(),
        vm: Arc::new(vm),
        namesake,
        revisions: Vec::new(),
        claims: BTreeMap::new(),
        data_volumes: DataVolumes::NotServed,
        kubevirt: None,
        now: now(),
    };
    if machine.namesake.is_some() {
        machine.revisions = vec![Arc::new(instance::revision(&machine).unwrap())];
    }
    machine
}

/// What there is to decide about.
pub(super) fn view(vm: Value, guest: Option<Value>) -> View {
    View::Machine(Box::new(machine(vm, guest)))
}

/// A machine whose status agrees with its guest, so that only what is new is news.
pub(super) fn settled(vm: Value, guest: Option<Value>) -> Machine {
    let mut machine = machine(vm, guest);
    for _ in 0..2 {
        if let Some(status) = super::decide::decide(&View::Machine(Box::new(machine.clone()))).status {
            machine.status = status;
        }
    }
    machine
}
