//! The cluster's configuration, as the `KubeVirt` object holds it.

use std::sync::Arc;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::names::groups;
use ferrovirt_apiserver::server::Server;

/// The configuration of the oldest `KubeVirt` object; a cluster without one has none.
pub(crate) fn configuration(server: &Arc<Server>) -> Configuration {
    let Ok(kubevirts) = server.internal(groups::KUBEVIRT, "v1", "kubevirts", "virt-api") else {
        return Configuration::default();
    };
    let objects = kubevirts.list(None).into_iter().filter_map(|value| serde_json::from_value::<KubeVirt>(value).ok());
    let oldest = objects.min_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    oldest.and_then(|kubevirt| kubevirt.spec.configuration).unwrap_or_default()
}
