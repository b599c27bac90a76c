//! What a VMI asks of its network, checked and with the defaults filled in. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::values::{CpuTopology, MacAddress};
use ferrovirt_api::vmi::{DomainSpec, Interface, InterfaceModel, InterfaceState, Network, PodNetwork, PortProtocol};

use crate::derived_mac;
use crate::subnet::{Subnet, SubnetError};

/// The pod's link on the pod network.
const POD_LINK: &str = "eth0";
/// More queues than these are of no use to a tap device.
const MOST_QUEUES: u32 = 256;
const DEFAULT_V4: &str = "10.0.2.0/24";
const DEFAULT_V6: &str = "fd10:0:2::/120";

/// One network card of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Name in the VMI.
    pub interface: String,
    /// The pod's link that it is attached to.
    pub pod_link: String,
    /// The bridge between that link and the tap device.
    pub bridge: String,
    /// The tap device.
    pub tap: String,
    /// The guest's hardware address; the pod's own where unset.
    pub mac: Option<MacAddress>,
    /// Queues of the tap device.
    pub queues: u32,
    /// How the guest is attached.
    pub binding: Binding,
    /// What DHCP tells besides addresses.
    pub dhcp: DhcpSettings,
}

/// How a guest is attached to the pod's link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// Behind the pod's address.
    Masquerade(Masquerade),
    /// With the pod's address.
    Bridge,
}

/// The network that only guest and pod see, and what of the pod's address reaches the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masquerade {
    /// Addresses where the pod has IPv4.
    pub v4: Subnet<Ipv4Addr>,
    /// Addresses where the pod has IPv6.
    pub v6: Subnet<Ipv6Addr>,
    /// Ports that reach the guest.
    pub ports: Ports,
}

/// Ports of the pod that are the guest's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// Whatever comes.
    All,
    /// These only: sorted, without overlaps.
    Only {
        /// TCP.
        tcp: Vec<RangeInclusive<u16>>,
        /// UDP.
        udp: Vec<RangeInclusive<u16>>,
    },
}

/// What DHCP tells the guest besides addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DhcpSettings {
    /// Host name.
    pub hostname: String,
    /// The domain below the namespace's that a headless service gives.
    pub subdomain: Option<String>,
    /// The VMI's namespace.
    pub namespace: String,
    /// Time servers.
    pub ntp: Vec<Ipv4Addr>,
    /// Boot server.
    pub tftp_server: Option<String>,
    /// Boot file.
    pub boot_file: Option<String>,
    /// Options 224 to 254.
    pub private: Vec<(u8, String)>,
}

/// A wish that cannot be fulfilled, with its place in the VMI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Unsupported {
    /// The field, like `spec.domain.devices.interfaces[0].sriov`.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

impl Unsupported {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

/// Reads the network cards of a VMI. Cards that are to be absent are left out.
pub fn plan(vmi: &VirtualMachineInstance) -> Result<Vec<InterfacePlan>, Unsupported> {
    let present = |interface: &Interface| interface.state != Some(InterfaceState::Absent);
    let interfaces = vmi.spec.domain.devices.interfaces.iter().enumerate().filter(|(_, card)| present(card));
    let mut plans = Vec::new();
    for (index, interface) in interfaces {
        let field = format!("spec.domain.devices.interfaces[{index}]");
        let pod = pod_network(&vmi.spec.networks, interface, &field)?;
        if !plans.is_empty() {
            return Err(Unsupported::new(field, "a second interface on the pod network; remove it"));
        }
        plans.push(one(vmi, interface, &pod, &field)?);
    }
    Ok(plans)
}

/// The pod network, and its place in the VMI.
type PodField<'a> = (&'a PodNetwork, String);

