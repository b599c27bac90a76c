//! Volumes, and the disks and shared directories that refer to them.

use std::collections::BTreeMap;

use super::names::is_clean_path;
use super::{Cause, Reason};
use crate::gates;
use crate::kubevirt::Configuration;
use crate::vmi::{Disk, VirtualMachineInstanceSpec, Volume};

pub(super) fn check(spec: &VirtualMachineInstanceSpec, cluster: &Configuration, causes: &mut Vec<Cause>) {
    for (index, volume) in spec.volumes.iter().enumerate() {
        self::volume(&format!("spec.volumes[{index}]"), volume, cluster, causes);
    }
    let has = |name: &str| spec.volumes.iter().any(|volume| volume.name == name);
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        let path = format!("spec.domain.devices.disks[{index}]");
        self::disk(&path, disk, causes);
        // A CD drive may be empty.
        if !has(&disk.name) && disk.cdrom.is_none() {
            let problem = format!("is '{}', but spec.volumes has no volume of that name", disk.name);
            causes.push(Cause::new(Reason::NotFound, format!("{path}.name"), problem));
        }
    }
    for (index, shared) in spec.domain.devices.filesystems.iter().enumerate() {
        if !has(&shared.name) {
            let problem = format!("is '{}', but spec.volumes has no volume of that name", shared.name);
            let field = format!("spec.domain.devices.filesystems[{index}].name");
            causes.push(Cause::new(Reason::NotFound, field, problem));
        }
    }
    boot_order(spec, causes);
    kernel_boot(spec, causes);
}

fn volume(path: &str, volume: &Volume, cluster: &Configuration, causes: &mut Vec<Cause>) {
    let sources = sources(volume);
    match sources.as_slice() {
        [] => causes.push(Cause::new(Reason::Required, path, "has no source: set one, such as containerDisk")),
        [_] => {}
        several => {
            let problem = format!("has several sources ({}): keep one", several.join(", "));
            causes.push(Cause::new(Reason::Invalid, path, problem));
        }
    }
    if let Some(host) = &volume.host_disk {
        if !gates::is_on(cluster, gates::HOST_DISK) {
            let problem = "needs the feature gate HostDisk in the KubeVirt object";
            causes.push(Cause::new(Reason::Invalid, format!("{path}.hostDisk"), problem));
        }
        clean(&format!("{path}.hostDisk.path"), &host.path, causes);
    }
    if let Some(disk) = volume.container_disk.as_ref().and_then(|source| source.path.as_deref()) {
        clean(&format!("{path}.containerDisk.path"), disk, causes);
    }
}

fn sources(volume: &Volume) -> Vec<&'static str> {
    let sources = [
        ("hostDisk", volume.host_disk.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("cloudInitNoCloud", volume.cloud_init_no_cloud.is_some()),
        ("cloudInitConfigDrive", volume.cloud_init_config_drive.is_some()),
        ("sysprep", volume.sysprep.is_some()),
        ("containerDisk", volume.container_disk.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("emptyDisk", volume.empty_disk.is_some()),
        ("dataVolume", volume.data_volume.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("secret", volume.secret.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("serviceAccount", volume.service_account.is_some()),
        ("downwardMetrics", volume.downward_metrics.is_some()),
        ("memoryDump", volume.memory_dump.is_some()),
        ("containerPath", volume.container_path.is_some()),
    ];
    sources.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
}

fn clean(field: &str, path: &str, causes: &mut Vec<Cause>) {
    if !is_clean_path(path) {
        let problem = format!("is '{path}': use an absolute path without '.' and '..'");
        causes.push(Cause::new(Reason::Invalid, field, problem));
    }
}

fn disk(path: &str, disk: &Disk, causes: &mut Vec<Cause>) {
    let targets = [disk.disk.is_some(), disk.lun.is_some(), disk.cdrom.is_some()];
    if targets.into_iter().filter(|set| *set).count() > 1 {
        causes.push(Cause::new(Reason::Invalid, path, "has several of disk, lun and cdrom: keep one"));
    }
}

/// Two devices cannot be tried at the same place.
fn boot_order(spec: &VirtualMachineInstanceSpec, causes: &mut Vec<Cause>) {
    let devices = &spec.domain.devices;
    let disks = devices.disks.iter().enumerate().map(|(index, disk)| (format!("disks[{index}]"), disk.boot_order));
    let cards =
        devices.interfaces.iter().enumerate().map(|(index, card)| (format!("interfaces[{index}]"), card.boot_order));
    let mut taken: BTreeMap<u32, String> = BTreeMap::new();
    for (device, order) in disks.chain(cards) {
        let Some(order) = order else { continue };
        let field = format!("spec.domain.devices.{device}.bootOrder");
        if order == 0 {
            causes.push(Cause::new(Reason::Invalid, field, "is 0: places are counted from 1"));
        } else if let Some(other) = taken.get(&order) {
            let problem = format!("is {order}, as spec.domain.devices.{other}.bootOrder is: places must differ");
            causes.push(Cause::new(Reason::Duplicate, field, problem));
        } else {
            taken.insert(order, device);
        }
    }
}

fn kernel_boot(spec: &VirtualMachineInstanceSpec, causes: &mut Vec<Cause>) {
    let boot = spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    let Some(container) = boot.and_then(|boot| boot.container.as_ref()) else { return };
    let base = "spec.domain.firmware.kernelBoot.container";
    for (name, path) in [("kernelPath", &container.kernel_path), ("initrdPath", &container.initrd_path)] {
        if let Some(path) = path {
            clean(&format!("{base}.{name}"), path, causes);
        }
    }
    if container.kernel_path.is_none() && container.initrd_path.is_none() {
        causes.push(Cause::new(Reason::Required, base, "boots nothing: set kernelPath or initrdPath"));
    }
}
