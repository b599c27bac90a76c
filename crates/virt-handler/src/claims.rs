//! Facts on claims, from where virt-controller left them for us: in the object.

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_api::vmi::PersistentVolumeClaimInfo;
use ferrovirt_domain::{Claim, Claims};

/// The claims of a guest by name.
pub(crate) fn of(vmi: &VirtualMachineInstance) -> Claims {
    let volumes = vmi.status.iter().flat_map(|status| &status.volume_status);
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim_info.as_ref());
    claims.filter_map(|claim| Some((claim.claim_name.clone()?, facts(claim)))).collect()
}

fn facts(claim: &PersistentVolumeClaimInfo) -> Claim {
    let size = claim.capacity.get("storage").or_else(|| claim.requests.get("storage"));
    let capacity = size.and_then(|size| u64::try_from(size.value()).ok()).unwrap_or_default();
    Claim { mode: claim.volume_mode.unwrap_or(VolumeMode::Filesystem), ..Claim::filesystem(capacity) }
}
