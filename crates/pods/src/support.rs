//! What stands in the way of a pod. Admission has refused it with all its company; this is for guests that came in by another door.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::{gates, validation};

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
}

/// Refuses the first thing that cannot be run; the list of such things is validation's.
pub(crate) fn check(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> Result<(), Unsupported> {
    let on_host = vmi.spec.volumes.iter().position(|volume| volume.host_disk.is_some());
    if let Some(index) = on_host.filter(|_| !gates::is_on(&config.cluster, gates::HOST_DISK)) {
        let reason = "host disks are off; add HostDisk to the feature gates of the KubeVirt object";
        return Err(Unsupported::new(format!("spec.volumes[{index}].hostDisk"), reason));
    }
    match validation::unsupported(vmi, &config.cluster).into_iter().next() {
        Some(cause) => Err(Unsupported::new(cause.field, "is not supported yet; remove it")),
        None => Ok(()),
    }
}
