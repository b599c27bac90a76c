//! YAML of the kind that users write: every sample parses, means what it says, and loses nothing on the way back.

use std::fs;
use std::path::{Path, PathBuf};

use ferrovirt_api::values::Quantity;
use ferrovirt_api::vm::RunStrategy;
use ferrovirt_api::vmi::{DiskBus, VirtualMachineInstancePhase};
use ferrovirt_api::{
    DecodeError, FromJson, KubeVirt, MigrationPolicy, VirtualMachine, VirtualMachineInstance,
    VirtualMachineInstanceMigration, decode,
};
use k8s_openapi::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use crate::same::difference;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples")
}

fn yaml(path: &Path) -> Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn sample<T: FromJson>(name: &str) -> T {
    decode(&yaml(&directory().join(name))).unwrap()
}

fn through<T: FromJson + Serialize>(document: &Value) -> Result<Value, DecodeError> {
    decode::<T>(document).map(|object| serde_json::to_value(object).unwrap())
}

/// Reads and writes a document as the type that its `kind` names.
pub(crate) fn through_its_type(document: &Value) -> Result<Value, DecodeError> {
    match document["kind"].as_str().unwrap() {
        VirtualMachine::KIND => through::<VirtualMachine>(document),
        VirtualMachineInstance::KIND => through::<VirtualMachineInstance>(document),
        VirtualMachineInstanceMigration::KIND => through::<VirtualMachineInstanceMigration>(document),
        KubeVirt::KIND => through::<KubeVirt>(document),
        MigrationPolicy::KIND => through::<MigrationPolicy>(document),
        other => panic!("no type for {other}"),
    }
}

#[test]
fn every_sample_survives() {
    let mut paths: Vec<_> = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 13, "samples are missing");
    for path in paths {
        let mut sent = yaml(&path);
        let received = through_its_type(&sent).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if sent["apiVersion"] == "kubevirt.io/v1alpha3" {
            sent["apiVersion"] = json!("kubevirt.io/v1");
        }
        assert_eq!(difference(&sent, &received), None, "{}", path.display());
        assert_eq!(through_its_type(&received).unwrap(), received, "{} is not stable", path.display());
    }
}

#[test]
fn a_first_machine_means_what_it_says() {
    let machine: VirtualMachine = sample("vm-containerdisk-cloudinit.yaml");
    assert_eq!(machine.metadata.name.as_deref(), Some("first-steps"));
    assert_eq!(machine.spec.effective_run_strategy(), Some(RunStrategy::Always));
    let spec = &machine.spec.template.spec;
    let domain = &spec.domain;
    assert_eq!(domain.cpu.as_ref().unwrap().topology().unwrap().vcpus(), 2);
    assert_eq!(domain.memory.as_ref().unwrap().guest, Some("1024Mi".parse().unwrap()));
    let disk = &domain.devices.disks[0];
    assert_eq!((disk.name.as_str(), disk.boot_order), ("root", Some(1)));
    assert_eq!(disk.disk.as_ref().unwrap().bus, Some(DiskBus::Virtio));
    assert!(domain.devices.interfaces[0].masquerade.is_some());
    assert!(domain.devices.rng.is_some());
    assert!(spec.networks[0].pod.is_some());
    let resources = domain.resources.as_ref().unwrap();
    assert_eq!(resources.requests["cpu"], Quantity::from(1));
    assert_eq!(resources.limits["memory"].value(), 1_207_959_552);
}

#[test]
fn running_is_another_way_to_say_it() {
    let machine: VirtualMachine = sample("vm-status.yaml");
    assert_eq!(machine.spec.effective_run_strategy(), Some(RunStrategy::Halted));
}

#[test]
fn what_the_guest_reports_is_kept_but_not_believed() {
    let guest: VirtualMachineInstance = sample("vmi-status.yaml");
    let status = guest.status.unwrap();
    assert_eq!(status.phase, Some(VirtualMachineInstancePhase::Running));
    assert_eq!(status.interfaces[1].mac.as_deref(), Some("whatever the guest says"));
    assert_eq!(status.vsock_cid, Some(u32::MAX));
    assert!(!status.phase.unwrap().is_final());
}

#[test]
fn an_empty_object_is_a_message() {
    let guest: VirtualMachineInstance = sample("vmi-secure-execution.yaml");
    assert!(guest.spec.domain.launch_security.is_some());
}

#[test]
fn objects_fit_into_lists() {
    let item = yaml(&directory().join("migrationpolicy.yaml"));
    let list = json!({ "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicyList", "metadata": {}, "items": [item] });
    let list: k8s_openapi::List<MigrationPolicy> = serde_json::from_value(list).unwrap();
    assert_eq!(list.items[0].spec.max_downtime_ms, Some(500));
}
