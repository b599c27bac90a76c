//! Networks, and the network cards that refer to them.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::Guest;
use super::Reason::{Duplicate, Invalid, NotFound, NotSupported, Required};
use super::pci;
use super::table::{Findings, Path, Problem, Row, RuleInfo, if_so, names, when};
use super::text::{is_inner_name, is_port_name};
use crate::gates;
use crate::values::ipv4;
use crate::vmi::{Interface, InterfaceState, Network, Port, PortProtocol, PortRange};

type GuestRule = Row<fn(&Guest<'_>) -> Problem>;
type NetworkRule = Row<fn(&NetworkOf<'_>) -> Problem>;
type CardRule = Row<fn(&CardOf<'_>) -> Problem>;
type PortRule = Row<fn(&PortOf<'_>) -> Problem>;

const MOST_PORT_RANGES: usize = 10;

const GUEST: &[GuestRule] = &[
    ("one-pod-network", "networks", Duplicate, |it| {
        let count = it.spec.networks.iter().filter(|network| network.pod.is_some()).count();
        when(count > 1, || format!("has {count} pod networks: a pod has one"))
    }),
    ("one-default-multus-network", "networks", Duplicate, |it| {
        let count = it.spec.networks.iter().filter(|network| is_default(network)).count();
        when(count > 1, || format!("has {count} multus networks with default: a pod has one"))
    }),
    ("pod-network-or-default-multus", "networks", Invalid, |it| {
        let pod = it.spec.networks.iter().any(|network| network.pod.is_some());
        if_so(
            pod && it.spec.networks.iter().any(is_default),
            "has a pod network and a multus network with default, which takes its place: keep one",
        )
    }),
];

fn is_default(network: &Network) -> bool {
    network.multus.as_ref().is_some_and(|multus| multus.default)
}

struct NetworkOf<'a> {
    network: &'a Network,
    index: usize,
    guest: &'a Guest<'a>,
}

const NETWORK: &[NetworkRule] = &[
    ("network-name-is-a-word", "name", Invalid, |it| word(&it.network.name)),
    ("network-names-differ", "name", Duplicate, |it| {
        let first = it.guest.spec.networks[..it.index].iter().position(|before| before.name == it.network.name)?;
        Some(format!("is '{}', as spec.networks[{first}].name is: names must differ", it.network.name))
    }),
    ("network-has-one-source", "", Invalid, |it| {
        let kinds = [it.network.pod.is_some(), it.network.multus.is_some(), it.network.resource_claim.is_some()];
        if_so(
            kinds.into_iter().filter(|set| *set).count() != 1,
            "must have exactly one of pod, multus and resourceClaim",
        )
    }),
    ("network-has-an-interface", "name", Required, |it| {
        let cards = &it.guest.spec.domain.devices.interfaces;
        when(!cards.iter().any(|card| card.name == it.network.name), || {
            format!("is '{}', but domain.devices.interfaces has no interface of that name", it.network.name)
        })
    }),
    ("multus-network-is-named", "multus.networkName", Required, |it| {
        if_so(it.network.multus.as_ref()?.network_name.is_empty(), "is missing: name a network attachment definition")
    }),
    ("guest-network-is-a-range", "pod.vmNetworkCIDR", Invalid, |it| {
        let text = it.network.pod.as_ref()?.vm_network_cidr.as_deref().filter(|text| !text.is_empty())?;
        when(!is_range(text, 32, |address| ipv4(address).is_some()), || {
            format!("is '{text}': use a range such as 10.0.2.0/24")
        })
    }),
    ("guest-ipv6-network-is-a-range", "pod.vmIPv6NetworkCIDR", Invalid, |it| {
        let text = it.network.pod.as_ref()?.vm_ipv6_network_cidr.as_deref().filter(|text| !text.is_empty())?;
        when(!is_range(text, 128, |address| address.parse::<Ipv6Addr>().is_ok()), || {
            format!("is '{text}': use a range such as fd10:0:2::/120")
        })
    }),
];

/// An address and a prefix that leaves room for the guest and its gateway.
fn is_range(text: &str, bits: u8, is_address: fn(&str) -> bool) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(address, prefix)| {
        is_address(address) && prefix.parse::<u8>().is_ok_and(|prefix| (1..=bits - 2).contains(&prefix))
    })
}

fn word(name: &str) -> Problem {
    when(!is_inner_name(name), || format!("is '{name}': use up to 63 letters, digits, '-' and '_'"))
}

struct CardOf<'a> {
    card: &'a Interface,
    index: usize,
    network: Option<&'a Network>,
    guest: &'a Guest<'a>,
}

impl CardOf<'_> {
    fn on_pod_network(&self) -> bool {
        self.network.is_some_and(|network| network.pod.is_some())
    }

    fn removed(&self) -> Option<&'static str> {
        let removed = [
            ("slirp", self.card.slirp.is_some()),
            ("macvtap", self.card.macvtap.is_some()),
            ("passt", self.card.passt.is_some()),
        ];
        removed.into_iter().find(|(_, set)| *set).map(|(name, _)| name)
    }
}

