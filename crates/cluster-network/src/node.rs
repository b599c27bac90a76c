//! A node's namespace with its pod bridge, and the namespaces of its pods.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    path::PathBuf,
    sync::Arc,
};

use crate::{
    Cluster, Mac, Network, NetworkError,
    allocation::{Allocation, Allocations},
    firewall::{self, Purpose},
    host,
    links::{Links, VethPair},
    namespace::Namespace,
    ports::{self, Port},
    state::{Lock, Remembered, check_name, digits},
};

/// The interface that a pod finds in its namespace.
pub const POD_INTERFACE: &str = "eth0";

const UPLINK: &str = "eth0";
const POD_BRIDGE: &str = "fvbr0";
/// The table of network policies in a node's namespace.
const POLICIES: &str = "policies";
const DEFAULT_V4: Network = Network { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 0 };
const DEFAULT_V6: Network = Network { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix: 0 };

/// Settings of a node's namespace: it routes, and takes no advice from routers.
const NODE_SETTINGS: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // Between pods of a node too it is the router, and should not be told apart from a neighbour.
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv4/conf/fvbr0/send_redirects", "0"),
    // Rules see packets when they are routed, not before.
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
    ("bridge/bridge-nf-call-arptables", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
];

/// Settings of a pod's namespace: addresses are usable at once, and only those that the cluster gave.
const POD_SETTINGS: &[(&str, &str)] = &[
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    // The link-local address follows from the hardware address: others do not pass the port.
    ("ipv6/conf/default/addr_gen_mode", "0"),
];

/// One node of the cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Node {
    cluster: Cluster,
    index: u8,
    name: String,
    allocations: Allocations,
    links: Arc<Links>,
    bridge: u32,
}

/// What a pod found or has to be told about its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNetwork {
    /// Where its network namespace is mounted.
    pub netns: PathBuf,
    /// The name of its interface there.
    pub interface: String,
    /// The hardware address of that interface.
    pub mac: Mac,
    /// Its addresses with the prefix of the link: IPv4, then IPv6.
    pub addresses: Vec<Network>,
    /// The routers of its default routes: IPv4, then IPv6.
    pub gateways: Vec<IpAddr>,
    /// The largest packet of the interface.
    pub mtu: u32,
    /// Name servers for its `resolv.conf`.
    pub dns_servers: Vec<IpAddr>,
    /// Search domains for its `resolv.conf`.
    pub dns_searches: Vec<String>,
}

/// A pod that has a part of the node's network, complete or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedPod {
    /// The pod's uid.
    pub uid: String,
    /// Where its network namespace is, or would be, mounted.
    pub netns: PathBuf,
    /// Its addresses: IPv4, then IPv6.
    pub addresses: [IpAddr; 2],
}

impl Node {
    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the node's network namespace is mounted.
    pub fn netns(&self) -> PathBuf {
        self.namespace().path().to_owned()
    }

    /// The node's addresses, IPv4 and IPv6, which the host and other nodes reach.
    pub fn addresses(&self) -> [IpAddr; 2] {
        self.cluster.range().node(self.index).map(|network| network.address)
    }

    /// The ranges of the node's pods, IPv4 and IPv6.
    pub fn pod_ranges(&self) -> [Network; 2] {
        self.cluster.range().pods(self.index)
    }

    /// How many pods fit.
    pub fn capacity(&self) -> usize {
        crate::addresses::POD_HOSTS.count()
    }

    /// Finds or makes the network of a pod: a namespace of its own with one interface.
    ///
    /// A pod that was attached before is left as it is, since its network may have been rearranged for a guest. Do not attach and
    /// detach one pod at the same time.
    ///
    /// # Errors
    /// When no address is free, or the kernel refuses a change; trying again goes on where it stopped.
    pub async fn attach_pod(&self, uid: &str) -> Result<PodNetwork, NetworkError> {
        check_name("the pod uid", uid)?;
        let allocation = self.allocations.allocate(uid)?;
        let namespace = pod_namespace(uid);
        let link = pod_link(uid);
        let linked = self.links.find(&link).await?.is_some();
        if !(linked && namespace.exists() && self.allocations.is_attached(&allocation)) {
            self.allocations.set_attached(&allocation, false)?;
            // Nothing comes from a port without rules, so there is no moment in which a pod may send what it likes.
            self.firewall("add a pod to", ports::plug(&self.port(&allocation))).await?;
            self.make_pod(&allocation, &namespace, &link).await?;
            self.allocations.set_attached(&allocation, true)?;
        }
        Ok(self.describe(&allocation, &namespace))
    }

