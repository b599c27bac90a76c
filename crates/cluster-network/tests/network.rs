//! The network of a cluster with real namespaces, links and traffic. Needs root and nftables.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::{collections::HashSet, fs, net::UdpSocket, path::PathBuf, process::Command};

use ferrovirt_cluster_network::{NetworkError, Node, run_in};

use scene::{PATIENCE, Scene, exchange, output, uid};

#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_each_other_their_node_and_the_host() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    let one = cluster.node(1, "one").await.unwrap();
    let two = cluster.node(2, "two").await.unwrap();
    let a = one.attach_pod(&uid("a")).await.unwrap();
    let b = one.attach_pod(&uid("b")).await.unwrap();
    let c = two.attach_pod(&uid("c")).await.unwrap();
    for (family, host) in cluster.host_addresses().into_iter().enumerate() {
        let (a_ip, b_ip, c_ip) =
            (a.addresses[family].address, b.addresses[family].address, c.addresses[family].address);
        let peer = exchange(Some(&b.netns), b_ip, Some(&a.netns)).expect("between pods of a node");
        assert_eq!(peer.ip(), a_ip);
        let peer = exchange(Some(&c.netns), c_ip, Some(&a.netns)).expect("between nodes");
        assert_eq!(peer.ip(), a_ip, "pods see each other's own addresses");
        let peer = exchange(Some(&c.netns), c_ip, None).expect("from the host");
        assert_eq!(peer.ip(), host);
        let peer = exchange(None, host, Some(&c.netns)).expect("to the host");
        assert_eq!(peer.ip(), c_ip);
        exchange(Some(&two.netns()), two.addresses()[family], Some(&a.netns)).expect("to another node");
        exchange(Some(&one.netns()), a.gateways[family], Some(&a.netns)).expect("to the gateway");
    }
    assert_eq!(a.interface, "eth0");
    let link = run_in(&a.netns, || fs::read_to_string("/proc/net/if_inet6")).unwrap();
    assert!(link.contains("eth0"), "{link}");
    let shown = output("ip", &["netns"]);
    assert!(shown.contains(one.netns().file_name().unwrap().to_str().unwrap()), "{shown}");
}

/// A namespace that stands for the world outside of the machine.
struct Outside {
    name: String,
    link: String,
}

