//! From policies, pods and namespaces to nftables rules. Pure.
//!
//! ```text
//!  senders ──── answers, and what is from the host (probes, the API server): accept
//!     │
//!     ├─ a pod of this node that is not known yet: drop
//!     └─ sender   ── egress_v4, egress_v6 ──► egress_0: all pods with the same policies
//!                                               ├─► egress_of_3: rules of one policy, accept where one fits
//!                                               ├─► egress_of_7
//!                                               └─ drop
//!  receivers ── likewise by receiver, with ingress
//! ```
//!
//! A packet is looked up in a map twice, by its sender and by its receiver, however many pods there are, and then meets the rules of
//! the policies of those pods alone. Each policy is written once. Peers of a rule are a set of addresses; equal sets are one set.
//!
//! Answers are known by conntrack, so only the direction in which something began is judged. That one is judged for each packet:
//! a policy that comes later ends what is under way.
//!
//! What a rule says wrongly (an unknown protocol, a block that is none) matches nothing, so that a slip closes and does not open.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write,
    net::IpAddr,
    sync::Arc,
};

use ferrovirt_kubernetes::{Namespace, Pod};
use k8s_openapi::{
    api::{
        core::v1::Container,
        networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{
    ranges::{Family, Ranges},
    selector::{Labels, selects},
};

/// What there is.
pub(crate) struct View<'a> {
    /// Of all namespaces.
    pub(crate) policies: &'a [Arc<NetworkPolicy>],
    /// Of all nodes.
    pub(crate) pods: &'a [Arc<Pod>],
    /// All.
    pub(crate) namespaces: &'a [Arc<Namespace>],
    /// The pods of this node that have a network: addresses by uid.
    pub(crate) attached: &'a HashMap<String, Vec<IpAddr>>,
    /// Where pods of this node have their addresses.
    pub(crate) ranges: &'a [String],
    /// Addresses of the host, which reaches all pods.
    pub(crate) hosts: &'a [IpAddr],
}

/// The content of the node's table; none where there are no policies at all.
pub(crate) fn ruleset(view: &View<'_>) -> Option<String> {
    if view.policies.is_empty() {
        return None;
    }
    let mut rules = Rules { world: World::of(view), sets: Sets::default(), chains: String::new(), maps: String::new() };
    for direction in [Direction::Egress, Direction::Ingress] {
        rules.direction(view.policies, direction);
    }
    let known = known(&rules.world);
    let hooks = hooks(view);
    let Rules { sets, chains, maps, .. } = rules;
    Some(format!("{}{known}{chains}{maps}{hooks}", sets.text))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// Where the address of the other side is.
    fn peer(self) -> &'static str {
        match self {
            Self::Ingress => "saddr",
            Self::Egress => "daddr",
        }
    }
}

/// A pod that may be a peer, and whether it is of this node.
struct Member<'a> {
    namespace: &'a str,
    labels: &'a Labels,
    addresses: Vec<IpAddr>,
    ports: Vec<NamedPort<'a>>,
    local: bool,
}

struct NamedPort<'a> {
    name: &'a str,
    protocol: &'a str,
    number: i32,
}

struct World<'a> {
    members: Vec<Member<'a>>,
    namespaces: HashMap<&'a str, &'a Labels>,
}

static NO_LABELS: Labels = Labels::new();

/// How many rules, peers, exceptions and ports a policy may have that lets anything through. Those that people write have dozens.
const MOST: usize = 5_000;

impl<'a> World<'a> {
    fn of(view: &View<'a>) -> Self {
        let members = view.pods.iter().filter_map(|pod| member(pod, view.attached)).collect();
        let namespaces = view.namespaces.iter().filter_map(|namespace| {
            let metadata = &namespace.metadata;
            Some((metadata.name.as_deref()?, metadata.labels.as_ref().unwrap_or(&NO_LABELS)))
        });
        Self { members, namespaces: namespaces.collect() }
    }

    /// Pods that some of the peers name, each once.
    fn named<'b>(&'b self, own: &str, peers: &[NetworkPolicyPeer]) -> Vec<&'b Member<'a>> {
        self.members.iter().filter(|member| peers.iter().any(|peer| self.names(own, peer, member))).collect()
    }

    /// Whether a peer names a pod. A peer of a block names none.
    fn names(&self, own: &str, peer: &NetworkPolicyPeer, member: &Member<'_>) -> bool {
        let (pods, namespaces) = (peer.pod_selector.as_ref(), peer.namespace_selector.as_ref());
        if peer.ip_block.is_some() || (pods.is_none() && namespaces.is_none()) {
            return false;
        }
        let there = match namespaces {
            None => member.namespace == own,
            Some(selector) => self.namespaces.get(member.namespace).is_some_and(|labels| selects(selector, labels)),
        };
        there && pods.is_none_or(|selector| selects(selector, member.labels))
    }
}

