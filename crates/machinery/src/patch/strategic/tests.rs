#![expect(clippy::needless_pass_by_value, reason = "values are written in place")]

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{PatchStrategy, Type};

fn object<const N: usize>(fields: [(&str, Schema); N]) -> Schema {
    Schema {
        kind: Type::Object,
        properties: fields.into_iter().map(|(name, schema)| (name.to_owned(), Arc::new(schema))).collect(),
        ..Schema::default()
    }
}

fn list(items: Schema, merge: bool, key: Option<&str>) -> Schema {
    Schema {
        kind: Type::Array,
        items: Some(Arc::new(items)),
        patch: PatchStrategy { merge, retain_keys: false, merge_key: key.map(str::to_owned) },
        ..Schema::default()
    }
}

fn text() -> Schema {
    Schema { kind: Type::String, ..Schema::default() }
}

fn pod() -> Schema {
    let port = object([("containerPort", text()), ("name", text())]);
    let container = object([
        ("name", text()),
        ("image", text()),
        ("args", list(text(), false, None)),
        ("ports", list(port, true, Some("containerPort"))),
    ]);
    let metadata = object([
        ("finalizers", list(text(), true, None)),
        ("labels", Schema { additional_properties: Some(Arc::new(text())), ..object([]) }),
    ]);
    object([("metadata", metadata), ("spec", object([("containers", list(container, true, Some("name")))]))])
}

fn patched(document: Value, patch: Value) -> Value {
    apply(&pod(), document, patch).unwrap()
}

fn failed(document: Value, patch: Value) -> PatchError {
    apply(&pod(), document, patch).unwrap_err()
}

fn containers(items: Value) -> Value {
    json!({"spec": {"containers": items}})
}

fn finalizers(items: Value) -> Value {
    json!({"metadata": {"finalizers": items}})
}

#[test]
fn lists_of_objects_merge_by_key_and_nested_lists_by_theirs() {
    let live = containers(json!([
        {"name": "a", "image": "a:1", "ports": [{"containerPort": 80, "name": "http"}]},
        {"name": "b", "image": "b:1", "args": ["x", "y"]},
    ]));
    let patch = containers(json!([
        {"name": "a", "ports": [{"containerPort": 443}]},
        {"name": "b", "image": "b:2", "args": ["z"]},
    ]));
    assert_eq!(
        patched(live, patch),
        containers(json!([
            {"name": "a", "image": "a:1", "ports": [{"containerPort": 443}, {"containerPort": 80, "name": "http"}]},
            {"name": "b", "image": "b:2", "args": ["z"]},
        ]))
    );
}

#[test]
fn new_elements_come_first_and_named_ones_take_the_patch_order() {
    let live = containers(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
    assert_eq!(
        patched(live.clone(), containers(json!([{"name": "d"}]))),
        containers(json!([{"name": "d"}, {"name": "a"}, {"name": "b"}, {"name": "c"}]))
    );
    assert_eq!(
        patched(live, containers(json!([{"name": "c"}, {"name": "a"}]))),
        containers(json!([{"name": "b"}, {"name": "c"}, {"name": "a"}]))
    );
}

#[test]
fn scalars_merge_as_a_set() {
    assert_eq!(
        patched(finalizers(json!(["a", "b"])), finalizers(json!(["b", "c"]))),
        finalizers(json!(["a", "b", "c"]))
    );
}

#[test]
fn null_removes_a_member_and_is_dropped_from_new_values() {
    assert_eq!(
        patched(
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "c": null}}})
        ),
        json!({"metadata": {"labels": {"b": "2"}}})
    );
    assert_eq!(
        patched(json!({}), json!({"metadata": {"labels": {"a": null, "b": "2"}}})),
        json!({"metadata": {"labels": {"b": "2"}}})
    );
}

#[test]
fn object_directives() {
    let live = json!({"metadata": {"labels": {"a": "1"}}});
    assert_eq!(
        patched(live.clone(), json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}})),
        json!({"metadata": {"labels": {"b": "2"}}})
    );
    assert_eq!(
        patched(live.clone(), json!({"metadata": {"labels": {"$patch": "delete"}}})),
        json!({"metadata": {"labels": {}}})
    );
    assert_eq!(patched(json!({}), json!({"metadata": {"$patch": "delete"}})), json!({}));
    let error = failed(live, json!({"metadata": {"$patch": "explode", "x": [1]}}));
    assert_eq!(error.to_string(), "unknown patch type: explode in map: map[$patch:explode x:[1]]");
    assert_eq!(error.code(), 500);
}

#[test]
fn list_directives() {
    let live = containers(json!([{"name": "a", "image": "1"}, {"name": "b"}]));
    assert_eq!(
        patched(live.clone(), containers(json!([{"name": "a", "$patch": "delete"}, {"name": "c"}]))),
        containers(json!([{"name": "c"}, {"name": "b"}]))
    );
    assert_eq!(
        patched(live.clone(), containers(json!([{"name": "z"}, {"$patch": "replace"}]))),
        containers(json!([{"name": "z"}]))
    );
    assert_eq!(
        failed(live.clone(), containers(json!([{"$patch": "merge"}]))).to_string(),
        "merging lists cannot yet be specified in the patch"
    );
    assert_eq!(
        failed(live.clone(), containers(json!([{"$patch": "delete"}]))).to_string(),
        "map: map[$patch:delete] does not contain declared merge key: name"
    );
    assert_eq!(
        failed(live, containers(json!([{"image": "x"}]))).to_string(),
        "map: map[image:x] does not contain declared merge key: name"
    );
}

