//! Launcher pods as a whole: golden ones for people to read, and what holds for all of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::needless_pass_by_value, reason = "a literal of JSON reads better without a reference")]

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_kubernetes::Pod;
use ferrovirt_pods::{Acceleration, ContainerDisks, LauncherConfig, Move, launcher_pod, target_pod};
use k8s_openapi::api::core::v1::PodSpec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn config() -> LauncherConfig {
    LauncherConfig { image: "registry.example/virt-launcher:1".to_owned(), ..LauncherConfig::default() }
}

fn guest(spec: Value) -> VirtualMachineInstance {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "8f3a92c1-77aa-4d52-9d0e-0a1b2c3d4e5f", "labels": {"app": "web"}},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn small(devices: Value) -> Value {
    json!({"memory": {"guest": "128Mi"}, "devices": devices})
}

fn spec_of(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap()
}

fn quantity(pod: &Pod, kind: &str, name: &str) -> Option<String> {
    let resources = spec_of(pod).containers[0].resources.clone().unwrap();
    let amounts = if kind == "requests" { resources.requests } else { resources.limits };
    amounts.unwrap_or_default().get(name).map(|amount| amount.0.clone())
}

#[test]
fn a_plain_guest() {
    insta::assert_yaml_snapshot!(launcher_pod(&guest(json!({"domain": small(json!({}))})), &config()).unwrap());
}

#[test]
fn an_emulated_guest_with_a_volume_of_each_kind() {
    let mut config = LauncherConfig { acceleration: Acceleration::Emulation, ..config() };
    config.claims.insert("raw".to_owned(), VolumeMode::Block);
    config.cluster = serde_json::from_value(json!({"developerConfiguration": {"featureGates": ["HostDisk"]}})).unwrap();
    let spec = json!({
        "domain": {
            "memory": {"guest": "128Mi"},
            "devices": {},
            "firmware": {"kernelBoot": {"container": {"image": "registry.example/kernel:6", "imagePullSecret": "key"}}},
        },
        "accessCredentials": [
            {"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}},
        ],
        "volumes": [
            {"name": "root", "containerDisk": {"image": "registry.example/disk:1", "imagePullSecret": "key"}},
            {"name": "sockets", "persistentVolumeClaim": {"claimName": "files"}},
            {"name": "raw", "persistentVolumeClaim": {"claimName": "raw"}},
            {"name": "data", "dataVolume": {"name": "filled"}},
            {"name": "layer", "ephemeral": {"persistentVolumeClaim": {"claimName": "golden"}}},
            {"name": "fresh", "emptyDisk": {"capacity": "1Gi"}},
            {"name": "host", "hostDisk": {"path": "/var/vms/a.img", "type": "DiskOrCreate", "capacity": "1Gi"}},
            {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"}}},
            {"name": "settings", "configMap": {"name": "settings", "optional": true}},
            {"name": "password", "secret": {"secretName": "password"}},
            {"name": "facts", "downwardAPI": {"fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "answers", "sysprep": {"configMap": {"name": "answers"}}},
            {"name": "token", "serviceAccount": {"serviceAccountName": "robot"}},
        ],
    });
    insta::assert_yaml_snapshot!(launcher_pod(&guest(spec), &config).unwrap());
}

/// The eviction would power off a guest that has survived the silence of its node.
#[test]
fn a_guest_outlives_the_silence_of_its_node_unless_it_says_otherwise() {
    let tolerated = |own: Value| {
        let mut spec = json!({"domain": small(json!({}))});
        spec["tolerations"] = own;
        let pod = launcher_pod(&guest(spec), &config()).unwrap();
        let all = spec_of(&pod).tolerations.clone().unwrap();
        all.into_iter().map(|it| (it.key.unwrap_or_default(), it.toleration_seconds)).collect::<Vec<_>>()
    };
    let (not_ready, unreachable) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
    let always = |key: &str| (key.to_owned(), None);
    assert_eq!(tolerated(json!([])), [always(not_ready), always(unreachable)]);
    let soon = json!([{"key": not_ready, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]);
    assert_eq!(tolerated(soon), [(not_ready.to_owned(), Some(30)), always(unreachable)]);
    let other = json!([{"key": not_ready, "operator": "Exists", "effect": "NoSchedule"}]);
    assert_eq!(tolerated(other), [always(not_ready), always(not_ready), always(unreachable)]);
    assert_eq!(tolerated(json!([{"operator": "Exists"}])), [always("")]);
}

#[test]
fn a_placed_and_probed_guest_with_dedicated_processors() {
    let spec = json!({
        "priorityClassName": "important", "schedulerName": "mine", "hostname": "node-7", "subdomain": "fleet",
        "dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"]}, "architecture": "amd64",
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": {"disktype": "nvme"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]},
        ]}}},
        "livenessProbe": {"tcpSocket": {"port": 22}, "initialDelaySeconds": 120},
        "readinessProbe": {"httpGet": {"port": 80}},
        "networks": [{"name": "default", "pod": {}}],
        "domain": {
            "machine": {"type": "q35"},
            "cpu": {"sockets": 2, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true,
                "features": [{"name": "avx2"}, {"name": "mpx", "policy": "forbid"}]},
            "memory": {"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}},
            "devices": {"interfaces": [{"name": "default", "masquerade": {}, "ports": [{"name": "http", "port": 80}]}]},
        },
    });
    insta::assert_yaml_snapshot!(launcher_pod(&guest(spec), &config()).unwrap());
}

