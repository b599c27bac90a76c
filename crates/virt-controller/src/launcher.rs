//! What launcher pods depend on besides their guests, from what the caches know.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_pods::{Acceleration, LauncherConfig};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// Claims by name; `None` is missing.
pub(crate) type Claims = BTreeMap<String, Option<Arc<PersistentVolumeClaim>>>;

/// Facts about the cluster that every launcher pod depends on.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The cluster's configuration, when somebody has made one.
    pub kubevirt: Option<Arc<KubeVirt>>,
    /// Image of launcher pods.
    pub launcher_image: String,
    /// Some node offers KVM.
    pub has_kvm: bool,
}

impl Cluster {
    /// The cluster's configuration; the defaults when there is none.
    pub fn configuration(&self) -> Configuration {
        self.kubevirt.as_ref().and_then(|kubevirt| kubevirt.spec.configuration.clone()).unwrap_or_default()
    }

    /// How guests run here: on the processor where some node can, unless the cluster wants emulation.
    pub fn acceleration(&self) -> Acceleration {
        let configuration = self.kubevirt.as_ref().and_then(|kubevirt| kubevirt.spec.configuration.as_ref());
        let developer = configuration.and_then(|configuration| configuration.developer_configuration.as_ref());
        let emulate = developer.is_some_and(|developer| developer.use_emulation);
        if self.has_kvm && !emulate { Acceleration::Hardware } else { Acceleration::Emulation }
    }

    /// What a pod of a guest with these claims depends on.
    pub(crate) fn launcher_config(&self, claims: &Claims) -> LauncherConfig {
        let modes = claims.iter().filter_map(|(name, claim)| Some((name.clone(), volume_mode(claim.as_ref()?))));
        LauncherConfig {
            image: self.launcher_image.clone(),
            cluster: self.configuration(),
            acceleration: self.acceleration(),
            claims: modes.collect(),
        }
    }
}

/// How a claim is used; with a file system unless it says otherwise.
pub(crate) fn volume_mode(claim: &PersistentVolumeClaim) -> VolumeMode {
    let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    mode.and_then(|mode| mode.parse().ok()).unwrap_or(VolumeMode::Filesystem)
}
