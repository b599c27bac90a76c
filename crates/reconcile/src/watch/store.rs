//! What a watch has told so far, and what each event changed. No IO, no locks.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube::{Resource, runtime::watcher::Event};

use super::index::Reindex;
use crate::key::{ObjectKey, version_of};

/// One object's step from `old` to `new`: a creation has no old, a deletion no new.
pub struct Change<K> {
    /// Which object.
    pub key: ObjectKey,
    /// The object before.
    pub old: Option<Arc<K>>,
    /// The object after.
    pub new: Option<Arc<K>>,
    /// True while the store is filled for the first time: nothing happened to the object just now.
    pub initial: bool,
}

impl<K> Change<K> {
    /// The old and the new object, whichever exist.
    pub fn sides(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new)
    }
}

pub(super) struct Store<K> {
    objects: HashMap<ObjectKey, Arc<K>>,
    indexes: Vec<Arc<dyn Reindex<K>>>,
    /// During a listing: what it has named so far.
    listed: Option<HashSet<ObjectKey>>,
    synced: bool,
}

impl<K: Resource> Store<K> {
    pub(super) fn new(indexes: Vec<Arc<dyn Reindex<K>>>) -> Self {
        Self { objects: HashMap::new(), indexes, listed: None, synced: false }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<K>)> {
        self.objects.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether a listing has been seen to its end.
    pub(super) fn synced(&self) -> bool {
        self.synced
    }

    /// Takes in one event and says what it changed.
    pub(super) fn handle(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                // A listing that broke off starts anew; what it had named no longer counts.
                self.listed = Some(HashSet::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let Some(key) = ObjectKey::of(&object) else { return Vec::new() };
                if let Some(listed) = &mut self.listed {
                    listed.insert(key.clone());
                }
                self.replace(key, object)
            }
            Event::InitDone => {
                let changes = self.drop_unlisted();
                self.synced = true;
                changes
            }
            Event::Apply(object) => match ObjectKey::of(&object) {
                Some(key) if !self.is_older(&key, &object) => self.replace(key, object),
                _ => Vec::new(),
            },
            Event::Delete(object) => match ObjectKey::of(&object) {
                Some(key) => self.delete(key, &object),
                None => Vec::new(),
            },
        }
    }

    fn replace(&mut self, key: ObjectKey, object: K) -> Vec<Change<K>> {
        let old = self.objects.get(&key).cloned();
        if let Some(old) = &old
            && same_version(&**old, &object)
        {
            return Vec::new();
        }
        let reborn = old.as_ref().is_some_and(|old| old.meta().uid != object.meta().uid);
        let new = Arc::new(object);
        self.objects.insert(key.clone(), new.clone());
        self.reindex(&key, old.as_deref(), Some(&new));
        if reborn {
            let gone = self.change(key.clone(), old, None);
            let made = self.change(key, None, Some(new));
            vec![gone, made]
        } else {
            vec![self.change(key, old, Some(new))]
        }
    }

    fn delete(&mut self, key: ObjectKey, last: &K) -> Vec<Change<K>> {
        let same_uid = self.objects.get(&key).is_some_and(|held| held.meta().uid == last.meta().uid);
        // A late deletion of an earlier object of the same name says nothing about the present one.
        if same_uid { self.remove(key).into_iter().collect() } else { Vec::new() }
    }

    fn remove(&mut self, key: ObjectKey) -> Option<Change<K>> {
        let old = self.objects.remove(&key)?;
        self.reindex(&key, Some(&old), None);
        Some(self.change(key, Some(old), None))
    }

    fn drop_unlisted(&mut self) -> Vec<Change<K>> {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        let mut vanished: Vec<_> = self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        vanished.sort_unstable();
        vanished.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Whether the store already holds a newer version of the same object.
    fn is_older(&self, key: &ObjectKey, object: &K) -> bool {
        self.objects.get(key).is_some_and(|held| {
            held.meta().uid == object.meta().uid
                && matches!((version_of(&**held), version_of(object)), (Some(held), Some(new)) if new < held)
        })
    }

    fn reindex(&self, key: &ObjectKey, old: Option<&K>, new: Option<&Arc<K>>) {
        for index in &self.indexes {
            index.reindex(key, old, new);
        }
    }

    fn change(&self, key: ObjectKey, old: Option<Arc<K>>, new: Option<Arc<K>>) -> Change<K> {
        Change { key, old, new, initial: !self.synced }
    }
}

fn same_version<K: Resource>(a: &K, b: &K) -> bool {
    let (a, b) = (a.meta(), b.meta());
    a.resource_version.is_some() && a.resource_version == b.resource_version && a.uid == b.uid
}