#[test]
fn memory_is_requested_as_the_guest_says() {
    let pod = |resources: Value, memory: Value| {
        let domain = json!({"memory": memory, "resources": resources, "devices": {"autoattachGraphicsDevice": false}});
        launcher_pod(&guest(json!({"domain": domain})), &config()).unwrap()
    };
    // The overhead of one CPU without a display is 88Mi, and 1/512 of the memory.
    let asked = pod(json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}}), Value::Null);
    assert_eq!(quantity(&asked, "requests", "memory").as_deref(), Some("1114Mi"));
    assert_eq!(quantity(&asked, "limits", "memory").as_deref(), Some("2138Mi"));
    let greedy = pod(json!({"overcommitGuestOverhead": true}), json!({"guest": "1Gi"}));
    assert_eq!(quantity(&greedy, "requests", "memory").as_deref(), Some("1Gi"));
    let huge = pod(json!({"requests": {"memory": "1Gi"}}), json!({"hugepages": {"pageSize": "2Mi"}}));
    assert_eq!(quantity(&huge, "limits", "hugepages-2Mi").as_deref(), Some("1Gi"));
    assert_eq!(quantity(&huge, "requests", "memory").as_deref(), Some("90Mi"));
}

#[test]
fn processors_are_requested_as_the_cluster_says() {
    let mut config = config();
    config.cluster = serde_json::from_value(json!({"developerConfiguration": {"cpuAllocationRatio": 4}})).unwrap();
    let domain = json!({"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}, "devices": {}});
    let pod = launcher_pod(&guest(json!({"domain": domain})), &config).unwrap();
    assert_eq!(quantity(&pod, "requests", "cpu").as_deref(), Some("500m"));
    let domain = json!({"resources": {"requests": {"cpu": "3"}}, "memory": {"guest": "1Gi"}, "devices": {}});
    let pod = launcher_pod(&guest(json!({"domain": domain})), &config).unwrap();
    assert_eq!(quantity(&pod, "requests", "cpu").as_deref(), Some("3"));
}

#[test]
fn what_cannot_be_run_is_refused_by_its_path() {
    let devices = |devices: Value| json!({"domain": small(devices)});
    let with = |name: &str, value: Value| json!({"domain": small(json!({})), name: value});
    let rows = [
        (json!({"domain": {"devices": {}}}), "spec.domain.memory.guest"),
        (devices(json!({"gpus": [{"name": "a", "deviceName": "b"}]})), "spec.domain.devices.gpus"),
        (devices(json!({"hostDevices": [{"name": "a", "deviceName": "b"}]})), "spec.domain.devices.hostDevices"),
        (devices(json!({"filesystems": [{"name": "a", "virtiofs": {}}]})), "spec.domain.devices.filesystems"),
        (devices(json!({"interfaces": [{"name": "a", "sriov": {}}]})), "spec.domain.devices.interfaces[0].sriov"),
        (devices(json!({"tpm": {"persistent": true}})), "spec.domain.devices.tpm.persistent"),
        (with("networks", json!([{"name": "a", "multus": {"networkName": "b"}}])), "spec.networks[0].multus"),
        (with("livenessProbe", json!({"guestAgentPing": {}})), "spec.livenessProbe.guestAgentPing"),
        (with("volumes", json!([{"name": "a", "memoryDump": {"claimName": "b"}}])), "spec.volumes[0].memoryDump"),
        (
            with("volumes", json!([{"name": "a", "hostDisk": {"path": "/a/b", "type": "Disk"}}])),
            "spec.volumes[0].hostDisk",
        ),
    ];
    for (spec, path) in rows {
        let refused = launcher_pod(&guest(spec), &config()).unwrap_err();
        assert_eq!(refused.path, path);
        assert!(!refused.reason.is_empty());
    }
}

#[test]
fn a_host_disk_needs_a_whole_path() {
    let mut config = config();
    config.cluster = serde_json::from_value(json!({"developerConfiguration": {"featureGates": ["HostDisk"]}})).unwrap();
    let volumes = json!([{"name": "a", "hostDisk": {"path": "disk.img", "type": "Disk"}}]);
    let spec = json!({"domain": small(json!({})), "volumes": volumes});
    let refused = launcher_pod(&guest(spec), &config).unwrap_err();
    assert_eq!(refused.path, "spec.volumes[0].hostDisk.path");
}

#[test]
fn the_clusters_profile_and_runtime_class_are_taken() {
    let mut config = config();
    config.cluster = serde_json::from_value(json!({
        "defaultRuntimeClass": "kata",
        "selinuxLauncherType": "virt_launcher.process",
        "seccompConfiguration": {"virtualMachineInstanceProfile": {"customProfile": {"runtimeDefaultProfile": true}}},
    }))
    .unwrap();
    let pod = launcher_pod(&guest(json!({"domain": small(json!({}))})), &config).unwrap();
    let spec = spec_of(&pod);
    assert_eq!(spec.runtime_class_name.as_deref(), Some("kata"));
    let security = spec.security_context.as_ref().unwrap();
    assert_eq!(security.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault");
    assert_eq!(security.se_linux_options.as_ref().unwrap().type_.as_deref(), Some("virt_launcher.process"));
}

/// Volumes of every supported kind, under names that may clash with the launcher's own and with each other's.
fn any_volume() -> impl Strategy<Value = Value> {
    let names =
        prop_oneof![Just("private"), Just("sockets"), Just("seed-user"), Just("seed"), Just("kernel-boot"), Just("a")];
    let sources = prop_oneof![
        Just(json!({"containerDisk": {"image": "i", "imagePullSecret": "s"}})),
        Just(json!({"persistentVolumeClaim": {"claimName": "file", "readOnly": true}})),
        Just(json!({"persistentVolumeClaim": {"claimName": "block"}})),
        Just(json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "block"}}})),
        Just(json!({"emptyDisk": {"capacity": "1Mi"}})),
        Just(json!({"cloudInitConfigDrive": {"secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "n"}}})),
        Just(json!({"configMap": {"name": "m"}})),
        Just(json!({"serviceAccount": {"serviceAccountName": "s"}})),
    ];
    (names, "[a-z]{0,70}", sources).prop_map(|(name, more, mut source)| {
        source["name"] = json!(format!("{name}{more}"));
        source
    })
}

fn any_guest() -> impl Strategy<Value = VirtualMachineInstance> {
    let volumes = prop::collection::vec(any_volume(), 0..6);
    let resources = (0_u64..8 << 30, 0_u64..8 << 30, 0_u64..64_000, 0_u64..64_000, any::<[bool; 6]>());
    (volumes, resources, 1_u32..64).prop_map(|(volumes, (memory, more_memory, cpu, more_cpu, set), cores)| {
        let mut resources = json!({"requests": {}, "limits": {}, "overcommitGuestOverhead": set[0]});
        if set[1] {
            resources["requests"]["memory"] = json!(memory.to_string());
            resources["requests"]["cpu"] = json!(format!("{cpu}m"));
        }
        if set[2] {
            resources["limits"]["memory"] = json!((memory + more_memory).to_string());
            resources["limits"]["cpu"] = json!(format!("{}m", cpu + more_cpu));
        }
        let mut domain =
            json!({"memory": {"guest": "64Mi"}, "resources": resources, "devices": {}, "cpu": {"cores": cores}});
        domain["cpu"]["dedicatedCpuPlacement"] = json!(set[3]);
        if set[4] {
            domain["memory"]["hugepages"] = json!({"pageSize": "2Mi"});
        }
        if set[5] {
            domain["firmware"] = json!({"kernelBoot": {"container": {"image": "i"}}});
        }
        guest(json!({"domain": domain, "volumes": volumes}))
    })
}

fn amount(text: &str) -> i128 {
    text.parse::<ferrovirt_api::values::Quantity>().unwrap().nanos()
}

proptest! {
    #[test]
    fn every_pod_is_sound(vmi in any_guest(), emulated in any::<bool>()) {
        let mut config = config();
        config.claims.insert("block".to_owned(), VolumeMode::Block);
        config.acceleration = if emulated { Acceleration::Emulation } else { Acceleration::Hardware };
        let pod = launcher_pod(&vmi, &config).unwrap();
        let spec = spec_of(&pod);
        let volumes: Vec<&str> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        let mut unique = volumes.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), volumes.len(), "names of volumes are unique");
        prop_assert!(volumes.iter().all(|name| name.len() <= 63));
        prop_assert!(volumes.contains(&"sockets"));

        for container in &spec.containers {
            let mounts = container.volume_mounts.iter().flatten().map(|mount| mount.name.as_str());
            let devices = container.volume_devices.iter().flatten().map(|device| device.name.as_str());
            for name in mounts.chain(devices) {
                prop_assert!(volumes.contains(&name), "{} is mounted and not there", name);
            }
            let security = container.security_context.as_ref().unwrap();
            let capabilities = security.capabilities.as_ref().unwrap();
            let added = capabilities.add.iter().flatten();
            prop_assert!(added.clone().all(|capability| capability == "NET_BIND_SERVICE"));
            prop_assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
            prop_assert_eq!(security.allow_privilege_escalation, Some(false));
            prop_assert_eq!(security.privileged, None);
            let resources = container.resources.as_ref().unwrap();
            let limits = resources.limits.clone().unwrap_or_default();
            for (name, request) in resources.requests.iter().flatten() {
                let fits = limits.get(name).is_none_or(|limit| amount(&request.0) <= amount(&limit.0));
                prop_assert!(fits, "{} is requested beyond its limit: {:?}", name, resources);
            }
            prop_assert_eq!(limits.contains_key("devices.kubevirt.io/kvm"), !emulated);
        }
        prop_assert_eq!(spec.host_network, None);
        prop_assert_eq!(spec.host_pid, None);
        prop_assert_eq!(launcher_pod(&vmi, &config).unwrap(), pod, "the same every time");
    }
}

fn movement(selector: Value) -> ferrovirt_api::VirtualMachineInstanceMigration {
    let object = json!({
        "metadata": {"name": "away", "namespace": "shop", "uid": "c0ffee00-1234-4d52-9d0e-0a1b2c3d4e5f"},
        "spec": {"vmiName": "web", "addedNodeSelector": selector},
    });
    serde_json::from_value(object).unwrap()
}

fn target(spec: Value, source: &Pod, node: Value, selector: Value) -> Pod {
    target_with(&config(), spec, source, node, selector)
}

fn target_with(config: &LauncherConfig, spec: Value, source: &Pod, node: Value, selector: Value) -> Pod {
    let (migration, node) = (movement(selector), serde_json::from_value(node).unwrap());
    let source = source.0.clone().into();
    let movement = Move { migration: &migration, source: &source, source_node: &node };
    target_pod(&guest(spec), config, &movement).unwrap()
}

#[test]
fn a_target_is_the_guests_pod_on_another_node() {
    let spec = json!({"domain": small(json!({})), "nodeSelector": {"zone": "east"}});
    let source = launcher_pod(&guest(spec.clone()), &config()).unwrap();
    let made = target(spec, &source, json!({}), json!({"zone": "west", "disk": "fast"}));
    assert_eq!(made.metadata.name.as_deref(), Some("virt-launcher-web-c0ffee0012"));
    assert_eq!(made.metadata.owner_references, source.metadata.owner_references);
    let labels = made.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["kubevirt.io/migrationJobUID"], "c0ffee00-1234-4d52-9d0e-0a1b2c3d4e5f");
    assert_eq!(made.metadata.annotations.as_ref().unwrap()["kubevirt.io/migrationJobName"], "away");
    let affinity = serde_json::to_value(&spec_of(&made).affinity).unwrap();
    let apart = json!([{
        "labelSelector": {"matchLabels": {"kubevirt.io/created-by": "8f3a92c1-77aa-4d52-9d0e-0a1b2c3d4e5f"}},
        "topologyKey": "kubernetes.io/hostname",
    }]);
    assert_eq!(affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"], apart);
    let selector = spec_of(&made).node_selector.as_ref().unwrap();
    assert_eq!(selector["zone"], "east", "the guest's own word stands");
    assert_eq!(selector["disk"], "fast");
    assert_eq!(spec_of(&made).containers, spec_of(&source).containers);
    let gates = serde_json::to_value(&spec_of(&made).readiness_gates).unwrap();
    assert_eq!(
        gates,
        json!([{"conditionType": "kubevirt.io/virtual-machine-unpaused"}]),
        "not before the guest is there"
    );
    assert_eq!(spec_of(&source).readiness_gates, None);
}

#[test]
fn a_target_has_the_processor_that_the_guest_knows() {
    let node = json!({
        "cpu-vendor.node.kubevirt.io/Intel": "true", "host-model-cpu.node.kubevirt.io/Skylake": "true",
        "host-model-required-features.node.kubevirt.io/avx2": "true", "cpu-model.node.kubevirt.io/Haswell": "true",
    });
    let follows = json!({"domain": small(json!({}))});
    let source = launcher_pod(&guest(follows.clone()), &config()).unwrap();
    let first = target(follows.clone(), &source, node.clone(), json!({}));
    let keys = |pod: &Pod| -> Vec<String> {
        spec_of(pod).node_selector.as_ref().unwrap().keys().filter(|key| key.contains("cpu-")).cloned().collect()
    };
    let expected = [
        "cpu-feature.node.kubevirt.io/avx2",
        "cpu-model-migration.node.kubevirt.io/Skylake",
        "cpu-vendor.node.kubevirt.io/Intel",
    ];
    assert_eq!(keys(&first), expected);
    // On a newer host the guest still has the processor of the first one.
    let newer = json!({"cpu-vendor.node.kubevirt.io/Intel": "true", "host-model-cpu.node.kubevirt.io/Icelake": "true"});
    assert_eq!(keys(&target(follows, &first, newer, json!({}))), expected);
    let named = json!({"domain": {"cpu": {"model": "Haswell"}, "memory": {"guest": "128Mi"}, "devices": {}}});
    let source = launcher_pod(&guest(named.clone()), &config()).unwrap();
    let made = target(named, &source, node, json!({}));
    assert_eq!(keys(&made), ["cpu-model.node.kubevirt.io/Haswell", "cpu-vendor.node.kubevirt.io/Intel"]);
}

const DIGEST: &str = "registry.example/disk@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn two_disks() -> Value {
    json!({"domain": small(json!({})), "volumes": [
        {"name": "root", "containerDisk": {"image": "registry.example/disk:1"}},
        {"name": "tools", "containerDisk": {"image": "registry.example/tools:1"}},
    ]})
}