const CARD: &[CardRule] = &[
    ("interface-name-is-a-word", "name", Invalid, |it| word(&it.card.name)),
    ("interface-names-differ", "name", Duplicate, |it| {
        let cards = &it.guest.spec.domain.devices.interfaces[..it.index];
        let first = cards.iter().position(|before| before.name == it.card.name)?;
        Some(format!("is '{}', as domain.devices.interfaces[{first}].name is: names must differ", it.card.name))
    }),
    ("interface-has-a-network", "name", NotFound, |it| {
        when(it.network.is_none(), || format!("is '{}', but spec.networks has no network of that name", it.card.name))
    }),
    ("interface-has-one-binding", "", Invalid, |it| {
        let card = it.card;
        let bindings = [
            card.bridge.is_some(),
            card.masquerade.is_some(),
            card.sriov.is_some(),
            card.passt_binding.is_some(),
            card.binding.is_some(),
            it.removed().is_some(),
        ];
        if_so(
            bindings.into_iter().filter(|set| *set).count() != 1,
            "must have exactly one binding, such as masquerade or bridge",
        )
    }),
    ("removed-bindings-are-refused", "", NotSupported, |it| {
        let name = it.removed()?;
        Some(format!("has the binding {name}, which is not supported any more: use masquerade or bridge"))
    }),
    ("masquerade-is-for-the-pod-network", "masquerade", Invalid, |it| {
        it.card.masquerade?;
        when(it.network.is_some() && !it.on_pod_network(), || {
            format!("works on the pod network only, and '{}' is none", it.card.name)
        })
    }),
    ("passt-is-for-the-pod-network", "passtBinding", Invalid, |it| {
        it.card.passt_binding?;
        when(it.network.is_some() && !it.on_pod_network(), || {
            format!("works on the pod network only, and '{}' is none", it.card.name)
        })
    }),
    ("bridge-on-the-pod-network-is-permitted", "bridge", Invalid, |it| {
        it.card.bridge?;
        let network = it.guest.cluster.network.as_ref();
        let permitted = network.and_then(|network| network.permit_bridge_interface_on_pod_network) != Some(false);
        if_so(it.on_pod_network() && !permitted, "is not allowed on the pod network of this cluster: use masquerade")
    }),
    ("masquerade-mac-is-not-the-gateways", "macAddress", Invalid, |it| {
        let mac = it.card.mac_address.as_ref().filter(|_| it.card.masquerade.is_some())?;
        if_so(mac.octets() == [2, 0, 0, 0, 0, 0], "is 02:00:00:00:00:00, which the gateway has: use another one")
    }),
    ("mac-is-of-one-card", "macAddress", Invalid, |it| {
        let mac = it.card.mac_address.as_ref()?;
        let octets = mac.octets();
        when(octets[0] & 1 == 1 || octets == [0; 6], || {
            format!("is {}, which is no address of a single card", mac.as_str())
        })
    }),
    ("interface-boot-order-counts-from-1", "bootOrder", Invalid, |it| {
        if_so(it.card.boot_order == Some(0), "is 0: places are counted from 1")
    }),
    ("interface-pci-address-is-one", "pciAddress", Invalid, |it| {
        pci::problem(it.guest, it.card.pci_address.as_deref().filter(|address| !address.is_empty())?)
    }),
    ("acpi-index-is-an-index", "acpiIndex", Invalid, |it| {
        let index = it.card.acpi_index?;
        when(!(0..=16383).contains(&index), || format!("is {index}: use 1 to 16383, or 0 for none"))
    }),
    ("absent-interface-is-a-secondary-bridge", "state", Invalid, |it| {
        let absent = it.card.state == Some(InterfaceState::Absent);
        let fine = it.card.bridge.is_some() && !it.on_pod_network() && !it.network.is_some_and(is_default);
        if_so(absent && !fine, "is 'absent', which only an interface with bridge on a secondary network can be")
    }),
    ("sriov-link-has-no-state", "state", Invalid, |it| {
        let state = it.card.state.filter(|state| *state != InterfaceState::Absent)?;
        when(it.card.sriov.is_some(), || format!("is '{}', which a virtual function does not have", state.as_str()))
    }),
    ("port-ranges-need-their-gate", "portRanges", NotSupported, |it| {
        if_so(
            !it.card.port_ranges.is_empty() && !gates::is_on(it.guest.cluster, gates::PORT_RANGES),
            "needs the feature gate PortRangesSpec",
        )
    }),
    ("port-ranges-are-for-masquerade", "portRanges", Invalid, |it| {
        if_so(!it.card.port_ranges.is_empty() && it.card.masquerade.is_none(), "is for the binding masquerade only")
    }),
    ("at-most-ten-port-ranges", "portRanges", Invalid, |it| {
        let count = it.card.port_ranges.len();
        when(count > MOST_PORT_RANGES, || format!("has {count} entries: use at most {MOST_PORT_RANGES}"))
    }),
    ("ports-or-port-ranges", "portRanges", Invalid, |it| {
        if_so(
            !it.card.port_ranges.is_empty() && !it.card.ports.is_empty(),
            "cannot be there together with ports: keep one",
        )
    }),
    ("port-ranges-are-ranges", "portRanges", Invalid, |it| {
        let wrong =
            it.card.port_ranges.iter().find(|range| range.start < 1 || range.end > 65535 || range.start > range.end)?;
        Some(format!("has {} to {}: use ports from 1 to 65535, the smaller one first", wrong.start, wrong.end))
    }),
    ("port-ranges-do-not-overlap", "portRanges", Invalid, |it| {
        let ranges = &it.card.port_ranges;
        let overlaps = |a: &PortRange, b: &PortRange| a.protocol == b.protocol && a.start <= b.end && b.start <= a.end;
        let wrong = ranges
            .iter()
            .enumerate()
            .find(|(index, range)| ranges[..*index].iter().any(|before| overlaps(before, range)))?
            .1;
        Some(format!("has {} to {}, which overlaps one before it", wrong.start, wrong.end))
    }),
    ("dhcp-private-options-are-224-to-254", "dhcpOptions.privateOptions", Invalid, |it| {
        let options = &it.card.dhcp_options.as_ref()?.private_options;
        let wrong = options.iter().find(|option| !(224..=254).contains(&option.option))?;
        Some(format!("has the option {}: private options are 224 to 254", wrong.option))
    }),
    ("dhcp-private-options-differ", "dhcpOptions.privateOptions", Duplicate, |it| {
        let options = &it.card.dhcp_options.as_ref()?.private_options;
        let mut seen = BTreeSet::new();
        let again = options.iter().find(|option| !seen.insert(option.option))?;
        Some(format!("has the option {} twice", again.option))
    }),
    ("ntp-servers-are-ipv4-addresses", "dhcpOptions.ntpServers", Invalid, |it| {
        let servers = &it.card.dhcp_options.as_ref()?.ntp_servers;
        let wrong = servers.iter().find(|server| server.parse::<Ipv4Addr>().is_err())?;
        Some(format!("has '{wrong}', which is no IPv4 address"))
    }),
];

