//! A guest's links on the local cluster: those of every pod, and what the node has to know of a bridged guest.

use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_cluster_network::Mac;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::network::GuestLink;
use ferrovirt_virt_handler::launcher::Launcher;
use ferrovirt_virt_handler::wiring::{PodWiring, Wiring, WiringError};
use futures::FutureExt;
use futures::future::BoxFuture;

/// Links of pods of a node whose bridge passes on only what has an address that it knows.
pub(crate) struct NodeWiring {
    node: Arc<ferrovirt_cluster_network::Node>,
}

impl NodeWiring {
    /// For the pods of this node.
    pub(crate) fn new(node: Arc<ferrovirt_cluster_network::Node>) -> Self {
        Self { node }
    }

    async fn announce(&self, vmi: &VirtualMachineInstance, pod: &Pod, links: &[GuestLink]) -> Result<(), WiringError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for link in links.iter().filter(|link| is_bridged(vmi, link)) {
            let refused = |reason: String| WiringError::Refused { mac: link.mac.clone(), reason };
            let mac: Mac = link.mac.parse().map_err(|error| refused(format!("{error}")))?;
            self.node.bridge_guest(uid, mac).await.map_err(|error| refused(format!("{error}")))?;
        }
        Ok(())
    }
}

/// Whether the guest itself, and not the pod for it, sends through the pod's link.
fn is_bridged(vmi: &VirtualMachineInstance, link: &GuestLink) -> bool {
    let mut interfaces = vmi.spec.domain.devices.interfaces.iter();
    interfaces.any(|interface| interface.name == link.interface && interface.bridge.is_some())
}

impl Wiring for NodeWiring {
    fn links<'a>(
        &'a self,
        vmi: &'a VirtualMachineInstance,
        pod: &'a Pod,
        launcher: &'a dyn Launcher,
    ) -> BoxFuture<'a, Result<Vec<GuestLink>, WiringError>> {
        async move {
            let links = PodWiring.links(vmi, pod, launcher).await?;
            self.announce(vmi, pod, &links).await?;
            Ok(links)
        }
        .boxed()
    }
}