    /// Removes a pod's namespace and link, and gives its address back. A pod that is not there is fine.
    ///
    /// # Errors
    /// When the kernel refuses a removal. The address stays taken then.
    pub async fn detach_pod(&self, uid: &str) -> Result<(), NetworkError> {
        check_name("the pod uid", uid)?;
        self.links.delete(&pod_link(uid)).await?;
        pod_namespace(uid).remove()?;
        let Some(allocation) = self.allocations.find(uid)? else { return Ok(()) };
        self.firewall("remove a pod from", ports::unplug(&pod_link(uid))).await?;
        self.allocations.release(&allocation)
    }

    /// Lets packets from and to pods pass by these rules, the content of an nftables table of the `inet` family, in place of earlier ones.
    /// All packets between pods, nodes and the outside come through its `forward` hook. The rules hold until others come, also over a
    /// restart of the machine.
    ///
    /// # Errors
    /// When nftables refuses them; the earlier ones hold then.
    pub async fn set_policies(&self, rules: Option<&str>) -> Result<(), NetworkError> {
        self.apply_policies(rules).await?;
        self.policies_file().write(rules)
    }

    /// The host's addresses in the cluster, IPv4 and IPv6: with these its processes come to pods.
    pub fn host_addresses(&self) -> [IpAddr; 2] {
        self.cluster.host_addresses()
    }

    /// A guest with this hardware address takes over the pod's link and addresses (the bridge binding): only now may the pod send from
    /// it. To everybody else the pod keeps the hardware address that it was given.
    ///
    /// # Errors
    /// When the pod has no network, or the kernel refuses a change.
    pub async fn bridge_guest(&self, uid: &str, mac: Mac) -> Result<(), NetworkError> {
        let Some(allocation) = self.allocations.find(uid)? else {
            return Err(NetworkError::NoPod { uid: uid.to_owned(), node: self.name.clone() });
        };
        let mut port = self.port(&allocation);
        let guest = (mac != port.mac).then_some(mac);
        if port.guest == guest {
            return Ok(());
        }
        port.guest = guest;
        // Noted last: after a crash in between, whoever asks for it asks again.
        self.firewall("let a guest into", ports::plug(&port)).await?;
        self.allocations.set_guest(&allocation, guest)
    }

