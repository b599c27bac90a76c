//! What a pod may send with the addresses of others, with real namespaces and links: nothing. Needs root and nftables.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scene;

use std::{
    net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket},
    path::Path,
    process::Command,
};

use ferrovirt_cluster_network::{Cluster, Mac, Node, PodNetwork, run_in};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use scene::{PATIENCE, Scene, exchange, output, uid};

/// A node with a pod that talks to another one, and one that would like to be talked to instead.
struct Street {
    node: Node,
    honest: PodNetwork,
    client: PodNetwork,
    thief: PodNetwork,
    _cluster: Cluster,
    _scene: Scene,
}

impl Street {
    async fn new() -> Self {
        let scene = Scene::new();
        let cluster = scene.open().await;
        let node = cluster.node(1, "one").await.unwrap();
        let honest = node.attach_pod(&uid("honest")).await.unwrap();
        let client = node.attach_pod(&uid("client")).await.unwrap();
        let thief = node.attach_pod(&uid("thief")).await.unwrap();
        let street = Self { node, honest, client, thief, _cluster: cluster, _scene: scene };
        street.all_is_well();
        street
    }

    /// Who asks for the honest pod gets the honest pod, and the thief is heard under its own name.
    fn all_is_well(&self) {
        for family in 0..2 {
            let target = self.honest.addresses[family].address;
            exchange(Some(&self.honest.netns), target, Some(&self.client.netns)).unwrap();
            self.thief_speaks(family);
        }
    }

    /// Sends from the thief to the client, and waits until it was heard: what the thief sent before has been seen then too.
    fn thief_speaks(&self, family: usize) {
        let from = self.thief.addresses[family].address;
        let heard = self.heard(family, &[from]);
        assert_eq!(heard.ip(), from);
    }

    /// The first sender that the client hears of when the thief sends from these addresses in turn.
    fn heard(&self, family: usize, senders: &[IpAddr]) -> SocketAddr {
        let to = self.client.addresses[family].address;
        let listener = run_in(&self.client.netns, move || UdpSocket::bind((to, 0))).unwrap();
        listener.set_read_timeout(Some(PATIENCE)).unwrap();
        let target = listener.local_addr().unwrap();
        for sender in senders.iter().copied() {
            run_in(&self.thief.netns, move || UdpSocket::bind((sender, 0))?.send_to(b"hello", target)).unwrap();
        }
        listener.recv_from(&mut [0; 16]).unwrap().1
    }

    fn client_believes(&self, family: usize) -> String {
        let target = self.honest.addresses[family].address.to_string();
        output("ip", &["-n", name(&self.client.netns), "neigh", "show", &target])
    }
}

fn name(namespace: &Path) -> &str {
    namespace.file_name().unwrap().to_str().unwrap()
}