/// The pod as others see it; none where it has no address of its own.
fn member<'a>(pod: &'a Pod, attached: &HashMap<String, Vec<IpAddr>>) -> Option<Member<'a>> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref());
    let local = pod.metadata.uid.as_ref().and_then(|uid| attached.get(uid));
    let finished = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    if local.is_none() && (finished || spec.host_network == Some(true)) {
        return None;
    }
    let reported = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    let addresses = match local {
        // What the node gave is the truth, and is known before anybody reports it.
        Some(addresses) => addresses.clone(),
        None => reported.filter_map(|address| address.ip.parse().ok()).collect(),
    };
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    Some(Member {
        namespace: pod.metadata.namespace.as_deref()?,
        labels: pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS),
        addresses,
        ports: sidecars.chain(&spec.containers).flat_map(named_ports).collect(),
        local: local.is_some(),
    })
}

fn named_ports(container: &Container) -> impl Iterator<Item = NamedPort<'_>> {
    container.ports.iter().flatten().filter_map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        Some(NamedPort { name: port.name.as_deref()?, protocol, number: port.container_port })
    })
}

/// Named sets of the table, by what they are.
#[derive(Default)]
struct Sets {
    names: HashMap<String, String>,
    text: String,
}

impl Sets {
    fn name(&mut self, definition: String) -> String {
        let next = format!("set_{}", self.names.len());
        let text = &mut self.text;
        let name = self.names.entry(definition).or_insert_with_key(|definition| {
            line(text, format_args!("set {next} {{ {definition} }}"));
            next
        });
        name.clone()
    }
}

/// One rule of a policy, whatever its direction.
struct Rule<'a> {
    peers: &'a [NetworkPolicyPeer],
    ports: &'a [NetworkPolicyPort],
}

fn rules_of(policy: &NetworkPolicy, direction: Direction) -> Vec<Rule<'_>> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    match direction {
        Direction::Ingress => {
            let rules = spec.ingress.iter().flatten();
            rules.map(|rule| Rule { peers: list(&rule.from), ports: list(&rule.ports) }).collect()
        }
        Direction::Egress => {
            let rules = spec.egress.iter().flatten();
            rules.map(|rule| Rule { peers: list(&rule.to), ports: list(&rule.ports) }).collect()
        }
    }
}

/// How much there is to a policy's rules: each costs time, and memory of the node and of the kernel.
fn size(rules: &[Rule<'_>]) -> usize {
    rules.iter().map(|rule| 1 + rule.peers.iter().map(weight).sum::<usize>() + rule.ports.len()).sum()
}

fn weight(peer: &NetworkPolicyPeer) -> usize {
    1 + peer.ip_block.as_ref().and_then(|block| block.except.as_ref()).map_or(0, Vec::len)
}

fn list<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

/// Whether the policy says anything of a direction.
fn is_about(policy: &NetworkPolicy, direction: Direction) -> bool {
    let Some(spec) = &policy.spec else { return false };
    match (&spec.policy_types, direction) {
        (Some(types), Direction::Ingress) => types.iter().any(|one| one == "Ingress"),
        (Some(types), Direction::Egress) => types.iter().any(|one| one == "Egress"),
        (None, Direction::Ingress) => true,
        (None, Direction::Egress) => !list(&spec.egress).is_empty(),
    }
}

fn is_for(policy: &NetworkPolicy, member: &Member<'_>) -> bool {
    let selector = policy.spec.as_ref().and_then(|spec| spec.pod_selector.as_ref());
    policy.metadata.namespace.as_deref() == Some(member.namespace)
        && selector.is_none_or(|selector| selects(selector, member.labels))
}

/// What comes out, as it grows.
struct Rules<'a> {
    world: World<'a>,
    sets: Sets,
    chains: String,
    maps: String,
}

