//! Networks, and the interfaces that attach a guest to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::ClaimRequest;
use crate::meta::Empty;
use crate::string_enum::string_enum;
use crate::values::MacAddress;
use crate::wire::{is_default, or_default};

/// A named network; exactly one kind is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Name that interfaces refer to.
    pub name: String,
    /// The cluster's own pod network.
    pub pod: Option<PodNetwork>,
    /// A secondary network made by Multus.
    pub multus: Option<MultusNetwork>,
    /// A network device from a dynamic resource claim.
    pub resource_claim: Option<ClaimRequest>,
}

/// The pod network, and the addresses that the guest sees behind masquerade.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodNetwork {
    /// IPv4 range inside the guest; 10.0.2.0/24 when unset.
    #[serde(rename = "vmNetworkCIDR")]
    pub vm_network_cidr: Option<String>,
    /// IPv6 range inside the guest; fd10:0:2::/120 when unset.
    #[serde(rename = "vmIPv6NetworkCIDR")]
    pub vm_ipv6_network_cidr: Option<String>,
}

/// A secondary network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultusNetwork {
    /// Network attachment definition: `name` or `namespace/name`.
    pub network_name: String,
    /// Takes the place of the pod network.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub default: bool,
}

/// A network card of the guest; exactly one binding is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// Name of the network that it attaches to.
    pub name: String,
    /// Emulated card; `virtio` when unset.
    pub model: Option<InterfaceModel>,
    /// Binding: the guest takes over the pod's address on a bridge.
    pub bridge: Option<Empty>,
    /// Binding: removed, user-mode network.
    pub slirp: Option<Empty>,
    /// Binding: the guest is behind the pod's address.
    pub masquerade: Option<Empty>,
    /// Binding: a virtual function of a network card is passed through.
    pub sriov: Option<Empty>,
    /// Binding: removed, macvtap device.
    pub macvtap: Option<Empty>,
    /// Binding: removed, replaced by `passtBinding`.
    pub passt: Option<Empty>,
    /// Binding: user-mode network with passt.
    pub passt_binding: Option<Empty>,
    /// Binding: a registered plugin.
    pub binding: Option<PluginBinding>,
    /// Ports that reach the guest; all of them when empty.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub ports: Vec<Port>,
    /// Ranges of ports that reach the guest.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub port_ranges: Vec<PortRange>,
    /// Hardware address, such as `de:ad:00:00:be:af`.
    pub mac_address: Option<MacAddress>,
    /// Place in the boot order, counted from 1.
    pub boot_order: Option<u32>,
    /// Address on the guest's PCI bus, such as `0000:81:01.10`.
    pub pci_address: Option<String>,
    /// What the guest is told over DHCP.
    pub dhcp_options: Option<DhcpOptions>,
    /// Tag that the guest finds in its metadata.
    pub tag: Option<String>,
    /// Index that the guest's firmware reports; makes the name stable.
    pub acpi_index: Option<i64>,
    /// `absent` unplugs the interface, `down` cuts its link.
    pub state: Option<InterfaceState>,
}

string_enum! {
    /// Wanted state of an interface.
    pub enum InterfaceState {
        /// The interface is unplugged.
        Absent = "absent",
        /// The link is up.
        Up = "up",
        /// The link is down.
        Down = "down",
    }
}

string_enum! {
    /// Network cards that can be emulated.
    pub enum InterfaceModel {
        /// Intel 82540EM
        E1000 = "e1000",
        /// Intel 82574L
        E1000e = "e1000e",
        /// Intel 82576
        Igb = "igb",
        /// NE2000 on PCI
        Ne2kPci = "ne2k_pci",
        /// AMD PCnet
        Pcnet = "pcnet",
        /// Realtek RTL8139
        Rtl8139 = "rtl8139",
        /// Paravirtual
        Virtio = "virtio",
    }
}

/// A registered binding plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginBinding {
    /// Name under which the plugin is registered.
    pub name: String,
}

/// One port that reaches the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Name of the port, unique within the interface.
    pub name: Option<String>,
    /// Transport; `TCP` when unset.
    pub protocol: Option<PortProtocol>,
    /// Port number, 1 to 65535.
    pub port: i32,
}

/// A range of ports that reach the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortRange {
    /// Transport.
    pub protocol: PortProtocol,
    /// First port.
    pub start: i32,
    /// Last port, included.
    pub end: i32,
}

string_enum! {
    /// Transport protocols of forwarded ports.
    pub enum PortProtocol {
        /// TCP
        Tcp = "TCP",
        /// UDP
        Udp = "UDP",
    }
}

/// What the guest is told over DHCP.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpOptions {
    /// Option 67: boot file.
    pub boot_file_name: Option<String>,
    /// Option 66: boot server.
    pub tftp_server_name: Option<String>,
    /// Option 42: time servers.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub ntp_servers: Vec<String>,
    /// Options 224 to 254.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub private_options: Vec<DhcpPrivateOption>,
}

/// One private DHCP option.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpPrivateOption {
    /// Number, 224 to 254.
    pub option: i64,
    /// Text of the option.
    pub value: String,
}