fn run(namespace: &Path, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let status = Command::new("ip").args(["netns", "exec", name(namespace)]).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_another_pod_is_not_to_be_had() {
    let street = Street::new().await;
    for (family, length) in [(0, 32), (1, 128)] {
        let (stolen, own) = (street.honest.addresses[family].address, street.thief.addresses[family].address);
        let nodad = if stolen.is_ipv6() { " nodad" } else { "" };
        run(&street.thief.netns, &format!("ip addr add {stolen}/{length} dev eth0{nodad}"));
        assert_eq!(street.heard(family, &[stolen, own]).ip(), own, "a packet with a stolen address is not heard");
    }
    // Says to everybody that the address is here, as a guest does that comes up with it.
    for notify in ["ipv4/conf/eth0/arp_notify", "ipv6/conf/eth0/ndisc_notify"] {
        run_in(&street.thief.netns, move || std::fs::write(format!("/proc/sys/net/{notify}"), "1")).unwrap();
    }
    run_in(&street.thief.netns, || std::fs::write("/proc/sys/net/ipv6/conf/eth0/keep_addr_on_down", "1")).unwrap();
    run(&street.thief.netns, "ip link set eth0 down");
    run(&street.thief.netns, "ip link set eth0 up");
    for family in 0..2 {
        street.thief_speaks(family);
        let believed = street.client_believes(family);
        assert!(believed.contains(&street.honest.mac.to_string()), "{believed}");
    }
    for family in 0..2 {
        let target = street.honest.addresses[family].address;
        exchange(Some(&street.honest.netns), target, Some(&street.client.netns)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_for_others_are_not_heard() {
    let street = Street::new().await;
    let IpAddr::V6(stolen) = street.honest.addresses[1].address else { unreachable!() };
    let IpAddr::V6(client) = street.client.addresses[1].address else { unreachable!() };
    // A neighbour advertisement that overrides what was known.
    let mut advertisement = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
    advertisement.extend(stolen.octets());
    advertisement.extend([2, 1]);
    advertisement.extend(street.thief.mac.0);
    run_in(&street.thief.netns, move || {
        let raw = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6))?;
        rustix::net::sockopt::set_ipv6_unicast_hops(&raw, Some(255))?;
        sendto(&raw, &advertisement, SendFlags::empty(), &SocketAddrV6::new(client, 0, 0, 0))?;
        Ok(())
    })
    .unwrap();
    street.thief_speaks(1);
    let believed = street.client_believes(1);
    assert!(believed.contains(&street.honest.mac.to_string()), "{believed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hardware_address_of_another_pod_is_not_to_be_had() {
    let street = Street::new().await;
    let (stolen, own) = (street.honest.mac, street.thief.mac);
    // Frames of link protocols pass no rules: their senders would be believed.
    let bridge = output("ip", &["-n", name(&street.node.netns()), "-d", "link", "show", "fvbr0"]);
    assert!(bridge.contains("no_linklocal_learn 1"), "{bridge}");
    run(&street.thief.netns, &format!("ip link set eth0 address {stolen}"));
    let to = street.client.addresses[0].address;
    run_in(&street.thief.netns, move || UdpSocket::bind("0.0.0.0:0")?.send_to(b"hello", (to, 9))).unwrap();
    let target = street.honest.addresses[0].address;
    exchange(Some(&street.honest.netns), target, Some(&street.client.netns)).unwrap();
    run(&street.thief.netns, &format!("ip link set eth0 address {own}"));
    street.all_is_well();
}

/// A guest that took over the link of its pod, as virt-handler attaches it.
struct Guest(String);

impl Guest {
    fn new(pod: &PodNetwork, mac: Mac) -> Self {
        let guest = Self(format!("fv-guest-{}", uid("g")));
        let run_host = |arguments: &str| {
            assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "{arguments}");
        };
        run_host(&format!("netns add {}", guest.0));
        let (pod_name, guest_name) = (name(&pod.netns), &guest.0);
        run_host(&format!("-n {pod_name} addr flush dev eth0"));
        run_host(&format!("-n {pod_name} link set eth0 address 02:00:00:00:0e:01"));
        run_host(&format!("-n {pod_name} link add br0 type bridge"));
        run_host(&format!("-n {pod_name} link add tap0 type veth peer name eth0 netns {guest_name}"));
        for link in ["eth0", "tap0"] {
            run_host(&format!("-n {pod_name} link set {link} master br0"));
        }
        for link in ["br0", "tap0", "eth0"] {
            run_host(&format!("-n {pod_name} link set {link} up"));
        }
        run_host(&format!("-n {guest_name} link set eth0 address {mac}"));
        run_host(&format!("-n {guest_name} addr add {} dev eth0", pod.addresses[0]));
        run_host(&format!("-n {guest_name} link set eth0 up"));
        run_host(&format!("-n {guest_name} route add default via {}", pod.gateways[0]));
        guest
    }

    fn netns(&self) -> std::path::PathBuf {
        Path::new("/run/netns").join(&self.0)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn reaches_and_is_reached(street: &Street, guest: &Guest, address: IpAddr) {
    let (netns, client) = (guest.netns(), &street.client);
    exchange(Some(&netns), address, Some(&client.netns)).expect("from a pod");
    exchange(Some(&client.netns), client.addresses[0].address, Some(&netns)).expect("to a pod");
    exchange(Some(&netns), address, None).expect("from the host");
    exchange(Some(&street.node.netns()), client.gateways[0], Some(&netns)).expect("to the node");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridged_guest_has_the_addresses_of_its_pod() {
    let street = Street::new().await;
    let guest = Guest::new(&street.honest, street.honest.mac);
    reaches_and_is_reached(&street, &guest, street.honest.addresses[0].address);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridged_guest_may_bring_a_hardware_address_even_of_another() {
    let street = Street::new().await;
    let pod = uid("own-mac");
    let network = street.node.attach_pod(&pod).await.unwrap();
    // The same one as another pod has, as after a move to where that address was given out since.
    let mac = street.thief.mac;
    let guest = Guest::new(&network, mac);
    street.node.bridge_guest(&pod, mac).await.unwrap();
    reaches_and_is_reached(&street, &guest, network.addresses[0].address);
    let seen =
        output("ip", &["-n", name(&street.client.netns), "neigh", "show", &network.addresses[0].address.to_string()]);
    assert!(seen.contains(&network.mac.to_string()), "others see the pod's address: {seen}");
    street.all_is_well();

    // It is remembered for the next process, and forgotten with the pod.
    let again = street._cluster.node(1, "one").await.unwrap();
    reaches_and_is_reached(&street, &guest, network.addresses[0].address);
    again.detach_pod(&pod).await.unwrap();
    let rules = output("ip", &["netns", "exec", name(&again.netns()), "nft", "list", "table", "bridge", "ferrovirt"]);
    assert!(rules.contains(&street.thief.mac.to_string()) && !rules.contains(&network.mac.to_string()), "{rules}");
    assert!(street.node.bridge_guest(&pod, mac).await.is_err());
}
