#![expect(clippy::needless_pass_by_value, reason = "values are written in place")]

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::typed::{compare, field_set, merge, remove, validate};
use super::*;
use crate::schema::Schema;

mod properties;
mod recorded;

/// A kind with one field of each sort.
fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "count": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id", "proto"],
                    "items": {"type": "object", "required": ["id"], "properties": {
                        "id": {"type": "string"},
                        "proto": {"type": "string", "default": "TCP"},
                        "value": {"type": "integer"},
                    }},
                },
                "plain": {"type": "array", "items": {"type": "integer"}},
                "atom": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer"},
                }},
                "free": {"type": "object", "additionalProperties": {"type": "string"}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        }});
        Schema::from_json(&schema).unwrap().with_object_meta()
    });
    &SCHEMA
}

fn writer(manager: &str) -> Writer<'_> {
    static NOTHING: LazyLock<FieldSet> = LazyLock::new(FieldSet::new);
    Writer {
        manager,
        api_version: "example.com/v1",
        subresource: "",
        reset: &NOTHING,
        now: "2026-11-15T12:00:00Z".parse().unwrap(),
    }
}

fn widget(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

fn applied(live: Option<&Value>, spec: Value, manager: &str, force: bool) -> Result<Value, ApplyError> {
    let options = ApplyOptions { writer: writer(manager), kind: "Widget", force };
    apply(schema(), live, &widget(spec), &options)
}

fn stored(object: &mut Value, live: Option<&Value>, manager: &str) {
    update(schema(), live, object, &writer(manager));
}

fn owned<'o>(object: &'o Value, manager: &str) -> &'o Value {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == manager);
    entry.map_or(&Value::Null, |entry| &entry["fieldsV1"]["f:spec"])
}

