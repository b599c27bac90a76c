//! What virt-handler's network set-up hands to the domain and to the launcher's DHCP servers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// A tap device in the pod that one of the guest's interfaces uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestLink {
    /// The VMI's interface.
    pub interface: String,
    /// The tap device; it belongs to the runtime user.
    pub tap: String,
    /// The guest's address.
    pub mac: String,
    /// The link's MTU.
    pub mtu: u32,
    /// Queues of the tap; 1 without multiqueue.
    pub queues: u32,
    /// The pod's link behind it.
    pub pod_interface: String,
    /// The pod's addresses, which `status.interfaces` shows for masquerade and bridge.
    pub pod_addresses: Vec<IpAddr>,
    /// How the guest gets its address, if it gets one from us.
    #[serde(default)]
    pub dhcp: Option<DhcpServer>,
}

/// One DHCP server for one guest on one bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DhcpServer {
    /// The bridge to listen on.
    pub device: String,
    /// Only this client is served.
    pub client_mac: String,
    /// The IPv4 lease.
    #[serde(default)]
    pub v4: Option<DhcpV4>,
    /// The IPv6 lease.
    #[serde(default)]
    pub v6: Option<DhcpV6>,
}

/// An IPv4 lease and its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DhcpV4 {
    /// What the server calls itself.
    pub server: Ipv4Addr,
    /// The guest's address.
    pub address: Ipv4Addr,
    /// Its network.
    pub prefix: u8,
    /// Default router.
    #[serde(default)]
    pub router: Option<Ipv4Addr>,
    /// Destination, prefix and gateway of further routes.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// DNS servers.
    #[serde(default)]
    pub dns: Vec<Ipv4Addr>,
    /// Search list; the first usable one is the domain.
    #[serde(default)]
    pub search: Vec<String>,
    /// The link's MTU.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// The guest's host name.
    #[serde(default)]
    pub hostname: Option<String>,
    /// NTP servers.
    #[serde(default)]
    pub ntp: Vec<Ipv4Addr>,
    /// TFTP server name.
    #[serde(default)]
    pub tftp_server: Option<String>,
    /// Boot file name.
    #[serde(default)]
    pub boot_file: Option<String>,
    /// Options 224 to 254.
    #[serde(default)]
    pub private: Vec<(u8, String)>,
}

/// A route for option 121.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Where to.
    pub destination: Ipv4Addr,
    /// Of this size.
    pub prefix: u8,
    /// Through whom; unspecified: on the link.
    pub gateway: Ipv4Addr,
}

/// An IPv6 lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DhcpV6 {
    /// The guest's address.
    pub address: Ipv6Addr,
    /// DNS servers.
    #[serde(default)]
    pub dns: Vec<Ipv6Addr>,
}