#[test]
fn delete_from_primitive_list() {
    let live = finalizers(json!(["a", "b", "c"]));
    assert_eq!(
        patched(live.clone(), json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}})),
        finalizers(json!(["a", "c"]))
    );
    assert_eq!(
        patched(json!({}), json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}})).get("spec"),
        None
    );
    let error = failed(live, json!({"metadata": {"$deleteFromPrimitiveList": ["b"]}}));
    assert_eq!(error, PatchError::Malformed("invalid patch format of primitive list".into()));
}

#[test]
fn set_element_order() {
    let live = containers(json!([{"name": "a"}, {"name": "b"}, {"name": "server"}]));
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
        "containers": [{"name": "c", "image": "c"}, {"name": "a", "image": "a"}],
    }});
    assert_eq!(
        patched(live.clone(), patch),
        containers(
            json!([{"name": "b"}, {"name": "c", "image": "c"}, {"name": "a", "image": "a"}, {"name": "server"}])
        )
    );
    let order_only = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
    assert_eq!(
        patched(live.clone(), order_only),
        containers(json!([{"name": "b"}, {"name": "a"}, {"name": "server"}]))
    );
    let wrong = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}],
        "containers": [{"name": "c"}],
    }});
    assert_eq!(
        failed(live, wrong).to_string(),
        "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n"
    );
    assert_eq!(
        patched(
            finalizers(json!(["x", "a", "b"])),
            json!({"metadata": {"$setElementOrder/finalizers": ["b", "a"], "$deleteFromPrimitiveList/finalizers": ["x"]}})
        ),
        finalizers(json!(["b", "a"]))
    );
}

#[test]
fn retain_keys_clears_the_rest() {
    assert_eq!(
        patched(json!({"spec": {"old": 1, "type": "a"}}), json!({"spec": {"$retainKeys": ["type"], "type": "b"}})),
        json!({"spec": {"type": "b"}})
    );
    let error = failed(json!({"spec": {}}), json!({"spec": {"$retainKeys": ["type"], "other": 1}}));
    assert_eq!(error, PatchError::Malformed("invalid patch format of retainKeys".into()));
    assert_eq!(failed(json!({"spec": {}}), json!({"spec": {"$retainKeys": 1}})).code(), 400);
}

#[test]
fn lists_must_be_of_one_kind() {
    assert_eq!(
        failed(finalizers(json!(["a"])), finalizers(json!([1]))).to_string(),
        "list element types are not identical: [[a] [1]]"
    );
    assert_eq!(failed(finalizers(json!([["a"]])), finalizers(json!([["a"]]))).code(), 422);
}

fn arbitrary_patch() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2i64..3).prop_map(Value::from),
        prop::sample::select(vec!["a", "b", "delete", "replace", "merge"]).prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "containers",
        "finalizers",
        "labels",
        "name",
        "ports",
        "containerPort",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
        "$deleteFromPrimitiveList",
    ]);
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_panics(document in arbitrary_patch(), patch in arbitrary_patch()) {
        let _ = apply(&pod(), document, patch);
    }

    #[test]
    fn an_empty_patch_changes_nothing(document in arbitrary_patch()) {
        let document = json!({"spec": document});
        prop_assert_eq!(apply(&pod(), document.clone(), json!({})).unwrap(), document);
    }
}

/// What kube-apiserver 1.36 made of random patches.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    api_version: String,
    kind: String,
    live: Value,
    patch: Value,
    after: Option<Value>,
    error: Option<Failure>,
}

#[derive(serde::Deserialize)]
struct Failure {
    code: u16,
    message: String,
}

/// Typed objects are stored without empty lists and maps, and with these defaults filled in.
fn without_empties(value: Value) -> Option<Value> {
    const DEFAULTED: [&str; 4] = ["imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy", "protocol"];
    match value {
        Value::Null => None,
        Value::String(text) if text == "25%" => None,
        Value::Object(mut members) => {
            members.retain(|name, _| !DEFAULTED.contains(&name.as_str()));
            let members: Object = members.into_iter().filter_map(|(k, v)| Some((k, without_empties(v)?))).collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            Some(Value::Array(items.into_iter().map(|v| without_empties(v).unwrap_or_default()).collect()))
        }
        scalar => Some(scalar),
    }
}

#[test]
fn recorded_answers_match() {
    let cases: Vec<Recorded> = serde_json::from_str(include_str!("../testdata/strategic.json")).unwrap();
    for case in cases {
        let (group, version) = case.api_version.split_once('/').unwrap_or(("", &case.api_version));
        let schema = crate::builtin::schema(group, version, &case.kind).unwrap();
        let result = apply(&schema, case.live.clone(), case.patch.clone());
        match (result, case.after, case.error) {
            (Ok(mut patched), Some(after), _) => {
                schema.prune(&mut patched, true);
                assert_eq!(without_empties(patched), without_empties(after), "{} on {}", case.patch, case.live);
            }
            (Err(error), _, Some(expected)) => {
                assert_eq!(error.to_string(), expected.message, "{} on {}", case.patch, case.live);
                assert_eq!(error.code(), expected.code);
            }
            (result, after, _) => panic!("{} on {}: {result:?}, not {after:?}", case.patch, case.live),
        }
    }
}
