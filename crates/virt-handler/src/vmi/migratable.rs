//! Whether a guest can move to another node, and whether its disks have to be copied.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::AccessMode;
use ferrovirt_api::names::{annotations, reasons};
use ferrovirt_api::vmi::{MigrationMethod, Volume};

/// Reason and message of the first thing in the way.
pub(super) type Obstacle = (&'static str, String);

/// The method, and what is in the way if anything is.
pub(super) fn judge(vmi: &VirtualMachineInstance) -> (MigrationMethod, Option<Obstacle>) {
    let (method, disks) = judge_disks(vmi);
    (method, judge_network(vmi).or_else(|| judge_devices(vmi)).or(disks))
}

/// The pod network moves with masquerade, or with a bridge that the user vouches for.
fn judge_network(vmi: &VirtualMachineInstance) -> Option<Obstacle> {
    let allowed =
        vmi.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::ALLOW_POD_BRIDGE_MIGRATION));
    let network = vmi.spec.networks.iter().find(|network| network.pod.is_some())?;
    let interface = vmi.spec.domain.devices.interfaces.iter().find(|interface| interface.name == network.name)?;
    (interface.bridge.is_some() && !allowed).then(|| {
        let message = format!(
            "cannot migrate VMI which does not use masquerade to connect to the pod network: interface {} is a bridge",
            interface.name
        );
        (reasons::INTERFACE_NOT_MIGRATABLE, message)
    })
}

fn judge_devices(vmi: &VirtualMachineInstance) -> Option<Obstacle> {
    let domain = &vmi.spec.domain;
    let obstacle = |reason, message: &str| Some((reason, message.to_owned()));
    if !domain.devices.gpus.is_empty() || !domain.devices.host_devices.is_empty() {
        return obstacle(reasons::HOST_DEVICE_NOT_MIGRATABLE, "VMI uses a PCI host device");
    }
    if domain.launch_security.is_some() {
        return obstacle(reasons::SEV_NOT_MIGRATABLE, "VMI uses a confidential launch");
    }
    if domain.features.as_ref().is_some_and(|features| features.hyperv_passthrough.is_some()) {
        return obstacle(reasons::HYPERV_PASSTHROUGH_NOT_MIGRATABLE, "VMI uses hyperv passthrough");
    }
    None
}

/// Shared claims stay where they are; what lives in the pod is copied; a claim that one node has holds the guest there.
fn judge_disks(vmi: &VirtualMachineInstance) -> (MigrationMethod, Option<Obstacle>) {
    let (mut copied, mut obstacle) = (false, None);
    for volume in &vmi.spec.volumes {
        if let Some(claim) = claim(volume) {
            if !is_shared(vmi, &volume.name) {
                let message = format!(
                    "cannot migrate VMI: PVC {claim} is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
                );
                copied = true;
                obstacle = obstacle.or(Some((reasons::DISKS_NOT_MIGRATABLE, message)));
            }
        } else if let Some(disk) = &volume.host_disk {
            if disk.shared != Some(true) {
                let message = format!("cannot migrate VMI with non-shared HostDisk {}", volume.name);
                copied = true;
                obstacle = obstacle.or(Some((reasons::DISKS_NOT_MIGRATABLE, message)));
            }
        } else {
            copied = true;
        }
    }
    (if copied { MigrationMethod::BlockMigration } else { MigrationMethod::LiveMigration }, obstacle)
}

fn claim(volume: &Volume) -> Option<&str> {
    let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
    claim.or(volume.data_volume.as_ref().map(|volume| volume.name.as_str()))
}

fn is_shared(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let status = vmi.status.iter().flat_map(|status| &status.volume_status).find(|status| status.name == volume);
    let claim = status.and_then(|status| status.persistent_volume_claim_info.as_ref());
    claim.is_some_and(|claim| claim.access_modes.contains(&AccessMode::ReadWriteMany))
}
