//! Secondary indexes: from a value computed out of an object to all objects that have it.

use std::{borrow::Borrow, collections::HashMap, hash::Hash, sync::Arc};

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

/// Sorted by key, so that callers see a stable order. A plain list, because most shelves hold one or two objects and there are
/// as many shelves as owners.
type Shelf<K> = Vec<(ObjectKey, Arc<K>)>;

struct Shelves<K, V> {
    values: Values<K, V>,
    objects: RwLock<HashMap<V, Shelf<K>>>,
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
        self.shelves
            .objects
            .read()
            .get(value)
            .map_or_else(Vec::new, |shelf| shelf.iter().map(|(_, object)| object.clone()).collect())
    }

    /// How many objects are on the shelf of `value`.
    pub(super) fn count<B>(&self, value: &B) -> usize
    where
        V: Borrow<B>,
        B: Hash + Eq + ?Sized,
    {
        self.shelves.objects.read().get(value).map_or(0, Vec::len)
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
                if let Ok(place) = place_of(shelf, key) {
                    shelf.remove(place);
                }
                if shelf.is_empty() {
                    objects.remove(value);
                }
            }
        }
        if let Some(new) = new {
            for value in after {
                let shelf = objects.entry(value).or_default();
                match place_of(shelf, key) {
                    Ok(place) => shelf[place].1 = new.clone(),
                    Err(place) => shelf.insert(place, (key.clone(), new.clone())),
                }
            }
        }
    }
}

/// Where `key` is on the shelf, or where it would have to be put.
fn place_of<K>(shelf: &Shelf<K>, key: &ObjectKey) -> Result<usize, usize> {
    shelf.binary_search_by(|(held, _)| held.cmp(key))
}