impl Outside {
    fn new() -> Self {
        let suffix = std::process::id() % 100_000;
        let outside = Self { name: format!("fv-outside-{suffix}"), link: format!("fvout{suffix}") };
        let run = |arguments: &[&str]| assert!(Command::new("ip").args(arguments).status().unwrap().success());
        run(&["netns", "add", &outside.name]);
        run(&["link", "add", &outside.link, "type", "veth", "peer", "name", "eth0", "netns", &outside.name]);
        run(&["addr", "add", "198.51.100.1/30", "dev", &outside.link]);
        run(&["link", "set", &outside.link, "up"]);
        run(&["-n", &outside.name, "addr", "add", "198.51.100.2/30", "dev", "eth0"]);
        run(&["-n", &outside.name, "link", "set", "eth0", "up"]);
        outside
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.link]).status();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_leave_the_cluster_with_the_hosts_address() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    let node = cluster.node(1, "one").await.unwrap();
    let pod = node.attach_pod(&uid("a")).await.unwrap();
    let outside = Outside::new();
    let namespace = PathBuf::from("/run/netns").join(&outside.name);
    let peer = exchange(Some(&namespace), "198.51.100.2".parse().unwrap(), Some(&pod.netns)).unwrap();
    assert_eq!(peer.ip().to_string(), "198.51.100.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_is_found_again_and_left_alone() {
    let scene = Scene::new();
    let (first, second) = (uid("a"), uid("b"));
    let cluster = scene.open().await;
    let range = cluster.range();
    let node = cluster.node(1, "one").await.unwrap();
    let before = node.attach_pod(&first).await.unwrap();
    // A guest that takes over the pod's address renames its interface.
    let netns = before.netns.file_name().unwrap().to_str().unwrap();
    for arguments in [["link", "set", "eth0", "down"].as_slice(), &["link", "set", "eth0", "name", "eth0-nic"]] {
        let status = Command::new("ip").args(["-n", netns]).args(arguments).status().unwrap();
        assert!(status.success());
    }
    drop((cluster, node));

    let cluster = scene.open().await;
    assert_eq!(cluster.range(), range);
    let node = cluster.node(1, "one").await.unwrap();
    assert_eq!(node.attach_pod(&first).await.unwrap(), before);
    let links = output("ip", &["-n", netns, "-br", "link"]);
    assert!(links.contains("eth0-nic") && !links.contains("eth0@"), "{links}");
    let other = node.attach_pod(&second).await.unwrap();
    assert_ne!(other.addresses, before.addresses);
    let uids: HashSet<_> = node.pods().unwrap().into_iter().map(|pod| pod.uid).collect();
    assert_eq!(uids, HashSet::from([first, second]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_made_pod_is_completed() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    let node = cluster.node(1, "one").await.unwrap();
    let uid = uid("a");
    let complete = node.attach_pod(&uid).await.unwrap();
    let netns = complete.netns.file_name().unwrap().to_str().unwrap().to_owned();

    // As if the process had died before the interface was made ...
    assert!(Command::new("ip").args(["-n", &netns, "link", "del", "eth0"]).status().unwrap().success());
    works_again(&node, &uid).await;
    // ... before it had an address ...
    assert!(Command::new("ip").args(["-n", &netns, "addr", "flush", "dev", "eth0"]).status().unwrap().success());
    unfinish(&scene, &uid);
    works_again(&node, &uid).await;
    // ... and before the namespace was mounted on its file.
    assert!(Command::new("ip").args(["netns", "del", &netns]).status().unwrap().success());
    fs::write(&complete.netns, "").unwrap();
    works_again(&node, &uid).await;
    // A machine that was restarted has no namespaces, bridges and links at all.
    assert!(Command::new("ip").args(["netns", "del", &netns]).status().unwrap().success());
    let node_name = node.netns().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(Command::new("ip").args(["netns", "del", &node_name]).status().unwrap().success());
    assert!(Command::new("ip").args(["link", "del", &cluster.bridge()]).status().unwrap().success());
    drop((cluster, node));
    let cluster = scene.open().await;
    let node = cluster.node(1, "one").await.unwrap();
    assert_eq!(works_again(&node, &uid).await, complete);
}

/// Makes the record of a pod what it is before the pod's network is complete.
fn unfinish(scene: &Scene, uid: &str) {
    let pods = scene.path().join("network/one/pods");
    let record = fs::read_dir(pods).unwrap().map(|entry| entry.unwrap().path());
    let record = record.into_iter().find(|path| path.to_str().unwrap().ends_with(uid)).unwrap();
    fs::write(record, "").unwrap();
}

async fn works_again(node: &Node, uid: &str) -> ferrovirt_cluster_network::PodNetwork {
    let network = node.attach_pod(uid).await.unwrap();
    for (address, gateway) in network.addresses.iter().zip(&network.gateways) {
        exchange(Some(&network.netns), address.address, Some(&node.netns())).unwrap();
        exchange(Some(&node.netns()), *gateway, Some(&network.netns)).unwrap();
    }
    network
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_leaves_nothing() {
    let before = traces();
    let scene = Scene::new();
    let cluster = scene.open().await;
    let node = cluster.node(1, "one").await.unwrap();
    let other = cluster.node(2, "two").await.unwrap();
    let (first, second) = (uid("a"), uid("b"));
    node.attach_pod(&first).await.unwrap();
    other.attach_pod(&second).await.unwrap();
    let bridge = cluster.bridge();
    assert!(output("nft", &["list", "tables"]).contains(&bridge));

    node.detach_pod(&first).await.unwrap();
    node.detach_pod(&first).await.unwrap();
    assert!(node.pods().unwrap().is_empty());
    assert!(!output("ip", &["netns"]).contains(&first));
    let index_taken = cluster.node(2, "three").await.unwrap_err();
    assert!(matches!(index_taken, NetworkError::IndexTaken { index: 2, .. }), "{index_taken}");
    let pods = node.pod_ranges()[0].to_string();
    assert!(output("ip", &["route"]).contains(&pods));
    node.remove().await.unwrap();
    assert!(!output("ip", &["route"]).contains(&pods));
    let two = other.netns().file_name().unwrap().to_str().unwrap().to_owned();
    assert!(!output("ip", &["-n", &two, "route"]).contains(&pods));

    cluster.remove().await.unwrap();
    for (command, arguments) in [("nft", ["list", "tables"].as_slice()), ("ip", &["-br", "link"]), ("ip", &["route"])] {
        let output = output(command, arguments);
        assert!(!output.contains(&bridge), "{output}");
    }
    assert!(fs::read_dir(scene.path()).unwrap().next().is_none(), "no state is left");
    for trace in traces().difference(&before) {
        assert!(!trace.contains(&first) && !trace.contains(&second) && !trace.contains(&bridge[2..]), "{trace}");
    }
}

/// Names of all namespaces and links on the host; other tests add theirs at the same time.
fn traces() -> HashSet<String> {
    let listing = output("ip", &["netns"]) + &output("ip", &["-br", "link"]);
    listing.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_at_once_get_different_addresses() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    let node = cluster.node(7, "one").await.unwrap();
    let uids: Vec<_> = (0..20).map(|n| uid(&format!("p{n}"))).collect();
    let attached = futures::future::try_join_all(uids.iter().map(|uid| node.attach_pod(uid))).await.unwrap();
    let addresses: HashSet<_> = attached.iter().map(|pod| pod.addresses[0].address).collect();
    assert_eq!(addresses.len(), 20);
    // Datagrams need no handshake: all pods can be heard by their node.
    let gateway = attached[0].gateways[0];
    let listener = run_in(&node.netns(), move || UdpSocket::bind((gateway, 0))).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let target = listener.local_addr().unwrap();
    for pod in &attached {
        let address = pod.addresses[0].address;
        run_in(&pod.netns, move || UdpSocket::bind((address, 0))?.send_to(b"hello", target)).unwrap();
        let (_, from) = listener.recv_from(&mut [0; 16]).unwrap();
        assert_eq!(from.ip(), address);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_names_and_indexes_are_refused() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    for name in ["", "../escape", "a/b", ".hidden"] {
        assert!(matches!(cluster.node(1, name).await, Err(NetworkError::InvalidName { .. })), "{name}");
    }
    for index in [0, 254, 255] {
        assert!(matches!(cluster.node(index, "one").await, Err(NetworkError::InvalidIndex { .. })));
    }
    let node = cluster.node(1, "one").await.unwrap();
    assert!(matches!(node.attach_pod("../../x").await, Err(NetworkError::InvalidName { .. })));
}