impl Rules<'_> {
    /// Chains for all pods of this node that policies restrict in this direction, and the maps that lead to them.
    fn direction(&mut self, policies: &[Arc<NetworkPolicy>], direction: Direction) {
        let about: Vec<&NetworkPolicy> =
            policies.iter().map(|policy| &**policy).filter(|policy| is_about(policy, direction)).collect();
        let mut groups: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
        for (index, member) in self.world.members.iter().enumerate().filter(|(_, member)| member.local) {
            let restricting: Vec<usize> = (0..about.len()).filter(|policy| is_for(about[*policy], member)).collect();
            if !restricting.is_empty() {
                groups.entry(restricting).or_default().push(index);
            }
        }
        let used: BTreeSet<usize> = groups.keys().flatten().copied().collect();
        for number in used {
            self.policy(about[number], number, direction);
        }
        let mut elements: BTreeMap<Family, Vec<String>> = BTreeMap::new();
        for (number, (restricting, members)) in groups.iter().enumerate() {
            let chain = format!("{}_{number}", direction.name());
            let mut lines: Vec<String> =
                restricting.iter().map(|policy| format!("jump {}_of_{policy}", direction.name())).collect();
            lines.push("drop".to_owned());
            self.chain(&chain, &lines);
            for address in members.iter().flat_map(|member| &self.world.members[*member].addresses) {
                elements.entry(Family::of(*address)).or_default().push(format!("{address} : jump {chain}"));
            }
        }
        for family in Family::BOTH {
            let elements = elements.get(&family).map(Vec::as_slice).unwrap_or_default();
            let name = format!("{}_{}", direction.name(), suffix(family));
            let definition = format!("type {} : verdict;{}", family.kind(), with_elements(elements));
            line(&mut self.maps, format_args!("map {name} {{ {definition} }}"));
        }
    }

    /// The rules of one policy.
    fn policy(&mut self, policy: &NetworkPolicy, number: usize, direction: Direction) {
        let mut rules = rules_of(policy, direction);
        if size(&rules) > MOST {
            // One author's policy must not keep those of all others waiting. Too large, it lets nothing through.
            let name = policy.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(
                namespace = policy.metadata.namespace,
                name,
                most = MOST,
                "a network policy has too many rules, peers and ports: it lets nothing through"
            );
            rules.clear();
        }
        let lines: Vec<String> = rules.iter().flat_map(|rule| self.rule(rule, policy, direction)).collect();
        self.chain(&format!("{}_of_{number}", direction.name()), &lines);
    }

    fn chain(&mut self, name: &str, lines: &[String]) {
        line(&mut self.chains, format_args!("chain {name} {{\n    {}\n  }}", lines.join("\n    ")));
    }

    /// Statements that let through what a rule lets through.
    fn rule(&mut self, rule: &Rule<'_>, policy: &NetworkPolicy, direction: Direction) -> Vec<String> {
        let Self { world, sets, .. } = self;
        let own = policy.metadata.namespace.as_deref().unwrap_or_default();
        let mut heads = Vec::new();
        if rule.peers.is_empty() {
            heads.push(String::new());
        }
        for family in Family::BOTH {
            let addresses = addresses(world, own, rule.peers, family);
            if !addresses.is_empty() {
                let set = sets.name(addresses.definition());
                heads.push(format!("{} {} @{set} ", family.header(), direction.peer()));
            }
        }
        if rule.ports.is_empty() {
            return heads.iter().map(|head| format!("{head}accept")).collect();
        }
        let mut statements = Vec::new();
        for (protocol, ports) in numbers(rule.ports) {
            statements.extend(heads.iter().map(|head| format!("{head}{protocol} dport {{ {ports} }} accept")));
        }
        // A name stands for a port of the pod that is spoken to.
        let spoken_to: Vec<&Member<'_>> = match direction {
            Direction::Ingress => {
                world.members.iter().filter(|member| member.local && is_for(policy, member)).collect()
            }
            Direction::Egress if rule.peers.is_empty() => world.members.iter().collect(),
            Direction::Egress => world.named(own, rule.peers),
        };
        for (protocol, name) in names(rule.ports).collect::<BTreeSet<_>>() {
            for family in Family::BOTH {
                let Some(definition) = named_set(&spoken_to, protocol, name, family) else { continue };
                let set = sets.name(definition);
                let header = family.header();
                let fits = format!("{header} daddr . {} dport @{set} accept", protocol.to_lowercase());
                let restricts = |head: &&String| head.is_empty() || head.starts_with(&format!("{header} "));
                statements.extend(heads.iter().filter(restricts).map(|head| format!("{head}{fits}")));
            }
        }
        statements
    }
}

/// The addresses of peers.
fn addresses(world: &World<'_>, own: &str, peers: &[NetworkPolicyPeer], family: Family) -> Ranges {
    let blocks = peers.iter().filter_map(|peer| block(peer.ip_block.as_ref()?));
    let pods = world.named(own, peers).into_iter().flat_map(|member| &member.addresses);
    Ranges::sum(family, blocks.chain(pods.map(|address| Ranges::single(*address))))
}

/// A block without its exceptions; none where one of them cannot be read.
fn block(block: &IPBlock) -> Option<Ranges> {
    let whole = Ranges::block(&block.cidr)?;
    let exceptions = block.except.iter().flatten().map(|exception| Ranges::block(exception));
    let exceptions: Vec<Ranges> = exceptions.collect::<Option<_>>()?;
    Some(whole.without(&Ranges::sum(whole.family(), exceptions.into_iter())))
}

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