fn container_status(name: &str, image_id: &str, mounts: Value) -> Value {
    json!({"name": name, "image": "i", "imageID": image_id, "ready": true, "restartCount": 0, "volumeMounts": mounts})
}

/// What a node says about image volumes, and about sidecars.
fn taken_images() -> [Value; 2] {
    let mount = |index: usize, image: &str| {
        let path = format!("/var/run/kubevirt-image-volume/disk_{index}");
        json!({"name": "x", "mountPath": path, "volumeStatus": {"image": {"imageRef": image}}})
    };
    let mounts = json!([mount(0, DIGEST), mount(1, "sha256:abc")]);
    let sidecars = [("volumeroot", DIGEST), ("volumetools", "sha256:abc")];
    [
        json!({"containerStatuses": [container_status("compute", "", mounts)]}),
        json!({"initContainerStatuses": sidecars.map(|(name, image)| container_status(name, image, json!([])))}),
    ]
}

#[test]
fn a_target_has_the_images_that_the_source_took_however_either_gets_them() {
    for status in taken_images() {
        let mut source = launcher_pod(&guest(two_disks()), &config()).unwrap();
        source.status = Some(serde_json::from_value(status).unwrap());
        let made = target(two_disks(), &source, json!({}), json!({}));
        let image = |name: &str| {
            let volume = spec_of(&made).volumes.iter().flatten().find(|volume| volume.name == name).unwrap();
            volume.image.as_ref().unwrap().reference.clone().unwrap()
        };
        assert_eq!(image("root"), DIGEST);
        assert_eq!(image("tools"), "registry.example/tools:1", "an id that no registry knows is no name");
        let made = target_with(&sidecars(), two_disks(), &source, json!({}), json!({}));
        let containers = spec_of(&made).init_containers.as_ref().unwrap();
        let images: Vec<&str> = containers.iter().filter_map(|container| container.image.as_deref()).collect();
        assert_eq!(images, ["registry.example/virt-launcher:1", DIGEST, "registry.example/tools:1"]);
    }
}

