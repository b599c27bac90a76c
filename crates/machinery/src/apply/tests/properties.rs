//! What must hold for any objects and any order of writes.

use proptest::prelude::*;

use super::*;

prop_compose! {
    fn item()(id in "[a-d]", proto in prop::option::of("TCP|UDP"), value in prop::option::of(0i64..3)) -> Value {
        let mut item = json!({"id": id});
        if let Some(proto) = proto { item["proto"] = json!(proto); }
        if let Some(value) = value { item["value"] = json!(value); }
        item
    }
}

fn unique_items() -> impl Strategy<Value = Value> {
    prop::collection::vec(item(), 0..5).prop_map(|items| {
        let mut seen = std::collections::BTreeSet::new();
        let key = |item: &Value| format!("{}/{}", item["id"], item.get("proto").unwrap_or(&json!("TCP")));
        Value::Array(items.into_iter().filter(|item| seen.insert(key(item))).collect())
    })
}

fn free_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(0i64..3).prop_map(Value::from), Just(json!("x")), Just(json!(true)), Just(json!([1, 2]))];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop::collection::btree_map("[a-c]", inner, 0..3)
            .prop_map(|members| Value::Object(members.into_iter().collect()))
    })
}

/// A valid configuration that sets some of the fields.
fn spec() -> impl Strategy<Value = Value> {
    let fields = (
        prop::option::of((0i64..3).prop_map(Value::from)),
        prop::option::of(prop::collection::btree_set("[a-d]", 0..4).prop_map(|tags| json!(tags))),
        prop::option::of(unique_items()),
        prop::option::of(prop::collection::vec(0i64..3, 0..3).prop_map(|list| json!(list))),
        prop::option::of(prop::collection::btree_map("[ab]", 0i64..3, 0..3).prop_map(|map| json!(map))),
        prop::option::of(prop::collection::btree_map("[a-c]", "[xy]", 0..3).prop_map(|map| json!(map))),
        prop::option::of(prop::collection::btree_map("[a-c]", free_value(), 0..3).prop_map(|map| json!(map))),
    );
    fields.prop_map(|(count, tags, items, plain, atom, free, any)| {
        let named = [
            ("count", count),
            ("tags", tags),
            ("items", items),
            ("plain", plain),
            ("atom", atom),
            ("free", free),
            ("any", any),
        ];
        Value::Object(named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
    })
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    let name = prop::sample::select(vec![
        "spec",
        "items",
        "tags",
        "atom",
        "free",
        "any",
        "id",
        "proto",
        "metadata",
        "managedFields",
        "labels",
        "status",
    ]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn without_entries(object: &Value) -> Value {
    let mut object = object.clone();
    entries::take(&mut object);
    object
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(first in spec(), second in spec()) {
        let live = applied(None, first, "one", true).unwrap();
        let once = applied(Some(&live), second.clone(), "two", true).unwrap();
        let twice = applied(Some(&once), second, "two", false).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn the_last_to_apply_by_force_has_its_way(first in spec(), second in spec()) {
        let live = applied(None, first, "one", true).unwrap();
        let object = applied(Some(&live), second.clone(), "two", true).unwrap();
        // What was applied is there: applying it again in the eyes of anyone changes nothing.
        prop_assert_eq!(&merge(Some(schema()), &object, &widget(second)), &object);
    }

    #[test]
    fn leaving_undoes_applying(first in spec(), second in spec()) {
        // Nobody owns an empty list that merges, so it may go when its surroundings do.
        let has_empty = |spec: &Value| ["items", "tags"].iter().any(|name| spec.get(name) == Some(&json!([])));
        prop_assume!(!has_empty(&first) && !has_empty(&second));
        let live = applied(None, first.clone(), "one", false).unwrap();
        // Only what does not conflict can be undone.
        if let Ok(both) = applied(Some(&live), second, "two", false) {
            let left = applied(Some(&both), json!({}), "two", false).unwrap();
            let left_alone = without_entries(&left);
            let merged = merge(Some(schema()), &left_alone, &widget(first));
            // What the first applied is still there, if perhaps in another order.
            prop_assert!(compare(Some(schema()), Some(&left_alone), &merged).is_same(), "{merged}");
            prop_assert_eq!(owned(&left, "two"), &json!({}));
        }
    }

    #[test]
    fn disjoint_appliers_commute(count in 0i64..9, free in prop::collection::btree_map("[a-c]", "[xy]", 0..3), other in prop::collection::btree_map("[d-f]", "[xy]", 0..3), tags in prop::collection::btree_set("[a-c]", 0..3)) {
        let (one, two) = (json!({"count": count, "free": free}), json!({"free": other, "tags": tags}));
        let order = |first: (&str, &Value), second: (&str, &Value)| {
            let live = applied(None, first.1.clone(), first.0, false).unwrap();
            applied(Some(&live), second.1.clone(), second.0, false).unwrap()
        };
        prop_assert_eq!(order(("one", &one), ("two", &two)), order(("two", &two), ("one", &one)));
    }

    #[test]
    fn conflicts_are_what_force_takes_over(first in spec(), second in spec()) {
        let live = applied(None, first, "one", false).unwrap();
        let forced = applied(Some(&live), second.clone(), "two", true).unwrap();
        match applied(Some(&live), second, "two", false) {
            Ok(object) => prop_assert_eq!(object, forced),
            Err(ApplyError::Conflicts(conflicts)) => {
                let set = |object: &Value| FieldSet::from_fields_v1(&json!({"f:spec": owned(object, "one")})).unwrap();
                let lost = set(&live).difference(&set(&forced));
                for conflict in &conflicts {
                    prop_assert!(lost.paths().iter().any(|path| path::path_text(path) == conflict.field), "{}", conflict.field);
                }
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn every_field_has_an_owner_after_any_updates(specs in prop::collection::vec(spec(), 1..5)) {
        let mut live: Option<Value> = None;
        for (index, spec) in specs.into_iter().enumerate() {
            let mut new = widget(spec);
            stored(&mut new, live.as_ref(), ["a", "b", "c"][index % 3]);
            live = Some(new);
        }
        let live = live.unwrap();
        let entries = entries::read(entries::of(&live).cloned().unwrap()).unwrap();
        let owned = entries.iter().fold(FieldSet::new(), |all, entry| all.union(&entry.set().unwrap()));
        let present = field_set(Some(schema()), &without_entries(&live)).difference(unowned());
        prop_assert_eq!(present.difference(&owned), FieldSet::new());
    }

    #[test]
    fn nothing_panics(live in arbitrary_json(), new in arbitrary_json(), is_create in any::<bool>()) {
        let live = (!is_create).then_some(&live);
        let mut written = new.clone();
        update(schema(), live, &mut written, &writer("any"));
        let mut config = new;
        if config.is_object() {
            config["apiVersion"] = json!("example.com/v1");
            config["kind"] = json!("Widget");
        }
        let _ = apply(schema(), live, &config, &ApplyOptions { writer: writer("any"), kind: "Widget", force: true });
    }
}
