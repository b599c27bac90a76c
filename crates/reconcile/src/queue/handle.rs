//! [`Queue`]: the state machine with a lock, a clock and wake-ups around it.

use std::{future::pending, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::{Priority, QueueCore, QueueHook, QueueKey, Taken, Time};
use crate::backoff::Backoff;

/// Delays may be what somebody has written into an object, and instants do not reach as far as numbers.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How a queue behaves.
pub struct QueueConfig {
    /// The pauses between retries of a failing key.
    pub backoff: Backoff,
    /// Told about everything that happens, for metrics.
    pub hook: Box<dyn QueueHook>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self { backoff: Backoff::default(), hook: Box::new(()) }
    }
}

/// A keyed priority queue that many tasks share; clones are the same queue. The [module](super) says what it promises.
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    core: Mutex<QueueCore<K>>,
    /// Wakes one waiting [`Queue::next`].
    work: Notify,
    /// Wakes everyone who waits for the drain.
    idle: Notify,
    start: Instant,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: QueueKey> Default for Queue<K> {
    fn default() -> Self {
        Self::new(QueueConfig::default())
    }
}

impl<K: QueueKey> Queue<K> {
    /// An empty queue.
    pub fn new(config: QueueConfig) -> Self {
        let core = Mutex::new(QueueCore::new(config.backoff, config.hook));
        let shared = Shared { core, work: Notify::new(), idle: Notify::new(), start: Instant::now() };
        Self { shared: Arc::new(shared) }
    }

    /// Asks for `key` to run as soon as possible.
    pub fn add(&self, key: &K, priority: Priority) {
        self.add_after(key, priority, Duration::ZERO);
    }

    /// Asks for `key` to run after `delay`, unless it runs earlier anyway.
    pub fn add_after(&self, key: &K, priority: Priority, delay: Duration) {
        let now = self.now();
        self.shared.core.lock().add(key, priority, now.saturating_add(delay), now);
        self.shared.work.notify_one();
    }

    /// Waits for the next key. `None` when the queue shuts down and nothing is left to hand out.
    pub async fn next(&self) -> Option<Ticket<K>> {
        loop {
            let due = match self.poll_next() {
                Next::Ticket(ticket) => return Some(ticket),
                Next::Closed => return None,
                Next::Wait(due) => due,
            };
            // `Notify` keeps a wake-up that comes before the wait, so nothing is missed between the look and the wait.
            tokio::select! {
                biased;
                () = self.shared.work.notified() => {}
                () = sleep_until(due.map(|due| self.shared.start + due.min(LONGEST_WAIT))) => {}
            }
        }
    }

    /// Takes the next key if one is ready now.
    pub fn try_next(&self) -> Option<Ticket<K>> {
        match self.poll_next() {
            Next::Ticket(ticket) => Some(ticket),
            Next::Wait(_) | Next::Closed => None,
        }
    }

    /// Refuses further adds, hands out what is ready, forgets what was due later.
    pub fn shut_down(&self) {
        self.shared.core.lock().shut_down(self.now());
        self.shared.work.notify_one();
        self.shared.idle.notify_waiters();
    }

    /// Waits until a queue that was shut down has nothing ready and nothing running.
    pub async fn drained(&self) {
        loop {
            let idle = self.shared.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            {
                let core = self.shared.core.lock();
                if core.is_shutting_down() && core.depth() == 0 && core.running() == 0 {
                    return;
                }
            }
            idle.await;
        }
    }

    /// How many keys are ready.
    pub fn depth(&self) -> usize {
        self.shared.core.lock().depth()
    }

    /// How many keys wait for their time.
    pub fn delayed(&self) -> usize {
        self.shared.core.lock().delayed()
    }

    /// How long each running key has been running, for metrics.
    pub fn running_for(&self) -> Vec<Duration> {
        let now = self.now();
        self.shared.core.lock().running_for(now).collect()
    }

    fn poll_next(&self) -> Next<K> {
        let mut core = self.shared.core.lock();
        match core.take(self.now()) {
            Some(Taken { key, priority, failures }) => {
                // One wake-up can stand for several adds, and this worker is now too busy to keep the next due time in mind:
                // pass both on.
                if core.depth() > 0 || core.next_due().is_some() {
                    self.shared.work.notify_one();
                }
                Next::Ticket(Ticket { queue: self.clone(), key, priority, failures, finished: false })
            }
            // A running key can still come back, so the last worker leaves only when nothing runs.
            None if core.is_shutting_down() && core.running() == 0 => {
                self.shared.work.notify_one();
                Next::Closed
            }
            None => Next::Wait(core.next_due()),
        }
    }

    fn now(&self) -> Time {
        self.shared.start.elapsed()
    }
}

enum Next<K: QueueKey> {
    Ticket(Ticket<K>),
    Wait(Option<Time>),
    Closed,
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}

