//! The queue as a state machine: every operation takes the time and returns at once.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{Priority, QueueHook, QueueKey};
use crate::backoff::Backoff;

/// A moment, as the time since the queue was made.
pub type Time = Duration;

/// A key that was handed out for processing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<K> {
    /// The key.
    pub key: K,
    /// The priority with which it waited.
    pub priority: Priority,
    /// How often it has failed in a row before this run.
    pub failures: u32,
}

/// Where a known key is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Neither waiting nor running; kept only because its failures are remembered.
    Idle,
    /// Waits in `delayed` under `(due, order)`.
    Delayed { due: Time, order: u64, priority: Priority },
    /// Waits in `ready` under `(priority, order)`.
    Ready { since: Time, order: u64, priority: Priority },
    /// Handed out. `again` is what was asked for in the meantime.
    Running { since: Time, again: Option<(Time, Priority)> },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    phase: Phase,
    failures: u32,
}

/// The state machine behind [`Queue`](super::Queue). The [module](super) draws its states.
pub struct QueueCore<K> {
    entries: HashMap<K, Entry>,
    ready: BTreeMap<(Reverse<Priority>, u64), K>,
    delayed: BTreeMap<(Time, u64), K>,
    running: usize,
    /// Numbers arrivals, so that equals leave in the order in which they came.
    next_order: u64,
    shutting_down: bool,
    backoff: Backoff,
    hook: Box<dyn QueueHook>,
}

impl<K: QueueKey> QueueCore<K> {
    /// An empty queue.
    pub fn new(backoff: Backoff, hook: Box<dyn QueueHook>) -> Self {
        Self {
            entries: HashMap::new(),
            ready: BTreeMap::new(),
            delayed: BTreeMap::new(),
            running: 0,
            next_order: 0,
            shutting_down: false,
            backoff,
            hook,
        }
    }

    /// Asks for `key` to run at `due` or sooner, with `priority` or higher. Returns false when the queue is shutting down.
    pub fn add(&mut self, key: &K, priority: Priority, due: Time, now: Time) -> bool {
        if self.shutting_down {
            return false;
        }
        self.schedule(key, priority, due, now);
        true
    }

    /// Counts a failure of `key` and asks for another run after its back-off. Returns the pause.
    pub fn retry(&mut self, key: &K, priority: Priority, now: Time) -> Duration {
        let entry = self.entries.entry(key.clone()).or_insert(Entry { phase: Phase::Idle, failures: 0 });
        entry.failures = entry.failures.saturating_add(1);
        let pause = self.backoff.delay(key, entry.failures);
        if self.add(key, priority, now.saturating_add(pause), now) {
            self.hook.retried();
        } else {
            self.drop_if_idle(key);
        }
        pause
    }

