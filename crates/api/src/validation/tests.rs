//! One test for each thing that is refused.

#![expect(clippy::needless_pass_by_value, reason = "calls read better without the ampersand")]

use serde_json::{Value, json};

use super::*;

fn causes_in(spec: Value, cluster: &Configuration) -> Vec<(Reason, String)> {
    let vmi = serde_json::from_value(json!({ "spec": spec })).unwrap();
    let causes = check_vmi(&vmi, cluster);
    for cause in &causes {
        assert!(cause.message.starts_with(&cause.field), "the message names the field: {}", cause.message);
    }
    causes.into_iter().map(|cause| (cause.reason, cause.field)).collect()
}

fn causes(spec: Value) -> Vec<(Reason, String)> {
    causes_in(spec, &Configuration::default())
}

/// A guest with enough memory and these devices, volumes and networks.
fn guest(devices: Value, volumes: Value, networks: Value) -> Value {
    json!({"domain": {"memory": {"guest": "64Mi"}, "devices": devices}, "volumes": volumes, "networks": networks})
}

fn one(reason: Reason, field: &str) -> Vec<(Reason, String)> {
    vec![(reason, field.to_owned())]
}

#[test]
fn a_sound_guest_passes() {
    let devices = json!({
        "disks": [{"name": "root", "disk": {}, "bootOrder": 1}, {"name": "empty", "cdrom": {}}],
        "filesystems": [{"name": "shared", "virtiofs": {}}],
        "interfaces": [{"name": "default", "masquerade": {}, "bootOrder": 2}, {"name": "other", "bridge": {}}],
    });
    let volumes = json!([
        {"name": "root", "containerDisk": {"image": "a", "path": "/disk/a.img"}},
        {"name": "shared", "configMap": {"name": "a"}},
    ]);
    let networks = json!([{"name": "default", "pod": {}}, {"name": "other", "multus": {"networkName": "n"}}]);
    assert_eq!(causes(guest(devices, volumes, networks)), vec![]);
}

#[test]
fn names_are_labels_and_differ() {
    let disk = || json!({"capacity": "1Mi"});
    let volumes = json!([{"name": "../a", "emptyDisk": disk()}, {"name": "b", "emptyDisk": disk()}, {"name": "b", "emptyDisk": disk()}]);
    assert_eq!(
        causes(guest(json!({}), volumes, json!([]))),
        vec![
            (Reason::Invalid, "spec.volumes[0].name".to_owned()),
            (Reason::Duplicate, "spec.volumes[2].name".to_owned()),
        ]
    );
    let mut named = guest(json!({}), json!([]), json!([]));
    named["hostname"] = "UPPER".into();
    named["subdomain"] = "a..b".into();
    assert_eq!(
        causes(named),
        vec![(Reason::Invalid, "spec.hostname".to_owned()), (Reason::Invalid, "spec.subdomain".to_owned())]
    );
    for (label, sound) in [("", false), ("-a", false), ("a-", false), ("a.b", false), ("a_b", false), ("0-a", true)] {
        assert_eq!(names::is_dns_label(label), sound, "{label}");
    }
    assert!(names::is_dns_label(&"a".repeat(63)) && !names::is_dns_label(&"a".repeat(64)));
}

#[test]
fn volumes_have_one_source() {
    let volumes = json!([{"name": "a"}, {"name": "b", "emptyDisk": {"capacity": "1"}, "configMap": {"name": "c"}}]);
    assert_eq!(
        causes(guest(json!({}), volumes, json!([]))),
        vec![(Reason::Required, "spec.volumes[0]".to_owned()), (Reason::Invalid, "spec.volumes[1]".to_owned())]
    );
}

#[test]
fn paths_do_not_lead_elsewhere() {
    let volumes = json!([{"name": "a", "containerDisk": {"image": "a", "path": "/disk/../etc"}}]);
    let found = causes(guest(json!({}), volumes, json!([])));
    assert_eq!(found, one(Reason::Invalid, "spec.volumes[0].containerDisk.path"));
    for path in ["", "/", "a", "/a//b", "/a/./b", "/a/", "/a\0"] {
        assert!(!names::is_clean_path(path), "{path:?}");
    }
    let boot = |container: Value| json!({"domain": {"memory": {"guest": "64Mi"}, "devices": {}, "firmware": {"kernelBoot": {"container": container}}}});
    let base = "spec.domain.firmware.kernelBoot.container";
    assert_eq!(causes(boot(json!({"image": "a"}))), one(Reason::Required, base));
    let found = causes(boot(json!({"image": "a", "kernelPath": "k", "initrdPath": "/i"})));
    assert_eq!(found, one(Reason::Invalid, &format!("{base}.kernelPath")));
}

#[test]
fn host_disks_are_behind_their_gate() {
    let spec =
        |path: &str| guest(json!({}), json!([{"name": "a", "hostDisk": {"path": path, "type": "Disk"}}]), json!([]));
    assert_eq!(causes(spec("/a.img")), one(Reason::Invalid, "spec.volumes[0].hostDisk"));
    let open: Configuration =
        serde_json::from_value(json!({"developerConfiguration": {"featureGates": ["HostDisk"]}})).unwrap();
    assert_eq!(causes_in(spec("/a.img"), &open), vec![]);
    assert_eq!(causes_in(spec("a.img"), &open), one(Reason::Invalid, "spec.volumes[0].hostDisk.path"));
}