fn sidecars() -> LauncherConfig {
    LauncherConfig { container_disks: ContainerDisks::Sidecars, ..config() }
}

#[test]
fn a_guest_whose_images_are_held_by_sidecars() {
    let spec = json!({
        "domain": {
            "memory": {"guest": "128Mi"},
            "devices": {},
            "firmware": {"kernelBoot": {"container": {"image": "registry.example/kernel:6", "imagePullSecret": "key"}}},
        },
        "volumes": [
            {"name": "files", "persistentVolumeClaim": {"claimName": "files"}},
            {"name": "root", "containerDisk": {
                "image": "registry.example/disk:1", "imagePullSecret": "key", "imagePullPolicy": "Always",
            }},
        ],
    });
    insta::assert_yaml_snapshot!(launcher_pod(&guest(spec), &sidecars()).unwrap());
}

#[test]
fn a_guest_without_images_has_no_sidecars() {
    let plain = guest(json!({"domain": small(json!({}))}));
    assert_eq!(launcher_pod(&plain, &sidecars()).unwrap(), launcher_pod(&plain, &config()).unwrap());
}

#[test]
fn sidecars_have_names_of_their_own_and_volumes_keep_theirs() {
    let long = "a".repeat(56) + "-bcdef";
    let names = [long.clone(), long.clone() + "x", "kernel-boot".to_owned(), "container-disks".to_owned()];
    let volumes: Vec<Value> = names.iter().map(|name| json!({"name": name, "containerDisk": {"image": "i"}})).collect();
    let volumes = json!([volumes, [{"name": "virt-bin-share-dir", "persistentVolumeClaim": {"claimName": "c"}}]]);
    let volumes: Vec<&Value> = volumes.as_array().unwrap().iter().flat_map(|list| list.as_array().unwrap()).collect();
    let kernel = json!({"kernelBoot": {"container": {"image": "k", "kernelPath": "/k"}}});
    let domain = json!({"memory": {"guest": "128Mi"}, "devices": {}, "firmware": kernel});
    let pod = launcher_pod(&guest(json!({"domain": domain, "volumes": volumes})), &sidecars()).unwrap();
    let containers = spec_of(&pod).init_containers.as_ref().unwrap();
    let names: Vec<&str> = containers.iter().map(|container| container.name.as_str()).collect();
    let head = format!("volume{}", "a".repeat(56));
    let second = format!("volume{}-1", "a".repeat(55));
    let expected =
        ["container-disk-binary", &head, &second, "volumekernel-boot", "volumecontainer-disks", "kernel-boot"];
    assert_eq!(names, expected);
    // What virt-handler looks for is the pod's own, whatever guests call theirs.
    let volumes = spec_of(&pod).volumes.as_ref().unwrap();
    for name in ["container-disks", "virt-bin-share-dir"] {
        assert!(volumes.iter().any(|volume| volume.name == name && volume.empty_dir.is_some()), "{name}");
    }
    assert!(volumes.iter().any(|volume| volume.name == "virt-bin-share-dir-1"));
}

