//! The store: every object of the cluster, with a revision log.
//!
//! ```text
//!  write ──► queue ──► writer thread: check, log rows, one fsync ──► state ──► get, list
//!                                                                     └► history ──► watch, list at a revision
//! ```
//!
//! One counter numbers all writes; a write's number is the resourceVersion of the state it makes. The log on disk maps
//! revisions to states, and the state in memory is what the log's newest rows say. Writes become visible when they are
//! durable, never before. [`Store::memory`] is the same without files: commits happen inline, which is what the
//! simulator needs.

#[cfg(test)]
mod disk_tests;
mod faults;
mod log;
mod object;
mod retention;
mod row;
mod state;
mod watch;
mod write;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

pub use self::faults::WatchFaults;
pub use self::log::OpenError;
pub use self::object::{Body, Event, Key, Object, Revision};
pub use self::retention::Retention;
pub use self::state::Page;
pub use self::watch::{Watch, WatchError};
pub use self::write::{Change, Committed, Expect, Write, WriteError};

use self::faults::FaultTable;
use self::log::{Log, Opener};
use self::retention::Calendar;
use self::state::{FIRST_REVISION, Names, Selection, State};
use self::writer::Writer;

/// Why a list cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListError {
    /// The history that the list needs is gone.
    #[error("revision {at} is compacted: the history starts after {compacted}")]
    Compacted {
        /// The revision that was asked for.
        at: Revision,
        /// Where the history starts.
        compacted: Revision,
    },
    /// The revision does not exist yet.
    #[error("revision {at} is in the future: the store is at {head}")]
    Future {
        /// The revision that was asked for.
        at: Revision,
        /// The store's revision.
        head: Revision,
    },
}

/// How a store on disk behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// How much history is kept.
    pub retention: Retention,
    /// Memory for the database's pages. The objects are in memory anyway, so a few pages at the log's end are enough.
    pub cache_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions { retention: Retention::default(), cache_bytes: 4 << 20 }
    }
}

/// Figures for metrics and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Transactions made durable since the store was opened; 0 for a store without files.
    pub transactions: u64,
    /// Events in the history.
    pub events: usize,
    /// About how much memory the history takes on top of the objects.
    pub history_bytes: usize,
}

/// The store. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    backend: Backend,
    calendar: Mutex<Calendar>,
}

/// What watches need of the store.
pub(crate) struct Shared {
    state: RwLock<State>,
    /// Wakes those who wait for a revision, in the order in which they came.
    grown: Notify,
    faults: FaultTable,
    /// Transactions that were made durable.
    transactions: AtomicU64,
}

/// Where commits go.
enum Backend {
    Memory(Mutex<Names>),
    Disk(Writer),
}

impl Store {
    /// An empty store without files. Commits happen inside [`Store::write`], in the order of the calls.
    pub fn memory() -> Store {
        Store::assemble(
            Shared::new(State::new(FIRST_REVISION, 0)),
            Backend::Memory(Mutex::default()),
            Retention::default(),
        )
    }

    /// Opens the store in a directory, or makes a new one there. Only one process can have it open.
    pub fn open(directory: &Path, options: StoreOptions) -> Result<Store, OpenError> {
        Store::open_with(log::file_opener(directory, options.cache_bytes), options.retention)
    }

    fn open_with(opener: Opener, retention: Retention) -> Result<Store, OpenError> {
        let log = Log::open(&opener)?;
        let mut names = Names::default();
        let shared = Shared::new(log.load(&mut names)?);
        let writer = Writer::start(shared.clone(), log, opener, names).map_err(OpenError::Thread)?;
        Ok(Store::assemble(shared, Backend::Disk(writer), retention))
    }

    fn assemble(shared: Arc<Shared>, backend: Backend, retention: Retention) -> Store {
        Store { inner: Arc::new(Inner { shared, backend, calendar: Mutex::new(Calendar::new(retention)) }) }
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.inner.shared.state.read().head
    }

    /// History at and before this revision may be gone.
    pub fn compacted(&self) -> Revision {
        self.inner.shared.state.read().compacted
    }