#[test]
fn disks_and_directories_have_volumes() {
    let devices = json!({"disks": [{"name": "a", "disk": {}}], "filesystems": [{"name": "b", "virtiofs": {}}]});
    assert_eq!(
        causes(guest(devices, json!([]), json!([]))),
        vec![
            (Reason::NotFound, "spec.domain.devices.disks[0].name".to_owned()),
            (Reason::NotFound, "spec.domain.devices.filesystems[0].name".to_owned()),
        ]
    );
    let devices = json!({"disks": [{"name": "a", "disk": {}, "cdrom": {}}]});
    let found = causes(guest(devices, json!([{"name": "a", "emptyDisk": {"capacity": "1"}}]), json!([])));
    assert_eq!(found, one(Reason::Invalid, "spec.domain.devices.disks[0]"));
}

#[test]
fn boot_places_differ() {
    let devices = json!({
        "disks": [{"name": "a", "cdrom": {}, "bootOrder": 1}, {"name": "b", "cdrom": {}, "bootOrder": 0}],
        "interfaces": [{"name": "default", "masquerade": {}, "bootOrder": 1}],
    });
    assert_eq!(
        causes(guest(devices, json!([]), json!([{"name": "default", "pod": {}}]))),
        vec![
            (Reason::Invalid, "spec.domain.devices.disks[1].bootOrder".to_owned()),
            (Reason::Duplicate, "spec.domain.devices.interfaces[0].bootOrder".to_owned()),
        ]
    );
}

#[test]
fn networks_and_interfaces_belong_together() {
    let card = |devices: Value, networks: Value| causes(guest(json!({"interfaces": devices}), json!([]), networks));
    let path = "spec.domain.devices.interfaces[0]";
    assert_eq!(card(json!([{"name": "a", "bridge": {}}]), json!([])), one(Reason::NotFound, &format!("{path}.name")));
    assert_eq!(card(json!([]), json!([{"name": "a", "pod": {}}])), one(Reason::Required, "spec.networks[0].name"));
    let pod = || json!([{"name": "a", "pod": {}}]);
    assert_eq!(card(json!([{"name": "a"}]), pod()), one(Reason::Invalid, path));
    assert_eq!(card(json!([{"name": "a", "bridge": {}, "masquerade": {}}]), pod()), one(Reason::Invalid, path));
    assert_eq!(card(json!([{"name": "a", "slirp": {}}]), pod()), one(Reason::NotSupported, &format!("{path}.slirp")));
    let other = json!([{"name": "a", "multus": {"networkName": "n"}}]);
    assert_eq!(
        card(json!([{"name": "a", "masquerade": {}}]), other),
        one(Reason::Invalid, &format!("{path}.masquerade"))
    );
    let both = json!([{"name": "a", "pod": {}, "multus": {"networkName": "n"}}]);
    assert_eq!(card(json!([{"name": "a", "bridge": {}}]), both), one(Reason::Invalid, "spec.networks[0]"));
    let cards = json!([{"name": "a", "masquerade": {}}, {"name": "b", "masquerade": {}}]);
    let found = card(cards, json!([{"name": "a", "pod": {}}, {"name": "b", "pod": {}}]));
    assert_eq!(found, one(Reason::Duplicate, "spec.networks[1].pod"));
    let strict: Configuration =
        serde_json::from_value(json!({"network": {"permitBridgeInterfaceOnPodNetwork": false}})).unwrap();
    let spec = guest(json!({"interfaces": [{"name": "a", "bridge": {}}]}), json!([]), pod());
    assert_eq!(causes_in(spec, &strict), one(Reason::Invalid, &format!("{path}.bridge")));
}

#[test]
fn amounts_can_be_counted() {
    let domain = |mut domain: Value| {
        domain["devices"] = json!({});
        causes(json!({ "domain": domain }))
    };
    let guest = "spec.domain.memory.guest";
    assert_eq!(domain(json!({})), one(Reason::Required, guest));
    assert_eq!(domain(json!({"memory": {"guest": "1k"}})), one(Reason::Invalid, guest));
    let memory = || json!({"guest": "64Mi"});
    let found = domain(json!({"memory": {"guest": "64Mi", "maxGuest": "32Mi"}}));
    assert_eq!(found, one(Reason::Invalid, "spec.domain.memory.maxGuest"));
    let found = domain(json!({"memory": memory(), "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}));
    assert_eq!(found, one(Reason::Invalid, "spec.domain.resources.requests.cpu"));
    let found = domain(json!({"memory": memory(), "resources": {"limits": {"memory": "-1"}}}));
    assert_eq!(found, one(Reason::Invalid, "spec.domain.resources.limits.memory"));
    let found = domain(json!({"memory": memory(), "cpu": {"sockets": 65_536, "cores": 65_536}}));
    assert_eq!(found, one(Reason::Invalid, "spec.domain.cpu"));
    let spec = json!({"domain": {"memory": memory(), "devices": {}}, "terminationGracePeriodSeconds": -1});
    assert_eq!(causes(spec), one(Reason::Invalid, "spec.terminationGracePeriodSeconds"));
}

#[test]
fn a_summary_shows_ten() {
    let causes: Vec<Cause> =
        (0..12).map(|index| Cause::new(Reason::Invalid, format!("a{index}"), "is wrong")).collect();
    assert_eq!(summary(&causes[..2]), "a0 is wrong, a1 is wrong");
    assert!(summary(&causes).ends_with("a9 is wrong, and 2 more"));
}
