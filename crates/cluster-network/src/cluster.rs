//! The cluster's part of the host: a range of addresses and the bridge that connects nodes.

use std::{net::IpAddr, path::Path, sync::Arc};

use crate::{
    NetworkError, Node,
    addresses::{MAX_INDEX, Range},
    allocation::Allocations,
    host::{self, Forwarding},
    links::Links,
    namespace::{self, Namespace},
    node,
    state::{Identity, Lock, State, check_name, digits},
};

/// What links send at most when the host has no default route to learn it from.
const USUAL_MTU: u32 = 1500;

/// The network of one local cluster on this machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
}

/// What the cluster and its nodes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) state: State,
    pub(crate) host: Links,
    pub(crate) mtu: u32,
}

impl Cluster {
    /// Finds or makes the network of the cluster whose state is in `directory`. Needs root and a tokio runtime.
    ///
    /// # Errors
    /// When no range is free, when the remembered range is now used by something else, or when the kernel refuses a change.
    pub async fn open(directory: &Path, name: &str) -> Result<Self, NetworkError> {
        let state = State::at(directory);
        let host = Links::here()?;
        let _lock = Lock::host().await?;
        let identity = match state.identity()? {
            Some(identity) => identity,
            None => choose(&state, name, &host.used_networks().await?)?,
        };
        let mtu = host.default_mtu().await?.unwrap_or(USUAL_MTU);
        let cluster = Self { shared: Arc::new(Shared { identity, state, host, mtu }) };
        cluster.ensure_host().await?;
        Ok(cluster)
    }

    /// Removes whatever exists of the cluster whose state is in `directory`, without making anything first. Processes that run in its
    /// namespaces keep them alive, so they should end before.
    ///
    /// # Errors
    /// When the kernel refuses a removal; what could be removed is gone then, and the rest can be tried again.
    pub async fn remove_at(directory: &Path) -> Result<(), NetworkError> {
        let state = State::at(directory);
        let Some(identity) = state.identity()? else { return Ok(()) };
        let host = Links::here()?;
        Self { shared: Arc::new(Shared { identity, state, host, mtu: USUAL_MTU }) }.remove().await
    }

    /// Finds or makes a node: `index` (1 to 253) is part of its addresses.
    ///
    /// # Errors
    /// When the index belongs to another node, or the kernel refuses a change.
    pub async fn node(&self, index: u8, name: &str) -> Result<Node, NetworkError> {
        check_name("the node name", name)?;
        if !(1..=MAX_INDEX).contains(&index) {
            return Err(NetworkError::InvalidIndex { index, max: MAX_INDEX });
        }
        let _lock = Lock::host().await?;
        let others: Vec<_> = self.shared.state.nodes()?.into_iter().filter(|(other, _)| other != name).collect();
        if let Some((owner, _)) = others.iter().find(|(_, taken)| *taken == index) {
            return Err(NetworkError::IndexTaken { index, owner: owner.clone() });
        }
        self.shared.state.remember_node(name, index)?;
        let node = Node::open(self.clone(), index, name).await?;
        for (other, other_index) in others {
            node.connect(&other, other_index).await?;
        }
        Ok(node)
    }

    /// The range of all pods and nodes.
    pub fn range(&self) -> Range {
        self.shared.identity.range
    }

    /// The host's addresses in the cluster, IPv4 and IPv6: where pods and nodes reach processes of the host.
    pub fn host_addresses(&self) -> [IpAddr; 2] {
        self.range().host().map(|network| network.address)
    }

    /// The bridge on the host, and the nftables table.
    pub fn bridge(&self) -> String {
        format!("fv{}", self.shared.identity.id)
    }

    /// Removes everything: pods, nodes, the bridge with its routes, the nftables table and what was remembered. Processes that run in
    /// the namespaces keep them alive, so they should end before.
    ///
    /// # Errors
    /// When the kernel refuses a removal; what could be removed is gone then, and the rest can be tried again.
    pub async fn remove(self) -> Result<(), NetworkError> {
        let _lock = Lock::host().await?;
        let state = &self.shared.state;
        for (name, _) in state.nodes()? {
            for pod in Allocations::of(&name, &state.node(&name)).list()? {
                node::pod_namespace(&pod.uid).remove()?;
            }
            self.shared.host.delete(&self.uplink(&name)).await?;
        }
        for name in namespace::names_with_prefix(&format!("{}-", self.namespace_prefix())) {
            Namespace::named(&name).remove()?;
        }
        self.shared.host.delete(&self.bridge()).await?;
        host::stop_masquerading(&self.bridge()).await?;
        Forwarding::host().release(&self.shared.identity.id)?;
        state.forget()
    }

    /// Where a node's namespace is.
    pub(crate) fn node_namespace(&self, name: &str) -> Namespace {
        Namespace::named(&format!("{}-{name}", self.namespace_prefix()))
    }

    /// The host's end of a node's link.
    pub(crate) fn uplink(&self, node: &str) -> String {
        format!("fvn{}", digits(&format!("{}/{node}", self.shared.identity.id), 12))
    }

    fn namespace_prefix(&self) -> String {
        format!("ferrovirt-{}", self.shared.identity.id)
    }

    async fn ensure_host(&self) -> Result<(), NetworkError> {
        let (host, range, bridge) = (&self.shared.host, self.range(), self.bridge());
        if host.find(&bridge).await?.is_none() {
            let used = host.used_networks().await?;
            if let Some(other) = range.conflict(&used) {
                return Err(NetworkError::RangeTaken { range: range.v4().to_string(), other: other.to_string() });
            }
        }
        let link = host.ensure_bridge(&bridge, range.uplink_mac(1), self.shared.mtu).await?;
        host.up(&bridge).await?;
        host.ensure_addresses(link, &range.host()).await?;
        host::masquerade(&bridge, &range).await?;
        Forwarding::host().need(&self.shared.identity.id)
    }
}

/// Chooses the identity of a new cluster and remembers it.
fn choose(state: &State, name: &str, used: &[crate::Network]) -> Result<Identity, NetworkError> {
    let range = Range::choose(used, rand::random()).ok_or(NetworkError::NoFreeRange)?;
    let identity = Identity { id: format!("{:08x}", rand::random::<u32>()), name: name.to_owned(), range };
    state.remember(&identity)?;
    tracing::info!(cluster = name, id = identity.id, range = %range.v4(), "chose the addresses of the cluster");
    Ok(identity)
}
