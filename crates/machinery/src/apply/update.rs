//! Creates, updates and patches: the writer owns what it changed.

use serde_json::Value;

use super::entries::{self, Entry, Identity, Operation, time_text};
use super::fields::FieldSet;
use super::typed::compare;
use super::{Writer, unowned};
use crate::schema::Schema;

/// How a write is recorded.
pub type UpdateOptions<'a> = Writer<'a>;

/// More entries of updaters than this are folded into one per version.
const MAX_UPDATERS: usize = 10;

/// The manager that folded entries go to.
const ANCIENT: &str = "ancient-changes";

/// Records in `new` who owns what after a write that made it from `live` (`None`: it is being created).
///
/// `schema` is the schema of whole objects (see [`Schema::with_object_meta`]). `metadata.managedFields` of `new` is what
/// the client sent: nothing or something unreadable keeps the live entries, an empty list drops them all, and entries
/// that can be read replace them. Through a subresource the client has no say.
pub fn update(schema: &Schema, live: Option<&Value>, new: &mut Value, writer: &UpdateOptions<'_>) {
    let sent = entries::take(new);
    let start = starting_point(live, sent, writer.subresource);
    // An object whose entries were dropped is not tracked again until it is applied.
    if start.is_empty() && live.is_some() {
        return;
    }
    let change = Change::between(schema, live, new, writer.reset);
    let managed = match start {
        Start::Live(managed) if change.is_nothing() => return entries::put(new, managed),
        Start::Live(managed) => entries::read(managed).unwrap_or_default(),
        Start::Sent(managed) => managed,
    };
    if managed.is_empty() && live.is_some() {
        return;
    }
    let managed = record(schema, managed, change, writer);
    entries::put(new, entries::write(fold_ancient(managed)));
}

/// The entries before the write.
enum Start {
    /// As the live object has them.
    Live(Value),
    /// As the client wants them.
    Sent(Vec<Entry>),
}

impl Start {
    fn is_empty(&self) -> bool {
        match self {
            Self::Live(list) => list.as_array().is_none_or(Vec::is_empty),
            Self::Sent(list) => list.is_empty(),
        }
    }
}

fn starting_point(live: Option<&Value>, sent: Option<Value>, subresource: &str) -> Start {
    let stored = live.and_then(entries::of);
    match sent {
        Some(sent) if subresource.is_empty() => {
            if is_reset(&sent) {
                return Start::Sent(Vec::new());
            }
            // What a client read and sent back needs no second look.
            if Some(&sent) == stored {
                return Start::Live(sent);
            }
            match entries::read_foreign(sent) {
                Ok(sent) if !sent.is_empty() => Start::Sent(sent),
                _ => Start::Live(stored.cloned().unwrap_or_default()),
            }
        }
        _ => Start::Live(stored.cloned().unwrap_or_default()),
    }
}

/// `[]` and `[{}]` ask for a fresh start.
fn is_reset(sent: &Value) -> bool {
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.is_empty(),
        _ => false,
    }
}

/// What a write did, as far as ownership goes.
pub(super) struct Change {
    /// Added or modified: now the writer's.
    pub(super) gained: FieldSet,
    /// Removed: now nobody's.
    pub(super) lost: FieldSet,
}

impl Change {
    pub(super) fn between(schema: &Schema, live: Option<&Value>, new: &Value, reset: &FieldSet) -> Self {
        let comparison = compare(Some(schema), live, new).without(reset);
        Self {
            gained: comparison.added.union(&comparison.modified).difference(unowned()),
            lost: comparison.removed.difference(unowned()),
        }
    }

    fn is_nothing(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty()
    }

    /// Takes what changed hands from all entries but those that `keep` spares, and drops entries left without fields.
    pub(super) fn take_from(&self, schema: &Schema, managed: &mut Vec<Entry>, keep: impl Fn(&Identity) -> bool) {
        let taken = self.gained.union(&self.lost);
        managed.retain_mut(|entry| {
            if keep(&entry.identity) {
                return true;
            }
            if entry.is_touched_by(&taken) {
                match entry.decode(Some(schema)).map(|set| set.difference(&taken)) {
                    Ok(rest) => entry.replace_set(rest),
                    Err(_) => return false,
                }
            }
            !entry.is_empty()
        });
    }
}

/// Moves what changed to the writer's entry.
fn record(schema: &Schema, mut managed: Vec<Entry>, change: Change, writer: &Writer<'_>) -> Vec<Entry> {
    change.take_from(schema, &mut managed, |_| false);
    if change.gained.is_empty() {
        return managed;
    }
    let identity = Identity::of(writer, Operation::Update);
    let time = Some(time_text(writer.now));
    match managed.iter_mut().find(|entry| entry.identity.is_same(&identity)) {
        Some(entry) => {
            let set = entry.decode(Some(schema)).map(|set| set.union(&change.gained)).unwrap_or(change.gained);
            entry.replace_set(set);
            entry.time = time;
        }
        None => managed.push(Entry::new(identity, time, change.gained)),
    }
    managed
}

/// The owners of an object that was never tracked, seen at its first apply: one manager for everything.
pub(super) fn track_existing(schema: &Schema, live: &Value, writer: &Writer<'_>) -> Vec<Entry> {
    let before = Writer { manager: "before-first-apply", ..*writer };
    record(schema, Vec::new(), Change::between(schema, None, live, writer.reset), &before)
}

/// Folds the oldest updaters of each version into one entry until few enough are left.
fn fold_ancient(mut managed: Vec<Entry>) -> Vec<Entry> {
    let is_updater = |entry: &Entry| entry.identity.operation == Operation::Update;
    let mut count = managed.iter().filter(|entry| is_updater(entry)).count();
    if count <= MAX_UPDATERS {
        return managed;
    }
    let (mut updaters, mut kept): (Vec<Entry>, Vec<Entry>) = managed.drain(..).partition(is_updater);
    updaters.sort_by_cached_key(|entry| (entry.time.clone(), entry.identity.sort_key()));

    // The oldest of each version becomes the one that the next ones of that version are folded into.
    let mut buckets: Vec<Entry> = Vec::new();
    for entry in updaters {
        if count <= MAX_UPDATERS {
            kept.push(entry);
            continue;
        }
        let version = &entry.identity.api_version;
        match buckets.iter_mut().find(|bucket| bucket.identity.api_version == *version) {
            None => buckets.push(entry),
            Some(bucket) => {
                if let (Ok(old), Ok(newer)) = (bucket.set(), entry.set()) {
                    let folded = old.union(&newer);
                    bucket.replace_set(folded);
                }
                bucket.identity.manager = ANCIENT.to_owned();
                bucket.identity.subresource.clear();
                bucket.time = entry.time;
                count -= 1;
            }
        }
    }
    kept.extend(buckets);
    kept
}
