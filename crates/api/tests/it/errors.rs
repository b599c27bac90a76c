//! What is wrong is said with the path of the field, the value, and what would be right.

use ferrovirt_api::{
    DecodeError, FromJson, KubeVirt, MigrationPolicy, VirtualMachine, VirtualMachineInstance, decode, decode_json,
};
use serde_json::{Value, json};

fn guest(spec: &Value) -> Value {
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" }, "spec": spec })
}

fn machine(template: &Value) -> Value {
    json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": { "template": { "spec": template } } })
}

fn error<T: FromJson>(document: &Value) -> DecodeError {
    decode::<T>(document).err().expect("the document is wrong")
}

#[test]
fn a_wrong_word_names_the_right_ones() {
    let disks =
        json!({ "domain": { "devices": { "disks": [{ "name": "a" }, { "name": "b", "disk": { "bus": "ide" } }] } } });
    let error = error::<VirtualMachine>(&machine(&disks));
    assert_eq!(error.path, "spec.template.spec.domain.devices.disks[1].disk.bus");
    assert_eq!(error.problem, "unknown variant `ide`, expected one of `scsi`, `sata`, `virtio`, `usb`");
    assert_eq!(error.to_string(), format!("{}: {}", error.path, error.problem));
}

#[test]
fn a_wrong_type_names_the_right_one() {
    let error =
        error::<VirtualMachineInstance>(&guest(&json!({ "domain": { "devices": {}, "cpu": { "cores": "two" } } })));
    assert_eq!(error.to_string(), "spec.domain.cpu.cores: invalid type: string \"two\", expected u32");
}

#[test]
fn numbers_outside_the_range_are_refused() {
    let error =
        error::<VirtualMachineInstance>(&guest(&json!({ "domain": { "devices": {}, "cpu": { "cores": -1 } } })));
    assert_eq!(error.to_string(), "spec.domain.cpu.cores: invalid value: integer `-1`, expected u32");
}

#[test]
fn a_missing_field_is_named_with_its_place() {
    let error =
        error::<VirtualMachineInstance>(&guest(&json!({ "domain": { "devices": { "disks": [{ "serial": "x" }] } } })));
    assert_eq!(error.to_string(), "spec.domain.devices.disks[0]: missing field `name`");
}

#[test]
fn lists_and_flags_are_checked_inside() {
    let list =
        error::<VirtualMachineInstance>(&guest(&json!({ "domain": { "devices": { "disks": { "name": "a" } } } })));
    assert_eq!(list.to_string(), "spec.domain.devices.disks: invalid type: map, expected a sequence");
    let flag =
        error::<VirtualMachineInstance>(&guest(&json!({ "domain": { "devices": { "disableHotplug": "yes" } } })));
    assert_eq!(
        flag.to_string(),
        "spec.domain.devices.disableHotplug: invalid type: string \"yes\", expected a boolean"
    );
}

#[test]
fn values_with_rules_say_what_they_look_like() {
    let cases = [
        (
            json!({ "domain": { "devices": {}, "memory": { "guest": "1 GB" } } }),
            "spec.domain.memory.guest: invalid value: string \"1 GB\", expected a quantity such as 500m, 2 or 1Gi",
        ),
        (
            json!({ "domain": { "devices": {}, "resources": { "requests": { "memory": true } } } }),
            "spec.domain.resources.requests.memory: invalid type: boolean `true`, expected a quantity such as 500m, 2 or 1Gi",
        ),
        (
            json!({ "domain": { "devices": { "interfaces": [{ "name": "a", "macAddress": "de:ad" }] } } }),
            "spec.domain.devices.interfaces[0].macAddress: invalid value: string \"de:ad\", expected a MAC address such as de:ad:00:00:be:af",
        ),
        (
            json!({ "domain": { "devices": {}, "firmware": { "uuid": "mine" } } }),
            "spec.domain.firmware.uuid: invalid value: string \"mine\", expected a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(error::<VirtualMachineInstance>(&guest(&spec)).to_string(), expected);
    }
    let interval = json!({ "spec": { "workloadUpdateStrategy": { "batchEvictionInterval": "soon" } } });
    assert_eq!(
        error::<KubeVirt>(&interval).to_string(),
        "spec.workloadUpdateStrategy.batchEvictionInterval: invalid value: string \"soon\", expected a duration such as 1h30m"
    );
}

#[test]
fn kubernetes_own_types_are_checked_too() {
    let spec = json!({ "domain": { "devices": {} }, "tolerations": [{ "tolerationSeconds": "long" }] });
    let error = error::<VirtualMachineInstance>(&guest(&spec));
    assert_eq!(error.to_string(), "spec.tolerations[0].tolerationSeconds: invalid type: string \"long\", expected i64");
}

#[test]
fn another_kind_or_version_is_not_mistaken() {
    let mut document = guest(&json!({ "domain": { "devices": {} } }));
    assert!(decode::<VirtualMachineInstance>(&document).is_ok());
    assert_eq!(
        error::<VirtualMachine>(&document).to_string(),
        "kind: invalid value: string \"VirtualMachineInstance\", expected VirtualMachine"
    );
    document["apiVersion"] = json!("kubevirt.io/v2");
    assert_eq!(
        error::<VirtualMachineInstance>(&document).to_string(),
        "apiVersion: invalid value: string \"kubevirt.io/v2\", expected kubevirt.io/v1"
    );
    document["apiVersion"] = json!("kubevirt.io/v1alpha3");
    assert!(decode::<VirtualMachineInstance>(&document).is_ok());
}

#[test]
fn the_document_itself_can_be_wrong() {
    assert_eq!(error::<MigrationPolicy>(&json!({})).to_string(), "missing field `spec`");
    let garbage = decode_json::<MigrationPolicy>(b"{\"spec\": ").unwrap_err();
    assert!(garbage.problem.starts_with("EOF while parsing"), "{garbage}");
    let trailing = decode_json::<MigrationPolicy>(b"{\"spec\":{\"selectors\":{}}} x").unwrap_err();
    assert_eq!(trailing.to_string(), "trailing characters at line 1 column 27");
}

#[test]
fn null_means_absent() {
    let spec = json!({ "domain": { "devices": { "disks": null, "disableHotplug": null } }, "nodeSelector": null, "affinity": null });
    let guest: VirtualMachineInstance = decode(&guest(&spec)).unwrap();
    assert_eq!(guest.spec.domain.devices.disks, []);
    assert!(!guest.spec.domain.devices.disable_hotplug);
    assert_eq!(guest.spec.affinity, None);
}
