//! A queue of keys for one worker: a key waits once, however often it is added.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Housekeeper;
use crate::status::ApiResult;

/// How long a key waits after its work failed.
const RETRY: Duration = Duration::from_millis(500);

/// Keys that wait for their worker.
pub(super) struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

struct State<K> {
    order: VecDeque<K>,
    waiting: HashSet<K>,
    /// Keys whose worker wants to hear of related events.
    interested: HashSet<K>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let state = State { order: VecDeque::new(), waiting: HashSet::new(), interested: HashSet::new() };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Adds a key.
    pub(super) fn add(&self, key: K) {
        let mut state = self.state.lock();
        if state.waiting.insert(key.clone()) {
            state.order.push_back(key);
            self.wake.notify_one();
        }
    }

    /// Adds a key that was marked with [`Queue::wait_for_more`].
    pub(super) fn add_if_waiting<Q>(&self, key: &Q)
    where
        K: std::borrow::Borrow<Q> + for<'a> From<&'a Q>,
        Q: Eq + Hash + ?Sized,
    {
        let interested = self.state.lock().interested.contains(key);
        if interested {
            self.add(K::from(key));
        }
    }

    /// Related events add the key again until [`Queue::done_with`].
    pub(super) fn wait_for_more(&self, key: K) {
        self.state.lock().interested.insert(key);
    }

    /// No more related events, please.
    pub(super) fn done_with(&self, key: &K) {
        self.state.lock().interested.remove(key);
    }

    /// The next key, when there is one.
    pub(super) async fn next(&self) -> K {
        loop {
            if let Some(key) = self.take() {
                return key;
            }
            self.wake.notified().await;
        }
    }

    fn take(&self) -> Option<K> {
        let mut state = self.state.lock();
        let key = state.order.pop_front()?;
        state.waiting.remove(&key);
        if !state.order.is_empty() {
            self.wake.notify_one();
        }
        Some(key)
    }
}

/// Works a queue off, one key at a time. A key whose work fails comes back a little later; one whose object is gone
/// does not.
pub(super) async fn work<K: Clone + Eq + Hash + std::fmt::Debug + Send + Sync + 'static>(
    keeper: Arc<Housekeeper>,
    controller: &'static str,
    queue: fn(&Housekeeper) -> &Queue<K>,
    reconcile: for<'a> fn(&'a Arc<Housekeeper>, &'a K) -> BoxFuture<'a, ApiResult<()>>,
) {
    loop {
        let key = queue(&keeper).next().await;
        match reconcile(&keeper, &key).await {
            Err(error) if error.code() != http::StatusCode::NOT_FOUND => {
                tracing::debug!(controller, ?key, %error, "not reconciled yet");
                add_later(&keeper, queue, key, RETRY);
            }
            _ => {}
        }
    }
}

/// Adds a key after a while.
pub(super) fn add_later<K: Clone + Eq + Hash + Send + Sync + 'static>(
    keeper: &Arc<Housekeeper>,
    queue: fn(&Housekeeper) -> &Queue<K>,
    key: K,
    after: Duration,
) {
    let later = keeper.clone();
    keeper.spawn(async move {
        tokio::time::sleep(after).await;
        queue(&later).add(key);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_waits_once_and_in_order() {
        let queue = Queue::<String>::default();
        for key in ["a", "b", "a"] {
            queue.add(key.to_owned());
        }
        assert_eq!(queue.next().await, "a");
        queue.add("a".to_owned());
        assert_eq!(queue.next().await, "b");
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test]
    async fn related_events_count_only_while_somebody_waits() {
        let queue = Queue::<String>::default();
        queue.add_if_waiting("x");
        queue.add("y".to_owned());
        assert_eq!(queue.next().await, "y");
        queue.wait_for_more("x".to_owned());
        queue.add_if_waiting("x");
        assert_eq!(queue.next().await, "x");
    }
}
