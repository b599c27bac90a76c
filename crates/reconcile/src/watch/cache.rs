//! [`Cache`]: the store that every controller of a process reads, and its subscribers.

use std::{borrow::Borrow, hash::Hash, sync::Arc, time::Duration};

use ferrovirt_kubernetes::json::DecodeError;
use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event, watcher},
};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::watch;

use super::{
    document::Document,
    follow::{Sink, follow},
    index::{Index, Reindex},
    store::{Change, Store},
};
use crate::{
    backoff::Backoff,
    key::ObjectKey,
    queue::{Priority, Queue, QueueKey},
};

type Trim<K> = Box<dyn Fn(&mut K) + Send + Sync>;
type Subscriber<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Declares a [`Cache`]: its indexes, and what to drop from objects on arrival.
pub struct CacheBuilder<K> {
    indexes: Vec<Arc<dyn Reindex<K>>>,
    trim: Option<Trim<K>>,
    backoff: Backoff,
}

impl<K: Resource + Send + Sync + 'static> CacheBuilder<K> {
    /// Adds an index: `values` names everything under which an object shall be found.
    ///
    /// `values` must depend on the object alone: it is asked again when the object leaves.
    pub fn index<V, I>(&mut self, values: impl Fn(&K) -> I + Send + Sync + 'static) -> Index<K, V>
    where
        V: Hash + Eq + Send + Sync + 'static,
        I: IntoIterator<Item = V>,
    {
        let index = Index::new(Box::new(move |object| values(object).into_iter().collect()));
        self.indexes.push(Arc::new(index.clone()));
        index
    }

    /// Drops what nobody reads from every object before it is stored. `managedFields` are always dropped.
    pub fn trim(&mut self, trim: impl Fn(&mut K) + Send + Sync + 'static) -> &mut Self {
        self.trim = Some(Box::new(trim));
        self
    }

    /// The pauses between attempts when the watch fails; 1 s to 30 s unless said otherwise.
    pub fn backoff(&mut self, backoff: Backoff) -> &mut Self {
        self.backoff = backoff;
        self
    }

    /// The cache, empty until something drives it.
    pub fn build(self) -> Cache<K> {
        let shared = Shared {
            store: RwLock::new(Store::new(self.indexes)),
            subscribers: Mutex::default(),
            trim: self.trim,
            backoff: self.backoff,
            synced: watch::Sender::new(false),
        };
        Cache { shared: Arc::new(shared) }
    }
}

