//! The bridge binding, with traffic.

use std::net::IpAddr;

use serde_json::json;

use super::pod::{Addresses, POD_MAC, Pod, plans, udhcpc};
use crate::NetworkError;

#[tokio::test]
async fn the_guest_is_the_pod_on_the_network() {
    let pod = Pod::new(Addresses::V4);
    let state = pod.set_up(&plans(&json!({"bridge": {}}))).await.unwrap();
    let link = &state.links[0];
    assert_eq!((link.mac.as_str(), link.mtu), (POD_MAC, 1450));
    assert_eq!(link.pod_addresses, ["10.244.7.2".parse::<IpAddr>().unwrap()]);

    let guest = pod.guest(link);
    let _dhcp = pod.serve_dhcp(link.dhcp.clone().unwrap());
    let told = udhcpc(&guest);
    for line in [
        "ip=10.244.7.2",
        "mask=24",
        "router=10.244.7.1",
        "serverid=169.254.75.10",
        "mtu=1450",
        "staticroutes=10.99.0.0/16 10.244.7.1 0.0.0.0/0 10.244.7.1",
    ] {
        assert!(told.iter().any(|it| it == line), "{line} is missing in {told:#?}");
    }
    let addresses = pod.pod.run("ip addr");
    assert!(!addresses.contains("inet 10.244.7.2"), "the pod gave its address away: {addresses}");

    let world = pod.world.listen("0.0.0.0:7000");
    assert_eq!(guest.seen_by(&world, "10.244.7.1:7000").as_deref(), Some("10.244.7.2"));
    let inside = guest.listen("0.0.0.0:8080");
    assert_eq!(pod.world.seen_by(&inside, "10.244.7.2:8080").as_deref(), Some("10.244.7.1"));
}

/// The usual bridge of a network plugin returns broadcasts to their sender, so that pods reach themselves through services.
#[tokio::test]
async fn a_guest_whose_broadcasts_come_back_gets_answers() {
    let pod = Pod::new(Addresses::V4);
    for command in [
        "ip link add cni0 type bridge",
        "ip addr flush dev w0",
        "ip addr add 10.244.7.1/24 dev cni0",
        "ip link set cni0 up",
        "ip link set w0 master cni0",
        "ip link set w0 type bridge_slave hairpin on",
    ] {
        pod.world.run(command);
    }
    let state = pod.set_up(&plans(&json!({"bridge": {}}))).await.unwrap();
    let guest = pod.guest(&state.links[0]);
    guest.run("ip addr add 10.244.7.2/24 dev g0");
    let world = pod.world.listen("0.0.0.0:7000");
    assert_eq!(guest.seen_by(&world, "10.244.7.1:7000").as_deref(), Some("10.244.7.2"));
}

#[tokio::test]
async fn a_network_without_addresses_is_just_a_wire() {
    let pod = Pod::new(Addresses::None);
    let state = pod.set_up(&plans(&json!({"bridge": {}, "macAddress": "02:00:00:00:00:99"}))).await.unwrap();
    assert_eq!((state.links[0].dhcp.as_ref(), state.links[0].mac.as_str()), (None, "02:00:00:00:00:99"));
    assert!(!pod.pod.run("ip addr show k6t-eth0").contains("inet "));
}

#[tokio::test]
async fn more_than_can_be_remembered_is_refused_before_anything_changes() {
    let pod = Pod::new(Addresses::Both);
    for number in 0..9 {
        pod.pod.run(&format!("ip route add 10.200.{number}.0/24 via 10.244.7.1"));
    }
    let before = pod.snapshot();
    let error = pod.set_up(&plans(&json!({"bridge": {}}))).await.unwrap_err();
    assert!(matches!(&error, NetworkError::TooMuchToRemember(link) if link == "eth0"), "{error}");
    assert_eq!(pod.snapshot(), before);
}
