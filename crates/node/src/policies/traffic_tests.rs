//! The rules at work: pods in real namespaces, and what they hear of each other. Needs root and nftables.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrovirt_cluster_network::{Cluster, Node, PodNetwork, run_in};
use ferrovirt_kubernetes::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use super::ruleset::{View, ruleset};

const PATIENCE: Duration = Duration::from_secs(5);
/// The port that has a name.
const WEB: u16 = 8080;
/// One that has none.
const OTHER: u16 = 8081;

/// A node with pods. What it made is removed also when a test fails.
struct Place {
    directory: tempfile::TempDir,
    node: Node,
    networks: HashMap<String, PodNetwork>,
    pods: Vec<Arc<Pod>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let directory = self.directory.path().to_owned();
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(Cluster::remove_at(&directory))
        });
        if let Err(error) = removal.join().expect("removal does not panic") {
            eprintln!("cannot remove the cluster: {error:?}");
        }
    }
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

impl Place {
    /// Pods by name, `namespace/name`.
    async fn with(names: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cluster = Cluster::open(directory.path(), "test").await.unwrap();
        let node = cluster.node(1, "one").await.unwrap();
        let mut place = Self { directory, node, networks: HashMap::new(), pods: Vec::new() };
        for name in names {
            place.start(name).await;
        }
        place
    }

    async fn start(&mut self, full: &str) {
        let (namespace, name) = full.split_once('/').unwrap();
        // Namespaces of pods are called by it, for the whole machine.
        static PODS: AtomicU32 = AtomicU32::new(0);
        let uid = format!("{name}-{}-{}", std::process::id(), PODS.fetch_add(1, Ordering::Relaxed));
        let network = self.node.attach_pod(&uid).await.unwrap();
        self.networks.insert(full.to_owned(), network);
        self.pods.push(object(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "web", "containerPort": WEB}]}]},
        })));
    }

    /// Makes the rules be those of these policies, each with its namespace.
    async fn say(&self, policies: &[(&str, Value)]) {
        let policy = |(namespace, spec): &(&str, Value)| {
            object(json!({"metadata": {"namespace": namespace, "name": "p"}, "spec": spec}))
        };
        let policies: Vec<Arc<NetworkPolicy>> = policies.iter().map(policy).collect();
        let namespace = |name: &str| object(json!({"metadata": {"name": name, "labels": {"name": name}}}));
        let namespaces: Vec<Arc<Namespace>> = ["shop", "bank"].map(namespace).into();
        let attached = self.node.pods().unwrap().into_iter().map(|pod| (pod.uid, pod.addresses.to_vec())).collect();
        let rules = ruleset(&View {
            policies: &policies,
            pods: &self.pods,
            namespaces: &namespaces,
            attached: &attached,
            ranges: &self.node.pod_ranges().map(|range| range.to_string()),
            hosts: &self.node.host_addresses(),
        });
        self.node.set_policies(rules.as_deref()).await.unwrap();
    }

    fn netns(&self, pod: &str) -> &Path {
        &self.networks[pod].netns
    }

    fn address(&self, pod: &str, family: usize) -> IpAddr {
        self.networks[pod].addresses[family].address
    }

    /// Bytes go from one pod to another and back, in both families.
    fn talks(&self, from: Option<&str>, to: &str, port: u16) {
        for family in 0..2 {
            let address = self.address(to, family);
            let client = from.map(|pod| self.netns(pod));
            exchange(self.netns(to), (address, port), client)
                .unwrap_or_else(|error| panic!("{from:?} to {to}: {error}"));
        }
    }

    /// Of what these pods send to another one in turn, the first thing that is heard is from `heard`.
    fn hears_first(&self, to: &str, senders: &[&str], heard: &str) {
        for family in 0..2 {
            let address = self.address(to, family);
            let listener = run_in(self.netns(to), move || UdpSocket::bind((address, 0))).unwrap();
            listener.set_read_timeout(Some(PATIENCE)).unwrap();
            let target = listener.local_addr().unwrap();
            for sender in senders {
                let from = self.address(sender, family);
                run_in(self.netns(sender), move || UdpSocket::bind((from, 0))?.send_to(b"hello", target)).unwrap();
            }
            let (_, from) = listener.recv_from(&mut [0; 16]).unwrap();
            assert_eq!(from.ip(), self.address(heard, family));
        }
    }
}

