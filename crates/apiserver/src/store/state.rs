//! The state in memory: every object, the recent history, and reads of both.
//!
//! Each resource has an ordered map of its objects and a queue of its events. A list at an older revision undoes the
//! events after it; a watch walks the queue with a cursor. Objects are shared between the two, so history costs only
//! what it superseded.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::Notify;

use super::object::{Event, Key, Object, Revision};

/// The head of an empty store, so that "0" never names a real revision.
pub(super) const FIRST_REVISION: Revision = 1;

/// Everything that readers see. Only committed writes get here.
pub(super) struct State {
    pub(super) head: Revision,
    /// History at and before this revision may be gone.
    pub(super) compacted: Revision,
    pub(super) tables: BTreeMap<Arc<str>, Table>,
    /// Revision and cost of every event that is kept, over all tables, oldest first.
    pub(super) ledger: VecDeque<(Revision, usize)>,
    pub(super) history_bytes: usize,
    pub(super) closed: bool,
}

/// One resource.
pub(super) struct Table {
    namespaces: BTreeMap<Namespace, BTreeMap<Arc<str>, Arc<Object>>>,
    objects: usize,
    pub(super) history: VecDeque<Arc<Event>>,
    /// The newest event that left the history.
    pub(super) trimmed: Revision,
    /// Tells tail readers that there is something new. They are woken in the order in which they came, so that a simulation repeats itself.
    pub(super) tail: Arc<Notify>,
}

/// Objects of a list, and what is left after them.
#[derive(Clone, Debug)]
pub struct Page {
    /// The revision that the page shows.
    pub revision: Revision,
    /// In the order of `namespace/name`.
    pub objects: Vec<Arc<Object>>,
    /// How many more objects follow the page.
    pub remaining: usize,
    /// True when more objects follow.
    pub next: bool,
}

/// The objects of a list: one namespace or all, behind a position, at most so many.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    pub(super) namespace: Option<&'a str>,
    pub(super) after: Option<(&'a str, &'a str)>,
    pub(super) limit: Option<usize>,
}

impl State {
    pub(super) fn new(head: Revision, compacted: Revision) -> State {
        State { head, compacted, tables: BTreeMap::new(), ledger: VecDeque::new(), history_bytes: 0, closed: false }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.find(&key.resource, &key.namespace, &key.name)
    }

