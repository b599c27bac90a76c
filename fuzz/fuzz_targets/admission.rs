//! The whole of admission: no panic, defaulting twice is defaulting once, and what is admitted can start.
//!
//! Input: a kind's plural, the cluster's configuration and an object as text, separated by `---`; or bytes that change sound ones.
#![no_main]

#[path = "../../crates/pods/tests/startable/mod.rs"]
mod startable;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ferrovirt_api::defaults::{Inputs, default_vmi};
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::validation::{beyond_machines, check_vmi};
use ferrovirt_api::vmi::Architecture;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance};
use ferrovirt_fuzz::{Source, parts};
use ferrovirt_virt_api::admission::review::{Facts, Kind, Operation, Others, Request, User, mutate, review};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// Sound objects, in the order of [`Kind::ALL`].
static SOUND: LazyLock<[Value; 5]> = LazyLock::new(|| {
    let spec = json!({
        "architecture": "amd64", "hostname": "h", "terminationGracePeriodSeconds": 30, "evictionStrategy": "None",
        "readinessProbe": {"tcpSocket": {"port": 22}, "periodSeconds": 5},
        "domain": {
            "memory": {"guest": "1Gi", "maxGuest": "4Gi", "hugepages": {"pageSize": "2Mi"}},
            "cpu": {"cores": 2, "sockets": 1, "threads": 1, "model": "host-model", "features": [{"name": "pcid", "policy": "require"}]},
            "resources": {"requests": {"memory": "1Gi", "cpu": "1"}, "limits": {"cpu": "2"}},
            "machine": {"type": "q35"}, "ioThreadsPolicy": "auto",
            "firmware": {"serial": "s", "bootloader": {"efi": {"secureBoot": false}}},
            "clock": {"utc": {"offsetSeconds": 1}, "timer": {"hpet": {"present": false}, "rtc": {"tickPolicy": "catchup"}}},
            "features": {"acpi": {}, "smm": {}, "kvm": {"hidden": true}, "hyperv": {"relaxed": {}, "synic": {}, "spinlocks": {"spinlocks": 8191}}},
            "devices": {
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio", "pciAddress": "0000:20:00.0"}, "bootOrder": 1, "serial": "s"},
                    {"name": "seed", "cdrom": {"bus": "sata", "tray": "closed"}},
                    {"name": "data", "lun": {"bus": "scsi"}, "blockSize": {"custom": {"logical": 512, "physical": 4096}}},
                ],
                "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio", "ports": [{"name": "ssh", "port": 22}], "dhcpOptions": {"ntpServers": ["1.1.1.1"]}}],
                "inputs": [{"type": "tablet", "bus": "usb", "name": "tablet"}], "rng": {}, "sound": {"name": "audio"},
                "watchdog": {"name": "dog", "i6300esb": {"action": "reset"}}, "panicDevices": [{"model": "isa"}], "tpm": {},
            },
        },
        "networks": [{"name": "default", "pod": {"vmNetworkCIDR": "10.0.2.0/24"}}],
        "volumes": [
            {"name": "root", "containerDisk": {"image": "a/b:c", "path": "/disk/a"}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "a", "networkDataBase64": "YQ=="}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    });
    let metadata = json!({"name": "a", "namespace": "default", "labels": {"a": "b"}, "annotations": {"a": "b"}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    [
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": {
            "runStrategy": "Always", "template": template,
            "dataVolumeTemplates": [{"metadata": {"name": "data"}, "spec": {"source": {"blank": {}}, "storage": {}}}],
        }}),
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec}),
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": metadata, "spec": {"vmiName": "a"}}),
        json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "spec": {
            "uninstallStrategy": "RemoveWorkloads", "infra": {"replicas": 2}, "configuration": *CLUSTER,
            "certificateRotateStrategy": {"selfSigned": {"ca": {"duration": "48h"}}},
            "customizeComponents": {"patches": [{"resourceName": "a", "resourceType": "b", "type": "merge", "patch": "{}"}]},
        }}),
        json!({"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": metadata, "spec": {
            "selectors": {}, "completionTimeoutPerGiB": 1, "bandwidthPerMigration": "1Gi",
        }}),
    ]
});

