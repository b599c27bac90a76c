//! The faults that the simulator sets: lag, repetition, loss, broken watches, reads from the past.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ferrovirt_apiserver::store::{Body, Change, Expect, Key, Revision, Store, Watch, WatchError, Write, WriteError};
use serde_json::json;

const PODS: &str = "/pods";
const NODES: &str = "/nodes";

fn key(resource: &str) -> Key {
    Key::new(resource, "", "x")
}

async fn put(store: &Store, resource: &str) -> Revision {
    let body = Body::encode(&json!({"metadata": {"name": "x"}, "n": store.revision()}));
    store.write(Write { key: key(resource), expect: Expect::Any, change: Change::Put(body) }).await.unwrap().revision
}

fn seen(watch: &mut Watch) -> Vec<Revision> {
    let mut events = Vec::new();
    watch.drain(usize::MAX, &mut events).unwrap();
    events.iter().map(|event| event.revision).collect()
}

#[tokio::test]
async fn a_held_watch_lags_until_it_is_released() {
    let store = Store::memory();
    let mut pods = store.watch(PODS, None, 1).unwrap();
    let mut nodes = store.watch(NODES, None, 1).unwrap();
    let first = put(&store, PODS).await;
    store.faults().hold(PODS);
    let second = put(&store, PODS).await;
    let node = put(&store, NODES).await;
    let third = put(&store, PODS).await;
    assert_eq!(seen(&mut pods), [first]);
    assert_eq!(pods.progress().unwrap(), first, "a bookmark must not run ahead");
    assert_eq!(seen(&mut nodes), [node], "other resources do not lag");
    assert_eq!(store.get(&key(PODS)).unwrap().revision, third, "reads do not lag");

    store.faults().release_some(PODS, 1);
    assert_eq!(seen(&mut pods), [second]);
    let waiting = tokio::spawn(async move { (pods.next().await, pods) });
    tokio::task::yield_now().await;
    store.faults().release(PODS);
    let (event, mut pods) = waiting.await.unwrap();
    assert_eq!(event.unwrap().revision, third, "a release wakes watches that wait");
    assert!(seen(&mut pods).is_empty());
}

#[tokio::test]
async fn events_are_repeated_and_dropped() {
    let store = Store::memory();
    store.faults().repeat_every(PODS, 2);
    let mut watch = store.watch(PODS, None, 1).unwrap();
    let mut revisions = Vec::new();
    for _ in 0..4 {
        revisions.push(put(&store, PODS).await);
    }
    let [a, b, c, d] = revisions[..] else { unreachable!() };
    assert_eq!(watch.next().await.unwrap().revision, a);
    assert_eq!(watch.next().await.unwrap().revision, b);
    assert_eq!(watch.next().await.unwrap().revision, b);
    assert_eq!(seen(&mut watch), [c, d, d]);

    store.faults().repeat_every(PODS, 0);
    store.faults().drop_every(PODS, 3);
    let mut watch = store.watch(PODS, None, 1).unwrap();
    assert_eq!(seen(&mut watch), [a, b, d]);
    store.faults().clear();
    let mut watch = store.watch(PODS, None, 1).unwrap();
    assert_eq!(seen(&mut watch), [a, b, c, d]);
}

#[tokio::test]
async fn a_rewound_resource_is_served_from_the_past() {
    let store = Store::memory();
    let first = put(&store, PODS).await;
    let second = put(&store, PODS).await;
    let node = put(&store, NODES).await;
    store.faults().rewind(PODS, first);
    assert_eq!(store.get(&key(PODS)).unwrap().revision, first);
    assert_eq!(store.current(&key(PODS)).unwrap().revision, second);
    let page = store.list(PODS, None, None, None, None).unwrap();
    assert_eq!((page.revision, page.objects[0].revision), (first, first));
    assert_eq!(store.get(&key(NODES)).unwrap().revision, node);
    let mut watch = store.watch(PODS, None, 1).unwrap();
    assert_eq!(seen(&mut watch), [first]);

    // Writes meet the truth.
    let stale = Write { key: key(PODS), expect: Expect::Revision(first), change: Change::Delete };
    assert!(matches!(store.write(stale).await, Err(WriteError::Changed(object)) if object.revision == second));

    store.faults().rewind(PODS, 1);
    assert_eq!(store.get(&key(PODS)), None, "it did not exist yet");
    assert!(seen(&mut store.watch(PODS, None, 1).unwrap()).is_empty());
    store.faults().catch_up(PODS);
    assert_eq!(store.get(&key(PODS)).unwrap().revision, second);
    assert_eq!(seen(&mut watch), [second]);
}

#[tokio::test]
async fn open_watches_break_and_new_ones_work() {
    let store = Store::memory();
    let mut old = store.watch(PODS, None, 1).unwrap();
    let revision = put(&store, PODS).await;
    store.faults().disconnect(PODS);
    assert_eq!(old.next().await.err(), Some(WatchError::Closed));
    let mut new = store.watch(PODS, None, 1).unwrap();
    assert_eq!(seen(&mut new), [revision]);
}