    pub(super) fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.tables.get(resource)?.get(namespace, name)
    }

    /// The state of one object at an older revision. Reads the history, so only faults use it.
    pub(super) fn find_at(&self, resource: &str, namespace: &str, name: &str, at: Revision) -> Option<&Arc<Object>> {
        let table = self.tables.get(resource)?;
        let is_it = |event: &&Arc<Event>| *event.key.namespace == *namespace && *event.key.name == *name;
        match table.history_after(at).find(is_it) {
            Some(event) => event.previous.as_ref(),
            None => table.get(namespace, name),
        }
    }

    /// The table of a resource, made when it is new.
    pub(super) fn table(&mut self, resource: &Arc<str>) -> &mut Table {
        // Looked up twice because the entry API would copy the name every time.
        if !self.tables.contains_key(&**resource) {
            self.tables.insert(resource.clone(), Table::new());
        }
        self.tables.get_mut(&**resource).expect("the table was just made")
    }

    /// Makes a committed change visible.
    pub(super) fn publish(&mut self, event: Arc<Event>) {
        debug_assert!(event.revision > self.head, "revisions only grow");
        self.head = event.revision;
        let cost = cost(&event);
        self.ledger.push_back((event.revision, cost));
        self.history_bytes += cost;
        let table = self.table(&event.key.resource.clone());
        table.put(&event.key, event.object.clone());
        table.history.push_back(event);
    }

    /// Takes over a row that is older than the history; used while a store is opened.
    pub(super) fn restore(&mut self, key: &Key, object: Option<Arc<Object>>, revision: Revision) {
        self.head = self.head.max(revision);
        self.table(&key.resource).put(key, object);
    }

    /// Forgets the history up to a revision.
    pub(super) fn trim(&mut self, upto: Revision) {
        self.compacted = self.compacted.max(upto);
        while let Some(&(revision, cost)) = self.ledger.front()
            && revision <= upto
        {
            self.ledger.pop_front();
            self.history_bytes -= cost;
        }
        for table in self.tables.values_mut() {
            while let Some(event) = table.history.front()
                && event.revision <= upto
            {
                table.trimmed = event.revision;
                table.history.pop_front();
            }
            if table.history.capacity() > 64 && table.history.capacity() / 4 > table.history.len() {
                table.history.shrink_to(table.history.len() * 2);
            }
        }
    }

    /// Lists a resource as it was at a revision that is not compacted.
    pub(super) fn list(&self, resource: &str, at: Revision, selection: Selection<'_>) -> Page {
        let mut page = Page { revision: at, objects: Vec::new(), remaining: 0, next: false };
        let Some(table) = self.tables.get(resource) else {
            return page;
        };
        let mut changed = if at < self.head { table.undo(at, selection) } else { Overlay::new() };
        let mut add = |object: &Arc<Object>| {
            if selection.limit.is_none_or(|limit| page.objects.len() < limit) {
                page.objects.push(object.clone());
            } else {
                page.remaining += 1;
            }
        };
        for object in table.range(selection) {
            let position = Position::of(&object.key);
            // What was there then and is gone now comes before this object.
            while let Some(entry) = changed.first_entry()
                && *entry.key() < position
            {
                entry.remove().iter().for_each(&mut add);
            }
            match changed.remove(&position) {
                Some(then) => then.iter().for_each(&mut add),
                None => add(object),
            }
        }
        changed.values().flatten().for_each(&mut add);
        page.next = page.remaining > 0;
        page
    }

    pub(super) fn count(&self, resource: &str, namespace: Option<&str>) -> usize {
        let Some(table) = self.tables.get(resource) else {
            return 0;
        };
        match namespace {
            Some(namespace) => table.namespace(namespace).map_or(0, BTreeMap::len),
            None => table.objects,
        }
    }

    pub(super) fn resources(&self) -> Vec<Arc<str>> {
        self.tables.iter().filter(|(_, table)| table.objects > 0).map(|(name, _)| name.clone()).collect()
    }

    /// Tells the tail readers of these resources, and of all when the store closes.
    pub(super) fn wake<'a>(&self, resources: impl Iterator<Item = &'a str>) {
        for resource in resources {
            if let Some(table) = self.tables.get(resource) {
                table.tail.notify_waiters();
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.wake(self.tables.keys().map(|name| &**name));
    }
}

/// What an event keeps in memory that the state alone would not.
fn cost(event: &Event) -> usize {
    let superseded = event.previous.as_ref().map_or(0, |object| object.body.footprint() + size_of::<Object>());
    superseded + size_of::<Event>() + 64
}

/// The state of changed objects at an older revision; `None` where there was no object.
type Overlay = BTreeMap<Position, Option<Arc<Object>>>;

impl Table {
    fn new() -> Table {
        Table { namespaces: BTreeMap::new(), objects: 0, history: VecDeque::new(), trimmed: 0, tail: Arc::default() }
    }

    fn namespace(&self, namespace: &str) -> Option<&BTreeMap<Arc<str>, Arc<Object>>> {
        self.namespaces.get(&namespace as &dyn StorageOrder)
    }

    fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.namespace(namespace)?.get(name)
    }

    fn put(&mut self, key: &Key, object: Option<Arc<Object>>) {
        match object {
            Some(object) => {
                let names = self.namespaces.entry(Namespace(key.namespace.clone())).or_default();
                if names.insert(key.name.clone(), object).is_none() {
                    self.objects += 1;
                }
            }
            None => {
                let namespace: &dyn StorageOrder = &&*key.namespace;
                let Some(names) = self.namespaces.get_mut(namespace) else {
                    return;
                };
                if names.remove(&*key.name).is_some() {
                    self.objects -= 1;
                }
                if names.is_empty() {
                    self.namespaces.remove(namespace);
                }
            }
        }
    }

    /// Events after a revision, oldest first.
    pub(super) fn history_after(&self, revision: Revision) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let start = self.history.partition_point(|event| event.revision <= revision);
        self.history.range(start..)
    }

    /// What the selected objects that changed after a revision were at that revision.
    fn undo(&self, at: Revision, selection: Selection<'_>) -> Overlay {
        let mut then = Overlay::new();
        for event in self.history_after(at) {
            if selection.contains(&event.key) {
                // The first change after `at` knows the state at `at`.
                then.entry(Position::of(&event.key)).or_insert_with(|| event.previous.clone());
            }
        }
        then
    }

    /// The selected objects as they are now, without its limit; other namespaces are not looked at.
    fn range(&self, selection: Selection<'_>) -> impl Iterator<Item = &Arc<Object>> {
        let only = selection.namespace.as_ref().map(|only| only as &dyn StorageOrder);
        let behind = selection.after.as_ref().map(|(namespace, _)| namespace as &dyn StorageOrder);
        let from = only.or(behind).map_or(Bound::Unbounded, Bound::Included);
        let to = only.map_or(Bound::Unbounded, Bound::Included);
        self.namespaces.range::<dyn StorageOrder, _>((from, to)).flat_map(move |(namespace, names)| {
            let first = match selection.after {
                Some((behind, name)) => match namespace.storage_name().cmp_storage(behind) {
                    Ordering::Less => None,
                    Ordering::Equal => Some(Bound::Excluded(name)),
                    Ordering::Greater => Some(Bound::Unbounded),
                },
                None => Some(Bound::Unbounded),
            };
            first.into_iter().flat_map(move |first| names.range::<str, _>((first, Bound::Unbounded)).map(|(_, o)| o))
        })
    }
}

