//! Answers recorded from kube-apiserver, given again by our validation.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::FieldError;
use crate::schema::Schema;

#[derive(Deserialize)]
struct Recorded {
    schema: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    old: Option<Value>,
    new: Value,
    causes: Vec<[String; 3]>,
}

fn object(schema: &Schema, spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "probe.io/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
    schema.prune(&mut object, true);
    schema.apply_defaults(&mut object);
    object
}

fn cause(error: &FieldError) -> [String; 3] {
    let field = if error.path.is_empty() { "<nil>" } else { &error.path };
    [error.kind.reason().to_owned(), field.to_owned(), error.message.clone()]
}

#[test]
fn objects_are_judged_as_by_kube_apiserver() {
    let recorded: Recorded = serde_json::from_str(include_str!("recorded.json")).expect("reads");
    let schema = Schema::from_json(&recorded.schema).expect("parses");
    let mut differences = Vec::new();
    for case in &recorded.cases {
        let new = object(&schema, &case.new);
        let errors = match &case.old {
            None => schema.validate(&new),
            Some(old) => schema.validate_update(&object(&schema, old), &new),
        };
        let mut ours: Vec<_> = errors.iter().map(cause).collect();
        let mut theirs = case.causes.clone();
        // kube-apiserver walks maps in random order.
        ours.sort();
        theirs.sort();
        if ours != theirs {
            differences.push(format!("{:?} -> {}\n  ours   {ours:?}\n  theirs {theirs:?}", case.old, case.new));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(recorded.cases.len() > 80);
}

#[test]
fn a_valid_object_stays_valid_after_defaulting() {
    let schema = Schema::from_json(&json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "integer", "minimum": 1, "default": 3}}}))
    .expect("parses");
    let mut value = json!({});
    assert_eq!(schema.validate(&value).len(), 1);
    schema.apply_defaults(&mut value);
    assert!(schema.validate(&value).is_empty());
}

#[test]
fn bad_patterns_and_repeated_items_are_told() {
    let schema = Schema::from_json(&json!({"type": "object", "properties": {
        "p": {"type": "string", "pattern": "("}, "u": {"type": "array", "uniqueItems": true}}}))
    .expect("parses");
    let errors: Vec<_> = schema.validate(&json!({"p": "x", "u": [1, 1]})).iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            r#"p: Invalid value: "x": p in body should match '(, but pattern is invalid: unclosed group'"#,
            r#"u: Invalid value: "": u in body shouldn't contain duplicates"#
        ]
    );
}