struct PortOf<'a> {
    port: &'a Port,
    index: usize,
    card: &'a Interface,
}

const PORT: &[PortRule] = &[
    ("port-number-is-one", "port", Invalid, |it| {
        let port = it.port.port;
        when(!(1..=65535).contains(&port), || format!("is {port}: use 1 to 65535"))
    }),
    ("port-name-is-an-iana-name", "name", Invalid, |it| {
        let name = it.port.name.as_deref().filter(|name| !name.is_empty())?;
        when(!is_port_name(name), || {
            format!("is '{name}': use up to 15 lower case letters, digits and '-', with a letter among them")
        })
    }),
    ("port-names-differ", "name", Duplicate, |it| {
        let name = it.port.name.as_deref().filter(|name| !name.is_empty())?;
        let taken = it.card.ports[..it.index].iter().any(|before| before.name.as_deref() == Some(name));
        when(taken, || format!("is '{name}', as that of a port before it: names must differ"))
    }),
    ("ports-differ", "port", Duplicate, |it| {
        let same = |other: &Port| other.port == it.port.port && transport(other) == transport(it.port);
        when(it.card.ports[..it.index].iter().any(same), || format!("is {}, as that of a port before it", it.port.port))
    }),
];

fn transport(port: &Port) -> PortProtocol {
    port.protocol.unwrap_or(PortProtocol::Tcp)
}

pub(super) fn check(guest: &Guest<'_>, path: &Path<'_>, findings: &mut Findings) {
    findings.apply(GUEST, guest, path);
    let list = path.field("networks");
    for (index, network) in guest.spec.networks.iter().enumerate() {
        findings.apply(NETWORK, &NetworkOf { network, index, guest }, &list.index(index));
    }
    let list = path.field("domain.devices.interfaces");
    for (index, card) in guest.spec.domain.devices.interfaces.iter().enumerate() {
        let network = guest.spec.networks.iter().find(|network| network.name == card.name);
        let path = list.index(index);
        findings.apply(CARD, &CardOf { card, index, network, guest }, &path);
        let ports = path.field("ports");
        for (index, port) in card.ports.iter().enumerate() {
            findings.apply(PORT, &PortOf { port, index, card }, &ports.index(index));
        }
    }
}

pub(super) fn rules() -> impl Iterator<Item = RuleInfo> {
    names(GUEST).chain(names(NETWORK)).chain(names(CARD)).chain(names(PORT))
}
