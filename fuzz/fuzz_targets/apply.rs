//! Server-side apply on pods and virtual machine instances: any configuration on any live object.
//!
//! Input: `pod` or `vmi`, a live object (or nothing) and the applied configuration as text, separated by `---`; or bytes
//! that change sound objects.
#![no_main]

use std::sync::LazyLock;

use ferrovirt_fuzz::{INSTANCE, POD, Source, parts};
use ferrovirt_machinery::apply::{ApplyOptions, Writer, apply, reset_by_main, update};
use ferrovirt_machinery::json::parse_strict;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static LIVE: LazyLock<[Value; 2]> = LazyLock::new(|| {
    let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields});
    let pod_fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {".": {}, "v:\"x\"": {}}},
        "f:spec": {"f:containers": {".": {}, "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:ports": {
            ".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
        }}}},
    });
    let disk_fields =
        json!({"f:spec": {"f:domain": {"f:devices": {"f:disks": {}}, "f:cpu": {"f:cores": {}}}, "f:networks": {}}});
    [
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x"], "managedFields": [
                entry("fuzz", "Apply", pod_fields.clone()), entry("other", "Update", pod_fields),
            ]},
            "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}]}, {"name": "d"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }),
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "v", "managedFields": [entry("fuzz", "Apply", disk_fields)]},
            "spec": {
                "domain": {"cpu": {"cores": 1}, "devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "masquerade": {}}]}},
                "networks": [{"name": "default", "pod": {}}], "volumes": [{"name": "d", "containerDisk": {"image": "i"}}],
            },
        }),
    ]
});

fuzz_target!(|input: &[u8]| {
    let Some((kind, live, mut applied)) = from_text(input).or_else(|| from_bytes(input)) else { return };
    let (schema, api_version, kind) = match kind {
        1 => (&*INSTANCE, "kubevirt.io/v1", "VirtualMachineInstance"),
        _ => (&**POD, "v1", "Pod"),
    };
    if applied.is_object() {
        applied["apiVersion"] = api_version.into();
        applied["kind"] = kind.into();
        if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    let writer =
        Writer { manager: "fuzz", api_version, subresource: "", reset: reset_by_main(), now: Timestamp::UNIX_EPOCH };
    for force in [false, true] {
        let options = ApplyOptions { writer, kind, force };
        if let Ok(merged) = apply(schema, live.as_ref(), &applied, &options) {
            let _ = apply(schema, Some(&merged), &applied, &options);
        }
    }
    if applied.is_object() {
        let mut new = applied;
        update(schema, live.as_ref(), &mut new, &Writer { manager: "other", ..writer });
    }
});

fn from_text(input: &[u8]) -> Option<(usize, Option<Value>, Value)> {
    let [kind, live, applied] = parts(input)?;
    let live = parse_strict(live.as_bytes()).ok().map(|parsed| parsed.value).filter(Value::is_object);
    Some((usize::from(kind == "vmi"), live, parse_strict(applied.as_bytes()).ok()?.value))
}

fn from_bytes(input: &[u8]) -> Option<(usize, Option<Value>, Value)> {
    let mut source = Source::new(input);
    let kind = source.choose(&[0, 1]).ok()?;
    let live = source.edited(&LIVE[kind]).ok()?;
    Some((kind, Some(live).filter(Value::is_object), source.edited(&LIVE[kind]).ok()?))
}