#[test]
fn sidecars_keep_a_guaranteed_pod_guaranteed_and_take_what_the_cluster_says() {
    let amounts = |config: &LauncherConfig, domain: Value| {
        let mut spec = two_disks();
        spec["domain"] = domain;
        let pod = launcher_pod(&guest(spec), config).unwrap();
        let containers = pod.0.spec.unwrap().init_containers.unwrap();
        let resources = containers[0].resources.clone().unwrap();
        assert!(containers.iter().all(|container| container.resources.as_ref() == Some(&resources)));
        serde_json::to_value(resources).unwrap()
    };
    let dedicated =
        json!({"cpu": {"cores": 2, "dedicatedCpuPlacement": true}, "memory": {"guest": "128Mi"}, "devices": {}});
    let both = json!({"cpu": "50m", "memory": "40M"});
    assert_eq!(amounts(&sidecars(), dedicated.clone()), json!({"requests": both, "limits": both}));
    let limited = json!({
        "resources": {"requests": {"cpu": "1000m"}, "limits": {"cpu": "1", "memory": "256Mi"}}, "devices": {},
    });
    assert_eq!(amounts(&sidecars(), limited), json!({"requests": both, "limits": both}));
    let mut config = sidecars();
    let wanted = json!([
        {"type": "virtiofs", "resources": {"limits": {"memory": "1Gi"}}},
        {"type": "container-disk", "resources": {"requests": {"cpu": "5m"}, "limits": {"memory": "80M"}}},
    ]);
    config.cluster = serde_json::from_value(json!({"supportContainerResources": wanted})).unwrap();
    let expected = json!({"requests": {"cpu": "5m", "memory": "1M"}, "limits": {"memory": "80M"}});
    assert_eq!(amounts(&config, small(json!({}))), expected);
    let both = json!({"cpu": "50m", "memory": "80M"});
    assert_eq!(amounts(&config, dedicated), json!({"requests": both, "limits": both}));
}