fn exchange(server: &Path, address: (IpAddr, u16), client: Option<&Path>) -> io::Result<()> {
    let listener = run_in(server, move || TcpListener::bind(address))?;
    let serving = std::thread::spawn(move || -> io::Result<()> {
        let (mut connection, _) = listener.accept()?;
        let mut received = [0; 4];
        connection.read_exact(&mut received)?;
        connection.write_all(&received)
    });
    let connect = move || TcpStream::connect_timeout(&address.into(), PATIENCE);
    let mut connection = client.map_or_else(connect, |client| run_in(client, connect))?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"ping")?;
    connection.read_exact(&mut [0; 4])?;
    serving.join().unwrap()
}

fn pods(name: &str) -> Value {
    json!({"podSelector": {"matchLabels": {"app": name}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policies_say_holds_between_pods() {
    let mut place = Place::with(&["shop/server", "shop/friend", "shop/stranger", "bank/teller"]).await;
    for client in ["shop/friend", "shop/stranger", "bank/teller"] {
        place.talks(Some(client), "shop/server", WEB);
    }

    // Nobody comes in; it goes out, answers come, and the host comes always.
    place.say(&[("shop", json!({"podSelector": {"matchLabels": {"app": "server"}}}))]).await;
    place.talks(None, "shop/server", WEB);
    place.talks(Some("shop/server"), "shop/stranger", OTHER);
    place.talks(Some("bank/teller"), "shop/stranger", OTHER);

    // By labels of pods and of namespaces, ports and names of ports.
    let closed = json!({"podSelector": {"matchLabels": {"app": "server"}}, "ingress": [
        {"from": [pods("friend")], "ports": [{"port": "web"}, {"protocol": "UDP"}]},
        {"from": [{"namespaceSelector": {"matchLabels": {"name": "bank"}}}], "ports": [{"port": WEB, "endPort": OTHER}]},
    ]});
    place.say(&[("shop", closed.clone())]).await;
    place.talks(Some("shop/friend"), "shop/server", WEB);
    place.talks(Some("bank/teller"), "shop/server", OTHER);
    place.hears_first("shop/server", &["shop/stranger", "bank/teller", "shop/friend"], "shop/friend");

    // A pod that came since is known to nobody, and nobody to it, until the rules are told.
    place.start("shop/late").await;
    place.talks(None, "shop/late", WEB);
    place.hears_first("shop/stranger", &["shop/late", "shop/friend"], "shop/friend");
    place.say(&[("shop", closed)]).await;
    place.talks(Some("shop/late"), "shop/stranger", WEB);

    place.say(&[]).await;
    place.hears_first("shop/server", &["shop/stranger", "shop/friend"], "shop/stranger");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_where_its_policies_let_it() {
    let place = Place::with(&["shop/server", "shop/friend", "shop/kept"]).await;
    let server = [0, 1].map(|family| place.address("shop/server", family));
    let all_but = |cidr: &str, except: String| json!({"ipBlock": {"cidr": cidr, "except": [except]}});
    let to = [all_but("0.0.0.0/0", format!("{}/32", server[0])), all_but("::/0", format!("{}/128", server[1]))];
    let kept =
        json!({"podSelector": {"matchLabels": {"app": "kept"}}, "policyTypes": ["Egress"], "egress": [{"to": to}]});
    place.say(&[("shop", kept.clone())]).await;
    place.talks(Some("shop/kept"), "shop/friend", WEB);
    place.talks(Some("shop/server"), "shop/kept", WEB);
    place.hears_first("shop/server", &["shop/kept", "shop/friend"], "shop/friend");

    // Policies of a pod add up.
    let also = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [pods("server")]}]});
    place.say(&[("shop", kept), ("shop", also)]).await;
    place.hears_first("shop/server", &["shop/kept", "shop/friend"], "shop/kept");
    place.talks(Some("shop/kept"), "shop/server", WEB);
}
