//! Expectations: what a controller has just done and its cache has not seen yet.
//!
//! A controller that creates a pod and is woken before the watch delivers that pod sees a world without it. Derived names keep
//! such a run harmless (at most AlreadyExists), expectations keep it from happening: a key is held back until the cache has
//! seen what was created or deleted for it, or until a timeout says that the watch is too slow to wait for.
//!
//! ```text
//!   expect_creation(owner, child)  ->  create call  ->  created(owner, child, uid)  ->  cache shows uid: fulfilled
//!                                              \----->  failed(owner, child)        ->  forgotten
//!   expect_deletion(owner, child, uid)  ->  delete call  ->  cache shows no uid, or shows it being deleted: fulfilled
//!   write call  ->  updated(owner, answer)  ->  cache shows that version or a later one: fulfilled
//! ```
//!
//! The last one is for objects that a controller writes itself, such as its owner's status: without it, the next run would
//! often write on top of the version before and be refused.
//!
//! Nobody needs to be woken by a fulfilled expectation: the change that fulfils it also feeds the owner's queue.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use kube::Resource;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    key::{ObjectKey, version_of},
    queue::QueueKey,
    watch::{Cache, Change},
};

/// How long a cache may lag before its controller stops waiting for it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// What owners with keys `Q` expect the cache of their children `K` to show soon. Clones share their state.
pub struct Expectations<Q, K> {
    cache: Cache<K>,
    timeout: Duration,
    pending: Arc<Mutex<Pending<Q>>>,
}

impl<Q, K> Clone for Expectations<Q, K> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), timeout: self.timeout, pending: self.pending.clone() }
    }
}

struct Pending<Q> {
    owners: HashMap<Q, BTreeMap<ObjectKey, Expectation>>,
    /// Who waits for a child, so that a change costs nothing when nobody does.
    waiting: HashMap<ObjectKey, BTreeSet<Q>>,
}

#[derive(Debug)]
struct Expectation {
    deadline: Instant,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The create call has not returned. `seen` are the uids that the watch has shown under this name meanwhile.
    Creating { seen: Vec<String> },
    /// The object exists with this uid.
    Created { uid: String },
    /// The object with this uid was asked to go.
    Deleted { uid: String },
    /// The object with this uid was written and then had this version.
    Updated { uid: String, version: u64 },
}

