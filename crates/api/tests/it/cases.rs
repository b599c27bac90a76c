//! Guests for tests: a sound one, and the patches of `tests/rules/guest.yaml`, one pair for each rule.

use serde_json::{Value, json};

const GUEST: &str = include_str!("../rules/guest.yaml");

/// The cases of rules about guests.
pub(crate) fn guest_cases() -> Vec<Value> {
    let mut cases: Vec<Value> = serde_saphyr::from_str(GUEST).unwrap();
    cases.iter_mut().for_each(expand);
    cases
}

/// A guest that nothing is wrong with.
pub(crate) fn sound_guest() -> Value {
    json!({
        "metadata": {"name": "guest", "namespace": "default"},
        "spec": {
            "domain": {
                "memory": {"guest": "1Gi"}, "cpu": {"cores": 2},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "containerDisk": {"image": "example.org/guest:1"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
            ],
        },
    })
}

/// RFC 7396.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Long text and long lists, which nobody wants to read in a table.
pub(crate) fn expand(case: &mut Value) {
    match case {
        Value::String(text) if text == "LONG" => *text = "a".repeat(3000),
        Value::Array(items) => items.iter_mut().for_each(expand),
        Value::Object(fields) => fields.values_mut().for_each(expand),
        _ => {}
    }
}

fn many(guest: &mut Value, kind: &str) {
    if kind == "input" {
        guest["spec"]["domain"]["devices"]["inputs"] =
            (0..9).map(|number| json!({"type": "tablet", "bus": "virtio", "name": format!("t{number}")})).collect();
        return;
    }
    let names = (0..80).map(|number| format!("d{number}"));
    guest["spec"]["domain"]["devices"]["disks"] =
        names.clone().map(|name| json!({"name": name, "disk": {"bus": kind}})).collect();
    guest["spec"]["volumes"] = names.map(|name| json!({"name": name, "emptyDisk": {"capacity": "1Gi"}})).collect();
}

/// Changes a guest as a case says.
pub(crate) fn patch_guest(guest: &mut Value, patch: &Value) {
    let places = [
        ("metadata", "/metadata"),
        ("spec", "/spec"),
        ("domain", "/spec/domain"),
        ("devices", "/spec/domain/devices"),
        ("disk", "/spec/domain/devices/disks/0"),
        ("card", "/spec/domain/devices/interfaces/0"),
        ("volume", "/spec/volumes/0"),
        ("network", "/spec/networks/0"),
    ];
    for (key, place) in places.into_iter().filter(|(key, _)| patch.get(key).is_some()) {
        if let Some(target) = guest.pointer_mut(place) {
            merge(target, &patch[key]);
        }
    }
    if let Some(kind) = patch["many"].as_str() {
        many(guest, kind);
    }
}
