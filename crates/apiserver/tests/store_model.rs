//! Random writes against a naive model: whatever is written, reads, lists at every revision and watches from every
//! revision agree with a plain replay of what happened. The store on disk is closed and opened again in between.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use ferrovirt_apiserver::store::{
    Body, Change, Expect, Key, ListError, Page, Revision, Store, StoreOptions, WatchError, Write, WriteError,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const RESOURCES: [&str; 2] = ["/pods", "kubevirt.io/virtualmachines"];
// Their order as storage paths is not their order as texts.
const NAMESPACES: [&str; 4] = ["a", "a-b", "a.b", ""];
const NAMES: [&str; 4] = ["x", "x-1", "x.y", "z"];

#[derive(Clone, Debug)]
enum Step {
    Write {
        key: Key,
        expect: Wish,
        delete: bool,
        payload: u8,
    },
    /// Compacts to this share of the history.
    Compact(u8),
    Reopen,
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Any,
    Absent,
    Current,
    Stale,
}

fn step() -> impl Strategy<Value = Step> {
    let key = (0..RESOURCES.len(), 0..NAMESPACES.len(), 0..NAMES.len())
        .prop_map(|(r, ns, n)| Key::new(RESOURCES[r], NAMESPACES[ns], NAMES[n]));
    let wish =
        prop_oneof![4 => Just(Wish::Any), 2 => Just(Wish::Absent), 3 => Just(Wish::Current), 1 => Just(Wish::Stale)];
    let write = (key, wish, proptest::bool::weighted(0.3), any::<u8>())
        .prop_map(|(key, expect, delete, payload)| Step::Write { key, expect, delete, payload });
    prop_oneof![40 => write, 1 => any::<u8>().prop_map(Step::Compact), 1 => Just(Step::Reopen)]
}

/// What an object should be.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    created: Revision,
    revision: Revision,
    value: Value,
}

/// All that ever happened; everything else is derived by replay.
struct Model {
    log: Vec<(Revision, Key, Option<Expected>)>,
    head: Revision,
    compacted: Revision,
}

type ModelState = BTreeMap<Key, Expected>;

impl Model {
    fn at(&self, revision: Revision) -> ModelState {
        let mut state = ModelState::new();
        for (_, key, object) in self.log.iter().take_while(|(r, ..)| *r <= revision) {
            match object {
                Some(object) => drop(state.insert(key.clone(), object.clone())),
                None => drop(state.remove(key)),
            }
        }
        state
    }

    fn list(&self, resource: &str, namespace: Option<&str>, revision: Revision) -> Vec<Value> {
        let mut found: Vec<(String, Value)> = self
            .at(revision)
            .into_iter()
            .filter(|(key, _)| &*key.resource == resource && namespace.is_none_or(|ns| ns == &*key.namespace))
            .map(|(key, object)| (format!("{}/{}", key.namespace, key.name), shown(&object)))
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// What a write should answer; a write that succeeds is recorded.
    fn write(&mut self, write: &Write, value: &Value) -> Result<(), &'static str> {
        let current = self.at(self.head).remove(&write.key);
        match (write.expect, &current) {
            (Expect::Absent, Some(_)) => return Err("exists"),
            (Expect::Revision(_), None) => return Err("missing"),
            (Expect::Revision(r), Some(current)) if r != current.revision => return Err("changed"),
            _ => {}
        }
        let revision = self.head + 1;
        let object = match write.change {
            Change::Put(_) => {
                let created = current.map_or(revision, |current| current.created);
                Some(Expected { created, revision, value: value.clone() })
            }
            Change::Delete if current.is_none() => return Err("missing"),
            Change::Delete => None,
        };
        self.head = revision;
        self.log.push((revision, write.key.clone(), object));
        Ok(())
    }
}

fn shown(object: &Expected) -> Value {
    let mut value = object.value.clone();
    value["metadata"]["resourceVersion"] = json!(object.revision.to_string());
    value
}

fn values(page: &Page) -> Vec<Value> {
    page.objects.iter().map(|object| object.value()).collect()
}

async fn run_write(store: &Store, model: &mut Model, step: (Key, Wish, bool, u8)) {
    let (key, wish, delete, payload) = step;
    let current = store.get(&key).map_or(0, |object| object.revision);
    let expect = match wish {
        Wish::Any => Expect::Any,
        Wish::Absent => Expect::Absent,
        Wish::Current => Expect::Revision(current),
        Wish::Stale => Expect::Revision(current.saturating_sub(1)),
    };
    let value = json!({
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "labels": {"payload": payload.to_string()}},
        "spec": {"text": "é\"\\".repeat(usize::from(payload) % 5)},
    });
    let change = if delete { Change::Delete } else { Change::Put(Body::encode(&value)) };
    let write = Write { key, expect, change };
    let before = model.at(model.head).remove(&write.key);
    let expected = model.write(&write, &value);
    match store.write(write.clone()).await {
        Ok(committed) => {
            assert_eq!(expected, Ok(()));
            assert_eq!(committed.revision, model.head);
            assert_eq!(committed.previous.as_ref().map(|object| object.value()), before.as_ref().map(shown));
            assert_eq!(committed.object.is_none(), delete);
            assert_eq!(store.get(&write.key), committed.object);
        }
        Err(WriteError::Exists(object)) => {
            assert_eq!(expected, Err("exists"));
            assert_eq!(Some(object.value()), before.as_ref().map(shown));
        }
        Err(WriteError::Changed(object)) => {
            assert_eq!(expected, Err("changed"));
            assert_eq!(Some(object.value()), before.as_ref().map(shown));
        }
        Err(WriteError::Missing) => assert_eq!(expected, Err("missing")),
        Err(other) => panic!("{other}"),
    }
    assert_eq!(store.revision(), model.head);
}