/// The right to work on one key. While it lives, nobody else gets the same key.
///
/// A ticket that is dropped without one of its endings (a worker that was cancelled or panicked) counts as a failure: the
/// key is retried after its back-off, never lost.
#[must_use = "dropping a ticket counts as a failure of its key"]
pub struct Ticket<K: QueueKey> {
    queue: Queue<K>,
    key: K,
    priority: Priority,
    failures: u32,
    finished: bool,
}

impl<K: QueueKey> Ticket<K> {
    /// The key to work on.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority with which it waited.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How often it has failed in a row before.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Success: forgets failures. The key runs again only if somebody asked meanwhile.
    pub fn done(mut self) {
        self.finish(|core, key, _| core.forget(key));
    }

    /// Success, and look again after `delay` at the latest.
    pub fn done_then_after(mut self, delay: Duration) {
        let priority = self.priority;
        self.finish(|core, key, now| {
            core.forget(key);
            core.add(key, priority, now.saturating_add(delay), now);
        });
    }

    /// No result either way: look again after `delay` at the latest, and remember earlier failures.
    pub fn postpone(mut self, delay: Duration) {
        let priority = self.priority;
        self.finish(|core, key, now| {
            core.add(key, priority, now.saturating_add(delay), now);
        });
    }

    /// Failure: runs again after the key's back-off.
    pub fn retry(mut self) {
        let priority = self.priority;
        self.finish(|core, key, now| {
            core.retry(key, priority, now);
        });
    }

    fn finish(&mut self, outcome: impl FnOnce(&mut QueueCore<K>, &K, Time)) {
        self.finished = true;
        let now = self.queue.now();
        let mut core = self.queue.shared.core.lock();
        outcome(&mut core, &self.key, now);
        core.done(&self.key, now);
        drop(core);
        self.queue.shared.work.notify_one();
        self.queue.shared.idle.notify_waiters();
    }
}

impl<K: QueueKey> Drop for Ticket<K> {
    fn drop(&mut self) {
        if !self.finished {
            let priority = self.priority;
            self.finish(|core, key, now| {
                core.retry(key, priority, now);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_delayed_key_arrives_when_the_paused_clock_gets_there() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.add_after(&"late", Priority::NORMAL, Duration::from_secs(60));
        queue.add_after(&"early", Priority::NORMAL, Duration::from_secs(30));
        let mut seen = Vec::new();
        for _ in 0..2 {
            let ticket = queue.next().await.unwrap();
            seen.push((*ticket.key(), start.elapsed().as_secs()));
            ticket.done();
        }
        assert_eq!(seen, [("early", 30), ("late", 60)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_delay_keeps_nobody_else_waiting() {
        let queue = Queue::default();
        queue.add_after(&"never", Priority::NORMAL, Duration::MAX);
        let worker = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await.map(|ticket| *ticket.key()) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add_after(&"soon", Priority::NORMAL, Duration::from_secs(1));
        assert_eq!(worker.await.unwrap(), Some("soon"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_add_wakes_a_worker_that_sleeps_for_a_later_one() {
        let queue = Queue::default();
        queue.add_after(&1, Priority::NORMAL, Duration::from_secs(600));
        let start = Instant::now();
        let worker = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await.map(|ticket| *ticket.key()) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add_after(&2, Priority::NORMAL, Duration::from_secs(4));
        assert_eq!((worker.await.unwrap(), start.elapsed().as_secs()), (Some(2), 5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_worker_does_not_hold_up_a_due_time_that_only_it_knew() {
        let queue = Queue::default();
        queue.add_after(&"far", Priority::NORMAL, Duration::from_secs(600));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let ticket = queue.next().await.unwrap();
                    let taken = (*ticket.key(), Instant::now());
                    tokio::time::sleep(Duration::from_secs(100)).await;
                    ticket.done();
                    taken
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let start = Instant::now();
        queue.add_after(&"soon", Priority::NORMAL, Duration::from_secs(4));
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add(&"now", Priority::NORMAL);
        let mut taken = Vec::new();
        for worker in workers {
            let (key, at) = worker.await.unwrap();
            taken.push((key, (at - start).as_secs()));
        }
        taken.sort_unstable();
        assert_eq!(taken, [("now", 1), ("soon", 4)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_ticket_is_a_failure_and_the_key_comes_back() {
        let queue = Queue::default();
        queue.add(&"a", Priority::NORMAL);
        drop(queue.next().await);
        let again = queue.next().await.unwrap();
        assert_eq!((*again.key(), again.failures()), ("a", 1));
        again.done();
    }

    #[tokio::test(start_paused = true)]
    async fn every_worker_leaves_after_a_drain() {
        let queue = Queue::default();
        for key in 0..20 {
            queue.add(&key, Priority::NORMAL);
        }
        queue.add_after(&99, Priority::NORMAL, Duration::from_secs(1000));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let mut done = 0;
                    while let Some(ticket) = queue.next().await {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        ticket.done();
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        queue.shut_down();
        queue.drained().await;
        let mut total = 0;
        for worker in workers {
            total += worker.await.unwrap();
        }
        assert_eq!((total, queue.delayed()), (20, 0));
    }
}
