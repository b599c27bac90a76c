//! What may come from a pod, and what reaches it: nftables rules for the ports of a node's bridge, as text.
//!
//! A program with the right to send raw frames, and any guest that is bridged, can say that it is another pod: by that pod's IP
//! address, by its hardware address (which makes the bridge send that pod's frames elsewhere), or by answers to questions for it (ARP,
//! neighbour discovery). So a port passes on only what has the addresses that the node gave to its pod:
//!
//! | frame | passes when |
//! |---|---|
//! | any | its source is the pod's hardware address or the guest's |
//! | ARP | sender's hardware and IP address are the pod's; an IP address of 0.0.0.0 is a question that nobody learns from |
//! | IPv4, IPv6 | the source is an address of the pod |
//! | neighbour discovery | also target and link-layer option are the pod's, and there is nothing more in it |
//! | DHCP answer, router advertisement, redirect | never: nobody but the node says where the network ends |
//! | anything else (bridge protocols, tags of virtual networks) | never |
//!
//! A bridged guest may have a hardware address that its owner chose, or that it brought from another node. Nobody sees it: the port
//! puts the pod's address in its place on the way in, and the guest's on the way out, so that two guests with the same address are no
//! trouble and none can be had by choosing another's.
//!
//! What passes goes to the node, and the node routes it, also to the pod next door: a bridge would hand frames on below everything that
//! knows connections (`nf_conntrack_bridge` is not in every kernel), so network policies would see nothing of them. From port to port
//! go only the questions and answers with which pods find each other, ARP and neighbour discovery; what is for many at once ends here.
//!
//! These are rules of the bridge family: they need no `br_netfilter`.

use std::{
    fmt::Write,
    net::{Ipv4Addr, Ipv6Addr},
};

use crate::Mac;

/// The table in a node's namespace.
pub(crate) const TABLE: &str = "ferrovirt";

/// One pod's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// The node's end of the pod's link. Names the port's chains too.
    pub(crate) link: String,
    /// The hardware address that the pod was given.
    pub(crate) mac: Mac,
    /// The hardware address of a bridged guest, where it is another one.
    pub(crate) guest: Option<Mac>,
    /// The pod's IPv4 address.
    pub(crate) v4: Ipv4Addr,
    /// The pod's IPv6 address.
    pub(crate) v6: Ipv6Addr,
}

/// The whole table with these ports, in place of an older one. `bridge` is the hardware address of the node's bridge.
pub(crate) fn table(bridge: Mac, ports: &[Port]) -> String {
    let mut script = format!(
        "table bridge {TABLE}
delete table bridge {TABLE}
table bridge {TABLE} {{
  map from {{ type ifname : verdict; }}
  map to {{ type ifname : verdict; }}
  chain from_pods {{
    type filter hook prerouting priority -300; policy drop;
    ether type ip udp sport 67 drop
    ether type ip6 udp sport 547 drop
    ether type ip6 icmpv6 type {{ nd-router-advert, nd-redirect, router-renumbering }} drop
    iifname vmap @from
  }}
  chain to_the_node {{
    type filter hook prerouting priority -250; policy accept;
    ether daddr & 01:00:00:00:00:00 != 00:00:00:00:00:00 accept
    ether type ip6 icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
    ether type {{ ip, ip6 }} ether daddr set {bridge} meta pkttype set host
  }}
  chain from_port_to_port {{
    type filter hook forward priority 0; policy drop;
    ether type arp accept
    ether type ip6 icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
  }}
  chain to_pods {{
    type filter hook postrouting priority 300; policy accept;
    ether type ip6 icmpv6 type nd-redirect drop
    oifname vmap @to
  }}
}}
"
    );
    ports.iter().for_each(|port| script.push_str(&plug(port)));
    script
}

/// Makes the rules of a port, or makes them anew.
pub(crate) fn plug(port: &Port) -> String {
    let link = &port.link;
    let mut script = String::new();
    for chain in chains(link) {
        line(&mut script, format_args!("add chain bridge {TABLE} {chain}"));
        line(&mut script, format_args!("flush chain bridge {TABLE} {chain}"));
    }
    let [as_pod, from, to] = chains(link);
    for (chain, rules) in [(as_pod, as_pod_rules(port)), (from, from_rules(port)), (to, to_rules(port))] {
        for rule in rules {
            line(&mut script, format_args!("add rule bridge {TABLE} {chain} {rule}"));
        }
    }
    for direction in ["from", "to"] {
        let element = format_args!("add element bridge {TABLE} {direction} {{ \"{link}\" : jump {link}_{direction} }}");
        line(&mut script, element);
    }
    script
}

/// Removes the rules of a port, if there are any: what is to be removed is added first, since nft refuses to remove what is not there.
pub(crate) fn unplug(link: &str) -> String {
    let mut script = String::new();
    for chain in chains(link) {
        line(&mut script, format_args!("add chain bridge {TABLE} {chain}"));
    }
    for direction in ["from", "to"] {
        let element = format!("element bridge {TABLE} {direction} {{ \"{link}\" : jump {link}_{direction} }}");
        line(&mut script, format_args!("add {element}"));
        line(&mut script, format_args!("delete {element}"));
    }
    for operation in ["flush", "delete"] {
        // In this order no chain is removed that another one still goes to.
        for chain in chains(link).iter().rev() {
            line(&mut script, format_args!("{operation} chain bridge {TABLE} {chain}"));
        }
    }
    script
}