/// The pod network that an interface names.
fn pod_network<'a>(networks: &'a [Network], card: &Interface, field: &str) -> Result<PodField<'a>, Unsupported> {
    let found = networks.iter().enumerate().find(|(_, network)| network.name == card.name);
    let Some((index, network)) = found else {
        return Err(Unsupported::new(format!("{field}.name"), format!("there is no network {:?}", card.name)));
    };
    match &network.pod {
        Some(pod) => Ok((pod, format!("spec.networks[{index}].pod"))),
        None => {
            let kind = if network.multus.is_some() { "multus" } else { "resourceClaim" };
            let problem = "secondary networks are not supported yet; use the pod network";
            Err(Unsupported::new(format!("spec.networks[{index}].{kind}"), problem))
        }
    }
}

fn one(
    vmi: &VirtualMachineInstance,
    interface: &Interface,
    pod: &PodField<'_>,
    field: &str,
) -> Result<InterfacePlan, Unsupported> {
    let binding = binding(interface, pod, field)?;
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let masqueraded = matches!(binding, Binding::Masquerade(_));
    let derived = || masqueraded.then(|| MacAddress::from_octets(derived_mac(&[uid, &interface.name])));
    let mac = interface.mac_address.clone().or_else(derived).or_else(|| present_mac(vmi, &interface.name));
    Ok(InterfacePlan {
        interface: interface.name.clone(),
        pod_link: POD_LINK.to_owned(),
        bridge: format!("k6t-{POD_LINK}"),
        tap: "tap0".to_owned(),
        mac,
        queues: queues(&vmi.spec.domain, interface),
        binding,
        dhcp: dhcp(vmi, interface, field)?,
    })
}

/// The address that the guest's device has already: one that has moved keeps it, whatever its new pod's is.
fn present_mac(vmi: &VirtualMachineInstance, interface: &str) -> Option<MacAddress> {
    let known = vmi.status.iter().flat_map(|status| &status.interfaces);
    known.filter(|known| known.name.as_deref() == Some(interface)).find_map(|known| known.mac.as_ref()?.parse().ok())
}

fn binding(interface: &Interface, (pod, pod_field): &PodField<'_>, field: &str) -> Result<Binding, Unsupported> {
    const FIX: &str = "is not supported; use masquerade or bridge";

    let foreign = [
        ("slirp", interface.slirp.is_some()),
        ("sriov", interface.sriov.is_some()),
        ("macvtap", interface.macvtap.is_some()),
        ("passt", interface.passt.is_some()),
        ("passtBinding", interface.passt_binding.is_some()),
        ("binding", interface.binding.is_some()),
    ];
    if let Some((name, _)) = foreign.into_iter().find(|(_, set)| *set) {
        return Err(Unsupported::new(format!("{field}.{name}"), format!("this binding {FIX}")));
    }
    match (&interface.masquerade, &interface.bridge) {
        (Some(_), None) => Ok(Binding::Masquerade(Masquerade {
            v4: subnet(pod.vm_network_cidr.as_deref(), DEFAULT_V4, &format!("{pod_field}.vmNetworkCIDR"))?,
            v6: subnet(pod.vm_ipv6_network_cidr.as_deref(), DEFAULT_V6, &format!("{pod_field}.vmIPv6NetworkCIDR"))?,
            ports: ports(interface, field)?,
        })),
        (None, Some(_)) => Ok(Binding::Bridge),
        (None, None) => Err(Unsupported::new(field, "it has no binding; use masquerade or bridge")),
        (Some(_), Some(_)) => Err(Unsupported::new(field, "it has two bindings; keep one of masquerade and bridge")),
    }
}

fn subnet<A>(given: Option<&str>, default: &str, field: &str) -> Result<Subnet<A>, Unsupported>
where
    Subnet<A>: std::str::FromStr<Err = SubnetError>,
{
    let text = given.filter(|text| !text.is_empty()).unwrap_or(default);
    text.parse().map_err(|error| Unsupported::new(field, format!("{error}")))
}

