//! Answers recorded from kube-apiserver, given again by our checks.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::check_structural;

const PATH: &str = "spec.validation.openAPIV3Schema";

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    schema: Value,
    #[serde(default)]
    status: bool,
    causes: Vec<[String; 3]>,
}

/// What is compared: syntax errors of the expression language end in what each parser expected, and a whole schema is
/// shown by kube-apiserver as its internal struct.
fn comparable(cause: [String; 3]) -> [String; 3] {
    let [reason, field, message] = cause;
    let message = match message.split_once("Syntax error") {
        Some(_) => {
            let start = message.find("compilation failed").unwrap_or_default();
            let end = message.find("<input>:1:").unwrap_or(message.len());
            message[start..end].to_owned()
        }
        None => message,
    };
    let message = match (field == PATH && message.starts_with("Invalid value: {"), message.find("}: only ")) {
        (true, Some(end)) => message[end..].to_owned(),
        _ => message,
    };
    [reason, field, message]
}

#[test]
fn schemas_are_judged_as_by_kube_apiserver() {
    let recorded: Recorded = serde_json::from_str(include_str!("recorded.json")).expect("reads");
    let mut differences = Vec::new();
    for case in &recorded.cases {
        let cause = |error: crate::error::FieldError| [error.kind.reason().to_owned(), error.path, error.message];
        let errors = check_structural(&case.schema, PATH, case.status);
        let mut ours: Vec<_> = errors.into_iter().map(cause).map(comparable).collect();
        let mut theirs: Vec<_> = case.causes.iter().cloned().map(comparable).collect();
        ours.sort();
        theirs.sort();
        if ours != theirs {
            differences.push(format!("{}\n  ours   {ours:#?}\n  theirs {theirs:#?}", case.schema));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert!(recorded.cases.len() > 80);
}

#[test]
fn the_root_must_hold_what_its_compositions_check() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [
        {"properties": {"a": {"minLength": 1}, "b": {"minLength": 1}}}]});
    let errors: Vec<_> = check_structural(&schema, "s", false).iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["s.properties[b]: Required value: because it is defined in s.anyOf[0].properties[b]"]);
}

#[test]
fn what_is_no_schema_is_refused() {
    assert_eq!(check_structural(&json!(5), "s", false)[0].to_string(), "s: Invalid value: 5: must be an object");
    let wrong = check_structural(&json!({"type": "object", "required": 5}), "s", false);
    assert_eq!(
        wrong[0].to_string(),
        r#"s: Invalid value: "": required: must be a list of strings"#.replace(" of strings", "")
    );
    let mut deep = json!({"type": "object"});
    for _ in 0..400 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    assert_eq!(check_structural(&deep, "s", false)[0].to_string(), "s: Forbidden: nested too deeply");
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"type": "integer", "default": 1})),
        Just(json!({})),
        Just(json!(true)),
        Just(json!("x")),
        Just(json!({"x-kubernetes-validations": [{"rule": "self.a == 1"}]})),
    ];
    let keyword = prop::sample::select(vec![
        "items",
        "not",
        "additionalProperties",
        "properties",
        "allOf",
        "default",
        "type",
        "x-kubernetes-list-type",
    ]);
    leaf.prop_recursive(4, 30, 4, move |inner| {
        prop_oneof![
            prop::collection::btree_map(keyword.clone().prop_map(str::to_owned), inner.clone(), 0..4)
                .prop_map(|map| map.into_iter().collect::<Value>()),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| json!({"type": "object", "allOf": items})),
            inner.prop_map(|child| json!({"type": "object", "properties": {"a": child}})),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_documents_never_panic_and_accepted_ones_parse(schema in any_schema()) {
        let errors = check_structural(&schema, "s", false);
        if errors.is_empty() {
            prop_assert!(crate::schema::Schema::from_json(&schema).is_ok());
        }
    }
}