#[test]
fn field_sets_of_values() {
    let cases = [
        (json!({"count": 1}), json!({"f:count": {}})),
        (json!({"plain": [1, 2]}), json!({"f:plain": {}})),
        (json!({"atom": {"a": 1}}), json!({"f:atom": {}})),
        (json!({"tags": ["a"]}), json!({"f:tags": {r#"v:"a""#: {}}})),
        (json!({"free": {"k": "v"}}), json!({"f:free": {"f:k": {}}})),
        (json!({"free": {}}), json!({"f:free": {}})),
        (json!({"any": {"x": {"y": [1]}}}), json!({"f:any": {"f:x": {".": {}, "f:y": {}}}})),
        (json!({"items": [{"id": "1"}]}), json!({"f:items": {r#"k:{"id":"1","proto":"TCP"}"#: {".": {}, "f:id": {}}}})),
        // Twice the same: owned together, without what is in them.
        (
            json!({"items": [{"id": "1", "value": 1}, {"id": "1"}]}),
            json!({"f:items": {r#"k:{"id":"1","proto":"TCP"}"#: {}}}),
        ),
    ];
    for (spec, expected) in cases {
        let set = field_set(Some(schema()), &json!({"spec": spec}));
        assert_eq!(set.to_fields_v1(), json!({"f:spec": expected}), "{spec}");
    }
}

#[test]
fn comparisons() {
    let compared = |old: Value, new: Value| {
        let result = compare(Some(schema()), Some(&json!({"spec": old})), &json!({"spec": new}));
        [result.added, result.modified, result.removed].map(|set| set.to_fields_v1()["f:spec"].clone())
    };
    let key = r#"k:{"id":"1","proto":"TCP"}"#;
    let cases = [
        (json!({"count": 1}), json!({"count": 2}), [json!(null), json!({"f:count": {}}), json!(null)]),
        (json!({"count": 1}), json!({}), [json!(null), json!(null), json!({"f:count": {}})]),
        (json!({"plain": [1]}), json!({"plain": [1, 2]}), [json!(null), json!({"f:plain": {}}), json!(null)]),
        (json!({}), json!({"free": {}}), [json!({"f:free": {}}), json!(null), json!(null)]),
        (
            json!({"tags": ["a", "b"]}),
            json!({"tags": ["b", "c"]}),
            [json!({"f:tags": {r#"v:"c""#: {}}}), json!(null), json!({"f:tags": {r#"v:"a""#: {}}})],
        ),
        (
            json!({"items": [{"id": "1", "value": 1}]}),
            json!({"items": [{"id": "1", "proto": "TCP", "value": 2}]}),
            [json!({"f:items": {key: {"f:proto": {}}}}), json!({"f:items": {key: {"f:value": {}}}}), json!(null)],
        ),
        // The order of elements is nobody's.
        (
            json!({"items": [{"id": "1"}, {"id": "2"}]}),
            json!({"items": [{"id": "2"}, {"id": "1"}]}),
            [json!(null), json!(null), json!(null)],
        ),
        (
            json!({"any": {"x": {"y": 1}}}),
            json!({"any": {"x": 1}}),
            [json!(null), json!({"f:any": {"f:x": {}}}), json!({"f:any": {"f:x": {"f:y": {}}}})],
        ),
    ];
    for (old, new, expected) in cases {
        assert_eq!(compared(old.clone(), new.clone()), expected, "{old} to {new}");
    }
}

#[test]
fn merging_keeps_live_elements_around_applied_ones() {
    let items = |ids: &str| Value::Array(ids.chars().map(|id| json!({"id": id.to_string()})).collect());
    for (live, config, expected) in [
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("abc", "b", "abc"),
        ("abc", "ca", "bca"),
        ("ab", "xb", "axb"),
        ("abc", "cba", "cba"),
    ] {
        let (live_spec, config_spec) =
            (json!({"spec": {"items": items(live)}}), json!({"spec": {"items": items(config)}}));
        let merged = merge(Some(schema()), &live_spec, &config_spec);
        assert_eq!(merged["spec"]["items"], items(expected), "{live} with {config}");
    }
}

#[test]
fn removing_leaves_empty_containers() {
    let mut value = json!({"spec": {"free": {"a": "1"}, "tags": ["x", "y"], "items": [{"id": "1", "value": 1}]}});
    let unwanted = json!({"f:spec": {
        "f:free": {"f:a": {}},
        "f:tags": {r#"v:"x""#: {}},
        "f:items": {r#"k:{"id":"1","proto":"TCP"}"#: {"f:value": {}}},
    }});
    remove(Some(schema()), &mut value, &FieldSet::from_fields_v1(&unwanted).unwrap());
    assert_eq!(value, json!({"spec": {"free": {}, "tags": ["y"], "items": [{"id": "1"}]}}));
}

#[test]
fn configurations_that_cannot_be_merged() {
    for (spec, message) in [
        (json!({"nope": 1}), ".spec.nope: field not declared in schema"),
        (json!({"count": "x"}), ".spec.count: expected numeric (int or float), got string"),
        (json!({"tags": ["a", "a"]}), r#".spec.tags: duplicate entries for key [="a"]"#),
        (json!({"items": [1]}), ".spec.items: element 0: associative list with keys may not have non-map elements"),
        (json!({"items": [null]}), ".spec.items: element 0: associative list with keys may not have a null element"),
        (json!({"tags": [["a"]]}), ".spec.tags: element 0: not supported: associative list with lists as elements"),
    ] {
        assert_eq!(validate(Some(schema()), &json!({"spec": spec})).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_fallen_applier_takes_its_fields_along() {
    let first = applied(None, json!({"count": 1, "free": {"a": "1"}, "tags": ["x"]}), "one", false).unwrap();
    let second = applied(Some(&first), json!({"free": {"a": "1", "b": "2"}}), "two", false).unwrap();
    let third = applied(Some(&second), json!({}), "one", false).unwrap();
    assert_eq!(third["spec"], json!({"free": {"a": "1", "b": "2"}}));
    assert_eq!(owned(&third, "one"), &json!({}), "the empty spec itself is still applied");
}

#[test]
fn updates_take_what_they_change() {
    let mut created = widget(json!({"count": 1, "free": {"a": "1"}}));
    stored(&mut created, None, "creator");
    assert_eq!(owned(&created, "creator"), &json!({".": {}, "f:count": {}, "f:free": {".": {}, "f:a": {}}}));

    let mut changed = created.clone();
    changed["spec"]["count"] = json!(2);
    stored(&mut changed, Some(&created), "changer");
    assert_eq!(owned(&changed, "changer"), &json!({"f:count": {}}));
    assert_eq!(owned(&changed, "creator"), &json!({".": {}, "f:free": {".": {}, "f:a": {}}}));

    let mut removed = changed.clone();
    removed["spec"].as_object_mut().unwrap().remove("count");
    stored(&mut removed, Some(&changed), "creator");
    assert_eq!(owned(&removed, "changer"), &Value::Null);
}

#[test]
fn an_endpoint_gives_no_ownership_of_what_it_ignores() {
    let mut created = widget(json!({"count": 1}));
    created["status"] = json!({"phase": "x"});
    update(schema(), None, &mut created, &Writer { reset: reset_by_main(), ..writer("creator") });
    let mut reported = created.clone();
    reported["status"]["phase"] = json!("y");
    reported["spec"]["count"] = json!(7);
    let status = Writer { reset: reset_by_status(), subresource: "status", ..writer("controller") };
    update(schema(), Some(&created), &mut reported, &status);
    let fields: Vec<_> = reported["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), entry["subresource"].as_str(), entry["fieldsV1"].clone()))
        .collect();
    assert_eq!(
        fields,
        [
            ("controller", Some("status"), json!({"f:status": {"f:phase": {}}})),
            ("creator", None, json!({"f:spec": {".": {}, "f:count": {}}})),
        ]
    );
}

#[test]
fn a_schema_that_became_atomic_turns_parts_into_the_whole() {
    let mut live = widget(json!({"atom": {"a": 1}}));
    live["metadata"]["managedFields"] = json!([{"manager": "old", "operation": "Apply", "apiVersion": "example.com/v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:atom": {"f:a": {}}}}}]);
    let error = applied(Some(&live), json!({"atom": {"b": 1}}), "new", false).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"old\": .spec.atom");
    let mut changed = live.clone();
    changed["spec"]["atom"]["a"] = json!(2);
    stored(&mut changed, Some(&live), "updater");
    assert_eq!(owned(&changed, "old"), &Value::Null);
    assert_eq!(owned(&changed, "updater"), &json!({"f:atom": {}}));
}

#[test]
fn times_alone_are_no_change() {
    let live = applied(None, json!({"count": 1}), "one", false).unwrap();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    keep_times_if_unchanged(&live, &mut new);
    assert_eq!(new, live);
    new["metadata"]["managedFields"][0]["time"] = json!("2030-01-01T00:00:00Z");
    new["spec"]["count"] = json!(2);
    let written = new.clone();
    keep_times_if_unchanged(&live, &mut new);
    assert_eq!(new, written);
}

#[test]
fn entries_are_checked() {
    let entry = |change: fn(&mut Value)| {
        let mut entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:a": {}}});
        change(&mut entry);
        validate_managed_fields(&json!([entry])).map_err(|error| error.to_string())
    };
    assert_eq!(entry(|_| ()), Ok(()));
    assert_eq!(entry(|e| e["operation"] = json!("x")), Err("operation must be `Apply` or `Update`".into()));
    assert_eq!(entry(|e| e["apiVersion"] = json!("")), Err("apiVersion must not be empty".into()));
    assert_eq!(entry(|e| e["fieldsType"] = json!("")), Err("missing fieldsType in managed fields entry 0".into()));
    assert_eq!(
        entry(|e| e["fieldsType"] = json!("V2")),
        Err("invalid fieldsType \"V2\" in managed fields entry 0".into())
    );
    assert_eq!(
        entry(|e| e["fieldsV1"] = json!({"a": {}})),
        Err("error decoding set: key must be 2 characters long:".into())
    );
    assert_eq!(validate_managed_fields(&json!({})), Err(EntryError::Shape));
}