    /// Every pod that has an address, a namespace or a link of this node: what has no pod any more should be detached.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn pods(&self) -> Result<Vec<AttachedPod>, NetworkError> {
        let allocations = self.allocations.list()?.into_iter();
        Ok(allocations
            .map(|allocation| AttachedPod {
                netns: pod_namespace(&allocation.uid).path().to_owned(),
                addresses: self.cluster.range().pod(self.index, allocation.host).map(|network| network.address),
                uid: allocation.uid,
            })
            .collect())
    }

    /// Removes the node with all of its pods.
    ///
    /// # Errors
    /// When the kernel refuses a removal.
    pub async fn remove(self) -> Result<(), NetworkError> {
        for pod in self.pods()? {
            self.detach_pod(&pod.uid).await?;
        }
        let _lock = Lock::host().await?;
        let shared = &self.cluster.shared;
        for (other, _) in shared.state.nodes()?.iter().filter(|(other, _)| *other != self.name) {
            self.disconnect(other).await?;
        }
        shared.host.delete(&self.cluster.uplink(&self.name)).await?;
        self.namespace().remove()?;
        if let Some(bridge) = shared.host.find(&self.cluster.bridge()).await? {
            for (pods, address) in self.pod_ranges().into_iter().zip(self.addresses()) {
                shared.host.delete_route(pods, address, bridge.header.index).await?;
            }
        }
        shared.state.forget_node(&self.name)
    }

    /// Finds or makes the node. To be called with the host's lock held.
    pub(crate) async fn open(cluster: Cluster, index: u8, name: &str) -> Result<Self, NetworkError> {
        let namespace = cluster.node_namespace(name);
        namespace.ensure(|| apply(NODE_SETTINGS))?;
        // A namespace that an older version made may lack some.
        namespace.run(|| apply(NODE_SETTINGS))?;
        let links = Arc::new(Links::inside(&namespace)?);
        let (range, mtu) = (cluster.range(), cluster.shared.mtu);
        links.up("lo").await?;
        ensure_uplink(&cluster, index, name, &links, &namespace).await?;
        let bridge = links.ensure_bridge(POD_BRIDGE, range.pod_mac(index, 1), mtu).await?;
        links.up(POD_BRIDGE).await?;
        links.ensure_addresses(bridge, &range.gateway(index)).await?;
        let allocations = Allocations::of(name, &cluster.shared.state.node(name));
        let node = Self { cluster, index, name: name.to_owned(), allocations, links, bridge };
        let ports: Vec<_> = node.allocations.list()?.iter().map(|pod| node.port(pod)).collect();
        let created = node.firewall("create", ports::table(range.pod_mac(index, 1), &ports)).await;
        created.map_err(|error| error.hint("is nftables' bridge family in this kernel (CONFIG_NF_TABLES_BRIDGE)?"))?;
        // The namespace of a machine that was restarted is new, and its pods start before anybody says what they may do.
        if let Some(rules) = node.policies_file().read()? {
            node.apply_policies(Some(&rules)).await?;
        }
        Ok(node)
    }

    /// Tells this node and another one how to reach each other's pods directly, without the host's forwarding.
    pub(crate) async fn connect(&self, other: &str, other_index: u8) -> Result<(), NetworkError> {
        let range = self.cluster.range();
        let uplink = self.links.index(UPLINK).await?;
        for (pods, node) in range.pods(other_index).into_iter().zip(range.node(other_index)) {
            self.links.ensure_route(pods, node.address, uplink).await?;
        }
        let namespace = self.cluster.node_namespace(other);
        if !namespace.exists() {
            // It connects itself when it is made again.
            return Ok(());
        }
        let links = Links::inside(&namespace)?;
        let Some(uplink) = links.find(UPLINK).await? else { return Ok(()) };
        for (pods, address) in self.pod_ranges().into_iter().zip(self.addresses()) {
            links.ensure_route(pods, address, uplink.header.index).await?;
        }
        Ok(())
    }

    /// Takes the routes to this node out of another one.
    async fn disconnect(&self, other: &str) -> Result<(), NetworkError> {
        let namespace = self.cluster.node_namespace(other);
        if !namespace.exists() {
            return Ok(());
        }
        let links = Links::inside(&namespace)?;
        let Some(uplink) = links.find(UPLINK).await? else { return Ok(()) };
        for (pods, address) in self.pod_ranges().into_iter().zip(self.addresses()) {
            links.delete_route(pods, address, uplink.header.index).await?;
        }
        Ok(())
    }

    async fn make_pod(&self, pod: &Allocation, namespace: &Namespace, link: &str) -> Result<(), NetworkError> {
        namespace.ensure(|| apply(POD_SETTINGS))?;
        let range = self.cluster.range();
        let inside = Links::inside(namespace)?;
        if inside.find(POD_INTERFACE).await?.is_none() {
            // What a crash left of the pair is of no use without the other end.
            self.links.delete(link).await?;
            let target = namespace.open()?;
            let pair = VethPair {
                name: link,
                bridge: self.bridge,
                peer: POD_INTERFACE,
                peer_namespace: target.as_fd(),
                peer_mac: range.pod_mac(self.index, pod.host),
                mtu: self.cluster.shared.mtu,
            };
            self.links.create_veth(&pair).await?;
        }
        inside.up("lo").await?;
        let interface = inside.up(POD_INTERFACE).await?;
        inside.ensure_addresses(interface, &range.pod(self.index, pod.host)).await?;
        for (destination, gateway) in [DEFAULT_V4, DEFAULT_V6].into_iter().zip(range.gateway(self.index)) {
            inside.ensure_route(destination, gateway.address, interface).await?;
        }
        Ok(())
    }

    fn describe(&self, pod: &Allocation, namespace: &Namespace) -> PodNetwork {
        let range = self.cluster.range();
        let resolver = host::resolver();
        PodNetwork {
            netns: namespace.path().to_owned(),
            interface: POD_INTERFACE.to_owned(),
            mac: range.pod_mac(self.index, pod.host),
            addresses: range.pod(self.index, pod.host).to_vec(),
            gateways: range.gateway(self.index).map(|network| network.address).to_vec(),
            mtu: self.cluster.shared.mtu,
            dns_servers: resolver.servers,
            dns_searches: resolver.searches,
        }
    }

    /// What the port of a pod may send.
    fn port(&self, pod: &Allocation) -> Port {
        let range = self.cluster.range();
        let (v4, v6) = range.pod_addresses(self.index, pod.host);
        let (mac, guest) = (range.pod_mac(self.index, pod.host), self.allocations.guest(pod));
        Port { link: pod_link(&pod.uid), mac, guest, v4, v6 }
    }

    async fn apply_policies(&self, rules: Option<&str>) -> Result<(), NetworkError> {
        let remove = format!("table inet {POLICIES}\ndelete table inet {POLICIES}\n");
        let script =
            rules.map_or_else(|| remove.clone(), |rules| format!("{remove}table inet {POLICIES} {{\n{rules}}}\n"));
        let purpose = Purpose { operation: "set the rules of", table: POLICIES };
        firewall::apply(Some(&self.namespace()), purpose, script).await
    }

    fn policies_file(&self) -> Remembered {
        Remembered::at(self.cluster.shared.state.node(&self.name).join("policies.nft"))
    }

    async fn firewall(&self, operation: &'static str, script: String) -> Result<(), NetworkError> {
        firewall::apply(Some(&self.namespace()), Purpose { operation, table: ports::TABLE }, script).await
    }

    fn namespace(&self) -> Namespace {
        self.cluster.node_namespace(&self.name)
    }
}

