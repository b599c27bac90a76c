//! Whatever cannot be had is refused with its field, its value and a reason.

use ferrovirt_domain::{Accelerator, NodeFacts, Unsupported, Version, domain};

use crate::samples;

/// Lines below `spec.domain`, the field that is refused, and a word of the reason.
type Refusal = (&'static str, &'static str, &'static str);

const DOMAIN: &[Refusal] = &[
    ("cpu: {cores: 16, sockets: 16, threads: 1}", "spec.domain.cpu", "KVM"),
    ("cpu: {cores: 1000000}", "spec.domain.cpu", "no machine"),
    ("cpu: {dedicatedCpuPlacement: true}", "spec.domain.cpu.dedicatedCpuPlacement", "was given 0"),
    ("cpu: {realtime: {}}", "spec.domain.cpu.realtime", "yet"),
    ("machine: {type: pc-i440fx-7.2}", "spec.domain.machine.type", "q35"),
    ("machine: {type: pc-q35-rhel9.6.0}", "spec.domain.machine.type", "knows pc-q35-7.2"),
    ("memory: {guest: 1Gi, maxGuest: 512Mi}", "spec.domain.memory.maxGuest", "starts with more"),
    ("memory: {guest: 1Gi, maxGuest: 1025Mi}", "spec.domain.memory.maxGuest", "multiple of 2 MiB"),
    ("memory: {guest: 1Ei}", "spec.domain.memory.guest", "no processor"),
    ("memory: {guest: 1Gi, maxGuest: 1Ei}", "spec.domain.memory.maxGuest", "no processor"),
    ("memory: {guest: 0}", "spec.domain.memory.guest", "needs memory"),
    ("memory: {guest: 1Gi, hugepages: {pageSize: 3Mi}}", "spec.domain.memory.hugepages.pageSize", "2Mi"),
    (
        "memory: {guest: 1Gi, reservedOverhead: {memLock: Required}}",
        "spec.domain.memory.reservedOverhead.memLock",
        "yet",
    ),
    ("launchSecurity: {sev: {}}", "spec.domain.launchSecurity", "yet"),
    ("launchSecurity: {tdx: {}}", "spec.domain.launchSecurity", "yet"),
    ("features: {hyperv: {relaxed: {}}}", "spec.domain.features.hyperv", "KVM"),
    ("features: {hypervPassthrough: {}}", "spec.domain.features.hypervPassthrough", "KVM"),
    (
        "features: {smm: {enabled: false}}\n    firmware: {bootloader: {efi: {}}}",
        "spec.domain.features.smm.enabled",
        "secure boot",
    ),
    ("firmware: {bootloader: {efi: {persistent: true}}}", "spec.domain.firmware.bootloader.efi.persistent", "yet"),
    ("firmware: {kernelBoot: {kernelArgs: quiet}}", "spec.domain.firmware.kernelBoot.kernelArgs", "container"),
    (
        "firmware: {kernelBoot: {container: {image: x, kernelPath: /../etc/passwd}}}",
        "spec.domain.firmware.kernelBoot.container.kernelPath",
        "absolute",
    ),
    ("firmware: {acpi: {msdmNameRef: x}}", "spec.domain.firmware.acpi.msdmNameRef", "libvirt is 9.0"),
    ("firmware: {acpi: {slicNameRef: x}}", "spec.domain.firmware.acpi.slicNameRef", "secret volume"),
    ("chassis: {asset: \"a\\u0001\"}", "spec.domain.chassis.asset", "control characters"),
    ("clock: {timer: {pit: {tickPolicy: catchup}}}", "spec.domain.clock.timer.pit.tickPolicy", "discard"),
    ("clock: {timer: {hpet: {tickPolicy: merge}}}", "spec.domain.clock.timer.hpet.tickPolicy", "delay"),
    ("ioThreadsPolicy: supplementalPool", "spec.domain.ioThreads.supplementalPoolThreadCount", "number of threads"),
];

const DEVICES: &[Refusal] = &[
    ("gpus: [{name: card, deviceName: x/y}]", "spec.domain.devices.gpus", "yet"),
    ("hostDevices: [{name: card, deviceName: x/y}]", "spec.domain.devices.hostDevices", "yet"),
    ("downwardMetrics: {}", "spec.domain.devices.downwardMetrics", "yet"),
    ("clientPassthrough: {}", "spec.domain.devices.clientPassthrough", "yet"),
    ("tpm: {persistent: true}", "spec.domain.devices.tpm.persistent", "yet"),
    ("watchdog: {name: dog, diag288: {}}", "spec.domain.devices.watchdog.diag288", "i6300esb"),
    ("panicDevices: [{model: pvpanic}]", "spec.domain.devices.panicDevices[0].model", "isa works"),
    ("panicDevices: [{model: hyperv}]", "spec.domain.devices.panicDevices[0].model", "KVM"),
    ("autoattachVSOCK: true", "spec.domain.devices.autoattachVSOCK", "VSOCKCID"),
    ("video: {type: voodoo}", "spec.domain.devices.video.type", "bochs"),
    ("autoattachGraphicsDevice: false, video: {type: vga}", "spec.domain.devices.video.type", "autoattach"),
    ("filesystems: [{name: shared, virtiofs: {}}]", "spec.domain.devices.filesystems[shared]", "no volume"),
    ("disks: [{name: other}]", "spec.domain.devices.disks[other].name", "no volume"),
    ("disks: [{name: image, lun: {}}]", "spec.domain.devices.disks[image].lun", "Block"),
    ("disks: [{name: device, lun: {bus: sata}}]", "spec.domain.devices.disks[device].lun.bus", "scsi"),
    ("disks: [{name: device, lun: {reservation: true}}]", "spec.domain.devices.disks[device].lun.reservation", "yet"),
    (
        "disks: [{name: image, changedBlockTracking: true}]",
        "spec.domain.devices.disks[image].changedBlockTracking",
        "yet",
    ),
    ("disks: [{name: image, cdrom: {bus: virtio}}]", "spec.domain.devices.disks[image].cdrom.bus", "sata"),
    (
        "disks: [{name: image, disk: {bus: sata, readonly: true}}]",
        "spec.domain.devices.disks[image].disk.readonly",
        "virtio",
    ),
    ("disks: [{name: image, shareable: true, cache: writeback}]", "spec.domain.devices.disks[image].cache", "none"),
    ("disks: [{name: image, io: native}]", "spec.domain.devices.disks[image].io", "cache none"),
    (
        "disks: [{name: image, disk: {bus: sata, pciAddress: \"0000:05:00.0\"}}]",
        "spec.domain.devices.disks[image].disk.pciAddress",
        "virtio",
    ),
    (
        "disks: [{name: image, disk: {bus: virtio, pciAddress: \"0000:05:01.0\"}}]",
        "spec.domain.devices.disks[image].disk.pciAddress",
        "one on each bus",
    ),
    (
        "disks: [{name: image, blockSize: {matchVolume: {}}}]",
        "spec.domain.devices.disks[image].blockSize.matchVolume",
        "not known",
    ),
    (
        "disks: [{name: image, blockSize: {custom: {discardGranularity: 4096}}}]",
        "spec.domain.devices.disks[image].blockSize.custom.discardGranularity",
        "libvirt is 9.0",
    ),
    ("disks: [{name: missing}]", "spec.volumes[missing].persistentVolumeClaim.claimName", "is it bound"),
    ("disks: [{name: metrics}]", "spec.volumes[metrics].downwardMetrics", "yet"),
    ("disks: [{name: dump}]", "spec.volumes[dump].memoryDump.claimName", "yet"),
    ("disks: [{name: directory}]", "spec.volumes[directory].containerPath.path", "filesystem"),
    ("disks: [{name: nothing}]", "spec.volumes[nothing]", "no source"),
    ("disks: [{name: no-size}]", "spec.volumes[no-size].emptyDisk.capacity", "larger than nothing"),
    ("disks: [{name: no-file}]", "spec.volumes[no-file].hostDisk.path", "name of a file"),
    ("disks: [{name: bad-seed}]", "spec.volumes[bad-seed].cloudInitNoCloud.userDataBase64", "not base64"),
    ("disks: [{name: binary-seed}]", "spec.volumes[binary-seed].cloudInitNoCloud.userDataBase64", "in a secret"),
    ("interfaces: [{name: lost, bridge: {}}]", "spec.domain.devices.interfaces[lost]", "no network link"),
    ("interfaces: [{name: fast, sriov: {}}]", "spec.domain.devices.interfaces[fast].sriov", "masquerade"),
    ("interfaces: [{name: p, binding: {name: x}}]", "spec.domain.devices.interfaces[p].binding", "masquerade"),
    ("interfaces: [{name: igb, bridge: {}, model: igb}]", "spec.domain.devices.interfaces[igb].model", "QEMU 7.2"),
];

const VOLUMES: &str = "
  - {name: image, containerDisk: {image: x}}
  - {name: device, persistentVolumeClaim: {claimName: device}}
  - {name: missing, persistentVolumeClaim: {claimName: missing}}
  - {name: metrics, downwardMetrics: {}}
  - {name: dump, memoryDump: {claimName: x}}
  - {name: directory, containerPath: {path: /opt}}
  - {name: nothing}
  - {name: no-size, emptyDisk: {capacity: 0}}
  - {name: no-file, hostDisk: {path: /srv/, type: Disk}}
  - {name: bad-seed, cloudInitNoCloud: {userDataBase64: \"?\"}}
  - {name: binary-seed, cloudInitNoCloud: {userDataBase64: H4sIAAAAAAAAA/8=}}
";

fn facts() -> NodeFacts {
    NodeFacts { machines: vec!["pc-q35-7.2".to_owned(), "pc-i440fx-7.2".to_owned()], ..samples::named("small").facts }
}

fn refused(yaml: &str, facts: &NodeFacts) -> Unsupported {
    let vmi = samples::guest(yaml);
    // Links are there for interfaces whose name does not say otherwise.
    let links: Vec<_> = samples::links(&vmi).into_iter().filter(|link| link.interface != "lost").collect();
    domain(&vmi, facts, &links).err().unwrap_or_else(|| panic!("not refused: {yaml}"))
}

fn check(yaml: &str, path: &str, why: &str) {
    let error = refused(yaml, &facts());
    assert_eq!(error.path, path, "{error}");
    assert!(error.why.contains(why), "{error}");
    assert!(!error.value.is_empty(), "{error}");
    assert!(error.to_string().starts_with(path), "{error}");
}

#[test]
fn fields_of_the_domain() {
    for (lines, path, why) in DOMAIN {
        let memory = if lines.starts_with("memory") { "" } else { "\n    memory: {guest: 1Gi}" };
        check(&format!("spec:\n  domain:\n    devices: {{}}\n    {lines}{memory}\n"), path, why);
    }
}

#[test]
fn devices_and_volumes() {
    for (devices, path, why) in DEVICES {
        let yaml =
            format!("spec:\n  domain:\n    memory: {{guest: 1Gi}}\n    devices: {{{devices}}}\n  volumes:{VOLUMES}");
        check(&yaml, path, why);
    }
}

#[test]
fn fields_outside_of_the_domain() {
    let cases = [
        ("architecture: arm64", "spec.architecture", "amd64"),
        ("resourceClaims: [{name: x}]", "spec.resourceClaims", "yet"),
        ("utilityVolumes: [{name: x, claimName: z}]", "spec.utilityVolumes", "yet"),
        (
            "accessCredentials: [{userPassword: {source: {secret: {secretName: x}}, propagationMethod: {qemuGuestAgent: {}}}}]",
            "spec.accessCredentials[0].userPassword",
            "yet",
        ),
        (
            "accessCredentials: [{sshPublicKey: {source: {secret: {secretName: x}}, propagationMethod: {qemuGuestAgent: {users: [me]}}}}]",
            "spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent",
            "noCloud",
        ),
    ];
    for (line, path, why) in cases {
        check(&format!("spec:\n  {line}\n  domain: {{memory: {{guest: 1Gi}}, devices: {{}}}}\n"), path, why);
    }
}

#[test]
fn annotations() {
    for name in ["hooks.kubevirt.io/hookSidecars", "kubevirt.io/placePCIDevicesOnRootComplex"] {
        let yaml = format!(
            "metadata: {{annotations: {{{name}: \"true\"}}}}\nspec: {{domain: {{memory: {{guest: 1Gi}}, devices: {{}}}}}}"
        );
        check(&yaml, &format!("metadata.annotations[{name}]"), "yet");
    }
}

#[test]
fn an_object_that_nobody_stored() {
    let small = samples::named("small");
    let mut vmi = small.vmi.clone();
    vmi.metadata.uid = Some("not-a-uuid".to_owned());
    assert_eq!(domain(&vmi, &small.facts, &[]).unwrap_err().path, "metadata.uid");
    vmi.metadata.uid = None;
    assert_eq!(domain(&vmi, &small.facts, &[]).unwrap_err().path, "metadata.uid");
    vmi.metadata.name = None;
    assert_eq!(domain(&vmi, &small.facts, &[]).unwrap_err().path, "metadata.name");
}

#[test]
fn what_an_older_libvirt_lacks_under_kvm() {
    let facts = NodeFacts { accelerator: Accelerator::Kvm, libvirt: Version(9, 0), ..facts() };
    let yaml = "spec: {domain: {memory: {guest: 1Gi}, devices: {}, features: {hyperv: {tlbflush: {direct: {}}}}}}";
    let error = refused(yaml, &facts);
    assert_eq!(error.path, "spec.domain.features.hyperv.tlbflush");
    assert!(error.why.contains("11.0"), "{error}");
}
