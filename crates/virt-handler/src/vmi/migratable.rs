//! Whether a guest can move to another node, and whether its disks have to be copied.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::{AccessMode, FeatureState};
use ferrovirt_api::names::{annotations, reasons};
use ferrovirt_api::vmi::{CpuFeaturePolicy, MigrationMethod, Volume};

/// Reason and message of the first thing in the way.
pub(super) type Obstacle = (&'static str, String);

/// The method, and what is in the way if anything is. `has_model`: the guest's processor has a name that other nodes can be asked for.
pub(super) fn judge(vmi: &VirtualMachineInstance, has_model: bool) -> (MigrationMethod, Option<Obstacle>) {
    let (method, disks) = judge_disks(vmi);
    let processor = || {
        let message = "VMI uses host-model, and libvirt does not say which processor model its node has: no other node is known to have the same";
        (!has_model).then(|| (reasons::CPU_MODE_NOT_MIGRATABLE, message.to_owned()))
    };
    (method, judge_network(vmi).or_else(processor).or_else(|| judge_devices(vmi)).or(disks))
}

/// Whether the guest's processor is that of the node it started on; that is the default.
pub(super) fn follows_host_model(vmi: &VirtualMachineInstance) -> bool {
    let model = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref());
    matches!(model, None | Some("" | "host-model"))
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
    let (domain, devices) = (&vmi.spec.domain, &vmi.spec.domain.devices);
    let obstacle = |reason, message: &str| Some((reason, message.to_owned()));
    if !devices.filesystems.is_empty() {
        return obstacle(
            reasons::VIRTIOFS_NOT_MIGRATABLE,
            "VMI uses virtiofs: the state of a shared directory stays on its node",
        );
    }
    if !devices.gpus.is_empty() || !devices.host_devices.is_empty() {
        return obstacle(reasons::HOST_DEVICE_NOT_MIGRATABLE, "VMI uses a PCI host device");
    }
    if let Some(security) = &domain.launch_security {
        let is_s390x = vmi.spec.architecture.is_some_and(|architecture| architecture.as_str() == "s390x");
        return match (&security.tdx, security.sev.is_some() || security.snp.is_some()) {
            (Some(_), _) => obstacle(reasons::TDX_NOT_MIGRATABLE, "VMI uses TDX"),
            (None, false) if is_s390x => {
                obstacle(reasons::SECURE_EXECUTION_NOT_MIGRATABLE, "VMI uses Secure Execution")
            }
            _ => obstacle(reasons::SEV_NOT_MIGRATABLE, "VMI uses SEV"),
        };
    }
    if needs_tsc(vmi) && !has_tsc(vmi) {
        let message = "VMI needs a steady time-stamp counter (invtsc or re-enlightenment), and no frequency is known that another node could keep";
        return obstacle(reasons::NO_TSC_FREQUENCY_NOT_MIGRATABLE, message);
    }
    let passthrough = domain.features.as_ref().and_then(|features| features.hyperv_passthrough.as_ref());
    if passthrough.is_some_and(|passthrough| passthrough.enabled != Some(false)) {
        return obstacle(reasons::HYPERV_PASSTHROUGH_NOT_MIGRATABLE, "VMI uses hyperv passthrough");
    }
    if devices.disks.iter().any(|disk| disk.lun.as_ref().is_some_and(|lun| lun.reservation)) {
        return obstacle(reasons::PERSISTENT_RESERVATION_NOT_MIGRATABLE, "VMI uses a SCSI persistent reservation");
    }
    None
}

/// A guest that was told that its counter is steady must find the same frequency elsewhere.
fn needs_tsc(vmi: &VirtualMachineInstance) -> bool {
    let features = vmi.spec.domain.cpu.iter().flat_map(|cpu| &cpu.features);
    let invtsc = features
        .filter(|feature| feature.name == "invtsc")
        .any(|feature| matches!(feature.policy, None | Some(CpuFeaturePolicy::Require | CpuFeaturePolicy::Force)));
    let hyperv = vmi.spec.domain.features.as_ref().and_then(|features| features.hyperv.as_ref());
    invtsc || hyperv.and_then(|hyperv| hyperv.reenlightenment).is_some_and(FeatureState::is_on)
}

fn has_tsc(vmi: &VirtualMachineInstance) -> bool {
    let hints = vmi.status.as_ref().and_then(|status| status.topology_hints.as_ref());
    hints.is_some_and(|hints| hints.tsc_frequency.is_some())
}

/// Shared claims stay where they are; what lives in the pod is copied; a claim that one node has holds the guest there.
fn judge_disks(vmi: &VirtualMachineInstance) -> (MigrationMethod, Option<Obstacle>) {
    let (mut copied, mut obstacle) = (!ferrovirt_domain::copied_volumes(vmi).is_empty(), None);
    for volume in &vmi.spec.volumes {
        let message = if let Some(claim) = claim(volume).filter(|_| !is_shared(vmi, &volume.name)) {
            format!(
                "cannot migrate VMI: PVC {claim} is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"
            )
        } else if volume.host_disk.as_ref().is_some_and(|disk| disk.shared != Some(true)) {
            format!("cannot migrate VMI with non-shared HostDisk {}", volume.name)
        } else {
            continue;
        };
        copied = true;
        obstacle = obstacle.or(Some((reasons::DISKS_NOT_MIGRATABLE, message)));
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
