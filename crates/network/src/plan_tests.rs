//! One test for each rule.

use serde_json::{Value, json};

use super::*;

fn vmi(interface: &Value, network: &Value) -> VirtualMachineInstance {
    let mut interface = interface.clone();
    interface["name"] = json!("default");
    let mut network = network.clone();
    network["name"] = json!("default");
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "web.example", "namespace": "shop", "uid": "c0ffee00-0000-4000-8000-000000000001"},
        "spec": {
            "domain": {"devices": {"interfaces": [interface]}},
            "networks": [network]
        }
    }))
    .unwrap()
}

fn only(vmi: &VirtualMachineInstance) -> InterfacePlan {
    let mut plans = plan(vmi).unwrap();
    assert_eq!(plans.len(), 1);
    plans.remove(0)
}

fn refused(interface: &Value, network: &Value) -> String {
    plan(&vmi(interface, network)).unwrap_err().to_string()
}

#[test]
fn masquerade_with_defaults() {
    insta::assert_debug_snapshot!(only(&vmi(&json!({"masquerade": {}}), &json!({"pod": {}}))));
}

#[test]
fn masquerade_with_everything() {
    let interface = json!({
        "masquerade": {}, "macAddress": "DE-AD-00-00-BE-AF", "state": "down",
        "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 81}, {"port": 80, "protocol": "TCP"}],
        "portRanges": [{"protocol": "TCP", "start": 8000, "end": 8010}, {"protocol": "TCP", "start": 8005, "end": 8020}],
        "dhcpOptions": {
            "bootFileName": "pxe", "tftpServerName": "tftp", "ntpServers": ["192.0.2.1"],
            "privateOptions": [{"option": 240, "value": "x"}]
        }
    });
    let network = json!({"pod": {"vmNetworkCIDR": "192.168.9.0/28", "vmIPv6NetworkCIDR": "fd99::/64"}});
    let mut vmi = vmi(&interface, &network);
    vmi.spec.hostname = Some("door".to_owned());
    vmi.spec.subdomain = Some("house".to_owned());
    insta::assert_debug_snapshot!(only(&vmi));
}

#[test]
fn a_bridged_guest_that_has_moved_keeps_its_hardware_address() {
    let mut moved = vmi(&json!({"bridge": {}}), &json!({"pod": {}}));
    let status = json!({"interfaces": [
        {"name": "other", "mac": "02:00:00:00:00:01"}, {"name": "default", "mac": "02:00:00:00:00:02"},
    ]});
    moved.status = serde_json::from_value(status).unwrap();
    assert_eq!(only(&moved).mac.unwrap().octets(), [2, 0, 0, 0, 0, 2]);
}

#[test]
fn a_bridged_guest_takes_the_pods_hardware_address_unless_told_otherwise() {
    let network = json!({"pod": {}});
    let plan = only(&vmi(&json!({"bridge": {}}), &network));
    assert_eq!((plan.binding, plan.mac), (Binding::Bridge, None));
    let plan = only(&vmi(&json!({"bridge": {}, "macAddress": "02:00:00:00:00:07"}), &network));
    assert_eq!(plan.mac.unwrap().to_string(), "02:00:00:00:00:07");
}

#[test]
fn hardware_addresses_differ_by_guest_and_card_and_stay() {
    let mac = |uid: &str, name: &str| derived_mac(&[uid, name]);
    assert_eq!(mac("a", "default"), mac("a", "default"));
    let all = [mac("a", "default"), mac("b", "default"), mac("a", "other"), mac("adef", "ault")];
    for (index, one) in all.iter().enumerate() {
        assert_eq!(one[0], 2, "locally administered, and no group");
        assert!(!all[..index].contains(one));
    }
}

#[test]
fn queues_follow_the_processors() {
    let network = json!({"pod": {}});
    let queues = |interface: Value, domain: Value| {
        let mut vmi = vmi(&interface, &network);
        let mut spec = serde_json::to_value(&vmi.spec).unwrap();
        for (key, value) in domain.as_object().unwrap() {
            spec["domain"][key] = value.clone();
        }
        spec["domain"]["devices"]["networkInterfaceMultiqueue"] = json!(true);
        vmi.spec = serde_json::from_value(spec).unwrap();
        only(&vmi).queues
    };
    let card = json!({"masquerade": {}});
    assert_eq!(queues(card.clone(), json!({"cpu": {"sockets": 2, "cores": 3}})), 6);
    assert_eq!(queues(card.clone(), json!({"cpu": {"cores": 1000}})), 256);
    assert_eq!(queues(card.clone(), json!({"resources": {"requests": {"cpu": "1500m"}}})), 2);
    assert_eq!(queues(card.clone(), json!({"cpu": {"model": "host-model"}, "resources": {"limits": {"cpu": "4"}}})), 4);
    assert_eq!(queues(card, json!({})), 1);
    assert_eq!(queues(json!({"masquerade": {}, "model": "e1000e"}), json!({"cpu": {"cores": 4}})), 1);
}

#[test]
fn absent_cards_and_no_cards_are_nothing_to_do() {
    assert_eq!(plan(&vmi(&json!({"bridge": {}, "state": "absent"}), &json!({"pod": {}}))), Ok(vec![]));
    assert_eq!(plan(&VirtualMachineInstance::default()), Ok(vec![]));
}

#[test]
fn what_is_not_supported_is_named_with_its_place() {
    let pod = json!({"pod": {}});
    let masquerade = json!({"masquerade": {}});
    let with = |key: &str, value: Value| {
        let mut interface = masquerade.clone();
        interface[key] = value;
        interface
    };
    let messages = [
        refused(&masquerade, &json!({"multus": {"networkName": "vlan7"}})),
        refused(&json!({"sriov": {}}), &pod),
        refused(&json!({"passtBinding": {}}), &pod),
        refused(&json!({"binding": {"name": "x"}}), &pod),
        refused(&json!({}), &pod),
        refused(&with("bridge", json!({})), &pod),
        refused(&masquerade, &json!({"pod": {"vmNetworkCIDR": "10.0.2.0/31"}})),
        refused(&masquerade, &json!({"pod": {"vmIPv6NetworkCIDR": "10.0.2.0/24"}})),
        refused(&with("ports", json!([{"port": 0}])), &pod),
        refused(&with("portRanges", json!([{"protocol": "TCP", "start": 9, "end": 70000}])), &pod),
        refused(&with("portRanges", json!([{"protocol": "TCP", "start": 9, "end": 8}])), &pod),
        refused(&with("dhcpOptions", json!({"ntpServers": ["pool.ntp.org"]})), &pod),
        refused(&with("dhcpOptions", json!({"privateOptions": [{"option": 223, "value": ""}]})), &pod),
    ];
    insta::assert_snapshot!(messages.join("\n"));

    let mut two = vmi(&masquerade, &pod);
    two.spec.domain.devices.interfaces.push(two.spec.domain.devices.interfaces[0].clone());
    assert!(plan(&two).unwrap_err().to_string().starts_with("spec.domain.devices.interfaces[1]: a second"));
    two.spec.networks.clear();
    assert!(plan(&two).unwrap_err().to_string().contains("there is no network \"default\""));
}

#[test]
fn ranges_that_touch_become_one() {
    assert_eq!(
        merged(vec![5..=9, 1..=1, 10..=12, 2..=2, 7..=8, 65535..=65535, 65535..=65535]),
        [1..=2, 5..=12, 65535..=65535]
    );
}
