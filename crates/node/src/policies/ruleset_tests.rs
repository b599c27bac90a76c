use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use super::*;

/// Objects of a small cluster: `web` and `db` are pods of this node in namespace `shop`, `far` is a pod elsewhere, in `other`.
struct Town {
    pods: Vec<Arc<Pod>>,
    namespaces: Vec<Arc<Namespace>>,
    attached: HashMap<String, Vec<IpAddr>>,
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn pod(namespace: &str, name: &str, addresses: &[&str], ports: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIPs": addresses.iter().map(|ip| json!({"ip": ip})).collect::<Vec<_>>()},
    });
    if ports.is_null() {
        pod["spec"]["containers"][0] = json!({"name": "c"});
    }
    object(pod)
}

impl Town {
    fn new() -> Self {
        let port = |number: u16| json!([{"name": "http", "containerPort": number}, {"name": "dns", "protocol": "UDP", "containerPort": 53}]);
        let pods = vec![
            pod("shop", "web", &[], &port(8080)),
            pod("shop", "db", &[], &port(9090)),
            pod("other", "far", &["10.244.2.7", "fd01::2:7"], &port(80)),
            pod("other", "quiet", &["10.244.2.8"], &Value::Null),
        ];
        let namespace =
            |name: &str| object(json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}));
        let address = |text: &str| text.parse().unwrap();
        let attached = HashMap::from([
            ("web".to_owned(), vec![address("10.244.1.2"), address("fd01::1:2")]),
            ("db".to_owned(), vec![address("10.244.1.5"), address("fd01::1:5")]),
        ]);
        Self { pods, namespaces: vec![namespace("shop"), namespace("other")], attached }
    }

    fn rules(&self, policies: &[Value]) -> Option<String> {
        let policies: Vec<Arc<NetworkPolicy>> = policies.iter().map(|policy| object(policy.clone())).collect();
        ruleset(&View {
            policies: &policies,
            pods: &self.pods,
            namespaces: &self.namespaces,
            attached: &self.attached,
            ranges: &["10.244.1.0/24".to_owned(), "fd01:0:0:1::/64".to_owned()],
            hosts: &["10.244.255.1".parse().unwrap(), "fd01:0:0:ffff::1".parse().unwrap()],
        })
    }
}

fn policy(namespace: &str, spec: &Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": "p"}, "spec": spec})
}

fn rules_for(spec: &Value) -> String {
    Town::new().rules(&[policy("shop", spec)]).unwrap()
}

/// The statements of a chain.
fn chain(rules: &str, name: &str) -> Vec<String> {
    let Some(body) = rules.split(&format!("chain {name} {{\n")).nth(1) else { return Vec::new() };
    let lines = body.lines().map(str::trim).take_while(|line| *line != "}");
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The elements of a set or map.
fn elements(rules: &str, name: &str) -> String {
    let line = rules.lines().find(|line| line.contains(&format!(" {name} {{"))).unwrap_or_default();
    line.split("elements = {").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default().trim().to_owned()
}

/// A chain with its sets in place of their names.
fn spelled_out(rules: &str, name: &str) -> Vec<String> {
    let word = |word: &str| match word.strip_prefix('@') {
        Some(set) => format!("[{}]", elements(rules, set)),
        None => word.to_owned(),
    };
    let line = |line: &String| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    chain(rules, name).iter().map(line).collect()
}

/// What a chain of a policy is that lets nothing through.
const NOTHING: [&str; 0] = [];

#[test]
fn without_policies_there_are_no_rules() {
    assert_eq!(Town::new().rules(&[]), None);
}

#[test]
fn whoever_a_policy_selects_is_closed_but_for_its_rules() {
    let rules = rules_for(&json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]}));
    assert_eq!(elements(&rules, "ingress_v4"), "10.244.1.2 : jump ingress_0");
    assert_eq!(elements(&rules, "ingress_v6"), "fd01::1:2 : jump ingress_0");
    assert_eq!(elements(&rules, "egress_v4"), "");
    assert_eq!(chain(&rules, "ingress_0"), ["jump ingress_of_0", "drop"]);
    assert_eq!(chain(&rules, "ingress_of_0"), NOTHING);
    assert_eq!(elements(&rules, "known_v4"), "10.244.1.2, 10.244.1.5");
}

