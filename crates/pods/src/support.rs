//! What a guest may ask for that cannot be run yet. It is refused by its path before a pod exists, never left out.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::annotations;
use ferrovirt_api::vmi::{Interface, Network, Probe, Volume};

use crate::LauncherConfig;

/// A field that stands in the way of a pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Unsupported {
    /// Where it is in the guest's object.
    pub path: String,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

impl Unsupported {
    pub(crate) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }

    fn yet(path: impl Into<String>) -> Self {
        Self::new(path, "is not supported yet; remove it")
    }
}

/// Refuses the first thing that cannot be run.
pub(crate) fn check(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> Result<(), Unsupported> {
    let spec = &vmi.spec;
    for (index, volume) in spec.volumes.iter().enumerate() {
        check_volume(&format!("spec.volumes[{index}]"), volume, config)?;
    }
    for (index, network) in spec.networks.iter().enumerate() {
        check_network(&format!("spec.networks[{index}]"), network)?;
    }
    for (index, interface) in spec.domain.devices.interfaces.iter().enumerate() {
        check_interface(&format!("spec.domain.devices.interfaces[{index}]"), interface)?;
    }
    check_probe("spec.livenessProbe", spec.liveness_probe.as_ref())?;
    check_probe("spec.readinessProbe", spec.readiness_probe.as_ref())?;
    refuse(&[
        ("spec.utilityVolumes", !spec.utility_volumes.is_empty()),
        ("spec.resourceClaims", !spec.resource_claims.is_empty()),
    ])?;
    check_domain(vmi)
}

fn check_domain(vmi: &VirtualMachineInstance) -> Result<(), Unsupported> {
    let domain = &vmi.spec.domain;
    let devices = &domain.devices;
    let efi = domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref());
    let has_hook = vmi.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::HOOK_SIDECARS));
    refuse(&[
        ("spec.domain.devices.gpus", !devices.gpus.is_empty()),
        ("spec.domain.devices.hostDevices", !devices.host_devices.is_empty()),
        ("spec.domain.devices.filesystems", !devices.filesystems.is_empty()),
        ("spec.domain.devices.downwardMetrics", devices.downward_metrics.is_some()),
        ("spec.domain.devices.tpm.persistent", devices.tpm.as_ref().is_some_and(|tpm| tpm.persistent == Some(true))),
        ("spec.domain.firmware.bootloader.efi.persistent", efi.is_some_and(|efi| efi.persistent == Some(true))),
        ("spec.domain.launchSecurity", domain.launch_security.is_some()),
        ("metadata.annotations[hooks.kubevirt.io/hookSidecars]", has_hook),
    ])
}

fn check_volume(path: &str, volume: &Volume, config: &LauncherConfig) -> Result<(), Unsupported> {
    if volume.host_disk.is_some() && !config.has_gate("HostDisk") {
        let reason = "host disks are off; add HostDisk to the feature gates of the KubeVirt object";
        return Err(Unsupported::new(format!("{path}.hostDisk"), reason));
    }
    refuse(&[
        (&format!("{path}.downwardMetrics"), volume.downward_metrics.is_some()),
        (&format!("{path}.memoryDump"), volume.memory_dump.is_some()),
        (&format!("{path}.containerPath"), volume.container_path.is_some()),
    ])
}

fn check_network(path: &str, network: &Network) -> Result<(), Unsupported> {
    refuse(&[
        (&format!("{path}.multus"), network.multus.is_some()),
        (&format!("{path}.resourceClaim"), network.resource_claim.is_some()),
    ])
}

fn check_interface(path: &str, interface: &Interface) -> Result<(), Unsupported> {
    refuse(&[
        (&format!("{path}.sriov"), interface.sriov.is_some()),
        (&format!("{path}.passtBinding"), interface.passt_binding.is_some()),
        (&format!("{path}.binding"), interface.binding.is_some()),
        (&format!("{path}.slirp"), interface.slirp.is_some()),
        (&format!("{path}.macvtap"), interface.macvtap.is_some()),
        (&format!("{path}.passt"), interface.passt.is_some()),
    ])
}

fn check_probe(path: &str, probe: Option<&Probe>) -> Result<(), Unsupported> {
    let Some(probe) = probe else { return Ok(()) };
    refuse(&[
        (&format!("{path}.exec"), probe.exec.is_some()),
        (&format!("{path}.guestAgentPing"), probe.guest_agent_ping.is_some()),
    ])
}

fn refuse(rows: &[(&str, bool)]) -> Result<(), Unsupported> {
    match rows.iter().find(|(_, is_set)| *is_set) {
        Some((path, _)) => Err(Unsupported::yet(*path)),
        None => Ok(()),
    }
}