    /// Forgets the failures of `key`. What it waits for stays.
    pub fn forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
        }
        self.drop_if_idle(key);
    }

    /// How often `key` has failed in a row.
    pub fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// Hands out the key to run next, if one is ready. It runs until [`done`](Self::done).
    pub fn take(&mut self, now: Time) -> Option<Taken<K>> {
        self.promote(now);
        let ((Reverse(priority), _), key) = self.ready.pop_first()?;
        let entry = self.entries.get_mut(&key)?;
        let Phase::Ready { since, .. } = entry.phase else { return None };
        entry.phase = Phase::Running { since: now, again: None };
        let failures = entry.failures;
        self.running += 1;
        self.hook.taken(now.saturating_sub(since), self.ready.len());
        Some(Taken { key, priority, failures })
    }

    /// Ends the run of `key`; if it was added meanwhile, it waits again. A key that does not run is left alone.
    pub fn done(&mut self, key: &K, now: Time) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Phase::Running { since, again } = entry.phase else { return };
        entry.phase = Phase::Idle;
        self.running -= 1;
        self.hook.finished(now.saturating_sub(since));
        match again {
            // A wish for later is pointless once the queue shuts down; what is due now is part of the drain.
            Some((due, priority)) if !self.shutting_down || due <= now => self.schedule(key, priority, due, now),
            _ => self.drop_if_idle(key),
        }
    }

    /// When the next delayed key becomes ready.
    pub fn next_due(&self) -> Option<Time> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    /// Refuses further adds and forgets what was due later. What is ready is still handed out.
    pub fn shut_down(&mut self, now: Time) {
        self.promote(now);
        self.shutting_down = true;
        for key in std::mem::take(&mut self.delayed).into_values() {
            self.entries.remove(&key);
        }
    }

    /// Whether [`shut_down`](Self::shut_down) was called.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// How many keys are ready.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// How many keys wait for their time.
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// How many keys run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// How long each running key has been running.
    pub fn running_for(&self, now: Time) -> impl Iterator<Item = Duration> + '_ {
        self.entries.values().filter_map(move |entry| match entry.phase {
            Phase::Running { since, .. } => Some(now.saturating_sub(since)),
            _ => None,
        })
    }

    /// Merges a wish into whatever the key is doing.
    fn schedule(&mut self, key: &K, priority: Priority, due: Time, now: Time) {
        // First what became due before this moment, so that it also stands in line before this add.
        self.promote(now);
        let phase = self.entries.get(key).map_or(Phase::Idle, |entry| entry.phase);
        match phase {
            Phase::Idle => self.place(key, priority, due, now),
            Phase::Delayed { due: earlier, order, priority: before } => {
                self.delayed.remove(&(earlier, order));
                self.place(key, priority.max(before), due.min(earlier), now);
            }
            Phase::Ready { since, order, priority: before } => {
                if priority > before {
                    self.ready.remove(&(Reverse(before), order));
                    self.ready.insert((Reverse(priority), order), key.clone());
                    self.set_phase(key, Phase::Ready { since, order, priority });
                }
            }
            Phase::Running { since, again } => {
                let (due, priority) = match again {
                    Some((earlier, before)) => (due.min(earlier), priority.max(before)),
                    None => (due, priority),
                };
                self.set_phase(key, Phase::Running { since, again: Some((due, priority)) });
            }
        }
    }

    /// Puts a key that is in neither list into the right one.
    fn place(&mut self, key: &K, priority: Priority, due: Time, now: Time) {
        let order = self.next_order;
        self.next_order += 1;
        if due <= now {
            self.ready.insert((Reverse(priority), order), key.clone());
            self.set_phase(key, Phase::Ready { since: due, order, priority });
            self.hook.became_ready(self.ready.len());
        } else {
            self.delayed.insert((due, order), key.clone());
            self.set_phase(key, Phase::Delayed { due, order, priority });
        }
    }

    /// Moves what is due from delayed to ready, the longest overdue first.
    fn promote(&mut self, now: Time) {
        while let Some(((due, _), _)) = self.delayed.first_key_value()
            && *due <= now
            && let Some(((due, _), key)) = self.delayed.pop_first()
        {
            if let Some(Entry { phase: Phase::Delayed { priority, .. }, .. }) = self.entries.get(&key).copied() {
                self.place(&key, priority, due, now);
            }
        }
    }

    fn set_phase(&mut self, key: &K, phase: Phase) {
        match self.entries.get_mut(key) {
            Some(entry) => entry.phase = phase,
            None => {
                self.entries.insert(key.clone(), Entry { phase, failures: 0 });
            }
        }
    }

    /// Keeps memory proportional to what waits, runs or fails.
    fn drop_if_idle(&mut self, key: &K) {
        if let Some(Entry { phase: Phase::Idle, failures }) = self.entries.get(key)
            && (*failures == 0 || self.shutting_down)
        {
            self.entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;

    fn queue() -> QueueCore<&'static str> {
        let backoff = Backoff { base: Duration::from_secs(1), jitter: 0.0, ..Backoff::default() };
        QueueCore::new(backoff, Box::new(()))
    }

    fn at(seconds: u64) -> Time {
        Duration::from_secs(seconds)
    }

    fn order(queue: &mut QueueCore<&'static str>, now: Time) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.take(now)).map(|taken| taken.key).collect()
    }

    #[test]
    fn equal_priorities_leave_in_order_and_higher_ones_first() {
        let mut queue = queue();
        for (key, priority) in [("a", 0), ("b", 0), ("c", 5), ("d", 0)] {
            queue.add(&key, Priority(priority), NOW, NOW);
        }
        assert_eq!(order(&mut queue, NOW), ["c", "a", "b", "d"]);
    }

    #[test]
    fn raising_a_waiting_key_keeps_its_place_among_its_new_equals() {
        let mut queue = queue();
        queue.add(&"old", Priority(0), NOW, NOW);
        queue.add(&"new", Priority(9), NOW, NOW);
        queue.add(&"old", Priority(9), NOW, NOW);
        queue.add(&"new", Priority(1), NOW, NOW);
        assert_eq!(order(&mut queue, NOW), ["old", "new"]);
    }

    #[test]
    fn the_earliest_due_time_wins_both_ways() {
        let mut queue = queue();
        queue.add(&"a", Priority::NORMAL, at(10), NOW);
        queue.add(&"a", Priority::NORMAL, at(30), NOW);
        assert_eq!(queue.next_due(), Some(at(10)));
        queue.add(&"a", Priority::NORMAL, at(5), NOW);
        assert_eq!((queue.next_due(), queue.delayed()), (Some(at(5)), 1));
        assert_eq!(order(&mut queue, at(4)), Vec::<&str>::new());
        assert_eq!(order(&mut queue, at(5)), ["a"]);
    }

    #[test]
    fn a_key_added_while_it_runs_runs_once_more() {
        let mut queue = queue();
        queue.add(&"a", Priority::NORMAL, NOW, NOW);
        queue.take(NOW).unwrap();
        queue.add(&"a", Priority::NORMAL, NOW, NOW);
        queue.add(&"a", Priority::NORMAL, at(60), NOW);
        assert_eq!(queue.take(NOW), None);
        queue.done(&"a", at(1));
        assert_eq!(order(&mut queue, at(1)), ["a"]);
        queue.done(&"a", at(2));
        assert_eq!((queue.take(at(100)), queue.entries.len()), (None, 0));
    }

    #[test]
    fn failures_grow_the_pause_until_forgotten() {
        let mut queue = queue();
        assert_eq!(queue.retry(&"a", Priority::NORMAL, NOW), at(1));
        queue.take(at(1)).unwrap();
        assert_eq!(queue.retry(&"a", Priority::NORMAL, at(1)), at(2));
        queue.done(&"a", at(1));
        assert_eq!(queue.next_due(), Some(at(3)));
        assert_eq!(queue.take(at(3)).unwrap().failures, 2);
        queue.forget(&"a");
        queue.done(&"a", at(3));
        assert_eq!((queue.failures(&"a"), queue.entries.len()), (0, 0));
    }

    #[test]
    fn shutting_down_drains_what_is_ready_and_drops_the_rest() {
        let mut queue = queue();
        queue.add(&"running", Priority::NORMAL, NOW, NOW);
        queue.take(NOW).unwrap();
        queue.add(&"running", Priority::NORMAL, NOW, NOW);
        queue.add(&"ready", Priority::NORMAL, NOW, NOW);
        queue.add(&"due", Priority::NORMAL, at(1), NOW);
        queue.add(&"later", Priority::NORMAL, at(9), NOW);
        queue.shut_down(at(1));
        assert!(!queue.add(&"refused", Priority::URGENT, at(1), at(1)));
        queue.done(&"running", at(1));
        assert_eq!(order(&mut queue, at(100)), ["ready", "due", "running"]);
        for key in ["ready", "due", "running"] {
            queue.retry(&key, Priority::NORMAL, at(100));
            queue.done(&key, at(100));
        }
        assert_eq!((queue.depth(), queue.delayed(), queue.running(), queue.entries.len()), (0, 0, 0, 0));
    }
}