#[test]
fn a_policy_is_about_the_directions_that_it_names() {
    let directions = |spec: Value| {
        let rules = rules_for(&spec);
        (!chain(&rules, "ingress_0").is_empty(), !chain(&rules, "egress_0").is_empty())
    };
    assert_eq!(directions(json!({"podSelector": {}})), (true, false));
    assert_eq!(directions(json!({"podSelector": {}, "egress": [{}]})), (true, true));
    assert_eq!(directions(json!({"podSelector": {}, "policyTypes": ["Egress"]})), (false, true));
    assert_eq!(directions(json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})), (true, true));
}

#[test]
fn a_policy_of_another_namespace_changes_nothing_but_what_is_known() {
    let rules = Town::new().rules(&[policy("other", &json!({"podSelector": {}}))]).unwrap();
    assert_eq!(elements(&rules, "ingress_v4"), "");
    assert!(chain(&rules, "senders").contains(&"ip saddr 10.244.1.0/24 ip saddr != @known_v4 drop".to_owned()));
}

#[test]
fn peers_are_addresses() {
    let of = |peers: Value| {
        spelled_out(
            &rules_for(&json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": peers}]})),
            "ingress_of_0",
        )
    };
    let db = ["ip saddr [10.244.1.5] accept", "ip6 saddr [fd01::1:5] accept"];
    let far = ["ip saddr [10.244.2.7] accept", "ip6 saddr [fd01::2:7] accept"];
    assert_eq!(of(json!([{"podSelector": {"matchLabels": {"app": "db"}}}])), db);
    assert_eq!(of(json!([{"podSelector": {"matchLabels": {"app": "far"}}}])), NOTHING, "it is in another namespace");
    let other = json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}});
    let elsewhere = ["ip saddr [10.244.2.7-10.244.2.8] accept", "ip6 saddr [fd01::2:7] accept"];
    assert_eq!(of(json!([{"namespaceSelector": other}])), elsewhere);
    assert_eq!(of(json!([{"namespaceSelector": other, "podSelector": {"matchLabels": {"app": "far"}}}])), far);
    let block = json!([{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25", "192.0.2.7/32"]}}]);
    assert_eq!(of(block), ["ip saddr [192.0.2.0-192.0.2.6, 192.0.2.8-192.0.2.127] accept"]);
    let broken = json!([{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.300/32"]}}, {}]);
    assert_eq!(of(broken), NOTHING);
    assert_eq!(of(json!([])), ["accept"]);
}

#[test]
fn ports_are_numbers_ranges_and_protocols() {
    let of =
        |ports: Value| chain(&rules_for(&json!({"podSelector": {}, "ingress": [{"ports": ports}]})), "ingress_of_0");
    let many = json!([{"port": 80}, {"port": 8000, "endPort": 8080}, {"port": 81}, {"port": 53, "protocol": "UDP"}]);
    assert_eq!(of(many), ["tcp dport { 80-81, 8000-8080 } accept", "udp dport { 53 } accept"]);
    assert_eq!(of(json!([{"protocol": "SCTP"}])), ["sctp dport { 0-65535 } accept"]);
    assert_eq!(of(json!([{"port": 80, "protocol": "ICMP"}, {"port": 0, "endPort": -1}, {"port": 70000}])), NOTHING);
    assert_eq!(of(json!([{"port": 9, "endPort": 8}, {"port": "http", "endPort": 90}])), NOTHING);
}

#[test]
fn a_named_port_is_that_of_the_pod_that_is_spoken_to() {
    let http = json!([{"port": "http"}]);
    let ingress = rules_for(&json!({"podSelector": {}, "ingress": [{"ports": http}]}));
    let expected = [
        "ip daddr . tcp dport [10.244.1.2 . 8080, 10.244.1.5 . 9090] accept",
        "ip6 daddr . tcp dport [fd01::1:2 . 8080, fd01::1:5 . 9090] accept",
    ];
    assert_eq!(spelled_out(&ingress, "ingress_of_0"), expected);
    let to = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}]);
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": [{"to": to, "ports": http}]});
    let expected = [
        "ip daddr [10.244.2.7-10.244.2.8] ip daddr . tcp dport [10.244.2.7 . 80] accept",
        "ip6 daddr [fd01::2:7] ip6 daddr . tcp dport [fd01::2:7 . 80] accept",
    ];
    assert_eq!(spelled_out(&rules_for(&spec), "egress_of_0"), expected);
    let dns = json!([{"port": "dns", "protocol": "UDP"}, {"port": "dns"}, {"port": "nobody"}]);
    let everyone = rules_for(&json!({"podSelector": {"matchLabels": {"app": "web"}}, "egress": [{"ports": dns}]}));
    assert_eq!(
        spelled_out(&everyone, "egress_of_0")[0],
        "ip daddr . udp dport [10.244.1.2 . 53, 10.244.1.5 . 53, 10.244.2.7 . 53] accept"
    );
    assert_eq!(spelled_out(&everyone, "egress_of_0").len(), 2);
}

#[test]
fn policies_of_a_pod_add_up_and_pods_with_the_same_ones_share_a_chain() {
    let all = policy("shop", &json!({"podSelector": {}, "ingress": [{"ports": [{"port": 1}]}]}));
    let web =
        policy("shop", &json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"ports": [{"port": 2}]}]}));
    let rules = Town::new().rules(&[all.clone(), web]).unwrap();
    assert_eq!(chain(&rules, "ingress_0"), ["jump ingress_of_0", "drop"]);
    assert_eq!(chain(&rules, "ingress_1"), ["jump ingress_of_0", "jump ingress_of_1", "drop"]);
    assert_eq!(chain(&rules, "ingress_of_0"), ["tcp dport { 1 } accept"]);
    assert_eq!(chain(&rules, "ingress_of_1"), ["tcp dport { 2 } accept"]);
    assert_eq!(elements(&rules, "ingress_v4"), "10.244.1.5 : jump ingress_0, 10.244.1.2 : jump ingress_1");
    let shared = Town::new().rules(&[all]).unwrap();
    assert_eq!(elements(&shared, "ingress_v4"), "10.244.1.2 : jump ingress_0, 10.244.1.5 : jump ingress_0");
}

