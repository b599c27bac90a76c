//! The masquerade binding, with traffic.

use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use dhcproto::v6::{DhcpOption, DhcpOptions, IANA, Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};
use serde_json::json;

use super::namespace::Namespace;
use super::pod::{Addresses, Pod, plans, plans_on, udhcpc};
use crate::NetworkError;

fn has(told: &[String], line: &str) -> bool {
    told.iter().any(|it| it == line)
}

/// A rapid lease over a real socket.
fn dhcpv6(guest: &Namespace) -> Ipv6Addr {
    guest.inside(|| {
        let index = rustix::net::netdevice::name_to_index(UdpSocket::bind("[::]:0").unwrap(), "g0").unwrap();
        let socket = UdpSocket::bind("[::]:546").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut solicit = Message::new_with_id(MessageType::Solicit, [1, 2, 3]);
        solicit.opts_mut().insert(DhcpOption::ClientId(vec![0, 2, 9, 9]));
        solicit.opts_mut().insert(DhcpOption::RapidCommit);
        solicit.opts_mut().insert(DhcpOption::IANA(IANA { id: 1, t1: 0, t2: 0, opts: DhcpOptions::new() }));
        let servers = SocketAddrV6::new(ferrovirt_dhcp::v6::ALL_SERVERS, 547, 0, index);
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut buffer = [0; 1500];
        while Instant::now() < deadline {
            // Until the guest's link has its address, sending fails.
            if socket.send_to(&solicit.to_vec().unwrap(), servers).is_err() {
                let _ = socket.recv_from(&mut buffer);
                continue;
            }
            if let Ok((length, _)) = socket.recv_from(&mut buffer) {
                let reply = Message::decode(&mut Decoder::new(&buffer[..length])).unwrap();
                let Some(DhcpOption::IANA(association)) = reply.opts().get(OptionCode::IANA) else {
                    panic!("{reply:?}")
                };
                let Some(DhcpOption::IAAddr(given)) = association.opts.get(OptionCode::IAAddr) else {
                    panic!("{reply:?}")
                };
                return given.addr;
            }
        }
        panic!("no answer over DHCPv6");
    })
}

#[tokio::test]
async fn a_guest_gets_leases_and_talks_both_ways_in_both_families() {
    let pod = Pod::new(Addresses::Both);
    let interface = json!({"masquerade": {}, "dhcpOptions": {"ntpServers": ["192.0.2.9"], "privateOptions": [{"option": 224, "value": "hi"}]}});
    let state = pod.set_up(&plans(&interface)).await.unwrap();
    let link = &state.links[0];
    assert_eq!((link.tap.as_str(), link.mtu, link.queues), ("tap0", 1450, 1));
    assert_eq!(
        link.pod_addresses,
        ["10.244.7.2".parse::<std::net::IpAddr>().unwrap(), "fd00:244:7::2".parse().unwrap()]
    );

    let guest = pod.guest(link);
    let _dhcp = pod.serve_dhcp(link.dhcp.clone().unwrap());
    let told = udhcpc(&guest);
    for line in [
        "ip=10.0.2.2",
        "mask=24",
        "router=10.0.2.1",
        "dns=10.96.0.10",
        "mtu=1450",
        "hostname=web",
        "ntpsrv=192.0.2.9",
        "domain=shop.svc.cluster.local",
        "search=shop.svc.cluster.local cluster.local",
        "lease=86313600",
    ] {
        assert!(has(&told, line), "{line} is missing in {told:#?}");
    }
    let address = dhcpv6(&guest);
    assert_eq!(address.to_string(), "fd10:0:2::2");
    guest.run("ip addr add fd10:0:2::2/120 dev g0 nodad");
    guest.run("ip -6 route add default via fd10:0:2::1");

    let (world, world6) = (pod.world.listen("0.0.0.0:7000"), pod.world.listen("[fd00:244:7::1]:7000"));
    assert_eq!(guest.seen_by(&world, "10.244.7.1:7000").as_deref(), Some("10.244.7.2"), "out, behind the pod");
    assert_eq!(guest.seen_by(&world6, "[fd00:244:7::1]:7000").as_deref(), Some("fd00:244:7::2"));

    let (inside, inside6) = (guest.listen("10.0.2.2:8080"), guest.listen("[fd10:0:2::2]:8080"));
    assert_eq!(pod.world.seen_by(&inside, "10.244.7.2:8080").as_deref(), Some("10.244.7.1"), "in, on any port");
    assert_eq!(pod.world.seen_by(&inside6, "[fd00:244:7::2]:8080").as_deref(), Some("fd00:244:7::1"));

    assert_eq!(
        pod.pod.seen_by(&inside, "127.0.0.1:8080").as_deref(),
        Some("10.0.2.1"),
        "the pod's loopback is the guest"
    );
    let refused = pod.pod.connect("[::1]:8080").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "at once, so that localhost goes on to IPv4");
}