fn ports(interface: &Interface, field: &str) -> Result<Ports, Unsupported> {
    if interface.ports.is_empty() && interface.port_ranges.is_empty() {
        return Ok(Ports::All);
    }
    let number = |number: i32, field: String| {
        let valid = u16::try_from(number).ok().filter(|port| *port != 0);
        valid.ok_or_else(|| Unsupported::new(field, format!("{number} is no port; use 1 to 65535")))
    };
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    let mut add = |protocol: Option<&PortProtocol>, range| match protocol {
        Some(PortProtocol::Udp) => udp.push(range),
        _ => tcp.push(range),
    };
    for (index, port) in interface.ports.iter().enumerate() {
        let valid = number(port.port, format!("{field}.ports[{index}].port"))?;
        add(port.protocol.as_ref(), valid..=valid);
    }
    for (index, range) in interface.port_ranges.iter().enumerate() {
        let start = number(range.start, format!("{field}.portRanges[{index}].start"))?;
        let end = number(range.end, format!("{field}.portRanges[{index}].end"))?;
        if end < start {
            return Err(Unsupported::new(format!("{field}.portRanges[{index}]"), "it ends before it starts"));
        }
        add(Some(&range.protocol), start..=end);
    }
    Ok(Ports::Only { tcp: merged(tcp), udp: merged(udp) })
}

/// The same ports in order, with ranges that touch made one: nftables takes no overlaps.
fn merged(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
    ranges.sort_by_key(|range| *range.start());
    let mut merged: Vec<RangeInclusive<u16>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// One queue for each virtual CPU, where it is asked for and the card can.
fn queues(domain: &DomainSpec, interface: &Interface) -> u32 {
    let wanted = domain.devices.network_interface_multiqueue == Some(true);
    let able = interface.model.as_ref().is_none_or(|model| *model == InterfaceModel::Virtio);
    if wanted && able { virtual_cpus(domain).clamp(1, MOST_QUEUES) } else { 1 }
}

/// Virtual CPUs by topology, else by the CPU that the pod gets.
fn virtual_cpus(domain: &DomainSpec) -> u32 {
    let cpu = domain.cpu.as_ref().filter(|cpu| cpu.sockets.or(cpu.cores).or(cpu.threads).is_some());
    if let Some(cpu) = cpu {
        return cpu.topology().map_or(MOST_QUEUES, CpuTopology::vcpus);
    }
    let amount = domain.resources.as_ref().and_then(|it| it.limits.get("cpu").or_else(|| it.requests.get("cpu")));
    amount.map_or(1, |amount| u32::try_from(amount.value()).unwrap_or(1))
}

fn dhcp(vmi: &VirtualMachineInstance, interface: &Interface, field: &str) -> Result<DhcpSettings, Unsupported> {
    let name = vmi.spec.hostname.as_deref().or(vmi.metadata.name.as_deref()).unwrap_or_default();
    let mut settings = DhcpSettings {
        // The rest of a name with dots is a domain, which is told apart.
        hostname: name.split('.').next().unwrap_or_default().to_owned(),
        subdomain: vmi.spec.subdomain.clone().filter(|subdomain| !subdomain.is_empty()),
        namespace: vmi.metadata.namespace.clone().unwrap_or_default(),
        ..DhcpSettings::default()
    };
    let Some(options) = &interface.dhcp_options else { return Ok(settings) };
    settings.tftp_server.clone_from(&options.tftp_server_name);
    settings.boot_file.clone_from(&options.boot_file_name);
    for (index, server) in options.ntp_servers.iter().enumerate() {
        let field = format!("{field}.dhcpOptions.ntpServers[{index}]");
        let address = server.parse().map_err(|_| Unsupported::new(field, format!("{server:?} is no IPv4 address")))?;
        settings.ntp.push(address);
    }
    for (index, private) in options.private_options.iter().enumerate() {
        let field = format!("{field}.dhcpOptions.privateOptions[{index}].option");
        let code = u8::try_from(private.option).ok().filter(|code| (224..=254).contains(code));
        let code = code.ok_or_else(|| Unsupported::new(field, format!("{} is not in 224 to 254", private.option)))?;
        settings.private.push((code, private.value.clone()));
    }
    Ok(settings)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