impl Selection<'_> {
    fn contains(&self, key: &Key) -> bool {
        let in_namespace = self.namespace.is_none_or(|namespace| *namespace == *key.namespace);
        in_namespace
            && self.after.is_none_or(|(namespace, name)| {
                key.namespace.cmp_storage(namespace).then_with(|| (*key.name).cmp(name)).is_gt()
            })
    }
}

/// Orders namespaces as their storage paths are ordered, where a `/` follows the name: `a-b/` is before `a/`. Clients
/// see this order in lists of all namespaces.
trait CmpStorage {
    fn cmp_storage(&self, other: &str) -> Ordering;
}

impl CmpStorage for str {
    fn cmp_storage(&self, other: &str) -> Ordering {
        if self.len() == other.len() {
            return self.cmp(other);
        }
        self.bytes().chain([b'/']).cmp(other.bytes().chain([b'/']))
    }
}

/// Lets a map of namespaces be searched with borrowed names.
trait StorageOrder {
    fn storage_name(&self) -> &str;
}

impl StorageOrder for &str {
    fn storage_name(&self) -> &str {
        self
    }
}

impl PartialEq for dyn StorageOrder + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.storage_name() == other.storage_name()
    }
}

impl Eq for dyn StorageOrder + '_ {}

impl PartialOrd for dyn StorageOrder + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn StorageOrder + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.storage_name().cmp_storage(other.storage_name())
    }
}

/// A namespace's name in storage order.
#[derive(Clone, PartialEq, Eq)]
struct Namespace(Arc<str>);

impl StorageOrder for Namespace {
    fn storage_name(&self) -> &str {
        &self.0
    }
}

impl<'a> Borrow<dyn StorageOrder + 'a> for Namespace {
    fn borrow(&self) -> &(dyn StorageOrder + 'a) {
        self
    }
}

impl PartialOrd for Namespace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Namespace {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp_storage(&other.0)
    }
}

/// Where an object stands in its resource's list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Position(Namespace, Arc<str>);

impl Position {
    fn of(key: &Key) -> Position {
        Position(Namespace(key.namespace.clone()), key.name.clone())
    }
}

/// Shares the names that many objects have in common.
#[derive(Default)]
pub(super) struct Names {
    known: HashSet<Arc<str>>,
    /// Forget unused names when there are this many.
    tidy_at: usize,
}

impl Names {
    pub(super) fn share(&mut self, name: &Arc<str>) -> Arc<str> {
        match self.known.get(&**name) {
            Some(known) => known.clone(),
            None => self.learn(name.clone()),
        }
    }

    pub(super) fn share_str(&mut self, name: &str) -> Arc<str> {
        match self.known.get(name) {
            Some(known) => known.clone(),
            None => self.learn(name.into()),
        }
    }

    /// The key with resource and namespace shared; names of objects are rarely common.
    pub(super) fn share_key(&mut self, key: Key) -> Key {
        Key { resource: self.share(&key.resource), namespace: self.share(&key.namespace), name: key.name }
    }

    fn learn(&mut self, name: Arc<str>) -> Arc<str> {
        if self.known.len() >= self.tidy_at.max(256) {
            self.known.retain(|name| Arc::strong_count(name) > 1);
            self.tidy_at = self.known.len() * 2;
        }
        self.known.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_in_storage_order() {
        let mut names = ["a", "a-b", "a.b", "a0", "b", ""];
        names.sort_by(|x, y| x.cmp_storage(y));
        let mut paths = names.map(|name| format!("{name}/"));
        paths.sort();
        assert_eq!(paths, names.map(|name| format!("{name}/")));
        assert_eq!("a".cmp_storage("a"), Ordering::Equal);
    }

    #[test]
    fn unused_names_are_forgotten() {
        let mut names = Names::default();
        let kept = names.share_str("kept");
        for n in 0..10_000 {
            names.share_str(&format!("namespace-{n}"));
        }
        assert!(names.known.len() <= 512, "{}", names.known.len());
        assert!(Arc::ptr_eq(&kept, &names.share_str("kept")));
    }
}
