//! One guest with nothing said, and what each group of defaults does to those who say something.

#![expect(clippy::needless_pass_by_value, reason = "calls read better without the ampersand")]

use serde_json::{Value, json};

use super::*;
use crate::kubevirt::{DeveloperConfiguration, LiveUpdateConfiguration, NetworkConfiguration, VmRolloutStrategy};
use crate::vmi::DiskBus;

fn inputs() -> Inputs {
    let now = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
    Inputs { now, uuid: 0x5d30_7ca9_b3ef_428c_8861_06e7_2d69_f223, architecture: Architecture::Amd64 }
}

fn defaulted_in(spec: Value, cluster: &Configuration) -> VirtualMachineInstance {
    let mut vmi = serde_json::from_value(json!({"metadata": {"name": "guest"}, "spec": spec})).unwrap();
    default_vmi(&mut vmi, cluster, &inputs());
    vmi
}

fn defaulted(spec: Value) -> VirtualMachineInstance {
    defaulted_in(spec, &Configuration::default())
}

/// A guest with that domain and no devices.
fn domain(mut domain: Value) -> VirtualMachineInstance {
    domain["devices"] = json!({});
    defaulted(json!({ "domain": domain }))
}

#[test]
fn a_guest_with_the_least_said() {
    let vmi = defaulted(json!({
        "domain": {"memory": {"guest": "128Mi"}, "devices": {}},
        "volumes": [{"name": "root", "containerDisk": {"image": "registry:5000/guest"}}],
    }));
    insta::assert_yaml_snapshot!(vmi);
}

