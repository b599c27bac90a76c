//! Rules of network policies between pods, with real namespaces and traffic: they see all of it. Needs root and nftables.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::{
    io::ErrorKind,
    net::{IpAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
};

use ferrovirt_cluster_network::{Node, PodNetwork, run_in};

use scene::{PATIENCE, Scene, exchange, output, uid};

/// Answers are let through, what is from `friend` to `server` too, and everything else to `server` is refused, so that nobody has to wait
/// for an answer that never comes.
fn closed_but_for(server: &PodNetwork, friend: &PodNetwork) -> String {
    let address = |pod: &PodNetwork, family: usize| pod.addresses[family].address.to_string();
    let mut rules = String::new();
    for (family, header) in [(0, "ip"), (1, "ip6")] {
        let (server, friend) = (address(server, family), address(friend, family));
        rules += &format!("    {header} saddr {friend} {header} daddr {server} accept\n");
        rules += &format!(
            "    {header} daddr {server} meta l4proto tcp reject with tcp reset\n    {header} daddr {server} drop\n"
        );
    }
    format!(
        "  chain forward {{\n    type filter hook forward priority 0; policy accept;\n    ct direction reply ct state established accept\n{rules}  }}\n"
    )
}

/// Whether somebody in a namespace gets a connection.
fn connects(server: &PodNetwork, family: usize, client: &Path) -> bool {
    let address = server.addresses[family].address;
    let listener = run_in(&server.netns, move || TcpListener::bind((address, 0))).unwrap();
    let target = listener.local_addr().unwrap();
    match run_in(client, move || TcpStream::connect_timeout(&target, PATIENCE)) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
        Err(error) => panic!("{error}"),
    }
}

async fn pods(node: &Node) -> [PodNetwork; 3] {
    let mut pods = Vec::new();
    for name in ["server", "friend", "stranger"] {
        pods.push(node.attach_pod(&uid(name)).await.unwrap());
    }
    pods.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_see_what_goes_between_pods_of_one_node_and_of_two() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    let (one, two) = (cluster.node(1, "one").await.unwrap(), cluster.node(2, "two").await.unwrap());
    let [server, friend, stranger] = pods(&one).await;
    let far = two.attach_pod(&uid("far")).await.unwrap();
    for family in 0..2 {
        assert!(connects(&server, family, &stranger.netns) && connects(&server, family, &far.netns));
    }
    one.set_policies(Some(&closed_but_for(&server, &friend))).await.unwrap();
    for family in 0..2 {
        assert!(connects(&server, family, &friend.netns));
        assert!(!connects(&server, family, &stranger.netns) && !connects(&server, family, &far.netns));
        assert!(connects(&stranger, family, &server.netns) && connects(&far, family, &server.netns), "answers pass");
        assert!(connects(&server, family, &one.netns()), "a node reaches its pods");
    }

    // They hold over a restart of the process, and of the machine.
    let again = cluster.node(1, "one").await.unwrap();
    assert!(!connects(&server, 0, &stranger.netns));
    let list = [
        "netns",
        "exec",
        again.netns().file_name().unwrap().to_str().unwrap(),
        "nft",
        "delete",
        "table",
        "inet",
        "policies",
    ]
    .map(str::to_owned);
    output("ip", &list.each_ref().map(String::as_str));
    assert!(connects(&server, 0, &stranger.netns));
    let again = cluster.node(1, "one").await.unwrap();
    assert!(!connects(&server, 0, &stranger.netns));

    again.set_policies(None).await.unwrap();
    assert!(connects(&server, 0, &stranger.netns));
    let again = cluster.node(1, "one").await.unwrap();
    assert!(again.set_policies(Some("nonsense")).await.is_err());
    assert!(connects(&server, 0, &stranger.netns));
}

/// The first sender that a pod hears of when pods send to addresses in turn.
fn heard(receiver: &PodNetwork, packets: &[(&PodNetwork, IpAddr)]) -> IpAddr {
    let listener = run_in(&receiver.netns, || UdpSocket::bind("0.0.0.0:0")).unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = listener.local_addr().unwrap().port();
    for (sender, target) in packets {
        let (address, target) = (sender.addresses[0].address, *target);
        let send = move || {
            let socket = UdpSocket::bind((address, 0))?;
            socket.set_broadcast(true)?;
            socket.send_to(b"hello", (target, port))
        };
        run_in(&sender.netns, send).unwrap();
    }
    listener.recv_from(&mut [0; 16]).unwrap().1.ip()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_for_all_pods_goes_past_no_rule() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    let node = cluster.node(1, "one").await.unwrap();
    let [server, friend, stranger] = pods(&node).await;
    exchange(Some(&server.netns), server.addresses[0].address, Some(&friend.netns)).unwrap();
    node.set_policies(Some(&closed_but_for(&server, &friend))).await.unwrap();
    for target in [server.addresses[0].address, "255.255.255.255".parse().unwrap(), broadcast(&server)] {
        let packets = [(&stranger, target), (&friend, server.addresses[0].address)];
        assert_eq!(heard(&server, &packets), friend.addresses[0].address, "to {target}");
    }
}

fn broadcast(pod: &PodNetwork) -> IpAddr {
    let IpAddr::V4(address) = pod.addresses[0].address else { unreachable!() };
    let [a, b, c, _] = address.octets();
    [a, b, c, 255].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_is_reached_through_the_node_without_being_told_of_a_shorter_way() {
    let scene = Scene::new();
    let cluster = scene.open().await;
    let node = cluster.node(1, "one").await.unwrap();
    let [server, friend, _] = pods(&node).await;
    for family in 0..2 {
        let address = server.addresses[family].address;
        let peer = exchange(Some(&server.netns), address, Some(&friend.netns)).unwrap();
        assert_eq!(peer.ip(), friend.addresses[family].address);
        let name = friend.netns.file_name().unwrap().to_str().unwrap();
        let route = output("ip", &["-n", name, "route", "get", &address.to_string()]);
        assert!(!route.contains("redirected"), "{route}");
    }
}
