use proptest::prelude::*;
use serde_json::json;

use super::*;

fn fields(paths: &[&[&str]]) -> FieldSet {
    FieldSet::of_fields(paths)
}

#[test]
fn the_wire_form_marks_members_with_children() {
    let set = fields(&[&["metadata", "labels"], &["metadata", "labels", "app"], &["spec", "replicas"]]);
    let wire = json!({"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:replicas": {}}});
    assert_eq!(set.to_fields_v1(), wire);
    assert_eq!(FieldSet::from_fields_v1(&wire).unwrap(), set);
}

#[test]
fn elements_of_lists_have_their_own_form() {
    let wire = json!({"f:ports": {
        ".": {},
        r#"k:{"containerPort":443,"protocol":"TCP"}"#: {".": {}, "f:name": {}},
        r#"k:{"containerPort":80,"protocol":"TCP"}"#: {},
        r#"v:"x""#: {},
    }});
    let set = FieldSet::from_fields_v1(&wire).unwrap();
    assert_eq!(set.to_fields_v1(), wire);
    let texts: Vec<String> = set.paths().iter().map(|path| super::super::path::path_text(path)).collect();
    // Members of a level come first, and numbers sort by size.
    assert_eq!(
        texts,
        [
            ".ports",
            r#".ports[containerPort=80,protocol="TCP"]"#,
            r#".ports[containerPort=443,protocol="TCP"]"#,
            r#".ports[="x"]"#,
            r#".ports[containerPort=443,protocol="TCP"].name"#,
        ]
    );
}

#[test]
fn what_cannot_be_read_is_an_error_and_what_is_new_is_skipped() {
    for bad in [json!(1), json!({"spec": {}}), json!({"f:spec": 1}), json!({"f:spec": {"k:x": {}}})] {
        assert!(FieldSet::from_fields_v1(&bad).is_err(), "{bad}");
    }
    assert_eq!(FieldSet::from_fields_v1(&json!({"q:new": {"f:x": {}}, "f:a": {}})).unwrap(), fields(&[&["a"]]));
    assert_eq!(FieldSet::from_fields_v1(&json!(null)).unwrap(), FieldSet::new());
}

#[test]
fn differences_with_and_without_what_is_below() {
    let set = fields(&[&["a"], &["a", "b"], &["a", "c"], &["d"]]);
    assert_eq!(set.difference(&fields(&[&["a"], &["d"]])), fields(&[&["a", "b"], &["a", "c"]]));
    assert_eq!(set.recursive_difference(&fields(&[&["a"]])), fields(&[&["d"]]));
    assert_eq!(set.recursive_difference(&fields(&[&["a", "b"]])), fields(&[&["a"], &["a", "c"], &["d"]]));
    assert_eq!(set.recursive_intersection(&fields(&[&["a"]])), fields(&[&["a"], &["a", "b"], &["a", "c"]]));
    assert_eq!(set.leaves(), fields(&[&["a", "b"], &["a", "c"], &["d"]]));
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        6 => "[a-d<:.]{0,3}".prop_map(PathElement::Field),
        2 => ("[a-c]", any::<i64>(), "[a-c]{0,2}").prop_map(|(name, number, text)| {
            PathElement::Key(vec![(name, json!(number)), ("z".into(), json!(text))])
        }),
        1 => any::<bool>().prop_map(|value| PathElement::Value(json!(value))),
        1 => "\\PC{0,4}".prop_map(|value| PathElement::Value(json!(value))),
        1 => (0i64..3).prop_map(PathElement::Index),
    ]
}

prop_compose! {
    fn field_set()(paths in prop::collection::vec(prop::collection::vec(element(), 1..4), 0..12)) -> FieldSet {
        let mut set = FieldSet::new();
        for path in &paths {
            set.insert(path);
        }
        set
    }
}

proptest! {
    #[test]
    fn reading_what_was_written_gives_the_same(set in field_set()) {
        prop_assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()).unwrap(), set);
    }

    #[test]
    fn members_are_those_inserted(set in field_set()) {
        let paths = set.paths();
        prop_assert_eq!(paths.len(), set.len());
        prop_assert!(paths.iter().all(|path| set.has(path)));
        let mut again = FieldSet::new();
        for path in paths.iter().rev() {
            again.insert(path);
        }
        prop_assert_eq!(again, set);
    }

    #[test]
    fn laws_of_sets(a in field_set(), b in field_set(), c in field_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert_eq!(a.difference(&a), FieldSet::new());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert_eq!(a.difference(&b).intersection(&b), FieldSet::new());
        prop_assert_eq!(a.difference(&b.union(&c)), a.difference(&b).difference(&c));
        prop_assert_eq!(a.recursive_difference(&b).union(&a.recursive_intersection(&b)), a.clone());
    }

    #[test]
    fn touching_is_never_missed(a in field_set(), b in field_set()) {
        if a.difference(&b) != a {
            prop_assert!(b.touches(&a.to_fields_v1()));
        }
    }

    #[test]
    fn anything_can_be_read_without_panic(text in "[fkvi.x]:\\PC{0,12}") {
        let _ = FieldSet::from_fields_v1(&json!({ text: {} }));
    }
}
