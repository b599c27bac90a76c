//! Disks, network cards and other devices.

use crate::kubevirt::Configuration;
use crate::meta::{Empty, PullPolicy};
use crate::vmi::{
    Architecture, Devices, Disk, DiskBus, DiskTarget, Input, InputBus, InputType, Interface, Network, PodNetwork,
    TrayState, VirtualMachineInstanceSpec, Volume, Watchdog, WatchdogAction,
};

/// The name of the network and the card that a guest gets when it lists none.
const DEFAULT_NETWORK: &str = "default";

pub(super) fn fill(spec: &mut VirtualMachineInstanceSpec, cluster: &Configuration, architecture: Architecture) {
    spec.volumes.iter_mut().for_each(pull_policy);
    attach_volumes(&spec.volumes, &mut spec.domain.devices);
    spec.domain.devices.disks.iter_mut().for_each(|disk| self::disk(disk, architecture));
    pod_network(spec, cluster);
    let devices = &mut spec.domain.devices;
    inputs(devices);
    if let Some(watchdog) = &mut devices.watchdog {
        self::watchdog(watchdog, architecture);
    }
}

/// Images that can change under their name are pulled each time.
fn pull_policy(volume: &mut Volume) {
    let Some(source) = &mut volume.container_disk else { return };
    let name = source.image.rsplit('/').next().unwrap_or_default();
    let changes = !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    source.image_pull_policy.get_or_insert(if changes { PullPolicy::Always } else { PullPolicy::IfNotPresent });
}

/// A volume that nothing refers to becomes a disk.
fn attach_volumes(volumes: &[Volume], devices: &mut Devices) {
    for volume in volumes {
        let used =
            devices.disks.iter().map(|disk| &disk.name).chain(devices.filesystems.iter().map(|shared| &shared.name));
        // Dumps are written to by the system and container paths are directories: neither can be a disk.
        let no_disk = volume.memory_dump.is_some() || volume.container_path.is_some();
        if !no_disk && !used.into_iter().any(|name| *name == volume.name) {
            devices.disks.push(Disk { name: volume.name.clone(), ..Disk::default() });
        }
    }
}

fn disk(disk: &mut Disk, architecture: Architecture) {
    let usual = if architecture == Architecture::Amd64 { DiskBus::Sata } else { DiskBus::Virtio };
    if disk.lun.is_none() && disk.cdrom.is_none() {
        disk.disk.get_or_insert_with(DiskTarget::default);
    }
    if let Some(target) = &mut disk.disk {
        target.bus.get_or_insert(usual);
    }
    if let Some(target) = &mut disk.lun {
        // KubeVirt says sata here, which no hypervisor can do: the guest would never start.
        target.bus.get_or_insert(DiskBus::Scsi);
    }
    if let Some(target) = &mut disk.cdrom {
        target.bus.get_or_insert(usual);
        target.readonly.get_or_insert(true);
        target.tray.get_or_insert(TrayState::Closed);
    }
}

/// A guest that lists no network gets the pod's, unless it wants none.
fn pod_network(spec: &mut VirtualMachineInstanceSpec, cluster: &Configuration) {
    let devices = &mut spec.domain.devices;
    let wanted = devices.autoattach_pod_interface.unwrap_or(true);
    if !wanted || !spec.networks.is_empty() || !devices.interfaces.is_empty() {
        return;
    }
    let binding = cluster.network.as_ref().and_then(|network| network.default_network_interface.as_deref());
    let mut interface = Interface { name: DEFAULT_NETWORK.to_owned(), ..Interface::default() };
    match binding {
        Some("masquerade") => interface.masquerade = Some(Empty {}),
        _ => interface.bridge = Some(Empty {}),
    }
    devices.interfaces.push(interface);
    let pod = Some(PodNetwork::default());
    spec.networks.push(Network { name: DEFAULT_NETWORK.to_owned(), pod, ..Network::default() });
}

fn inputs(devices: &mut Devices) {
    if devices.autoattach_input_device == Some(true) && devices.inputs.is_empty() {
        devices.inputs.push(Input { bus: None, r#type: InputType::Tablet, name: "default-0".to_owned() });
    }
    for input in &mut devices.inputs {
        input.bus.get_or_insert(InputBus::Usb);
    }
}

fn watchdog(watchdog: &mut Watchdog, architecture: Architecture) {
    if watchdog.i6300esb.is_none() && watchdog.diag288.is_none() {
        if architecture == Architecture::S390x {
            watchdog.diag288.get_or_insert_default();
        } else {
            watchdog.i6300esb.get_or_insert_default();
        }
    }
    if let Some(device) = &mut watchdog.i6300esb {
        device.action.get_or_insert(WatchdogAction::Reset);
    }
    if let Some(device) = &mut watchdog.diag288 {
        device.action.get_or_insert(WatchdogAction::Reset);
    }
}
