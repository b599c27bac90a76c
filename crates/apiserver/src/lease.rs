//! What the server keeps for a client that may never come for it: for a while, and no longer.
//!
//! A client that has asked for much and takes nothing must not keep old objects in memory by that. Nobody asks it, so a timer takes away what
//! it left lying.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

/// Something that is dropped with its lease, or when its time is over.
pub struct Lease<T> {
    kept: Arc<Mutex<Option<T>>>,
    _end: AbortOnDropHandle<()>,
}

impl<T: Send + 'static> Lease<T> {
    /// Keeps `value` for `life`. Has to be called where tokio runs.
    pub fn new(value: T, life: Duration) -> Self {
        let kept = Arc::new(Mutex::new(Some(value)));
        let theirs = kept.clone();
        let end = tokio::spawn(async move {
            tokio::time::sleep(life).await;
            // Dropped without the lock: it may be large.
            let over = theirs.lock().take();
            drop(over);
        });
        Self { kept, _end: AbortOnDropHandle::new(end) }
    }

    /// Works on what is kept; `None` when its time is over.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.kept.lock().as_mut().map(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_is_gone_when_its_time_is_over() {
        let value = Arc::new(());
        let lease = Lease::new(value.clone(), Duration::from_secs(60));
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(lease.with(|kept| Arc::strong_count(kept)), Some(2));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(lease.with(|_| ()), None);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_goes_with_its_lease() {
        let value = Arc::new(());
        let lease = Lease::new(value.clone(), Duration::from_secs(60));
        drop(lease);
        // The timer's task ends at its next turn.
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