impl<Q: QueueKey, K: Resource + Send + Sync + 'static> Expectations<Q, K> {
    /// Expectations about the objects in `cache`, each given up after `timeout`.
    pub fn new(cache: &Cache<K>, timeout: Duration) -> Self {
        let pending = Arc::new(Mutex::new(Pending { owners: HashMap::new(), waiting: HashMap::new() }));
        let seen = pending.clone();
        cache.on_change(move |change| seen.lock().note(change));
        Self { cache: cache.clone(), timeout, pending }
    }

    /// To be called before `child` is created for `owner`.
    pub fn expect_creation(&self, owner: &Q, child: ObjectKey) {
        self.expect(owner, child, What::Creating { seen: Vec::new() });
    }

    /// The create call returned an object with `uid`, newly made or found.
    pub fn created(&self, owner: &Q, child: &ObjectKey, uid: &str) {
        let mut pending = self.pending.lock();
        let Some(expectation) = pending.get_mut(owner, child) else { return };
        if let What::Creating { seen } = &expectation.what {
            if seen.iter().any(|seen| seen == uid) {
                pending.remove(owner, child);
            } else {
                expectation.what = What::Created { uid: uid.to_owned() };
            }
        }
    }

    /// To be called before `child` with `uid` is deleted for `owner`.
    pub fn expect_deletion(&self, owner: &Q, child: ObjectKey, uid: &str) {
        self.expect(owner, child, What::Deleted { uid: uid.to_owned() });
    }

    /// A write returned `written`: the cache shall show that version or a later one.
    pub fn updated(&self, owner: &Q, written: &impl Resource) {
        let (Some(child), Some(uid)) = (ObjectKey::of(written), written.meta().uid.clone()) else { return };
        if let Some(version) = version_of(written) {
            self.expect(owner, child, What::Updated { uid, version });
        }
    }

    /// The call failed: nothing is to be expected of `child`.
    pub fn failed(&self, owner: &Q, child: &ObjectKey) {
        self.pending.lock().remove(owner, child);
    }

    /// Drops everything expected for an owner that is gone.
    pub fn forget(&self, owner: &Q) {
        let mut pending = self.pending.lock();
        for child in pending.children(owner) {
            pending.remove(owner, &child);
        }
    }

    /// How much longer `owner` should be held back at most; `None` when the cache has caught up (or time is over).
    pub fn hold(&self, owner: &Q) -> Option<Duration> {
        let now = Instant::now();
        let mut pending = self.pending.lock();
        // The last deadline: a run before everything is seen or given up would again be a run with half a view.
        let mut hold = None;
        for child in pending.children(owner) {
            let Some(Expectation { deadline, what }) = pending.get_mut(owner, &child) else { continue };
            if *deadline <= now || self.shows(&child, what) {
                pending.remove(owner, &child);
            } else {
                hold = hold.max(Some(*deadline - now));
            }
        }
        hold
    }

    /// Whether the cache shows the outcome right now. Events alone do not tell: the object may have been there before the call.
    fn shows(&self, child: &ObjectKey, what: &What) -> bool {
        let held = self.cache.get_key(child);
        let held_uid = held.as_ref().and_then(|held| held.meta().uid.as_deref());
        match what {
            What::Creating { .. } => false,
            What::Created { uid } => held_uid == Some(uid),
            What::Deleted { uid } => {
                held_uid != Some(uid) || held.is_some_and(|held| held.meta().deletion_timestamp.is_some())
            }
            What::Updated { uid, version } => {
                held_uid != Some(uid) || held.is_none_or(|held| version_of(&*held).is_none_or(|held| held >= *version))
            }
        }
    }

    fn expect(&self, owner: &Q, child: ObjectKey, what: What) {
        let expectation = Expectation { deadline: Instant::now() + self.timeout, what };
        self.pending.lock().insert(owner, child, expectation);
    }
}

impl<Q: QueueKey> Pending<Q> {
    fn insert(&mut self, owner: &Q, child: ObjectKey, expectation: Expectation) {
        self.waiting.entry(child.clone()).or_default().insert(owner.clone());
        self.owners.entry(owner.clone()).or_default().insert(child, expectation);
    }

    fn get_mut(&mut self, owner: &Q, child: &ObjectKey) -> Option<&mut Expectation> {
        self.owners.get_mut(owner)?.get_mut(child)
    }

    fn children(&self, owner: &Q) -> Vec<ObjectKey> {
        self.owners.get(owner).map_or_else(Vec::new, |children| children.keys().cloned().collect())
    }

    fn remove(&mut self, owner: &Q, child: &ObjectKey) {
        if let Some(children) = self.owners.get_mut(owner) {
            children.remove(child);
            if children.is_empty() {
                self.owners.remove(owner);
            }
        }
        if let Some(owners) = self.waiting.get_mut(child) {
            owners.remove(owner);
            if owners.is_empty() {
                self.waiting.remove(child);
            }
        }
    }

