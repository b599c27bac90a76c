//! Faults of a replicated API server, for the simulator: watches that lag, repeat, skip or break, and reads from the
//! past. All are off unless set, deterministic, and per resource. They change what readers see, never what is stored.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::Shared;
use super::object::Revision;

/// The faults of all resources.
#[derive(Default)]
pub(super) struct FaultTable {
    /// Checked first, so that a store without faults pays one relaxed load.
    active: AtomicBool,
    by_resource: Mutex<BTreeMap<Box<str>, Faults>>,
}

/// The faults of one resource.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Faults {
    /// Watches do not see events after this revision.
    pub(super) hold: Option<Revision>,
    /// Reads and new watches see the state of this revision.
    pub(super) rewind: Option<Revision>,
    /// Watches deliver every n-th event twice.
    pub(super) repeat_every: Option<u64>,
    /// Watches skip every n-th event.
    pub(super) drop_every: Option<u64>,
    /// Watches that were opened before this count was reached are broken.
    pub(super) broken: u64,
}

impl Faults {
    /// The newest revision that a watch may deliver.
    pub(super) fn horizon(&self, head: Revision) -> Revision {
        head.min(self.hold.unwrap_or(head)).min(self.rewind.unwrap_or(head))
    }
}

impl FaultTable {
    /// The faults of a resource; `None` in a store without any.
    pub(super) fn of(&self, resource: &str) -> Option<Faults> {
        if !self.active.load(Ordering::Relaxed) {
            return None;
        }
        self.by_resource.lock().get(resource).copied()
    }
}

/// Sets and clears the faults of a store.
#[derive(Clone, Copy)]
pub struct WatchFaults<'a> {
    shared: &'a Shared,
}

impl<'a> WatchFaults<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        WatchFaults { shared }
    }

    /// Lag: from now on watches of the resource deliver nothing newer than the store's present revision.
    pub fn hold(self, resource: &str) {
        let head = self.shared.state.read().head;
        self.hold_after(resource, head);
    }

    /// Lag: watches of the resource deliver nothing newer than this revision.
    pub fn hold_after(self, resource: &str, revision: Revision) {
        self.change(resource, |faults| faults.hold = Some(revision));
    }

    /// Lets watches that are held back deliver `events` more events of the resource.
    pub fn release_some(self, resource: &str, events: usize) {
        let Some(hold) = self.shared.faults.of(resource).and_then(|faults| faults.hold) else {
            return;
        };
        let revision = {
            let state = self.shared.state.read();
            let table = state.tables.get(resource);
            table.and_then(|table| table.history_after(hold).take(events).last().map(|event| event.revision))
        };
        if let Some(revision) = revision {
            self.hold_after(resource, revision);
        }
    }

    /// Ends the lag: watches deliver what was held back.
    pub fn release(self, resource: &str) {
        self.change(resource, |faults| faults.hold = None);
    }

    /// Watches deliver every n-th event twice; 0 ends it. Each watch counts its own events.
    pub fn repeat_every(self, resource: &str, n: u64) {
        self.change(resource, |faults| faults.repeat_every = (n > 0).then_some(n));
    }

    /// Watches skip every n-th event; 0 ends it. Each watch counts its own events.
    pub fn drop_every(self, resource: &str, n: u64) {
        self.change(resource, |faults| faults.drop_every = (n > 0).then_some(n));
    }

    /// Time travel: `get`, `list` and watches see the resource as it was at this revision, as they would on a replica
    /// that is behind. Writes and [`Store::current`](super::Store::current) still see the truth.
    pub fn rewind(self, resource: &str, revision: Revision) {
        self.change(resource, |faults| faults.rewind = Some(revision));
    }

    /// Ends the time travel.
    pub fn catch_up(self, resource: &str) {
        self.change(resource, |faults| faults.rewind = None);
    }

    /// Breaks the watches of the resource that are open now; they end with `WatchError::Closed`.
    pub fn disconnect(self, resource: &str) {
        self.change(resource, |faults| faults.broken += 1);
    }

    /// Ends all faults of all resources.
    pub fn clear(self) {
        let resources: Vec<Box<str>> = {
            let mut table = self.shared.faults.by_resource.lock();
            for faults in table.values_mut() {
                *faults = Faults { broken: faults.broken, ..Faults::default() };
            }
            table.keys().cloned().collect()
        };
        self.shared.state.read().wake(resources.iter().map(|name| &**name));
    }

    fn change(self, resource: &str, change: impl FnOnce(&mut Faults)) {
        {
            let mut table = self.shared.faults.by_resource.lock();
            change(table.entry(resource.into()).or_default());
            self.shared.faults.active.store(true, Ordering::Relaxed);
        }
        self.shared.state.read().wake([resource].into_iter());
    }
}
