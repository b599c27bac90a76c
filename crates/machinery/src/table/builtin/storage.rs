//! Volumes, claims and who provides them.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, flag, is_deleting, list, name, plain, row, text, text_or};
use crate::meta::annotation;

/// The annotation came before the field and still wins.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn persistent_volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = object.pointer("/spec/claimRef").filter(|claim| !claim.is_null());
    let claim = claim.map(|claim| format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")));
    row![
        name(object),
        quantity(object, "/spec/capacity/storage"),
        access_modes(list(object, "/spec/accessModes")),
        text(object, "/spec/persistentVolumeReclaimPolicy"),
        phase(object),
        claim.unwrap_or_default(),
        class(object),
        text_or(object, "/spec/volumeAttributesClassName", "<unset>"),
        text(object, "/status/reason"),
        age(object, now),
        text_or(object, "/spec/volumeMode", "<unset>"),
    ]
}

pub(super) fn persistent_volume_claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(object, "/spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (quantity(object, "/status/capacity/storage"), access_modes(list(object, "/status/accessModes")))
    };
    row![
        name(object),
        phase(object),
        volume,
        capacity,
        modes,
        class(object),
        text_or(object, "/spec/volumeAttributesClassName", "<unset>"),
        age(object, now),
        text_or(object, "/spec/volumeMode", "<unset>"),
    ]
}

fn phase(object: &Value) -> &str {
    if is_deleting(object) { "Terminating" } else { text(object, "/status/phase") }
}

fn class(object: &Value) -> &str {
    annotation(object, CLASS_ANNOTATION).unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

fn quantity(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).map_or("0".to_owned(), plain)
}

/// Short forms in a fixed order.
fn access_modes(modes: &[Value]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let present = known.into_iter().filter(|(mode, _)| modes.iter().any(|given| given == mode));
    present.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

pub(super) fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let annotations =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let default = annotations.iter().any(|key| annotation(object, key) == Some("true"));
    row![
        format!("{}{}", name(object), if default { " (default)" } else { "" }),
        text(object, "/provisioner"),
        text_or(object, "/reclaimPolicy", "Delete"),
        text_or(object, "/volumeBindingMode", "Immediate"),
        flag(object, "/allowVolumeExpansion"),
        age(object, now),
    ]
}

pub(super) fn volume_attributes_class(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), text(object, "/driverName"), age(object, now)]
}

pub(super) fn volume_attachment(object: &Value, now: Timestamp) -> Vec<Value> {
    row![
        name(object),
        text(object, "/spec/attacher"),
        text(object, "/spec/source/persistentVolumeName"),
        text(object, "/spec/nodeName"),
        flag(object, "/status/attached"),
        age(object, now),
    ]
}

pub(super) fn csi_node(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), list(object, "/spec/drivers").len(), age(object, now)]
}

pub(super) fn csi_driver(object: &Value, now: Timestamp) -> Vec<Value> {
    let modes: Vec<String> = list(object, "/spec/volumeLifecycleModes").iter().map(plain).collect();
    let tokens = object.pointer("/spec/tokenRequests").and_then(Value::as_array);
    row![
        name(object),
        object.pointer("/spec/attachRequired").and_then(Value::as_bool).unwrap_or(true),
        flag(object, "/spec/podInfoOnMount"),
        flag(object, "/spec/storageCapacity"),
        tokens.map_or("<unset>".to_owned(), |tokens| super::joined(tokens, "audience")),
        flag(object, "/spec/requiresRepublish"),
        if modes.is_empty() { "<none>".to_owned() } else { modes.join(",") },
        age(object, now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(row: fn(&Value, Timestamp) -> Vec<Value>, object: &Value) -> Vec<String> {
        let now = "2026-01-01T00:05:03Z".parse().expect("a time");
        row(object, now).iter().map(plain).collect()
    }

    #[test]
    fn volumes_and_claims() {
        let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "volumeMode": "Block",
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "n", "name": "c"}, "storageClassName": "fast"}, "status": {"phase": "Bound"}});
        assert_eq!(
            cells(persistent_volume, &volume),
            ["v", "1Gi", "RWO,RWX", "Retain", "Bound", "n/c", "fast", "<unset>", "", "<unknown>", "Block"]
        );
        let mut claim = json!({"metadata": {"name": "c", "annotations": {CLASS_ANNOTATION: "old"}},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "new"}, "status": {"phase": "Pending"}});
        assert_eq!(
            cells(persistent_volume_claim, &claim),
            ["c", "Pending", "", "", "", "old", "<unset>", "<unknown>", "<unset>"]
        );
        claim["spec"]["volumeName"] = json!("v");
        claim["status"]["capacity"] = json!({"storage": "2Gi"});
        claim["status"]["accessModes"] = json!(["ReadWriteOncePod"]);
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(cells(persistent_volume_claim, &claim)[1..5], ["Terminating", "v", "2Gi", "RWOP"]);
    }

    #[test]
    fn classes_and_drivers() {
        let class = json!({"metadata": {"name": "s", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "p", "allowVolumeExpansion": true});
        assert_eq!(cells(storage_class, &class)[..5], ["s (default)", "p", "Delete", "Immediate", "true"]);
        let driver = json!({"spec": {"tokenRequests": [{"audience": "a"}], "volumeLifecycleModes": ["Persistent"]}});
        assert_eq!(cells(csi_driver, &driver)[1..7], ["true", "false", "false", "a", "false", "Persistent"]);
        assert_eq!(cells(csi_driver, &json!({}))[4..7], ["<unset>", "false", "<none>"]);
    }
}