static CLUSTER: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "cpuRequest": "100m", "vmRolloutStrategy": "LiveUpdate", "evictionStrategy": "None", "machineType": "q35",
        "liveUpdateConfiguration": {"maxHotplugRatio": 4}, "network": {"defaultNetworkInterface": "bridge"},
        "developerConfiguration": {"featureGates": ["HostDisk", "VSOCK", "PortRangesSpec", "ReservedOverheadMemlock"]},
        "architectureConfiguration": {"defaultArchitecture": "amd64", "amd64": {"emulatedMachines": ["q35*", "pc-q35*"]}},
    })
});

fuzz_target!(|input: &[u8]| {
    let Some((kind, cluster, object)) = from_text(input).or_else(|| from_bytes(input)) else { return };
    let cluster: Configuration = serde_json::from_value(cluster).unwrap_or_default();
    let extra = BTreeMap::new();
    let user = User { name: "fuzz", groups: &[], extra: &extra, installation: "kubevirt" };
    let (operation, null) = (Operation::Create, Value::Null);
    let request = Request {
        kind,
        subresource: "",
        operation,
        namespace: "default",
        name: "a",
        object: &object,
        old_object: &null,
        user,
    };
    let facts = Facts { cluster: &cluster, inputs: inputs(1), others: Others::default() };
    let Ok(admission) = review(&request, &facts) else { return };
    let stored = admission.object.unwrap_or_else(|| object.clone());
    let again = Facts { inputs: inputs(2), ..facts.clone() };
    let twice = mutate(&Request { object: &stored, ..request }, &again).expect("a default is no reason to refuse");
    assert!(twice.is_none_or(|twice| twice == stored), "defaulting twice differs");
    let update = Request { operation: Operation::Update, object: &object, old_object: &stored, ..request };
    let _ = review(&update, &facts);
    // What no machine has is let in, and no node takes it; a machine may come before its size.
    if let Some(guest) = guest(kind, &stored, &cluster).filter(|guest| beyond_machines(guest, &cluster).is_empty()) {
        startable::start(&guest, cluster).expect("admitted means startable");
    }
});

fn inputs(uuid: u128) -> Inputs {
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time");
    Inputs { now, uuid, architecture: Architecture::Amd64 }
}

/// The guest that was admitted, or that an admitted machine makes.
fn guest(kind: Kind, stored: &Value, cluster: &Configuration) -> Option<VirtualMachineInstance> {
    let mut guest: VirtualMachineInstance = match kind {
        Kind::Guest => serde_json::from_value(stored.clone()).expect("it was read before"),
        Kind::Machine => {
            let machine: VirtualMachine = serde_json::from_value(stored.clone()).expect("it was read before");
            let template = machine.spec.template;
            let metadata = template.metadata.unwrap_or_default();
            let mut guest = VirtualMachineInstance { metadata, spec: template.spec, status: None };
            default_vmi(&mut guest, cluster, &inputs(3));
            let causes = check_vmi(&guest, cluster, true);
            if causes.iter().any(|cause| cause.rule == "memory-is-given") {
                return None;
            }
            assert!(causes.is_empty(), "an admitted machine makes a guest that is not: {causes:?}");
            guest
        }
        _ => return None,
    };
    guest.metadata.name = Some("a".to_owned());
    guest.metadata.uid = Some("5c7a1f0e-3b1d-4c57-9d57-7a0c2f6f4d11".to_owned());
    guest.status.get_or_insert_default().vsock_cid = Some(3);
    Some(guest)
}

fn from_text(input: &[u8]) -> Option<(Kind, Value, Value)> {
    let [plural, cluster, object] = parts(input)?;
    let (kind, ..) = Kind::ALL.into_iter().find(|(_, _, its_plural, _)| *its_plural == plural)?;
    Some((kind, serde_json::from_str(cluster).ok()?, serde_json::from_str(object).ok()?))
}

fn from_bytes(input: &[u8]) -> Option<(Kind, Value, Value)> {
    let mut source = Source::new(input);
    // Machines and guests are worth more time than the others.
    let index = source.choose(&[0_usize, 0, 1, 1, 1, 2, 3, 4]).ok()?;
    let object = source.edited(&SOUND[index]).ok()?;
    Some((Kind::ALL[index].0, source.edited(&CLUSTER).ok()?, object))
}