/// The link between the host's bridge and the node, with the routes over it in both directions.
async fn ensure_uplink(
    cluster: &Cluster,
    index: u8,
    name: &str,
    links: &Links,
    namespace: &Namespace,
) -> Result<(), NetworkError> {
    let (host, range) = (&cluster.shared.host, cluster.range());
    let bridge = host.index(&cluster.bridge()).await?;
    if links.find(UPLINK).await?.is_none() {
        let name = cluster.uplink(name);
        host.delete(&name).await?;
        let target = namespace.open()?;
        let pair = VethPair {
            name: &name,
            bridge,
            peer: UPLINK,
            peer_namespace: target.as_fd(),
            peer_mac: range.uplink_mac(index + 1),
            mtu: cluster.shared.mtu,
        };
        host.create_veth(&pair).await?;
    }
    let uplink = links.up(UPLINK).await?;
    links.ensure_addresses(uplink, &range.node(index)).await?;
    let [v4, v6] = range.host().map(|network| network.address);
    links.ensure_route(DEFAULT_V4, v4, uplink).await?;
    // Without forwarding on the host, "no route" is a quicker answer to a pod than silence.
    if host::forwards_ipv6() {
        links.ensure_route(DEFAULT_V6, v6, uplink).await?;
    }
    for (pods, node) in range.pods(index).into_iter().zip(range.node(index)) {
        host.ensure_route(pods, node.address, bridge).await?;
    }
    Ok(())
}

/// Where a pod's namespace is.
pub(crate) fn pod_namespace(uid: &str) -> Namespace {
    Namespace::named(&format!("ferrovirt-{uid}"))
}

/// The node's end of a pod's link.
fn pod_link(uid: &str) -> String {
    format!("fv{}", digits(uid, 12))
}

/// Writes settings of the namespace that this thread is in. A kernel without IPv6 has no settings for it.
fn apply(settings: &[(&str, &str)]) -> io::Result<()> {
    for (setting, value) in settings {
        match fs::write(format!("/proc/sys/net/{setting}"), value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}
