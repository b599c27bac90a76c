//! Sets of addresses as ranges: what blocks, exceptions and pods add up to. nftables takes no overlaps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The first word of what nftables reads of a packet.
    pub(crate) fn header(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// The type of an address in a set.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }

    fn bits(self) -> u32 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    fn last(self) -> u128 {
        match self {
            Self::V4 => u128::from(u32::MAX),
            Self::V6 => u128::MAX,
        }
    }

    fn text(self, bits: u128) -> String {
        match self {
            // Numbers of this family are never larger.
            Self::V4 => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).to_string(),
            Self::V6 => Ipv6Addr::from_bits(bits).to_string(),
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Addresses of one family: ranges with both ends, in order, and with room between each two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranges {
    family: Family,
    ranges: Vec<(u128, u128)>,
}

impl Ranges {
    pub(crate) fn single(address: IpAddr) -> Self {
        Self { family: Family::of(address), ranges: vec![(bits(address), bits(address))] }
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// `10.0.0.0/8`, or none where it cannot be read.
    pub(crate) fn block(cidr: &str) -> Option<Self> {
        let (address, prefix) = cidr.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let (family, prefix) = (Family::of(address), prefix.parse::<u32>().ok()?);
        let host = family.bits().checked_sub(prefix)?;
        let mask = u128::MAX.checked_shl(host).unwrap_or(0) & family.last();
        let first = bits(address) & mask;
        Some(Self { family, ranges: vec![(first, first | (!mask & family.last()))] })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Those of all that are of this family. All at once: putting them in order each time would take the square of their number.
    pub(crate) fn sum(family: Family, all: impl Iterator<Item = Self>) -> Self {
        let mut ranges: Vec<_> = all.filter(|one| one.family == family).flat_map(|one| one.ranges).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self { family, ranges: merged }
    }

    /// Without those of `other`, as far as they are of this family.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let holes = if other.family == self.family { other.ranges.as_slice() } else { &[] };
        let mut left = Vec::with_capacity(self.ranges.len());
        for (first, last) in &self.ranges {
            let begin = holes.partition_point(|hole| hole.1 < *first);
            // The first address that is not decided yet; none after the last of the family.
            let mut next = Some(*first);
            for (from, to) in holes[begin..].iter().take_while(|hole| hole.0 <= *last) {
                if let Some(next) = next.filter(|next| next < from) {
                    left.push((next, from - 1));
                }
                next = to.checked_add(1);
            }
            if let Some(next) = next.filter(|next| next <= last) {
                left.push((next, *last));
            }
        }
        Self { family: self.family, ranges: left }
    }

    /// The set as nftables reads it, without its name.
    pub(crate) fn definition(&self) -> String {
        let text = |(first, last): &(u128, u128)| {
            let begin = self.family.text(*first);
            if first == last { begin } else { format!("{begin}-{}", self.family.text(*last)) }
        };
        let flags = if self.ranges.iter().any(|(first, last)| first != last) { " flags interval;" } else { "" };
        let elements: Vec<String> = self.ranges.iter().map(text).collect();
        format!("type {};{flags} elements = {{ {} }};", self.family.kind(), elements.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(blocks: &[&str], except: &[&str]) -> String {
        let family = Ranges::block(blocks[0]).unwrap().family;
        let sum = |blocks: &[&str]| Ranges::sum(family, blocks.iter().map(|block| Ranges::block(block).unwrap()));
        let definition = sum(blocks).without(&sum(except)).definition();
        definition.split(['{', '}']).nth(1).unwrap().trim().to_owned()
    }

    #[test]
    fn blocks_add_up_without_their_exceptions() {
        assert_eq!(of(&["10.0.0.0/24"], &[]), "10.0.0.0-10.0.0.255");
        assert_eq!(
            of(&["10.0.0.77/24", "10.0.1.0/24"], &["10.0.0.255/32"]),
            "10.0.0.0-10.0.0.254, 10.0.1.0-10.0.1.255"
        );
        assert_eq!(of(&["0.0.0.0/0"], &["0.0.0.0/1", "255.255.255.255/32"]), "128.0.0.0-255.255.255.254");
        assert_eq!(of(&["::/0"], &["::/1", "8000::/2"]), "c000::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        assert_eq!(of(&["10.0.0.1/32", "10.0.0.1/32", "10.0.0.9/32"], &["fd00::/8"]), "10.0.0.1, 10.0.0.9");
        assert_eq!(of(&["10.0.0.0/31"], &["10.0.0.0/8"]), "");
        let holes = ["10.0.0.0/32", "10.0.0.4/30", "10.0.1.0/24"];
        assert_eq!(of(&["10.0.0.0/29", "10.0.2.0/32"], &holes), "10.0.0.1-10.0.0.3, 10.0.2.0");
    }

    #[test]
    fn what_is_no_block_is_none() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "fd00::/129", "x/8"] {
            assert_eq!(Ranges::block(text), None, "{text}");
        }
    }
}
