//! From a claim to a path of this machine. No IO.

use std::path::PathBuf;

use ferrovirt_kubernetes::{PersistentVolume, PersistentVolumeClaim};

/// A claim that is bound to something on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundClaim {
    /// The persistent volume's name.
    pub volume: String,
    /// A directory; with `block` a file or a device.
    pub path: PathBuf,
    /// Used as a device.
    pub block: bool,
}

/// The volume that a claim is bound to.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Result<String, String> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|_| bound);
    volume.ok_or_else(|| {
        format!(
            "persistentvolumeclaim {name:?} is not bound; see its events, a storage class or a volume may be missing"
        )
    })
}

/// Where a persistent volume is.
pub fn bound(volume: &PersistentVolume) -> Result<BoundClaim, String> {
    let name = volume.metadata.name.clone().unwrap_or_default();
    let spec = volume.spec.as_ref();
    let host = spec.and_then(|spec| spec.host_path.as_ref()).map(|source| &source.path);
    let local = spec.and_then(|spec| spec.local.as_ref()).map(|source| &source.path);
    let path = host.or(local).ok_or_else(|| {
        format!("persistent volume {name:?} is neither hostPath nor local, the kinds that this node can use")
    })?;
    let block = spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
    Ok(BoundClaim { volume: name, path: PathBuf::from(path), block })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_bound_claim_has_a_volume() {
        let claim = |status| -> PersistentVolumeClaim {
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"volumeName": "v"}, "status": status}))
                .unwrap()
        };
        assert_eq!(volume_name(&claim(json!({"phase": "Bound"}))), Ok("v".to_owned()));
        assert!(volume_name(&claim(json!({"phase": "Pending"}))).unwrap_err().contains("\"c\" is not bound"));
    }

    #[test]
    fn local_and_host_path_volumes_are_known() {
        let volume = |spec| -> PersistentVolume {
            serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap()
        };
        let expected = BoundClaim { volume: "v".into(), path: "/d".into(), block: true };
        assert_eq!(bound(&volume(json!({"local": {"path": "/d"}, "volumeMode": "Block"}))), Ok(expected.clone()));
        assert_eq!(bound(&volume(json!({"hostPath": {"path": "/d"}}))), Ok(BoundClaim { block: false, ..expected }));
        assert!(bound(&volume(json!({"nfs": {"server": "s", "path": "/d"}}))).unwrap_err().contains("neither"));
    }
}
