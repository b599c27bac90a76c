//! The cache against a plain scan, and what its subscribers hear.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrovirt_kubernetes::json::FromJson;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod(name: &str, uid: &str, version: u64, node: &str) -> Pod {
    let mut pod = Pod {
        metadata: ObjectMeta {
            namespace: Some("shop".into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            managed_fields: Some(Vec::new()),
            labels: Some(BTreeMap::from([("app".to_owned(), name.to_owned())])),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    };
    if !node.is_empty() {
        pod.spec = Some(k8s_openapi::api::core::v1::PodSpec { node_name: Some(node.into()), ..Default::default() });
    }
    pod
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

fn cache() -> (Cache<Pod>, Index<Pod, String>) {
    let mut builder = Cache::builder();
    let by_node = builder.index(node_of);
    (builder.build(), by_node)
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
}

/// What subscribers hear, in short: `key old>new` by uid and version.
fn log(cache: &Cache<Pod>) -> Arc<Mutex<Vec<String>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = log.clone();
    cache.on_change(move |change| {
        let side = |pod: &Option<Arc<Pod>>| {
            pod.as_ref().map_or("-".to_owned(), |pod| {
                let meta = &pod.metadata;
                format!("{}@{}", meta.uid.as_deref().unwrap(), meta.resource_version.as_deref().unwrap())
            })
        };
        sink.lock().push(format!("{} {}>{}", change.key.name(), side(&change.old), side(&change.new)));
    });
    log
}

#[test]
fn managed_fields_and_trimmings_never_enter_the_store() {
    let mut builder = Cache::<Pod>::builder();
    builder.trim(|pod| pod.metadata.labels = None);
    let cache = builder.build();
    cache.handle(Event::Apply(pod("a", "1", 1, "")));
    let held = cache.get("shop", "a").unwrap();
    assert_eq!((&held.metadata.managed_fields, &held.metadata.labels), (&None, &None));
}

#[test]
fn a_relist_reports_what_vanished_and_is_silent_about_the_rest() {
    let (cache, by_node) = cache();
    for event in [Event::Init, Event::InitApply(pod("a", "1", 1, "n1")), Event::InitApply(pod("b", "2", 2, "n1"))] {
        cache.handle(event);
    }
    assert!(!cache.is_synced());
    cache.handle(Event::InitDone);
    assert!(cache.is_synced());
    let log = log(&cache);
    assert_eq!(std::mem::take(&mut *log.lock()), ["a ->1@1", "b ->2@2"], "a late subscriber hears what is there");

    cache.handle(Event::Init);
    cache.handle(Event::InitApply(pod("b", "2", 2, "n1")));
    // This listing breaks off; only the next one counts.
    cache.handle(Event::Init);
    cache.handle(Event::InitApply(pod("c", "3", 5, "n2")));
    cache.handle(Event::InitApply(pod("b", "2", 2, "n1")));
    cache.handle(Event::InitDone);
    assert_eq!(*log.lock(), ["c ->3@5", "a 1@1>-"]);
    assert_eq!(names(&cache.by(&by_node, "n1")), ["b"]);
}

#[test]
fn old_news_is_ignored_but_a_listing_is_believed() {
    let (cache, _) = cache();
    let log = log(&cache);
    cache.handle(Event::Apply(pod("a", "1", 7, "")));
    cache.handle(Event::Apply(pod("a", "1", 6, "")));
    cache.handle(Event::Apply(pod("a", "1", 7, "")));
    cache.handle(Event::Delete(pod("a", "0", 5, "")));
    assert_eq!(*log.lock(), ["a ->1@7"]);
    cache.handle(Event::Init);
    cache.handle(Event::InitApply(pod("a", "1", 3, "")));
    cache.handle(Event::InitDone);
    assert_eq!(*log.lock(), ["a ->1@7", "a 1@7>1@3"]);
}

#[test]
fn an_object_made_again_under_its_name_is_a_deletion_and_a_creation() {
    let (cache, by_node) = cache();
    let log = log(&cache);
    cache.handle(Event::Apply(pod("a", "1", 1, "n1")));
    cache.handle(Event::Apply(pod("a", "2", 9, "n2")));
    assert_eq!(*log.lock(), ["a ->1@1", "a 1@1>-", "a ->2@9"]);
    assert_eq!((cache.count_by(&by_node, "n1"), cache.count_by(&by_node, "n2")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_queue_hears_of_the_owner_that_lost_the_object_too() {
    let (cache, _) = cache();
    let queue = Queue::<String>::default();
    cache.handle(Event::Init);
    cache.handle(Event::InitDone);
    cache.feed(&queue, node_of);
    cache.handle(Event::Apply(pod("a", "1", 1, "n1")));
    queue.try_next().unwrap().done();
    cache.handle(Event::Apply(pod("a", "1", 2, "n2")));
    let mut woken = BTreeSet::new();
    while let Some(ticket) = queue.try_next() {
        woken.insert(ticket.key().clone());
        ticket.done();
    }
    assert_eq!(woken, BTreeSet::from(["n1".to_owned(), "n2".to_owned()]));
    cache.handle(Event::Delete(pod("a", "1", 3, "n2")));
    assert_eq!(queue.try_next().unwrap().key(), "n2");
}

#[tokio::test(start_paused = true)]
async fn a_failing_watch_pauses_longer_each_time_and_recovers() {
    let (cache, _) = cache();
    let start = tokio::time::Instant::now();
    let mut attempts = 0;
    let events = futures::stream::poll_fn(move |_| {
        attempts += 1;
        std::task::Poll::Ready(match attempts {
            1 | 3 | 5 => Some(Ok(Event::Init)),
            2 | 4 => Some(Err(watcher::Error::NoResourceVersion)),
            6 => Some(Ok(Event::InitDone)),
            _ => None,
        })
    });
    let events = Mutex::new(Some(events.boxed()));
    follow("pods", &filled(&cache), || events.lock().take().unwrap()).await;
    assert!(cache.is_synced());
    // Two pauses of 1 s and 2 s, each shortened by at most a quarter, on the paused clock.
    assert!((2250..=3000).contains(&start.elapsed().as_millis()));
}

fn filled(cache: &Cache<Pod>) -> Filled<Pod> {
    Filled { cache: cache.clone(), read: FromJson::from_json }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_not_taken_for_deleted() {
    let (cache, _) = cache();
    cache.handle(Event::Init);
    cache.handle(Event::InitApply(pod("a", "1", 1, "n1")));
    let document = |value: Value| serde_json::from_value::<Document>(value).unwrap();
    let metadata = json!({"namespace": "shop", "name": "a", "uid": "1", "resourceVersion": "9"});
    let good = json!({"metadata": metadata, "spec": {"nodeName": "n2", "containers": []}});
    let bad = json!({"metadata": metadata, "spec": "nonsense"});
    let listing =
        |value: &Value| vec![Ok(Event::Init), Ok(Event::InitApply(document(value.clone()))), Ok(Event::InitDone)];
    // Each attempt is a listing; the third one can be read.
    let opened = AtomicUsize::new(0);
    follow("pods", &filled(&cache), || {
        let attempt = opened.fetch_add(1, Ordering::Relaxed);
        assert!(!cache.is_synced(), "attempt {attempt}");
        futures::stream::iter(listing(if attempt < 2 { &bad } else { &good })).boxed()
    })
    .await;
    assert_eq!(opened.into_inner(), 3);
    assert!(cache.is_synced());
    assert_eq!(cache.get("shop", "a").unwrap().spec.as_ref().unwrap().node_name.as_deref(), Some("n2"));
}

#[test]
fn dynamic_and_metadata_only_objects_work_too() {
    let dynamic = Cache::<DynamicObject>::builder().build();
    let object = DynamicObject::new("a", &ApiResource::erase::<ConfigMap>(&())).within("shop");
    dynamic.handle(Event::Apply(object));
    assert!(dynamic.get("shop", "a").is_some());

    let metadata = Cache::<kube::core::PartialObjectMeta<Pod>>::builder().build();
    let partial = kube::core::PartialObjectMeta { metadata: pod("a", "1", 1, "").metadata, ..Default::default() };
    metadata.handle(Event::Apply(partial));
    assert_eq!(metadata.all().len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Apply(u8, u8, u8),
    Delete(u8),
    Relist(Vec<(u8, u8, u8)>),
}

fn step() -> impl Strategy<Value = Step> {
    let object = || (0..6u8, 0..2u8, 0..3u8);
    prop_oneof![
        5 => object().prop_map(|(name, uid, node)| Step::Apply(name, uid, node)),
        2 => (0..6u8).prop_map(Step::Delete),
        1 => proptest::collection::vec(object(), 0..6).prop_map(Step::Relist),
    ]
}

proptest! {
    /// After any history, each index equals a scan of the store, and replaying the changes gives the store.
    #[test]
    fn indexes_equal_a_scan(steps in proptest::collection::vec(step(), 1..60)) {
        let (cache, by_node) = cache();
        let replayed = Arc::new(Mutex::new(BTreeMap::<String, String>::new()));
        let sink = replayed.clone();
        let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone().unwrap();
        cache.on_change(move |change| {
            let mut replayed = sink.lock();
            let key = change.key.name().to_owned();
            // Whoever only hears the changes is never told to go from a state that he is not in.
            assert_eq!(replayed.get(&key), change.old.as_ref().map(uid).as_ref());
            match &change.new {
                Some(new) => replayed.insert(key, uid(new)),
                None => replayed.remove(&key),
            };
        });
        let mut version = 0;
        let mut make = |name: u8, uid: u8, node: u8| {
            version += 1;
            pod(&format!("p{name}"), &format!("{name}-{uid}"), version, ["", "n1", "n2"][usize::from(node)])
        };
        let mut expected = BTreeMap::<String, Pod>::new();
        for step in steps {
            match step {
                Step::Apply(name, uid, node) => {
                    let pod = make(name, uid, node);
                    expected.insert(format!("p{name}"), pod.clone());
                    cache.handle(Event::Apply(pod));
                }
                Step::Delete(name) => {
                    if let Some(pod) = expected.remove(&format!("p{name}")) {
                        cache.handle(Event::Delete(pod));
                    }
                }
                Step::Relist(objects) => {
                    expected.clear();
                    cache.handle(Event::Init);
                    for (name, uid, node) in objects {
                        let pod = make(name, uid, node);
                        expected.insert(format!("p{name}"), pod.clone());
                        cache.handle(Event::InitApply(pod));
                    }
                    cache.handle(Event::InitDone);
                }
            }
            prop_assert_eq!(names(&cache.all()), expected.keys().cloned().collect::<Vec<_>>());
            for node in ["n1", "n2"] {
                let on_node = expected.iter().filter(|(_, pod)| node_of(pod).as_deref() == Some(node));
                let scan: Vec<_> = on_node.map(|(name, _)| name.clone()).collect();
                prop_assert_eq!(cache.count_by(&by_node, node), scan.len());
                prop_assert_eq!(names(&cache.by(&by_node, node)), scan);
            }
            prop_assert_eq!(replayed.lock().len(), expected.len());
        }
    }
}
