//! A value that many follow. tokio's `watch` throws dice for the order in which it wakes them; here they are woken in the order in which
//! they came, so that a run repeats itself.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The value. Clones are the same one.
pub(crate) struct Told<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    /// The value, and how often it was changed.
    value: Mutex<(u64, T)>,
    changed: Notify,
}

impl<T: Clone> Told<T> {
    pub(crate) fn new(value: T) -> Self {
        let shared = Shared { value: Mutex::new((0, value)), changed: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn get(&self) -> T {
        self.shared.value.lock().1.clone()
    }

    /// Looks at the value without a copy.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.shared.value.lock().1)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        let mut value = self.shared.value.lock();
        change(&mut value.1);
        value.0 += 1;
        drop(value);
        self.shared.changed.notify_waiters();
    }

    /// Follows the value, of which nothing was seen yet.
    pub(crate) fn follow(&self) -> Followed<T> {
        Followed { shared: self.shared.clone(), seen: None }
    }
}

/// One who follows a value.
pub(crate) struct Followed<T> {
    shared: Arc<Shared<T>>,
    seen: Option<u64>,
}

impl<T: Clone> Followed<T> {
    /// Waits for a value that was not taken yet.
    pub(crate) async fn changed(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if self.seen != Some(self.shared.value.lock().0) {
                return;
            }
            changed.await;
        }
    }

    /// The value as it is.
    pub(crate) fn take(&mut self) -> T {
        let value = self.shared.value.lock();
        self.seen = Some(value.0);
        value.1.clone()
    }

    /// The first value that is right.
    pub(crate) async fn wait_for(&mut self, is_right: impl Fn(&T) -> bool) -> T {
        loop {
            self.changed().await;
            let value = self.take();
            if is_right(&value) {
                return value;
            }
        }
    }
}
