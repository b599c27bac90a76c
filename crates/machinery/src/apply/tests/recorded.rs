//! What kube-apiserver 1.36 answered, replayed: the same live object and the same request must give the same owners,
//! the same object and the same conflicts.

use std::sync::Arc;

use serde::Deserialize;

use super::*;
use crate::builtin;

#[derive(Deserialize)]
struct Recorded {
    crd: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    api_version: String,
    kind: String,
    operation: String,
    manager: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    custom: bool,
    /// The live object, or the number of the case that left it.
    live: Option<Value>,
    applied: Option<Value>,
    #[serde(default)]
    force: bool,
    /// `managedFields` that the client sent along.
    sent: Option<Value>,
    /// Fields of `after` that the server adds when ownership is settled already.
    #[serde(default)]
    later: Vec<String>,
    after: Option<Value>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    code: u16,
    message: String,
    #[serde(default)]
    causes: Option<Vec<Cause>>,
}

#[derive(Deserialize, Debug, PartialEq)]
struct Cause {
    reason: String,
    message: String,
    field: String,
}

fn schema_of(case: &Case, crd: &Arc<Schema>) -> Arc<Schema> {
    if case.custom {
        return Arc::clone(crd);
    }
    let (group, version) = case.api_version.split_once('/').unwrap_or(("", &case.api_version));
    builtin::schema(group, version, &case.kind).unwrap_or_else(|| panic!("no schema for {}", case.kind))
}

fn reset_of(case: &Case, schema: &Schema) -> &'static FieldSet {
    static NOTHING: LazyLock<FieldSet> = LazyLock::new(FieldSet::new);
    match (case.subresource.as_str(), case.custom) {
        ("status", true) => reset_by_status(),
        ("status", false) => reset_by_builtin_status(),
        _ if schema.properties.contains_key("status") => reset_by_main(),
        _ => &NOTHING,
    }
}

/// The latest time in the answer is the time of the request.
fn time_of(after: Option<&Value>) -> Timestamp {
    let times = after.and_then(entries::of).and_then(Value::as_array).into_iter().flatten();
    let latest = times.filter_map(|entry| entry.get("time")?.as_str()).max().unwrap_or("2026-01-01T00:00:00Z");
    latest.parse().unwrap()
}

fn without_server_fields(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "namespace"] {
        metadata.remove(field);
    }
    // Metadata is typed in all kinds, and stored without empty maps.
    metadata.retain(|_, value| !is_nothing(value));
    object
}

/// Whether all of `part` is in `whole`: the rest are defaults.
fn assert_within(case: &str, part: &Value, whole: &Value) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (name, value) in part {
                let Some(other) = whole.get(name) else {
                    // Typed objects drop empty lists, maps and nulls when they are stored.
                    assert!(is_nothing(value), "{case}: {name} is not in {whole:?}");
                    continue;
                };
                assert_within(case, value, other);
            }
        }
        (Value::Array(part), Value::Array(whole)) => {
            assert_eq!(part.len(), whole.len(), "{case}: {part:?} and {whole:?}");
            part.iter().zip(whole).for_each(|(part, whole)| assert_within(case, part, whole));
        }
        _ => assert_eq!(part, whole, "{case}"),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn replay(case: &Case, live: Option<&Value>, schema: &Schema) {
    let name = &case.name;
    let writer = Writer {
        manager: &case.manager,
        api_version: &case.api_version,
        subresource: &case.subresource,
        reset: reset_of(case, schema),
        now: time_of(case.after.as_ref()),
    };
    let result = if case.operation == "Apply" {
        let options = ApplyOptions { writer, kind: &case.kind, force: case.force };
        apply(schema, live, case.applied.as_ref().unwrap(), &options)
    } else if case.subresource == "scale" {
        Ok(scaled(live.unwrap(), case, &writer))
    } else {
        let mut new = case.after.clone().unwrap();
        entries::take(&mut new);
        for path in &case.later {
            let (parent, field) = path.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
        }
        if let Some(sent) = &case.sent {
            new["metadata"]["managedFields"] = sent.clone();
        }
        update(schema, live, &mut new, &writer);
        Ok(new)
    };
    match (result, &case.after, &case.error) {
        (Ok(object), Some(after), _) => {
            assert_eq!(entries::of(&object), entries::of(after), "{name}");
            if case.operation == "Apply" {
                let mut object = without_server_fields(&object);
                // The main endpoint takes back what it ignores.
                if case.subresource.is_empty() && schema.properties.contains_key("status") {
                    let kept = live.and_then(|live| live.get("status")).cloned().unwrap_or_default();
                    object["status"] = kept;
                    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
                }
                let after = without_server_fields(after);
                if case.custom {
                    schema.drop_nulls(&mut object);
                    schema.apply_defaults(&mut object);
                    assert_eq!(object, after, "{name}");
                }
                assert_within(name, &object, &after);
            }
        }
        (Err(error), _, Some(expected)) => {
            assert_eq!(error.to_string(), expected.message, "{name}");
            assert_eq!(error.code(), expected.code, "{name}");
            if let ApplyError::Conflicts(conflicts) = error {
                let cause = |conflict: &Conflict| Cause {
                    reason: Conflict::REASON.into(),
                    message: conflict.message(),
                    field: conflict.field.clone(),
                };
                let causes: Vec<Cause> = conflicts.iter().map(cause).collect();
                // The order of managers is random there; that of one manager's fields is not.
                for expected in expected.causes.as_deref().unwrap_or_default() {
                    assert!(causes.contains(expected), "{name}: {expected:?}");
                }
            }
        }
        (result, _, _) => panic!("{name}: {result:?}"),
    }
}

/// A write through `scale`, as the handler of that subresource does it.
fn scaled(live: &Value, case: &Case, writer: &Writer<'_>) -> Value {
    let schema = builtin::schema("autoscaling", "v1", "Scale");
    let schema = schema.unwrap_or_else(|| Arc::new(Schema { kind: crate::schema::Type::Object, ..Schema::default() }));
    let managed = entries::of(live).unwrap();
    let replicas = |object: &Value| object["spec"]["replicas"].clone();
    let scale = |object: &Value| serde_json::json!({"metadata": {"name": "d"}, "spec": {"replicas": replicas(object)}});
    let mut before = scale(live);
    before["metadata"]["managedFields"] = scale::to_scale(managed, ".spec.replicas").unwrap();
    let mut new = scale(case.after.as_ref().unwrap());
    update(&schema, Some(&before), &mut new, &Writer { api_version: "autoscaling/v1", ..*writer });
    let mut object = case.after.clone().unwrap();
    object["metadata"]["managedFields"] =
        scale::to_parent(managed, entries::of(&new).unwrap(), ".spec.replicas", &case.api_version).unwrap();
    object
}

#[test]
fn answers_match() {
    let recorded: Recorded = serde_json::from_str(include_str!("../testdata/recorded.json")).unwrap();
    let crd = Arc::new(Schema::from_json(&recorded.crd).unwrap().with_object_meta());
    let mut failures = Vec::new();
    for case in &recorded.cases {
        let live = match &case.live {
            Some(Value::Number(index)) => {
                recorded.cases[usize::try_from(index.as_u64().unwrap()).unwrap()].after.clone()
            }
            other => other.clone(),
        };
        let schema = schema_of(case, &crd);
        let outcome = std::panic::catch_unwind(|| replay(case, live.as_ref(), &schema));
        if let Err(panic) = outcome {
            failures.push(panic.downcast_ref::<String>().cloned().unwrap_or_else(|| case.name.clone()));
        }
    }
    assert!(recorded.cases.len() > 100);
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n\n"));
}
