//! How much history is kept.

use std::collections::VecDeque;
use std::time::Duration;

use super::object::Revision;
use super::state::State;

/// The bounds of the history. Size goes before age: a store that is written too fast keeps less than `keep`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// History younger than this is kept while it fits.
    pub keep: Duration,
    /// At most this much memory for superseded states.
    pub max_bytes: usize,
    /// At most this many events.
    pub max_events: usize,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { keep: Duration::from_secs(300), max_bytes: 64 << 20, max_events: 100_000 }
    }
}

/// Remembers which revision the store had when, to know how old history is without a time in every event.
pub(super) struct Calendar {
    retention: Retention,
    marks: VecDeque<(Duration, Revision)>,
}

impl Calendar {
    pub(super) fn new(retention: Retention) -> Calendar {
        Calendar { retention, marks: VecDeque::new() }
    }

    /// The revision to compact to, when there is something to compact.
    pub(super) fn target(&mut self, now: Duration, state: &State) -> Option<Revision> {
        self.mark(now, state.head);
        let target = self.too_old(now).max(self.too_much(state))?;
        let oldest = state.ledger.front()?.0;
        (target >= oldest).then_some(target)
    }

    /// Notes the head, ten times per `keep`, so that compactions by age come in batches.
    fn mark(&mut self, now: Duration, head: Revision) {
        let spacing = self.retention.keep / 10;
        if self.marks.back().is_none_or(|(then, _)| now >= *then + spacing) {
            self.marks.push_back((now, head));
        }
    }

    fn too_old(&mut self, now: Duration) -> Option<Revision> {
        let old = self.marks.partition_point(|(then, _)| *then + self.retention.keep <= now);
        self.marks.drain(..old).next_back().map(|(_, revision)| revision)
    }

    fn too_much(&self, state: &State) -> Option<Revision> {
        let mut events = state.ledger.len().saturating_sub(self.retention.max_events);
        let mut bytes = state.history_bytes.saturating_sub(self.retention.max_bytes);
        let mut target = None;
        for &(revision, cost) in &state.ledger {
            if events == 0 && bytes == 0 {
                break;
            }
            target = Some(revision);
            events = events.saturating_sub(1);
            bytes = bytes.saturating_sub(cost);
        }
        target
    }
}