/// All objects of one kind, as far as one watch has told. Clones are the same cache. The [module](super) says what it promises.
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    store: RwLock<Store<K>>,
    /// Also the writers' lock: held while an event is stored and told, so that subscribers hear changes in order.
    subscribers: Mutex<Vec<Subscriber<K>>>,
    trim: Option<Trim<K>>,
    backoff: Backoff,
    synced: watch::Sender<bool>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Resource + Send + Sync + 'static> Cache<K> {
    /// Starts the declaration of a cache.
    pub fn builder() -> CacheBuilder<K> {
        let backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(30), ..Backoff::default() };
        CacheBuilder { indexes: Vec::new(), trim: None, backoff }
    }

    /// The object with this name; an empty namespace for a cluster-scoped one.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get_key(&ObjectKey::new(namespace, name))
    }

    /// The object with this key.
    pub fn get_key(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.shared.store.read().get(key.as_str()).cloned()
    }

    /// All objects that `index` files under `value`, sorted by key.
    pub fn by<V, B>(&self, index: &Index<K, V>, value: &B) -> Vec<Arc<K>>
    where
        V: Hash + Eq + Borrow<B>,
        B: Hash + Eq + ?Sized,
    {
        // Waits for an event that is being stored, so that the index agrees with the store.
        let _store = self.shared.store.read();
        index.get(value)
    }

    /// How many objects `index` files under `value`; cheaper than asking for them.
    pub fn count_by<V, B>(&self, index: &Index<K, V>, value: &B) -> usize
    where
        V: Hash + Eq + Borrow<B>,
        B: Hash + Eq + ?Sized,
    {
        let _store = self.shared.store.read();
        index.count(value)
    }

    /// Every object, sorted by key. For start-up and rare sweeps; anything on a hot path wants an index.
    pub fn all(&self) -> Vec<Arc<K>> {
        let store = self.shared.store.read();
        let mut entries: Vec<_> = store.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries.into_iter().map(|(_, object)| object.clone()).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.store.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first listing has been seen to its end.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Waits until the first listing has been seen to its end. A controller with half a view must not act.
    pub async fn synced(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.shared.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Calls `subscriber` for every change from now on, and first once for every object already here.
    ///
    /// It runs inside the watch: it must return quickly and must not subscribe to this cache. Reading the cache is fine.
    pub fn on_change(&self, subscriber: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut subscribers = self.shared.subscribers.lock();
        let mut present: Vec<_> = {
            let store = self.shared.store.read();
            store.iter().map(|(key, object)| (key.clone(), object.clone())).collect()
        };
        present.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (key, object) in present {
            subscriber(&Change { key, old: None, new: Some(object), initial: true });
        }
        subscribers.push(Box::new(subscriber));
    }

    /// Adds to `queue` every key that `keys` names for an object, before and after each change.
    ///
    /// Objects of the first listing are added with [`Priority::BACKGROUND`], so that real changes overtake them.
    pub fn feed<Q, I>(&self, queue: &Queue<Q>, keys: impl Fn(&K) -> I + Send + Sync + 'static)
    where
        Q: QueueKey,
        I: IntoIterator<Item = Q>,
    {
        let queue = queue.clone();
        self.on_change(move |change| {
            let priority = if change.initial { Priority::BACKGROUND } else { Priority::NORMAL };
            for key in change.sides().flat_map(|object| keys(object)) {
                queue.add(&key, priority);
            }
        });
    }

    /// Takes in one event by hand: what a watch does for each, and what tests and simulations call.
    pub fn handle(&self, event: Event<K>) {
        let event = event.modify(|object| {
            object.meta_mut().managed_fields = None;
            if let Some(trim) = &self.shared.trim {
                trim(object);
            }
        });
        let subscribers = self.shared.subscribers.lock();
        let (changes, synced) = {
            let mut store = self.shared.store.write();
            (store.handle(event), store.synced())
        };
        for change in &changes {
            for subscriber in subscribers.iter() {
                subscriber(change);
            }
        }
        if synced {
            self.shared.synced.send_if_modified(|before| !std::mem::replace(before, true));
        }
    }

    /// Takes in a watch of everything that `api` and `config` select; does not end. `what` names the watch in the log.
    pub(super) async fn watch(&self, what: &str, api: Api<K>, config: watcher::Config, read: Read<K>) {
        let api = Document::api(api);
        let filled = Filled { cache: self.clone(), read };
        follow(what, &filled, || watcher(api.clone(), config.clone()).boxed()).await;
    }
}

/// How an object is read from the JSON of it.
pub(super) type Read<K> = fn(&Value) -> Result<K, DecodeError>;

/// A cache with the way to read its objects.
pub(super) struct Filled<K> {
    pub(super) cache: Cache<K>,
    pub(super) read: Read<K>,
}

impl<K: Resource + Send + Sync + 'static> Sink for Filled<K> {
    fn take(&self, event: Event<Document>) -> Result<(), DecodeError> {
        let read = |document: Document| (self.read)(&document.value);
        self.cache.handle(match event {
            Event::Apply(document) => Event::Apply(read(document)?),
            Event::Delete(document) => Event::Delete(read(document)?),
            Event::Init => Event::Init,
            Event::InitApply(document) => Event::InitApply(read(document)?),
            Event::InitDone => Event::InitDone,
        });
        Ok(())
    }

    fn backoff(&self) -> &Backoff {
        &self.cache.shared.backoff
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
