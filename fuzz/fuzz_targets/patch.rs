//! JSON, merge and strategic merge patches: any patch on any document, with the schema of pods.
//!
//! Input: a document and a patch as text, separated by `---`; or bytes that change a sound document and a sound patch.
#![no_main]

use std::sync::LazyLock;

use ferrovirt_fuzz::{POD, Source, parts};
use ferrovirt_machinery::json::parse_strict;
use ferrovirt_machinery::patch::{json, merge, strategic};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["a", "b"]},
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "e", "value": "v"}]},
                {"name": "d", "image": "j"},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    })
});

static PATCHES: LazyLock<[Value; 4]> = LazyLock::new(|| {
    [
        json!({
            "metadata": {"labels": {"a": null}, "$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b", "c"], "finalizers": ["c"]},
            "spec": {
                "$setElementOrder/containers": [{"name": "d"}, {"name": "c"}],
                "containers": [{"name": "c", "image": "k", "ports": [{"containerPort": 80, "$patch": "delete"}]}, {"name": "d", "$patch": "delete"}],
                "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}],
                "tolerations": [{"key": "x"}],
            },
        }),
        json!({"spec": {"$patch": "replace", "containers": [{"name": "c"}]}, "metadata": {"$retainKeys": ["name"]}}),
        json!([
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "e"}},
            {"op": "test", "path": "/spec/containers/0/name", "value": "c"},
            {"op": "move", "from": "/spec/containers/1", "path": "/spec/containers/0"},
            {"op": "copy", "from": "/metadata", "path": "/spec/copy"},
            {"op": "replace", "path": "/metadata/labels/a", "value": 1},
            {"op": "remove", "path": "/spec/volumes"},
        ]),
        json!({"metadata": {"labels": null}, "spec": {"containers": []}}),
    ]
});

fuzz_target!(|input: &[u8]| {
    let Some((document, patch)) = from_text(input).or_else(|| from_bytes(input)) else { return };
    let _ = json::unknown_fields(&patch);
    let _ = json::apply(document.clone(), &patch);
    // Not once and twice: like kube-apiserver, a list that takes an object's place keeps the nulls in it at first.
    if let Ok(twice) = merge::apply(document.clone(), patch.clone()).and_then(|once| merge::apply(once, patch.clone()))
    {
        let again = merge::apply(twice.clone(), patch.clone());
        assert_eq!(again.ok(), Some(twice), "a merge patch that is applied again changes nothing");
    }
    let _ = strategic::apply(&POD, document, patch);
});

fn from_text(input: &[u8]) -> Option<(Value, Value)> {
    let [document, patch] = parts(input)?;
    Some((parse_strict(document.as_bytes()).ok()?.value, parse_strict(patch.as_bytes()).ok()?.value))
}

fn from_bytes(input: &[u8]) -> Option<(Value, Value)> {
    let mut source = Source::new(input);
    let patch = source.choose(&*PATCHES).ok()?;
    Some((source.edited(&DOCUMENT).ok()?, source.edited(&patch).ok()?))
}