#[test]
fn the_cluster_has_wishes() {
    let cluster: Configuration = serde_json::from_value(json!({
        "cpuModel": "Nehalem", "cpuRequest": "250m", "evictionStrategy": "LiveMigrate",
        "architectureConfiguration": {"defaultArchitecture": "arm64", "arm64": {"machineType": "virt-9"}},
        "network": {"defaultNetworkInterface": "masquerade"},
        "developerConfiguration": {"featureGates": ["Root"]},
    }))
    .unwrap();
    let vmi = defaulted_in(json!({"domain": {"devices": {"disks": [{"name": "a"}]}}}), &cluster);
    let spec = &vmi.spec;
    assert_eq!(spec.architecture, Some(Architecture::Arm64));
    assert_eq!(spec.eviction_strategy, Some(EvictionStrategy::LiveMigrate));
    assert_eq!(spec.domain.machine.as_ref().unwrap().r#type.as_deref(), Some("virt-9"));
    let cpu = spec.domain.cpu.as_ref().unwrap();
    assert_eq!((cpu.model.as_deref(), cpu.max_sockets), (Some("Nehalem"), None));
    assert_eq!(spec.domain.resources.as_ref().unwrap().requests["cpu"].milli_value(), 250);
    assert!(spec.domain.devices.interfaces[0].masquerade.is_some());
    assert_eq!(spec.domain.devices.disks[0].disk.as_ref().unwrap().bus, Some(DiskBus::Virtio));
    let efi = spec.domain.firmware.as_ref().unwrap().bootloader.as_ref().unwrap().efi.as_ref().unwrap();
    assert_eq!(efi.secure_boot, Some(false));
    assert_eq!(vmi.status.unwrap().runtime_user, Some(0));
}

#[test]
fn the_usual_request_of_a_cluster_is_left_to_the_pod() {
    let cluster = Configuration { cpu_request: Some("0.1".parse().unwrap()), ..Configuration::default() };
    let vmi = defaulted_in(json!({"domain": {"devices": {}}}), &cluster);
    assert!(vmi.spec.domain.resources.unwrap().requests.is_empty());
}

#[test]
fn memory_comes_from_the_request_the_limit_or_a_huge_page() {
    let guest =
        |vmi: VirtualMachineInstance| vmi.spec.domain.memory.and_then(|memory| memory.guest).map(|guest| guest.value());
    let request = json!({"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}});
    assert_eq!(guest(domain(request)), Some(1 << 30));
    assert_eq!(guest(domain(json!({"resources": {"limits": {"memory": "2Gi"}}}))), Some(2 << 30));
    assert_eq!(guest(domain(json!({"memory": {"hugepages": {"pageSize": "2Mi"}}}))), Some(2 << 20));
    assert_eq!(guest(domain(json!({}))), None);
}

#[test]
fn sockets_come_from_the_pod_unless_a_topology_is_given() {
    let topology = |vmi: VirtualMachineInstance| {
        let cpu = vmi.spec.domain.cpu.unwrap();
        (cpu.sockets.unwrap(), cpu.cores.unwrap(), cpu.threads.unwrap(), cpu.max_sockets.unwrap())
    };
    let request = || json!({"requests": {"cpu": "2500m"}});
    assert_eq!(topology(domain(json!({"resources": request()}))), (3, 1, 1, 12));
    assert_eq!(topology(domain(json!({"resources": request(), "cpu": {"cores": 2}}))), (1, 2, 1, 4));
    assert_eq!(topology(domain(json!({"cpu": {"sockets": 0, "cores": 0}}))), (1, 1, 1, 4));
    assert_eq!(topology(domain(json!({"cpu": {"sockets": 2, "maxSockets": 3}}))), (2, 1, 1, 3));
    assert_eq!(topology(domain(json!({"cpu": {"sockets": 200, "cores": 2}}))), (200, 2, 1, 256));
    assert_eq!(topology(domain(json!({"cpu": {"sockets": 300, "cores": 2}}))), (300, 2, 1, 300));
}

#[test]
fn a_limit_is_also_the_request() {
    let resources = domain(json!({"resources": {"limits": {"cpu": "2"}}})).spec.domain.resources.unwrap();
    assert_eq!(resources.requests["cpu"].value(), 2);
}

#[test]
fn memory_grows_where_it_can_be_plugged() {
    let most = |vmi: VirtualMachineInstance| vmi.spec.domain.memory.unwrap().max_guest.map(|most| most.to_string());
    assert_eq!(most(domain(json!({"memory": {"guest": "1Gi"}}))).as_deref(), Some("4Gi"));
    assert_eq!(most(domain(json!({"memory": {"guest": "1Gi", "maxGuest": "2Gi"}}))).as_deref(), Some("2Gi"));
    assert_eq!(most(domain(json!({"memory": {"guest": "1023Mi"}}))), None, "too small");
    assert_eq!(most(domain(json!({"memory": {"guest": "1100000000"}}))), None, "no whole blocks");
    assert_eq!(most(domain(json!({"memory": {"guest": "1536Mi", "hugepages": {"pageSize": "1Gi"}}}))), None);
    assert_eq!(most(domain(json!({"memory": {"guest": "2Gi"}, "cpu": {"realtime": {}}}))), None);
    assert_eq!(most(domain(json!({"memory": {"guest": "2Gi"}, "launchSecurity": {"snp": {}}}))), None);
    let staged = Configuration { vm_rollout_strategy: Some(VmRolloutStrategy::Stage), ..Configuration::default() };
    let spec = || json!({"domain": {"memory": {"guest": "2Gi"}, "devices": {}}});
    let vmi = defaulted_in(spec(), &staged);
    assert_eq!(vmi.spec.domain.cpu.as_ref().unwrap().max_sockets, None);
    assert_eq!(most(vmi), None);
    let bound = LiveUpdateConfiguration {
        max_guest: Some("3Gi".parse().unwrap()),
        max_cpu_sockets: Some(2),
        ..LiveUpdateConfiguration::default()
    };
    let bound = Configuration { live_update_configuration: Some(bound), ..Configuration::default() };
    let vmi = defaulted_in(spec(), &bound);
    assert_eq!(vmi.spec.domain.cpu.as_ref().unwrap().max_sockets, Some(2));
    assert_eq!(most(vmi).as_deref(), Some("3Gi"));
}

#[test]
fn images_that_can_change_are_pulled_each_time() {
    let policy = |image: &str| {
        let volumes = json!([{"name": "a", "containerDisk": {"image": image}}]);
        let vmi = defaulted(json!({"domain": {"devices": {}}, "volumes": volumes}));
        vmi.spec.volumes[0].container_disk.as_ref().unwrap().image_pull_policy.unwrap().as_str()
    };
    for image in ["guest", "guest:latest", "registry:5000/team/guest"] {
        assert_eq!(policy(image), "Always", "{image}");
    }
    for image in ["guest:1", "registry:5000/guest:1", "guest@sha256:0123", "guest:latest@sha256:0123"] {
        assert_eq!(policy(image), "IfNotPresent", "{image}");
    }
}

#[test]
fn networks_that_are_listed_or_refused_stay() {
    let none = defaulted(json!({"domain": {"devices": {"autoattachPodInterface": false}}}));
    assert!(none.spec.networks.is_empty() && none.spec.domain.devices.interfaces.is_empty());
    let own = defaulted(json!({"domain": {"devices": {}}, "networks": [{"name": "own", "pod": {}}]}));
    assert_eq!(own.spec.networks.len(), 1);
    let cluster =
        NetworkConfiguration { default_network_interface: Some("bridge".into()), ..NetworkConfiguration::default() };
    let cluster = Configuration { network: Some(cluster), ..Configuration::default() };
    let vmi = defaulted_in(json!({"domain": {"devices": {}}}), &cluster);
    assert!(vmi.spec.domain.devices.interfaces[0].bridge.is_some());
}

#[test]
fn volumes_become_disks_unless_they_are_used_or_cannot() {
    let vmi = defaulted(json!({
        "domain": {"devices": {
            "disks": [{"name": "cd", "cdrom": {}}, {"name": "lun", "lun": {"bus": "scsi"}}],
            "filesystems": [{"name": "shared", "virtiofs": {}}],
        }},
        "volumes": [
            {"name": "shared", "configMap": {"name": "a"}}, {"name": "cd", "emptyDisk": {"capacity": "1Mi"}},
            {"name": "dump", "memoryDump": {"claimName": "a"}}, {"name": "free", "emptyDisk": {"capacity": "1Mi"}},
        ],
    }));
    insta::assert_yaml_snapshot!(vmi.spec.domain.devices.disks);
}

#[test]
fn features_bring_what_they_rest_on() {
    let vmi = domain(json!({
        "features": {
            "smm": {}, "apic": {}, "kvm": {},
            "hyperv": {"synictimer": {}, "evmcs": {}, "spinlocks": {}, "relaxed": {"enabled": false}},
        },
        "clock": {"timer": {"hpet": {"present": false}, "hyperv": {}}},
    }));
    let domain = vmi.spec.domain;
    insta::assert_yaml_snapshot!((domain.features, domain.clock, domain.cpu));
}

#[test]
fn other_devices_and_probes() {
    let vmi = defaulted(json!({
        "domain": {"devices": {"autoattachInputDevice": true, "watchdog": {"name": "dog"}}},
        "livenessProbe": {"guestAgentPing": {}, "timeoutSeconds": 0, "periodSeconds": 3},
    }));
    let devices = vmi.spec.domain.devices;
    insta::assert_yaml_snapshot!((devices.inputs, devices.watchdog, vmi.spec.liveness_probe));
}

#[test]
fn launchers_learn_about_the_cluster() {
    let developer =
        DeveloperConfiguration { feature_gates: vec!["AlignCPUs".into()], ..DeveloperConfiguration::default() };
    let cluster = Configuration { developer_configuration: Some(developer), ..Configuration::default() };
    let spec =
        json!({"domain": {"launchSecurity": {"tdx": {}}, "cpu": {"isolateEmulatorThread": true}, "devices": {}}});
    let annotations = defaulted_in(spec, &cluster).metadata.annotations.unwrap();
    assert_eq!(annotations[annotations::QGS_SOCKET_PATH], "/var/run/tdx-qgs/qgs.socket");
    assert!(annotations.contains_key(annotations::EMULATOR_THREAD_EVEN_PARITY));
}

#[test]
fn no_author_has_a_say_in_the_status() {
    let mut vmi: VirtualMachineInstance = serde_json::from_value(json!({
        "metadata": {"finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"]},
        "spec": {"domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "somewhere"},
    }))
    .unwrap();
    default_vmi(&mut vmi, &Configuration::default(), &inputs());
    let status = vmi.status.unwrap();
    assert_eq!((status.node_name, status.phase.unwrap().as_str()), (None, "Pending"));
    assert_eq!(vmi.metadata.finalizers.unwrap().len(), 1);
}
