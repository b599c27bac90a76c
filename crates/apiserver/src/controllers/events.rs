//! Events live for an hour after their last change. One timer waits for the next that is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::Housekeeper;
use crate::store::{Change, Event, Expect, Key, Revision, Write};

/// How long an event lives.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// How long to wait after a failed write.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// What is due when. An event that was written again has two entries, of which the older names a revision that is no
/// longer there.
#[derive(Default)]
pub(super) struct Expiry {
    due: Mutex<BinaryHeap<Reverse<(Timestamp, Revision, Key)>>>,
    sooner: Notify,
}

impl Expiry {
    /// Notes when an event is due.
    pub(super) fn observe(&self, now: Timestamp, event: &Event) {
        if &*event.key.resource != "/events" {
            return;
        }
        let Some(object) = &event.object else { return };
        // What is listed at the start was written at some time before; what is seen being written, now.
        let written =
            if event.previous.is_none() { last_seen(&object.body.value()).unwrap_or(now).min(now) } else { now };
        let due = written.checked_add(LIFETIME).unwrap_or(Timestamp::MAX);
        self.add(due, event.revision, event.key.clone());
    }

    fn add(&self, due: Timestamp, revision: Revision, key: Key) {
        let mut heap = self.due.lock();
        let first = heap.peek().is_none_or(|Reverse((earliest, ..))| due < *earliest);
        heap.push(Reverse((due, revision, key)));
        if first {
            self.sooner.notify_one();
        }
    }

    /// Takes an entry that is due, or says when the next one is.
    fn take(&self, now: Timestamp) -> Result<(Revision, Key), Option<Timestamp>> {
        let mut heap = self.due.lock();
        match heap.peek() {
            Some(Reverse((due, ..))) if *due > now => Err(Some(*due)),
            _ => heap.pop().map(|Reverse((_, revision, key))| (revision, key)).ok_or(None),
        }
    }
}

/// The newest time that an event tells.
fn last_seen(event: &Value) -> Option<Timestamp> {
    ["/metadata/creationTimestamp", "/lastTimestamp", "/series/lastObservedTime"]
        .iter()
        .filter_map(|pointer| event.pointer(pointer)?.as_str()?.parse().ok())
        .max()
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    let expiry = &keeper.events;
    loop {
        let now = keeper.server.environment.now();
        match expiry.take(now) {
            Ok((revision, key)) => {
                // Straight to the store: nobody is asked whether time may pass.
                let write = Write { key: key.clone(), expect: Expect::Revision(revision), change: Change::Delete };
                let is_current = keeper.server.store.current(&key).is_some_and(|object| object.revision == revision);
                if is_current && let Err(error) = keeper.server.store.write(write).await {
                    tracing::debug!(%key, %error, "an old event was not removed");
                    expiry.add(now.checked_add(RETRY).unwrap_or(now), revision, key);
                }
            }
            Err(Some(due)) => {
                let wait = due.duration_since(now).unsigned_abs();
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(wait) => {}
                    () = expiry.sooner.notified() => {}
                }
            }
            Err(None) => expiry.sooner.notified().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn key(name: &str) -> Key {
        Key::new("/events", "ns", name)
    }

    #[test]
    fn entries_come_when_they_are_due_and_in_order() {
        let expiry = Expiry::default();
        assert_eq!(expiry.take(time("2026-01-01T00:00:00Z")), Err(None));
        expiry.add(time("2026-01-01T02:00:00Z"), 8, key("b"));
        expiry.add(time("2026-01-01T01:00:00Z"), 7, key("a"));
        assert_eq!(expiry.take(time("2026-01-01T00:00:00Z")), Err(Some(time("2026-01-01T01:00:00Z"))));
        assert_eq!(expiry.take(time("2026-01-01T03:00:00Z")), Ok((7, key("a"))));
        assert_eq!(expiry.take(time("2026-01-01T03:00:00Z")), Ok((8, key("b"))));
    }

    #[test]
    fn the_newest_time_of_an_event_counts() {
        let event = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "lastTimestamp": "2026-01-01T00:30:00Z", "series": {"lastObservedTime": "2026-01-01T00:40:00.000000Z"},
        });
        assert_eq!(last_seen(&event), Some(time("2026-01-01T00:40:00Z")));
        assert_eq!(last_seen(&json!({"lastTimestamp": null})), None);
    }
}
