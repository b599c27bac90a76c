//! Secondary indexes: from a value computed out of an object to all objects that have it.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

use parking_lot::RwLock;

use crate::key::ObjectKey;

/// The handle with which [`Cache::by`](super::Cache::by) looks objects of kind `K` up by values of type `V`.
///
/// Made by [`CacheBuilder::index`](super::CacheBuilder::index); clones are the same index.
pub struct Index<K, V> {
    shelves: Arc<Shelves<K, V>>,
}

impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self { shelves: self.shelves.clone() }
    }
}

type Values<K, V> = Box<dyn Fn(&K) -> Vec<V> + Send + Sync>;

struct Shelves<K, V> {
    values: Values<K, V>,
    /// Sorted inside a shelf, so that callers see a stable order.
    objects: RwLock<HashMap<V, BTreeMap<ObjectKey, Arc<K>>>>,
}

impl<K, V: Hash + Eq> Index<K, V> {
    pub(super) fn new(values: Values<K, V>) -> Self {
        Self { shelves: Arc::new(Shelves { values, objects: RwLock::default() }) }
    }

    /// All objects on the shelf of `value`, sorted by key.
    pub(super) fn get<B>(&self, value: &B) -> Vec<Arc<K>>
    where
        V: Borrow<B>,
        B: Hash + Eq + ?Sized,
    {
        self.shelves.objects.read().get(value).map_or_else(Vec::new, |shelf| shelf.values().cloned().collect())
    }

    /// How many objects are on the shelf of `value`.
    pub(super) fn count<B>(&self, value: &B) -> usize
    where
        V: Borrow<B>,
        B: Hash + Eq + ?Sized,
    {
        self.shelves.objects.read().get(value).map_or(0, BTreeMap::len)
    }
}

/// What the store needs of an index, whatever its values are.
pub(super) trait Reindex<K>: Send + Sync {
    /// Moves `key` from the shelves of `old` to those of `new`.
    fn reindex(&self, key: &ObjectKey, old: Option<&K>, new: Option<&Arc<K>>);
}

impl<K, V> Reindex<K> for Index<K, V>
where
    K: Send + Sync,
    V: Hash + Eq + Send + Sync,
{
    fn reindex(&self, key: &ObjectKey, old: Option<&K>, new: Option<&Arc<K>>) {
        let before = old.map_or_else(Vec::new, |old| (self.shelves.values)(old));
        let after = new.map_or_else(Vec::new, |new| (self.shelves.values)(new));
        let mut objects = self.shelves.objects.write();
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(shelf) = objects.get_mut(value) {
                shelf.remove(key);
                if shelf.is_empty() {
                    objects.remove(value);
                }
            }
        }
        if let Some(new) = new {
            for value in after {
                objects.entry(value).or_default().insert(key.clone(), new.clone());
            }
        }
    }
}
