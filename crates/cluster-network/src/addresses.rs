//! Which address belongs to what: pure arithmetic on the cluster's two ranges.
//!
//! The IPv4 range is a /16 and the IPv6 range a /48; both are cut in the same way.
//!
//! | | IPv4 | IPv6 |
//! |---|---|---|
//! | uplinks of host and nodes | a.b.255.0/24 | prefix:ffff::/64 |
//! | host | a.b.255.1 | prefix:ffff::1 |
//! | node *i* | a.b.255.(*i*+1) | prefix:ffff::(*i*+1) |
//! | pods of node *i* | a.b.*i*.0/24 | prefix:*i*::/64 |
//! | gateway of these pods | a.b.*i*.1 | prefix:*i*::1 |
//! | pod *h* of node *i* | a.b.*i*.*h* | prefix:*i*::*h* |

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// The largest node index: its uplink address is a.b.255.254.
pub(crate) const MAX_INDEX: u8 = 253;
/// Pods get the addresses between the gateway (1) and the broadcast address (255).
pub(crate) const POD_HOSTS: std::ops::RangeInclusive<u8> = 2..=254;

const UPLINK_V6: u16 = 0xffff;

/// An address range: `address/prefix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// An address in it: the first one, or the one that an interface has.
    pub address: IpAddr,
    /// Length of the common prefix in bits.
    pub prefix: u8,
}

impl Network {
    pub(crate) fn new(address: impl Into<IpAddr>, prefix: u8) -> Self {
        Self { address: address.into(), prefix }
    }

    /// Whether the two share an address.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let prefix = u32::from(self.prefix.min(other.prefix));
        match (self.address, other.address) {
            (IpAddr::V4(one), IpAddr::V4(two)) => {
                (one.to_bits() ^ two.to_bits()).checked_shr(32 - prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(one), IpAddr::V6(two)) => {
                (one.to_bits() ^ two.to_bits()).checked_shr(128 - prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The hardware address that goes with an IPv4 address: locally administered and as unique as the address, so that an address
    /// that is given to another pod does not make its neighbours' tables wrong.
    pub(crate) fn of(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self([0x02, 0xfe, a, b, c, d])
    }

    /// The link-local address that a link with this hardware address gives itself.
    pub(crate) fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let pair = |high, low| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f))
    }
}

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let mut octets = text.split(':').map(|octet| u8::from_str_radix(octet, 16));
        let mut mac = [0; 6];
        for place in &mut mac {
            *place = octets.next().ok_or(NotAMac)?.map_err(|_| NotAMac)?;
        }
        if octets.next().is_some() { Err(NotAMac) } else { Ok(Self(mac)) }
    }
}

/// A text that is no hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hardware address is six pairs of hexadecimal digits with colons between them")]
pub struct NotAMac;

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// The two ranges of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first two octets of the IPv4 range.
    v4: [u8; 2],
    /// The 40 random bits of the IPv6 range, which is a unique local one.
    global_id: [u8; 5],
}

impl Range {
    /// The first candidate that overlaps nothing in `used`. A default route (prefix 0) is no use of an address.
    pub(crate) fn choose(used: &[Network], global_id: [u8; 5]) -> Option<Self> {
        candidates().map(|v4| Self { v4, global_id }).find(|range| range.conflict(used).is_none())
    }

    /// The first of `used` that overlaps this range.
    pub(crate) fn conflict<'a>(&self, used: &'a [Network]) -> Option<&'a Network> {
        let whole = self.v4();
        used.iter().find(|network| network.prefix > 0 && network.overlaps(&whole))
    }

    /// The whole IPv4 range.
    pub fn v4(&self) -> Network {
        Network::new(self.v4_address(0, 0), 16)
    }

    /// The whole IPv6 range.
    pub fn v6(&self) -> Network {
        Network::new(self.v6_address(0, 0), 48)
    }

    /// The host's addresses on the bridge to the nodes.
    pub(crate) fn host(&self) -> [Network; 2] {
        self.uplink(1)
    }

    /// A node's addresses on its link to the host.
    pub(crate) fn node(&self, index: u8) -> [Network; 2] {
        self.uplink(index + 1)
    }

    /// Where a node's pods are.
    pub(crate) fn pods(&self, index: u8) -> [Network; 2] {
        self.pod(index, 0)
    }

    /// The addresses of a node's pod bridge.
    pub(crate) fn gateway(&self, index: u8) -> [Network; 2] {
        self.pod(index, 1)
    }

    /// The addresses of one pod, with the prefix of the link.
    pub(crate) fn pod(&self, index: u8, host: u8) -> [Network; 2] {
        let (v4, v6) = self.pod_addresses(index, host);
        [Network::new(v4, 24), Network::new(v6, 64)]
    }

    /// The addresses of one pod.
    pub(crate) fn pod_addresses(&self, index: u8, host: u8) -> (Ipv4Addr, Ipv6Addr) {
        (self.v4_address(index, host), self.v6_address(u16::from(index), u16::from(host)))
    }

    /// The hardware address of one pod, or with host 1 of the pod bridge.
    pub(crate) fn pod_mac(&self, index: u8, host: u8) -> Mac {
        Mac::of(self.v4_address(index, host))
    }

    /// The hardware address of the host's bridge, or of a node's uplink.
    pub(crate) fn uplink_mac(&self, host: u8) -> Mac {
        Mac::of(self.v4_address(255, host))
    }

    fn uplink(&self, host: u8) -> [Network; 2] {
        [Network::new(self.v4_address(255, host), 24), Network::new(self.v6_address(UPLINK_V6, u16::from(host)), 64)]
    }

    fn v4_address(&self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(self.v4[0], self.v4[1], third, fourth)
    }

    fn v6_address(&self, subnet: u16, host: u16) -> Ipv6Addr {
        let [a, b, c, d, e] = self.global_id;
        let pair = |high, low| u16::from_be_bytes([high, low]);
        Ipv6Addr::new(pair(0xfd, a), pair(b, c), pair(d, e), subnet, 0, 0, 0, host)
    }
}