fn chains(link: &str) -> [String; 3] {
    ["as_pod", "from", "to"].map(|name| format!("{link}_{name}"))
}

/// What passes is shown to others with the hardware address that they know.
fn as_pod_rules(port: &Port) -> Vec<String> {
    let mac = port.mac;
    let mut rules = Vec::new();
    if port.guest.is_some() {
        rules.push(format!("ether type arp arp saddr ether set {mac}"));
        rules.push(format!("ether saddr set {mac}"));
    }
    rules.push("accept".to_owned());
    rules
}

fn from_rules(port: &Port) -> Vec<String> {
    let Port { link, mac, v4, v6, .. } = port;
    let own = port.guest.map_or_else(|| mac.to_string(), |guest| format!("{mac}, {guest}"));
    let link_local = mac.link_local();
    let pass = format!("goto {link}_as_pod");
    let targets = [v6, &link_local].map(|address| format!("{:#034x}", address.to_bits())).join(", ");
    // The length leaves room for exactly one option, so that no second one says something else.
    let discovery = |kind: &str, option: &str| {
        format!(
            "icmpv6 type {kind} ip6 nexthdr icmpv6 ip6 length 32 @th,192,16 {option} @th,208,48 {} {pass}",
            raw(*mac)
        )
    };
    vec![
        format!("ether saddr != {{ {own} }} drop"),
        format!(
            "ether type arp arp htype 1 arp ptype ip arp hlen 6 arp plen 4 arp saddr ether {{ {own} }} arp saddr ip {{ {v4}, 0.0.0.0 }} {pass}"
        ),
        format!("ether type ip ip saddr {v4} {pass}"),
        "ether type != ip6 drop".to_owned(),
        // Whoever is about to take an address asks for it from no address.
        format!("icmpv6 type nd-neighbor-solicit ip6 saddr :: @th,64,128 {{ {targets} }} {pass}"),
        format!("ip6 saddr != {{ {v6}, {link_local} }} drop"),
        format!("icmpv6 type nd-neighbor-advert @th,64,128 != {{ {targets} }} drop"),
        format!("icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} ip6 nexthdr icmpv6 ip6 length 24 {pass}"),
        discovery("nd-neighbor-solicit", "0x0101"),
        discovery("nd-neighbor-advert", "0x0201"),
        "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } drop".to_owned(),
        pass,
    ]
}

/// Frames for others that the bridge sends to all of its ports, not knowing better, end here.
fn to_rules(port: &Port) -> Vec<String> {
    let mac = port.mac;
    let mut rules = vec![format!("ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00 ether daddr != {mac} drop")];
    if let Some(guest) = port.guest {
        rules.push(format!("ether type arp arp daddr ether {mac} arp daddr ether set {guest}"));
        rules.push(format!("ether daddr {mac} ether daddr set {guest}"));
    }
    rules
}

fn raw(mac: Mac) -> String {
    mac.0.iter().fold("0x".to_owned(), |mut text, octet| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn line(script: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(script, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(guest: Option<Mac>) -> Port {
        Port {
            link: "fv0123456789ab".to_owned(),
            mac: Mac([2, 0xfe, 10, 244, 1, 2]),
            guest,
            v4: Ipv4Addr::new(10, 244, 1, 2),
            v6: "fd01:203:405:1::2".parse().unwrap(),
        }
    }

    fn rules(script: &str, chain: &str) -> Vec<String> {
        let start = format!("add rule bridge ferrovirt fv0123456789ab_{chain} ");
        script.lines().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect()
    }

    #[test]
    fn a_port_passes_on_what_has_the_addresses_of_its_pod() {
        let script = plug(&port(None));
        let from = rules(&script, "from");
        assert_eq!(from[0], "ether saddr != { 02:fe:0a:f4:01:02 } drop");
        assert!(from[1].ends_with(
            "arp saddr ether { 02:fe:0a:f4:01:02 } arp saddr ip { 10.244.1.2, 0.0.0.0 } goto fv0123456789ab_as_pod"
        ));
        assert_eq!(from[2], "ether type ip ip saddr 10.244.1.2 goto fv0123456789ab_as_pod");
        assert_eq!(from[5], "ip6 saddr != { fd01:203:405:1::2, fe80::fe:aff:fef4:102 } drop");
        assert!(from[6].contains("{ 0xfd010203040500010000000000000002, 0xfe8000000000000000fe0afffef40102 } drop"));
        assert!(from[8].contains("@th,192,16 0x0101 @th,208,48 0x02fe0af40102"));
        assert_eq!(rules(&script, "as_pod"), ["accept"]);
        assert_eq!(rules(&script, "to").len(), 1);
    }

    #[test]
    fn a_guest_with_an_address_of_its_own_is_shown_with_the_pods() {
        let script = plug(&port(Some(Mac([2, 0, 0, 0, 0, 9]))));
        assert_eq!(rules(&script, "from")[0], "ether saddr != { 02:fe:0a:f4:01:02, 02:00:00:00:00:09 } drop");
        let as_pod =
            ["ether type arp arp saddr ether set 02:fe:0a:f4:01:02", "ether saddr set 02:fe:0a:f4:01:02", "accept"];
        assert_eq!(rules(&script, "as_pod"), as_pod);
        assert_eq!(rules(&script, "to")[2], "ether daddr 02:fe:0a:f4:01:02 ether daddr set 02:00:00:00:00:09");
    }
}
