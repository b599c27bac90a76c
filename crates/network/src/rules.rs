//! The nftables rules of masquerade, as text for `nft -f`. Pure.
//!
//! Tables and chains have the names that KubeVirt gave them. The table `nat` may also hold chains of others (a service mesh in the pod), so only
//! our own chains are emptied; nft applies the whole text at once or not at all.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use crate::plan::{Masquerade, Ports};

/// Whose rules are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

/// Our chains; those that the kernel calls say when.
const CHAINS: [(&str, &str); 7] = [
    ("prerouting", " { type nat hook prerouting priority -100; }"),
    ("input", " { type nat hook input priority 100; }"),
    ("forward", " { type filter hook forward priority 0; }"),
    ("output", " { type nat hook output priority -100; }"),
    ("postrouting", " { type nat hook postrouting priority 100; }"),
    ("KUBEVIRT_PREINBOUND", ""),
    ("KUBEVIRT_POSTINBOUND", ""),
];

/// What one family's rules speak of.
struct Family<'a> {
    table: &'a str,
    guest: &'a dyn Display,
    gateway: &'a dyn Display,
    /// The loopback address that connections are taken from to the guest. IPv6 has none: the kernel lets no answer back in to `::1`, and
    /// a connection that hangs is worse than one that is refused.
    loopback: Option<Ipv4Addr>,
}

/// The rules between a pod's link and a bridge.
pub(crate) fn ruleset(pod_link: &str, bridge: &str, masquerade: &Masquerade, families: Families) -> String {
    let v4 = Family {
        table: "ip",
        guest: &masquerade.v4.guest,
        gateway: &masquerade.v4.gateway,
        loopback: Some(Ipv4Addr::LOCALHOST),
    };
    let v6 = Family { table: "ip6", guest: &masquerade.v6.guest, gateway: &masquerade.v6.gateway, loopback: None };
    let wanted = [(families.v4, v4), (families.v6, v6)].into_iter().filter(|(wanted, _)| *wanted);
    wanted.map(|(_, family)| table(&family, pod_link, bridge, &masquerade.ports)).collect()
}

fn table(family: &Family<'_>, pod_link: &str, bridge: &str, ports: &Ports) -> String {
    let Family { table, guest, gateway, loopback } = family;
    let mut text = format!("add table {table} nat\n");
    for (chain, hook) in CHAINS {
        text += &format!("add chain {table} nat {chain}{hook}\nflush chain {table} nat {chain}\n");
    }
    let mut rule = |chain: &str, what: &str| text += &format!("add rule {table} nat {chain} {what}\n");

    // The bridge routes loopback addresses for the rules below; the guest must not reach the pod's loopback through it.
    if loopback.is_some() {
        rule("prerouting", &format!("iifname \"{bridge}\" ip daddr 127.0.0.0/8 drop"));
    }
    rule("prerouting", &format!("iifname \"{pod_link}\" jump KUBEVIRT_PREINBOUND"));
    // Who routes through the pod straight to the guest's address would get past the list of ports.
    rule("forward", &format!("iifname \"{pod_link}\" oifname \"{bridge}\" ct state new ct status & dnat == 0 drop"));
    rule("postrouting", &format!("{table} saddr {guest} masquerade"));
    rule("postrouting", &format!("oifname \"{bridge}\" jump KUBEVIRT_POSTINBOUND"));
    for ports in matches(ports) {
        rule("KUBEVIRT_PREINBOUND", &format!("{ports}dnat to {guest}"));
        if let Some(loopback) = loopback {
            rule("KUBEVIRT_POSTINBOUND", &format!("{ports}{table} saddr {loopback} snat to {gateway}"));
            rule("output", &format!("{table} daddr {loopback} {ports}dnat to {guest}"));
        }
    }
    text
}

/// Expressions that match the guest's ports, each ending with a space; a single empty one matches everything.
fn matches(ports: &Ports) -> Vec<String> {
    let Ports::Only { tcp, udp } = ports else { return vec![String::new()] };
    let protocols = [("tcp", tcp), ("udp", udp)].into_iter().filter(|(_, ranges)| !ranges.is_empty());
    protocols.map(|(protocol, ranges)| format!("{protocol} dport {{ {} }} ", elements(ranges))).collect()
}

fn elements(ranges: &[RangeInclusive<u16>]) -> String {
    let element = |range: &RangeInclusive<u16>| match range.start() == range.end() {
        true => range.start().to_string(),
        false => format!("{}-{}", range.start(), range.end()),
    };
    ranges.iter().map(element).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masquerade(ports: Ports) -> Masquerade {
        Masquerade { v4: "10.0.2.0/24".parse().unwrap(), v6: "fd10:0:2::/120".parse().unwrap(), ports }
    }

    #[test]
    fn everything_in_both_families() {
        let families = Families { v4: true, v6: true };
        insta::assert_snapshot!(ruleset("eth0", "k6t-eth0", &masquerade(Ports::All), families));
    }

    #[test]
    fn some_ports_in_one_family() {
        let ports = Ports::Only { tcp: vec![22..=22, 8000..=8010], udp: vec![53..=53] };
        let families = Families { v4: true, v6: false };
        insta::assert_snapshot!(ruleset("eth0", "k6t-eth0", &masquerade(ports), families));
    }
}