#[test]
fn answers_and_the_host_come_before_everything() {
    let rules = rules_for(&json!({"podSelector": {}}));
    let first = [
        "ct direction reply ct state established accept",
        "ct state related accept",
        "ip saddr 10.244.255.1 accept",
        "ip6 saddr fd01:0:0:ffff::1 accept",
    ];
    let (senders, receivers) = (chain(&rules, "senders"), chain(&rules, "receivers"));
    assert_eq!(senders[1..5], first);
    assert_eq!(receivers[1..5], first);
    assert_eq!(receivers[5], "ip daddr 10.244.1.0/24 ip daddr != @known_v4 drop");
    assert_eq!(senders[7..], ["ip saddr vmap @egress_v4", "ip6 saddr vmap @egress_v6"]);
    assert_eq!(receivers[7..], ["ip daddr vmap @ingress_v4", "ip6 daddr vmap @ingress_v6"]);
}

#[test]
fn pods_that_ended_or_use_the_nodes_network_are_no_peers() {
    let mut town = Town::new();
    let mut ended = (*town.pods[2]).clone();
    ended.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    let mut of_the_host = (*town.pods[3]).clone();
    of_the_host.spec.as_mut().unwrap().host_network = Some(true);
    town.pods[2] = Arc::new(ended);
    town.pods[3] = Arc::new(of_the_host);
    let spec = json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]});
    let rules = town.rules(&[policy("shop", &spec)]).unwrap();
    assert_eq!(spelled_out(&rules, "ingress_of_0")[0], "ip saddr [10.244.1.2, 10.244.1.5] accept");
}
