//! Watches: cursors into the history of one resource.
//!
//! A watch owns no queue. It remembers how far it has read and pulls from the shared history, so a slow client costs
//! nothing and learns that it is too late when its place in the history is gone.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;

use super::Shared;
use super::faults::Faults;
use super::object::{Event, Revision};
use super::state::State;

/// Why a watch cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WatchError {
    /// Events that the watch has not seen are gone: list again.
    #[error("revision {from} is compacted: the history starts after {compacted}")]
    Compacted {
        /// The last revision that the watch saw.
        from: Revision,
        /// Where the history starts.
        compacted: Revision,
    },
    /// The watch starts in the future.
    #[error("revision {from} is in the future: the store is at {head}")]
    Future {
        /// The revision that was asked for.
        from: Revision,
        /// The store's revision.
        head: Revision,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// A stream of the changes to one resource, in all namespaces or in one.
pub struct Watch {
    shared: Arc<Shared>,
    resource: Arc<str>,
    namespace: Option<Arc<str>>,
    /// Everything up to here was delivered or does not concern this watch.
    cursor: Revision,
    tail: Arc<Notify>,
    /// How many events this watch came by; faults count with it.
    counted: u64,
    /// `Faults::broken` when the watch was opened.
    opened: u64,
    /// Events that a fault delivers a second time.
    again: VecDeque<Arc<Event>>,
}

impl Watch {
    pub(super) fn open(
        shared: Arc<Shared>,
        resource: &str,
        namespace: Option<&str>,
        from: Revision,
    ) -> Result<Watch, WatchError> {
        let faults = shared.faults.of(resource);
        let mut state = shared.state.write();
        if state.closed {
            return Err(WatchError::Closed);
        }
        if from < state.compacted {
            return Err(WatchError::Compacted { from, compacted: state.compacted });
        }
        if from > state.head {
            return Err(WatchError::Future { from, head: state.head });
        }
        let resource: Arc<str> = match state.tables.get_key_value(resource) {
            Some((name, _)) => name.clone(),
            None => resource.into(),
        };
        let tail = state.table(&resource).tail.clone();
        drop(state);
        Ok(Watch {
            shared,
            resource,
            namespace: namespace.map(Into::into),
            cursor: from,
            tail,
            counted: 0,
            opened: faults.map_or(0, |faults| faults.broken),
            again: VecDeque::new(),
        })
    }

    /// Waits for the next change. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Arc<Event>, WatchError> {
        let tail = self.tail.clone();
        loop {
            // Made before looking, so that a change in between wakes us. A store that closes wakes everybody.
            let woken = tail.notified();
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            woken.await;
        }
    }

    /// The next change when there already is one.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, WatchError> {
        let mut one = Vec::new();
        self.drain(1, &mut one)?;
        Ok(one.pop())
    }

    /// Appends up to `max` changes that are there already; cheaper than one call for each.
    pub fn drain(&mut self, max: usize, out: &mut Vec<Arc<Event>>) -> Result<(), WatchError> {
        let faults = self.shared.faults.of(&self.resource);
        let shared = self.shared.clone();
        let state = shared.state.read();
        match faults {
            None => self.pull(&state, state.head, max, |event| out.push(event.clone())),
            Some(faults) => self.drain_faulty(&state, faults, max, out),
        }
    }

    /// The newest revision up to which this watch has delivered everything: what a bookmark may say.
    pub fn progress(&mut self) -> Result<Revision, WatchError> {
        if self.again.is_empty() {
            // Asking for nothing still moves the cursor over what does not concern this watch.
            self.drain(0, &mut Vec::new())?;
        }
        Ok(self.cursor)
    }

    /// The resource that is watched.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Hands up to `max` events to `deliver` and moves the cursor behind the last event that was looked at.
    fn pull(
        &mut self,
        state: &State,
        horizon: Revision,
        max: usize,
        mut deliver: impl FnMut(&Arc<Event>),
    ) -> Result<(), WatchError> {
        if state.closed {
            return Err(WatchError::Closed);
        }
        let Some(table) = state.tables.get(&self.resource) else {
            return Ok(());
        };
        if self.cursor < table.trimmed {
            return Err(WatchError::Compacted { from: self.cursor, compacted: state.compacted });
        }
        let mut left = max;
        for event in table.history_after(self.cursor).take_while(|event| event.revision <= horizon) {
            if self.namespace.as_ref().is_none_or(|namespace| *namespace == event.key.namespace) {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                deliver(event);
            }
            self.cursor = event.revision;
        }
        self.cursor = self.cursor.max(horizon);
        Ok(())
    }

    fn drain_faulty(
        &mut self,
        state: &State,
        faults: Faults,
        max: usize,
        out: &mut Vec<Arc<Event>>,
    ) -> Result<(), WatchError> {
        if self.opened < faults.broken {
            return Err(WatchError::Closed);
        }
        let hits = |every: Option<u64>, count: u64| every.is_some_and(|n| count.is_multiple_of(n));
        let horizon = faults.horizon(state.head);
        let full = out.len().saturating_add(max);
        while out.len() < full {
            if let Some(event) = self.again.pop_front() {
                out.push(event);
                continue;
            }
            let mut found = None;
            self.pull(state, horizon, 1, |event| found = Some(event.clone()))?;
            let Some(event) = found else {
                return Ok(());
            };
            self.counted += 1;
            if hits(faults.repeat_every, self.counted) {
                self.again.push_back(event.clone());
            }
            if !hits(faults.drop_every, self.counted) {
                out.push(event);
            }
        }
        if max == 0 { self.pull(state, horizon, 0, |_| ()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, Expect, Key, Store, Write};
    use super::*;
    use crate::store::Body;
    use serde_json::json;

    async fn put(store: &Store, resource: &str, namespace: &str, name: &str) -> Revision {
        let key = Key::new(resource, namespace, name);
        let body = Body::encode(&json!({"metadata": {"name": name}}));
        store.write(Write { key, expect: Expect::Any, change: Change::Put(body) }).await.unwrap().revision
    }

    #[tokio::test]
    async fn a_waiting_watch_is_woken() {
        let store = Store::memory();
        let mut watch = store.watch("/pods", None, store.revision()).unwrap();
        let waiting = tokio::spawn(async move { watch.next().await });
        tokio::task::yield_now().await;
        let revision = put(&store, "/pods", "a", "x").await;
        assert_eq!(waiting.await.unwrap().unwrap().revision, revision);
    }

    #[tokio::test]
    async fn progress_passes_over_other_resources_but_not_over_what_is_undelivered() {
        let store = Store::memory();
        let mut watch = store.watch("/pods", Some("a"), store.revision()).unwrap();
        put(&store, "/nodes", "", "n").await;
        let other = put(&store, "/pods", "b", "x").await;
        assert_eq!(watch.progress().unwrap(), other);
        let mine = put(&store, "/pods", "a", "x").await;
        put(&store, "/nodes", "", "m").await;
        assert_eq!(watch.progress().unwrap(), other);
        assert_eq!(watch.next().await.unwrap().revision, mine);
        assert_eq!(watch.progress().unwrap(), store.revision());
    }

    #[tokio::test]
    async fn a_slow_watch_is_told_that_it_is_too_late() {
        let store = Store::memory();
        let mut pods = store.watch("/pods", None, store.revision()).unwrap();
        let mut nodes = store.watch("/nodes", None, store.revision()).unwrap();
        put(&store, "/pods", "a", "x").await;
        let last = put(&store, "/pods", "a", "y").await;
        store.compact(last).await.unwrap();
        assert_eq!(pods.next().await.unwrap_err(), WatchError::Compacted { from: 1, compacted: last });
        // Nothing of what was compacted concerned this one.
        assert_eq!(nodes.progress().unwrap(), last);
    }

    #[tokio::test]
    async fn closing_the_store_ends_watches() {
        let store = Store::memory();
        let mut watch = store.watch("/pods", None, 1).unwrap();
        let waiting = tokio::spawn(async move { watch.next().await });
        tokio::task::yield_now().await;
        store.close();
        assert_eq!(waiting.await.unwrap(), Err(WatchError::Closed));
    }
}