    /// Reads one object.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.find(&key.resource, &key.namespace, &key.name)
    }

    /// Reads one object by the parts of its key, which need not be shared texts.
    pub fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let rewind = self.inner.shared.rewound(resource);
        let state = self.inner.shared.state.read();
        match rewind {
            Some(at) if at < state.head => state.find_at(resource, namespace, name, at).cloned(),
            _ => state.find(resource, namespace, name).cloned(),
        }
    }

    /// Reads one object as it really is, whatever faults are set. This is what a write is based on.
    pub fn current(&self, key: &Key) -> Option<Arc<Object>> {
        self.inner.shared.state.read().get(key).cloned()
    }

    /// Lists a resource in the order of `namespace/name`: one namespace or all, now or at a revision, behind a
    /// position, at most `limit` objects.
    pub fn list(
        &self,
        resource: &str,
        namespace: Option<&str>,
        at: Option<Revision>,
        after: Option<(&str, &str)>,
        limit: Option<usize>,
    ) -> Result<Page, ListError> {
        let rewind = self.inner.shared.rewound(resource);
        let state = self.inner.shared.state.read();
        let head = state.head.min(rewind.unwrap_or(state.head));
        let at = at.unwrap_or(head);
        if at > head {
            return Err(ListError::Future { at, head });
        }
        if at < state.compacted {
            return Err(ListError::Compacted { at, compacted: state.compacted });
        }
        Ok(state.list(resource, at, Selection { namespace, after, limit }))
    }

    /// How many objects a resource has, in one namespace or in all.
    pub fn count(&self, resource: &str, namespace: Option<&str>) -> usize {
        self.inner.shared.state.read().count(resource, namespace)
    }

    /// The resources that have objects, in alphabetical order.
    pub fn resources(&self) -> Vec<Arc<str>> {
        self.inner.shared.state.read().resources()
    }

    /// Commits one write. When it returns, the write is durable and visible. The write may still happen when the
    /// future is dropped.
    pub async fn write(&self, write: Write) -> Result<Committed, WriteError> {
        match &self.inner.backend {
            Backend::Memory(names) => self.inner.shared.commit_inline(write, &mut names.lock()),
            Backend::Disk(writer) => writer.write(write).await,
        }
    }

    /// Watches a resource, in all namespaces or in one: every change after the revision `from`.
    pub fn watch(&self, resource: &str, namespace: Option<&str>, from: Revision) -> Result<Watch, WatchError> {
        Watch::open(self.inner.shared.clone(), resource, namespace, from)
    }

    /// Waits until the store has reached a revision.
    pub async fn wait_for(&self, revision: Revision) {
        loop {
            let grown = self.inner.shared.grown.notified();
            if self.revision() >= revision {
                return;
            }
            grown.await;
        }
    }

    /// Forgets the history up to a revision; the objects stay. Returns the revision that is compacted now.
    pub async fn compact(&self, upto: Revision) -> Result<Revision, WriteError> {
        match &self.inner.backend {
            Backend::Memory(_) => {
                let mut state = self.inner.shared.state.write();
                let upto = upto.min(state.head);
                state.trim(upto);
                Ok(state.compacted)
            }
            Backend::Disk(writer) => writer.compact(upto).await,
        }
    }

    /// Lets history that is too old or too large go. The owner calls this every few seconds with a clock that does
    /// not go back; how often decides how far the bounds can be overrun.
    pub async fn maintain(&self, now: Duration) -> Result<(), WriteError> {
        let target = {
            let state = self.inner.shared.state.read();
            self.inner.calendar.lock().target(now, &state)
        };
        match target {
            Some(upto) => self.compact(upto).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Faults that tests can set.
    pub fn faults(&self) -> WatchFaults<'_> {
        WatchFaults::new(&self.inner.shared)
    }

    /// Figures for metrics and tests.
    pub fn stats(&self) -> Stats {
        let transactions = self.inner.shared.transactions.load(Ordering::Relaxed);
        let state = self.inner.shared.state.read();
        Stats { transactions, events: state.ledger.len(), history_bytes: state.history_bytes }
    }

    /// Ends all watches and refuses further writes. Happens by itself when the last clone goes.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    fn close(&self) {
        self.shared.state.write().close();
        if let Backend::Disk(writer) = &self.backend {
            writer.stop();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn new(state: State) -> Arc<Shared> {
        Arc::new(Shared {
            state: RwLock::new(state),
            grown: Notify::new(),
            faults: FaultTable::default(),
            transactions: AtomicU64::new(0),
        })
    }

    fn rewound(&self, resource: &str) -> Option<Revision> {
        self.faults.of(resource)?.rewind
    }
}