fn protocol(port: &NetworkPolicyPort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The numbers that ports say, as nftables lists them, by protocol.
fn numbers(ports: &[NetworkPolicyPort]) -> Vec<(String, String)> {
    let of = |wanted: &str| {
        let ports = ports.iter().filter(|port| protocol(port) == wanted);
        let mut ranges: Vec<(u16, u16)> = ports.filter_map(range).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        let text =
            |(first, last): &(u16, u16)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        let ports: Vec<String> = merged.iter().map(text).collect();
        (!ports.is_empty()).then(|| (wanted.to_lowercase(), ports.join(", ")))
    };
    PROTOCOLS.into_iter().filter_map(of).collect()
}

fn range(port: &NetworkPolicyPort) -> Option<(u16, u16)> {
    match (&port.port, port.end_port) {
        (None, None) => Some((0, u16::MAX)),
        (Some(IntOrString::Int(first)), last) => {
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(last.unwrap_or(*first)).ok()?);
            (first <= last).then_some((first, last))
        }
        _ => None,
    }
}

/// The names that ports have, with their protocols.
fn names(ports: &[NetworkPolicyPort]) -> impl Iterator<Item = (&str, &str)> {
    ports.iter().filter_map(|port| match (&port.port, port.end_port) {
        (Some(IntOrString::String(name)), None) if PROTOCOLS.contains(&protocol(port)) => {
            Some((protocol(port), name.as_str()))
        }
        _ => None,
    })
}

/// Where pods have the port of that name.
fn named_set(members: &[&Member<'_>], protocol: &str, name: &str, family: Family) -> Option<String> {
    let mut elements: Vec<String> = Vec::new();
    for member in members {
        let ports = member.ports.iter().filter(|port| port.name == name && port.protocol == protocol);
        for port in ports.filter_map(|port| u16::try_from(port.number).ok()) {
            let addresses = member.addresses.iter().filter(|address| Family::of(**address) == family);
            elements.extend(addresses.map(|address| format!("{address} . {port}")));
        }
    }
    elements.sort_unstable();
    elements.dedup();
    let kind = family.kind();
    (!elements.is_empty()).then(|| format!("type {kind} . inet_service; elements = {{ {} }};", elements.join(", ")))
}

/// Pods of this node whose policies are in the maps.
fn known(world: &World<'_>) -> String {
    let mut text = String::new();
    for family in Family::BOTH {
        let members = world.members.iter().filter(|member| member.local);
        let addresses = members.flat_map(|member| &member.addresses).filter(|address| Family::of(**address) == family);
        let elements: Vec<String> = addresses.map(ToString::to_string).collect();
        let elements = with_elements(&elements);
        line(&mut text, format_args!("set known_{} {{ type {};{elements} }}", suffix(family), family.kind()));
    }
    text
}

/// What is let through for one of the two reasons may still be stopped for the other: hooks of two chains, one after the other.
fn hooks(view: &View<'_>) -> String {
    let mut first =
        vec!["ct direction reply ct state established accept".to_owned(), "ct state related accept".to_owned()];
    for host in view.hosts {
        first.push(format!("{} saddr {host} accept", Family::of(*host).header()));
    }
    let (mut senders, mut receivers) = (first.clone(), first);
    for (range, family) in view.ranges.iter().filter_map(|range| Some((range, family_of(range)?))) {
        let (header, set) = (family.header(), suffix(family));
        senders.push(format!("{header} saddr {range} {header} saddr != @known_{set} drop"));
        receivers.push(format!("{header} daddr {range} {header} daddr != @known_{set} drop"));
    }
    for family in Family::BOTH {
        senders.push(format!("{} saddr vmap @egress_{}", family.header(), suffix(family)));
        receivers.push(format!("{} daddr vmap @ingress_{}", family.header(), suffix(family)));
    }
    let hook = |name: &str, priority: i32, rules: &[String]| {
        let rules = rules.join("\n    ");
        format!(
            "  chain {name} {{\n    type filter hook forward priority {priority}; policy accept;\n    {rules}\n  }}\n"
        )
    };
    hook("senders", 0, &senders) + &hook("receivers", 1, &receivers)
}

fn family_of(range: &str) -> Option<Family> {
    Some(Family::of(range.split('/').next()?.parse().ok()?))
}

fn suffix(family: Family) -> &'static str {
    match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    }
}

fn with_elements(elements: &[String]) -> String {
    if elements.is_empty() { String::new() } else { format!(" elements = {{ {} }};", elements.join(", ")) }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  {line}");
}

#[cfg(test)]
#[path = "ruleset_tests.rs"]
mod tests;
