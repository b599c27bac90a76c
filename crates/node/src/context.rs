//! What all pods of a node share.

use std::sync::Arc;

use ferrovirt_kubernetes::Pod;
use kube::{Client, Resource};
use tokio::sync::Notify;

use ferrovirt_reconcile::{Note, Recorder};

use crate::config::NodeConfig;
use crate::layout::Layout;
use crate::oci::environment::PodFacts;
use crate::register::Capacity;
use crate::runtime::Runtime;
use crate::sources::{ImageSource, PodNetworks};
use crate::volumes::loops::LoopDevices;
use crate::volumes::objects::ObjectReader;

/// The node.
pub(crate) struct Context {
    pub(crate) config: NodeConfig,
    pub(crate) capacity: Capacity,
    pub(crate) layout: Layout,
    pub(crate) client: Client,
    pub(crate) runtime: Runtime,
    pub(crate) images: Arc<dyn ImageSource>,
    pub(crate) networks: Arc<dyn PodNetworks>,
    /// A pod got its network: the rules of network policies have to know its addresses.
    pub(crate) network_news: Arc<Notify>,
    pub(crate) objects: ObjectReader,
    pub(crate) loops: LoopDevices,
    pub(crate) recorder: Recorder,
}

impl Context {
    /// Tells people about a pod. Nobody waits for it.
    pub(crate) fn tell(&self, pod: &Pod, note: Note) {
        let (recorder, about) = (self.recorder.clone(), pod.object_ref(&()));
        tokio::spawn(async move {
            if let Err(error) = recorder.record(&about, &note).await {
                tracing::debug!(%error, reason = note.reason, "an event was not recorded");
            }
        });
    }

    /// The name under which a pod holds images.
    pub(crate) fn holder(&self, uid: &str) -> String {
        format!("{}_{uid}", self.config.name)
    }

    /// The pod of a holder of this node.
    pub(crate) fn held_by<'a>(&self, holder: &'a str) -> Option<&'a str> {
        holder.strip_prefix(&self.config.name)?.strip_prefix('_')
    }

    /// What a pod can be told about itself.
    pub(crate) fn facts(&self, pod_addresses: Vec<std::net::IpAddr>) -> PodFacts {
        PodFacts {
            node: self.config.name.clone(),
            host_addresses: self.config.addresses.clone(),
            pod_addresses,
            allocatable_cpu_millis: i64::try_from(self.capacity.cpu_millis).unwrap_or(i64::MAX),
            allocatable_memory: i64::try_from(self.capacity.memory_bytes).unwrap_or(i64::MAX),
        }
    }
}
