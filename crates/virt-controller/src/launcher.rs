//! What launcher pods depend on besides their guests, from what the caches know.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::meta::VolumeMode;
use ferrovirt_api::{KubeVirt, gates};
use ferrovirt_kubernetes::PersistentVolumeClaim;
use ferrovirt_pods::{Acceleration, ContainerDisks, LauncherConfig};

use crate::image_volumes::ImageVolumes;

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
    /// Who knows image volumes.
    pub image_volumes: ImageVolumes,
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

    /// How images get into pods. Sidecars work everywhere; image volumes are better where all who have to do with them know them, as far as
    /// that can be told, or where the configuration asks for them by name.
    pub fn container_disks(&self) -> ContainerDisks {
        let cluster = self.configuration();
        match self.image_volumes {
            _ if !gates::is_on(&cluster, gates::IMAGE_VOLUME) => ContainerDisks::Sidecars,
            ImageVolumes::Everywhere => ContainerDisks::ImageVolumes,
            ImageVolumes::SomeNodes if gates::is_asked_for(&cluster, gates::IMAGE_VOLUME) => {
                ContainerDisks::ImageVolumes
            }
            ImageVolumes::SomeNodes | ImageVolumes::Nowhere => ContainerDisks::Sidecars,
        }
    }

    /// What a pod of a guest with these claims depends on.
    pub(crate) fn launcher_config(&self, claims: &Claims) -> LauncherConfig {
        let modes = claims.iter().filter_map(|(name, claim)| Some((name.clone(), volume_mode(claim.as_ref()?))));
        LauncherConfig {
            image: self.launcher_image.clone(),
            cluster: self.configuration(),
            acceleration: self.acceleration(),
            claims: modes.collect(),
            container_disks: self.container_disks(),
        }
    }
}

/// How a claim is used; with a file system unless it says otherwise.
pub(crate) fn volume_mode(claim: &PersistentVolumeClaim) -> VolumeMode {
    let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    mode.and_then(|mode| mode.parse().ok()).unwrap_or(VolumeMode::Filesystem)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn sidecars_are_for_clusters_that_lack_or_refuse_image_volumes() {
        let judge = |image_volumes, developer: Value| {
            let object = json!({"metadata": {}, "spec": {"configuration": {"developerConfiguration": developer}}});
            let kubevirt = Some(Arc::new(serde_json::from_value(object).unwrap()));
            Cluster { kubevirt, launcher_image: String::new(), has_kvm: true, image_volumes }.container_disks()
        };
        let (named, refused) =
            (json!({"featureGates": ["ImageVolume"]}), json!({"disabledFeatureGates": ["ImageVolume"]}));
        for (image_volumes, plain, asked_for) in [
            (ImageVolumes::Everywhere, ContainerDisks::ImageVolumes, ContainerDisks::ImageVolumes),
            (ImageVolumes::SomeNodes, ContainerDisks::Sidecars, ContainerDisks::ImageVolumes),
            (ImageVolumes::Nowhere, ContainerDisks::Sidecars, ContainerDisks::Sidecars),
        ] {
            assert_eq!(judge(image_volumes, json!({})), plain);
            assert_eq!(judge(image_volumes, named.clone()), asked_for);
            assert_eq!(judge(image_volumes, refused.clone()), ContainerDisks::Sidecars);
        }
    }
}