    /// Remembers a creation that the watch has shown, so that an object which is gone again by the time somebody looks still
    /// counts as seen.
    fn note<K: Resource>(&mut self, change: &Change<K>) {
        let Some(owners) = self.waiting.get(&change.key).cloned() else { return };
        let Some(uid) = change.sides().find_map(|object| object.meta().uid.as_deref()) else { return };
        for owner in owners {
            match self.get_mut(&owner, &change.key).map(|expectation| &mut expectation.what) {
                Some(What::Creating { seen }) => seen.push(uid.to_owned()),
                Some(What::Created { uid: expected }) if expected == uid => self.remove(&owner, &change.key),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
    use kube::{core::ObjectMeta, runtime::watcher::Event};

    use super::*;

    const OWNER: &str = "vm";

    fn pod(uid: &str, version: u64) -> Pod {
        let metadata = ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("p".into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    fn child() -> ObjectKey {
        ObjectKey::new("shop", "p")
    }

    fn setup() -> (Cache<Pod>, Expectations<&'static str, Pod>) {
        let cache = Cache::builder().build();
        let expectations = Expectations::new(&cache, Duration::from_secs(30));
        (cache, expectations)
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_holds_until_the_cache_shows_it() {
        let (cache, expectations) = setup();
        assert_eq!(expectations.hold(&OWNER), None);
        expectations.expect_creation(&OWNER, child());
        expectations.created(&OWNER, &child(), "1");
        assert_eq!(expectations.hold(&OWNER), Some(Duration::from_secs(30)));
        assert_eq!(expectations.hold(&"somebody else"), None);
        cache.handle(Event::Apply(pod("1", 1)));
        assert_eq!(expectations.hold(&OWNER), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_watch_may_be_faster_than_the_response() {
        let (cache, expectations) = setup();
        expectations.expect_creation(&OWNER, child());
        cache.handle(Event::Apply(pod("1", 1)));
        cache.handle(Event::Delete(pod("1", 2)));
        assert!(expectations.hold(&OWNER).is_some(), "the call has not returned");
        expectations.created(&OWNER, &child(), "1");
        assert_eq!(expectations.hold(&OWNER), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_the_cache_had_all_along_does_not_hold() {
        let (cache, expectations) = setup();
        cache.handle(Event::Apply(pod("1", 1)));
        expectations.expect_creation(&OWNER, child());
        expectations.created(&OWNER, &child(), "1");
        assert_eq!(expectations.hold(&OWNER), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_object_of_the_same_name_does_not_fulfil() {
        let (cache, expectations) = setup();
        cache.handle(Event::Apply(pod("old", 1)));
        expectations.expect_creation(&OWNER, child());
        expectations.created(&OWNER, &child(), "new");
        cache.handle(Event::Apply(pod("old", 2)));
        assert!(expectations.hold(&OWNER).is_some());
        cache.handle(Event::Apply(pod("new", 3)));
        assert_eq!(expectations.hold(&OWNER), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_is_fulfilled_by_its_timestamp_or_by_the_end() {
        let (cache, expectations) = setup();
        cache.handle(Event::Apply(pod("1", 1)));
        expectations.expect_deletion(&OWNER, child(), "1");
        assert!(expectations.hold(&OWNER).is_some());
        let mut leaving = pod("1", 2);
        leaving.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        cache.handle(Event::Apply(leaving));
        assert_eq!(expectations.hold(&OWNER), None);

        expectations.expect_deletion(&OWNER, child(), "1");
        cache.handle(Event::Delete(pod("1", 3)));
        assert_eq!(expectations.hold(&OWNER), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_holds_until_its_version_or_a_later_one_is_seen() {
        let (cache, expectations) = setup();
        cache.handle(Event::Apply(pod("1", 9)));
        expectations.updated(&OWNER, &pod("1", 10));
        assert!(expectations.hold(&OWNER).is_some());
        cache.handle(Event::Apply(pod("1", 11)));
        assert_eq!(expectations.hold(&OWNER), None);
        expectations.updated(&OWNER, &pod("1", 12));
        cache.handle(Event::Delete(pod("1", 11)));
        assert_eq!(expectations.hold(&OWNER), None, "what is gone will not be seen");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_and_time_end_the_wait() {
        let (_cache, expectations) = setup();
        expectations.expect_creation(&OWNER, child());
        expectations.failed(&OWNER, &child());
        assert_eq!(expectations.hold(&OWNER), None);
        expectations.expect_creation(&OWNER, child());
        expectations.created(&OWNER, &child(), "1");
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(expectations.hold(&OWNER), None);
        let pending = expectations.pending.lock();
        assert!(pending.owners.is_empty() && pending.waiting.is_empty());
    }
}