/// Pages through a list with a small limit and puts the pages together.
fn paged(store: &Store, resource: &str, namespace: Option<&str>, at: Revision, limit: usize) -> Vec<Value> {
    let mut all = Vec::new();
    let mut after: Option<(String, String)> = None;
    let total = store.list(resource, namespace, Some(at), None, None).unwrap().objects.len();
    loop {
        let position = after.as_ref().map(|(namespace, name)| (&**namespace, &**name));
        let page = store.list(resource, namespace, Some(at), position, Some(limit)).unwrap();
        assert_eq!(page.revision, at);
        all.extend(values(&page));
        assert_eq!(page.remaining, total - all.len());
        assert_eq!(page.next, page.remaining > 0);
        let Some(last) = page.objects.last().filter(|_| page.next) else {
            return all;
        };
        after = Some((last.namespace().to_owned(), last.name().to_owned()));
    }
}

fn check_reads(store: &Store, model: &Model) {
    let now = model.at(model.head);
    for (key, object) in &now {
        let found = store.get(key).unwrap();
        assert_eq!(found.value(), shown(object));
        assert_eq!((found.created, found.revision), (object.created, object.revision));
        assert_eq!(found.label("payload"), object.value["metadata"]["labels"]["payload"].as_str());
        assert_eq!(serde_json::from_slice::<Value>(&found.to_json()).unwrap(), shown(object));
    }
    let mut resources: Vec<&str> = now.keys().map(|key| &*key.resource).collect();
    resources.dedup();
    assert_eq!(store.resources().iter().map(|name| &**name).collect::<Vec<_>>(), resources);

    for resource in RESOURCES {
        for namespace in NAMESPACES.into_iter().map(Some).chain([None, Some("nowhere")]) {
            assert_eq!(store.count(resource, namespace), model.list(resource, namespace, model.head).len());
            assert_eq!(
                values(&store.list(resource, namespace, None, None, None).unwrap()),
                model.list(resource, namespace, model.head)
            );
            for at in model.compacted.max(1)..=model.head {
                assert_eq!(paged(store, resource, namespace, at, 3), model.list(resource, namespace, at), "at {at}");
            }
        }
        let future = store.list(resource, None, Some(model.head + 1), None, None);
        assert_eq!(future.unwrap_err(), ListError::Future { at: model.head + 1, head: model.head });
        if model.compacted > 1 {
            let compacted = store.list(resource, None, Some(model.compacted - 1), None, None);
            assert!(matches!(compacted, Err(ListError::Compacted { .. })));
        }
    }
}

async fn check_watches(store: &Store, model: &Model) {
    for resource in RESOURCES {
        for namespace in [None, Some("a"), Some("a-b"), Some("")] {
            for from in model.compacted.max(1)..=model.head {
                let mut watch = store.watch(resource, namespace, from).unwrap();
                for (revision, key, object) in model.log.iter().filter(|(revision, key, _)| {
                    *revision > from && &*key.resource == resource && namespace.is_none_or(|ns| ns == &*key.namespace)
                }) {
                    let event = watch.next().await.unwrap();
                    assert_eq!((event.revision, &event.key), (*revision, key));
                    assert_eq!(event.object.as_ref().map(|o| o.value()), object.as_ref().map(shown));
                    let previous = model.at(revision - 1).remove(key);
                    assert_eq!(event.previous.as_ref().map(|o| o.value()), previous.as_ref().map(shown));
                }
                assert_eq!(watch.try_next().unwrap(), None);
                assert_eq!(watch.progress().unwrap(), model.head);
            }
        }
        let future = store.watch(resource, None, model.head + 1).err();
        assert_eq!(future, Some(WatchError::Future { from: model.head + 1, head: model.head }));
        if model.compacted > 1 {
            let compacted = store.watch(resource, None, model.compacted - 1).err();
            assert!(matches!(compacted, Some(WatchError::Compacted { .. })));
        }
    }
}

/// Runs the steps on a store in memory, or on one in `directory`.
async fn run(steps: Vec<Step>, directory: Option<&std::path::Path>) {
    let open = || match directory {
        Some(directory) => Store::open(directory, StoreOptions::default()).unwrap(),
        None => Store::memory(),
    };
    let mut store = open();
    let mut model = Model { log: Vec::new(), head: store.revision(), compacted: 0 };
    assert!(model.head > 0);
    for step in steps {
        match step {
            Step::Write { key, expect, delete, payload } => {
                run_write(&store, &mut model, (key, expect, delete, payload)).await;
            }
            Step::Compact(share) => {
                let upto = model.head * Revision::from(share) / 255;
                model.compacted = model.compacted.max(upto);
                assert_eq!(store.compact(upto).await.unwrap(), model.compacted);
            }
            Step::Reopen if directory.is_some() => {
                drop(store);
                store = open();
                assert_eq!((store.revision(), store.compacted()), (model.head, model.compacted));
            }
            Step::Reopen => {}
        }
    }
    check_reads(&store, &model);
    check_watches(&store, &model).await;
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn memory_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..60)) {
        block_on(run(steps, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 64, ..ProptestConfig::default() })]
    #[test]
    fn disk_agrees_with_the_model(steps in proptest::collection::vec(step(), 0..60)) {
        let directory = tempfile::tempdir().unwrap();
        block_on(run(steps, Some(directory.path())));
    }
}