#[tokio::test]
async fn only_the_named_ports_reach_the_guest() {
    let pod = Pod::new(Addresses::V4);
    let state = pod.set_up(&plans(&json!({"masquerade": {}, "ports": [{"port": 80}], "portRanges": [{"protocol": "TCP", "start": 90, "end": 99}]}))).await.unwrap();
    let link = &state.links[0];
    assert_eq!(link.dhcp.as_ref().unwrap().v6, None, "the pod has no IPv6");
    let guest = pod.guest(link);
    let _dhcp = pod.serve_dhcp(link.dhcp.clone().unwrap());
    udhcpc(&guest);

    let [on_80, on_81, on_95] = [80, 81, 95].map(|port| guest.listen(&format!("10.0.2.2:{port}")));
    for (listener, port, reaches) in [(&on_80, 80, true), (&on_81, 81, false), (&on_95, 95, true)] {
        let expected = reaches.then_some("10.244.7.1");
        assert_eq!(pod.world.seen_by(listener, &format!("10.244.7.2:{port}")).as_deref(), expected, "port {port}");
        let expected = reaches.then_some("10.0.2.1");
        assert_eq!(
            pod.pod.seen_by(listener, &format!("127.0.0.1:{port}")).as_deref(),
            expected,
            "loopback, port {port}"
        );
    }
    pod.world.run("ip route add 10.0.2.0/24 via 10.244.7.2");
    assert_eq!(pod.world.seen_by(&on_81, "10.0.2.2:81"), None, "nor around the rules");
}

#[tokio::test]
async fn a_guest_does_not_reach_the_pods_loopback() {
    let pod = Pod::new(Addresses::V4);
    let state = pod.set_up(&plans(&json!({"masquerade": {}}))).await.unwrap();
    let guest = pod.guest(&state.links[0]);
    guest.run("ip addr add 10.0.2.2/24 dev g0");
    guest.run("ip addr flush dev lo"); // or the guest would talk to itself
    guest.run("busybox sysctl -qw net.ipv4.conf.all.route_localnet=1");
    guest.run("ip route add 127.0.0.1/32 via 10.0.2.1");
    let secret = pod.pod.listen("127.0.0.1:9000");
    assert_eq!(guest.seen_by(&secret, "127.0.0.1:9000"), None);
    pod.pod.run("nft flush chain ip nat prerouting");
    assert_eq!(guest.seen_by(&secret, "127.0.0.1:9000").as_deref(), Some("10.0.2.2"), "this test can fail");
}

#[tokio::test]
async fn the_tap_belongs_to_the_runtime_user_and_has_queues() {
    let pod = Pod::new(Addresses::V4);
    let mut plans = plans(&json!({"masquerade": {}}));
    plans[0].queues = 4;
    assert_eq!(pod.set_up(&plans).await.unwrap().links[0].queues, 4);
    let tap = pod.pod.run("ip tuntap list");
    for word in ["tap0: tap", "persist", "user 107", "group 107", "multi_queue", "vnet_hdr"] {
        assert!(tap.contains(word), "{tap}");
    }
}

#[tokio::test]
async fn a_pod_that_cannot_hide_a_guest_says_why() {
    let pod = Pod::new(Addresses::None);
    let masquerade = json!({"masquerade": {}});
    assert!(matches!(pod.set_up(&plans(&masquerade)).await, Err(NetworkError::NoAddress(link)) if link == "eth0"));

    let pod = Pod::new(Addresses::Both);
    for (network, address) in [
        (json!({"vmNetworkCIDR": "10.244.0.0/16"}), "10.244.7.2"),
        (json!({"vmIPv6NetworkCIDR": "fd00:244::/32"}), "fd00:244:7::2"),
    ] {
        let error = pod.set_up(&plans_on(&masquerade, &network)).await.unwrap_err();
        assert!(matches!(&error, NetworkError::Overlap { pod, .. } if pod.to_string() == address), "{error}");
    }
    pod.pod.run("ip link del eth0");
    assert!(matches!(pod.set_up(&plans(&masquerade)).await, Err(NetworkError::NoLink(link)) if link == "eth0"));

    let no_namespace = std::fs::File::open("/dev/null").unwrap().into();
    let error = crate::set_up(no_namespace, &[], &crate::ResolvConf::default()).await.unwrap_err();
    assert!(matches!(error, NetworkError::Enter(_)));
}

#[tokio::test]
async fn rules_of_others_stay() {
    let pod = Pod::new(Addresses::V4);
    pod.pod.run("nft add table ip nat");
    pod.pod.run("nft add chain ip nat MESH");
    pod.pod.run("nft add rule ip nat MESH counter");
    pod.set_up(&plans(&json!({"masquerade": {}}))).await.unwrap();
    assert!(pod.pod.run("nft list chain ip nat MESH").contains("counter"));
}

#[tokio::test]
async fn what_nft_refuses_is_told_in_its_words() {
    let pod = Pod::new(Addresses::V4);
    pod.pod.run("nft add table ip nat");
    // A chain of our name that is something else.
    pod.pod.run("nft add chain ip nat prerouting { type filter hook prerouting priority 0 ; }");
    let error = pod.set_up(&plans(&json!({"masquerade": {}}))).await.unwrap_err();
    let NetworkError::Change { what, source } = &error else { panic!("{error}") };
    assert_eq!(what, "set the nftables rules");
    assert!(source.to_string().starts_with("nft said: "), "{source}");
}
