//! The nftables rules of masquerade, as text for `nft -f`. Pure.
//!
//! Tables and chains have the names that KubeVirt gave them. The table `nat` may also hold chains of others (a service mesh in the pod), so only
//! our own chains are emptied; nft applies the whole text at once or not at all.

use std::fmt::{Display, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::plan::{Masquerade, Ports};

/// Whose rules are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Families {
    pub(crate) v4: bool,
    pub(crate) v6: bool,
}

/// Our chains: name, and for those that the kernel calls, type, hook and priority.
const CHAINS: [(&str, Option<(&str, &str, i32)>); 7] = [
    ("prerouting", Some(("nat", "prerouting", -100))),
    ("input", Some(("nat", "input", 100))),
    ("forward", Some(("filter", "forward", 0))),
    ("output", Some(("nat", "output", -100))),
    ("postrouting", Some(("nat", "postrouting", 100))),
    ("KUBEVIRT_PREINBOUND", None),
    ("KUBEVIRT_POSTINBOUND", None),
];

/// What one family's rules speak of.
struct Family<'a> {
    table: &'a str,
    guest: &'a dyn Display,
    gateway: &'a dyn Display,
    loopback: &'a dyn Display,
}

/// The rules between a pod's link and a bridge.
pub(crate) fn ruleset(pod_link: &str, bridge: &str, masquerade: &Masquerade, families: Families) -> String {
    let v4 = Family {
        table: "ip",
        guest: &masquerade.v4.guest,
        gateway: &masquerade.v4.gateway,
        loopback: &Ipv4Addr::LOCALHOST,
    };
    let v6 = Family {
        table: "ip6",
        guest: &masquerade.v6.guest,
        gateway: &masquerade.v6.gateway,
        loopback: &Ipv6Addr::LOCALHOST,
    };
    let wanted = [(families.v4, v4), (families.v6, v6)].into_iter().filter(|(wanted, _)| *wanted);
    wanted.map(|(_, family)| table(&family, pod_link, bridge, &masquerade.ports)).collect()
}

fn table(family: &Family<'_>, pod_link: &str, bridge: &str, ports: &Ports) -> String {
    let Family { table, guest, gateway, loopback } = family;
    let mut text = format!("add table {table} nat\n");
    for (chain, hook) in CHAINS {
        let hook = hook.map(|(kind, hook, priority)| format!(" {{ type {kind} hook {hook} priority {priority}; }}"));
        line(&mut text, format_args!("add chain {table} nat {chain}{}", hook.unwrap_or_default()));
        line(&mut text, format_args!("flush chain {table} nat {chain}"));
    }
    let mut rule = |chain: &str, what: &str| line(&mut text, format_args!("add rule {table} nat {chain} {what}"));

    // The bridge routes loopback addresses for the rules below; the guest must not reach the pod's loopback through it.
    if *table == "ip" {
        rule("prerouting", &format!("iifname \"{bridge}\" ip daddr 127.0.0.0/8 drop"));
    }
    rule("prerouting", &format!("iifname \"{pod_link}\" jump KUBEVIRT_PREINBOUND"));
    // Who routes through the pod straight to the guest's address would get past the list of ports.
    rule("forward", &format!("iifname \"{pod_link}\" oifname \"{bridge}\" ct state new ct status & dnat == 0 drop"));
    rule("postrouting", &format!("{table} saddr {guest} masquerade"));
    rule("postrouting", &format!("oifname \"{bridge}\" jump KUBEVIRT_POSTINBOUND"));
    for ports in matches(ports) {
        rule("KUBEVIRT_PREINBOUND", &format!("{ports}dnat to {guest}"));
        rule("KUBEVIRT_POSTINBOUND", &format!("{ports}{table} saddr {loopback} snat to {gateway}"));
        rule("output", &format!("{table} daddr {loopback} {ports}dnat to {guest}"));
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

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    #[expect(clippy::let_underscore_must_use, reason = "writing to a String cannot fail")]
    let _ = writeln!(text, "{line}");
}