/// Private /16 ranges, the ones that cluster networks usually take first.
fn candidates() -> impl Iterator<Item = [u8; 2]> {
    let ten = (244..=255).chain(0..244).map(|second| [10, second]);
    ten.chain((16..32).map(|second| [172, second])).chain([[192, 168]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: [u8; 5] = [1, 2, 3, 4, 5];

    fn network(text: &str) -> Network {
        let (address, prefix) = text.split_once('/').unwrap();
        Network { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    #[test]
    fn the_first_range_that_nothing_uses_is_chosen() {
        let choose = |used: &[&str]| {
            let used: Vec<_> = used.iter().map(|text| network(text)).collect();
            Range::choose(&used, ID).map(|range| range.v4().to_string())
        };
        assert_eq!(choose(&["0.0.0.0/0", "192.0.2.0/24"]).as_deref(), Some("10.244.0.0/16"));
        assert_eq!(choose(&["10.244.255.0/24"]).as_deref(), Some("10.245.0.0/16"));
        assert_eq!(choose(&["10.244.0.7/32", "10.245.0.0/16"]).as_deref(), Some("10.246.0.0/16"));
        assert_eq!(choose(&["10.128.0.0/9"]).as_deref(), Some("10.0.0.0/16"));
        assert_eq!(choose(&["10.0.0.0/8"]).as_deref(), Some("172.16.0.0/16"));
        assert_eq!(choose(&["10.0.0.0/8", "172.16.0.0/12", "192.168.1.0/24"]), None);
    }

    #[test]
    fn addresses_follow_from_indexes() {
        let range = Range { v4: [10, 244], global_id: ID };
        let text = |networks: [Network; 2]| networks.map(|network| network.to_string());
        assert_eq!(text([range.v4(), range.v6()]), ["10.244.0.0/16", "fd01:203:405::/48"]);
        assert_eq!(text(range.host()), ["10.244.255.1/24", "fd01:203:405:ffff::1/64"]);
        assert_eq!(text(range.node(1)), ["10.244.255.2/24", "fd01:203:405:ffff::2/64"]);
        assert_eq!(text(range.node(MAX_INDEX)), ["10.244.255.254/24", "fd01:203:405:ffff::fe/64"]);
        assert_eq!(text(range.pods(2)), ["10.244.2.0/24", "fd01:203:405:2::/64"]);
        assert_eq!(text(range.gateway(2)), ["10.244.2.1/24", "fd01:203:405:2::1/64"]);
        assert_eq!(text(range.pod(2, 17)), ["10.244.2.17/24", "fd01:203:405:2::11/64"]);
        assert_eq!(range.pod_mac(2, 17).to_string(), "02:fe:0a:f4:02:11");
    }

    #[test]
    fn hardware_addresses_are_read_as_they_are_shown() {
        let mac: Mac = "02:fe:0a:f4:01:02".parse().unwrap();
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!(mac.link_local().to_string(), "fe80::fe:aff:fef4:102");
        for text in ["", "02:fe:0a:f4:01", "02:fe:0a:f4:01:02:03", "02:fe:0a:f4:01:100", "x"] {
            assert_eq!(text.parse::<Mac>(), Err(NotAMac), "{text}");
        }
    }

    proptest! {
        #[test]
        fn ranges_overlap_exactly_when_they_share_an_address(one: u32, two: u32, a in 0u8..=32, b in 0u8..=32) {
            let first = |address: u32, prefix: u8| address & u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            let last = |address: u32, prefix: u8| address | u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            let share = first(one, a) <= last(two, b) && first(two, b) <= last(one, a);
            let network = |address, prefix| Network::new(Ipv4Addr::from_bits(address), prefix);
            prop_assert_eq!(network(one, a).overlaps(&network(two, b)), share);
        }
    }
}
