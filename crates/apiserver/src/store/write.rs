//! Writes: what they expect, whether they may happen, and how they become visible.

use std::sync::Arc;

use super::Shared;
use super::object::{Body, Event, Key, Object, Revision};
use super::state::{Names, State};

/// What a write demands of the object's present state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Nothing.
    Any,
    /// There is no such object.
    Absent,
    /// The object is at this revision.
    Revision(Revision),
}

/// What a write does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Creates or replaces the object.
    Put(Body),
    /// Deletes the object.
    Delete,
}

/// One write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The object.
    pub key: Key,
    /// Demands of its present state.
    pub expect: Expect,
    /// The new state.
    pub change: Change,
}

/// Why a write did not happen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// The object exists and should not.
    #[error("{} exists already", .0.key)]
    Exists(Arc<Object>),
    /// The object should exist and does not.
    #[error("there is no such object")]
    Missing,
    /// The object is at another revision than expected; this is its state.
    #[error("{} was changed: it is at revision {}", .0.key, .0.revision)]
    Changed(Arc<Object>),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// The disk failed. Whether the write survives is not known until the store is opened again.
    #[error("writing the store failed: {0}")]
    Io(String),
}

/// What a write did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The write's revision.
    pub revision: Revision,
    /// The new state; `None` after a deletion.
    pub object: Option<Arc<Object>>,
    /// The state before.
    pub previous: Option<Arc<Object>>,
}

impl From<&Event> for Committed {
    fn from(event: &Event) -> Committed {
        Committed { revision: event.revision, object: event.object.clone(), previous: event.previous.clone() }
    }
}

/// Checks a write against the object's present state and makes the event that it will be. Nothing is changed, and a
/// refused write uses no revision.
pub(super) fn decide(
    write: Write,
    current: Option<&Arc<Object>>,
    revision: Revision,
    names: &mut Names,
) -> Result<Event, WriteError> {
    match (write.expect, current) {
        (Expect::Absent, Some(current)) => return Err(WriteError::Exists(current.clone())),
        (Expect::Revision(_), None) => return Err(WriteError::Missing),
        (Expect::Revision(expected), Some(current)) if current.revision != expected => {
            return Err(WriteError::Changed(current.clone()));
        }
        _ => {}
    }
    let key = match current {
        Some(current) => current.key.clone(),
        None => names.share_key(write.key),
    };
    let object = match write.change {
        Change::Put(body) => {
            let created = current.map_or(revision, |current| current.created);
            Some(Arc::new(Object { key: key.clone(), created, revision, body: Arc::new(body) }))
        }
        Change::Delete if current.is_none() => return Err(WriteError::Missing),
        Change::Delete => None,
    };
    Ok(Event { revision, key, object, previous: current.cloned() })
}

impl Shared {
    /// Checks and publishes a write in one step, for stores without files.
    pub(super) fn commit_inline(&self, write: Write, names: &mut Names) -> Result<Committed, WriteError> {
        let mut state = self.state.write();
        if state.closed {
            return Err(WriteError::Closed);
        }
        let current = state.get(&write.key).cloned();
        let event = Arc::new(decide(write, current.as_ref(), state.head + 1, names)?);
        let committed = Committed::from(&*event);
        self.publish(&mut state, vec![event]);
        Ok(committed)
    }

    /// Makes committed events visible and wakes those who wait for them.
    pub(super) fn publish(&self, state: &mut State, events: Vec<Arc<Event>>) {
        let mut touched: Vec<Arc<str>> = Vec::new();
        for event in events {
            if touched.last() != Some(&event.key.resource) {
                touched.push(event.key.resource.clone());
            }
            state.publish(event);
        }
        state.wake(touched.iter().map(|resource| &**resource));
        self.grown.notify_waiters();
    }

    /// Wakes everybody, when it is not known what changed.
    pub(super) fn announce(&self, state: &State) {
        state.wake(state.tables.keys().map(|resource| &**resource));
        self.grown.notify_waiters();
    }
}
