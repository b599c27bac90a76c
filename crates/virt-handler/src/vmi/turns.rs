//! Turns for what makes a node busy: so many VMs start at the same time, the others wait for their turn. Whoever takes longer than usual goes
//! on without one, so that a launcher that does not answer keeps nobody waiting for long.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// With fewer, processors stand idle while disks are made; with more, all of many VMs come up late instead of most of them soon.
const AT_ONCE: usize = 16;
/// A start takes a second, or a few on a busy node.
const TURN: Duration = Duration::from_secs(10);

/// The turns of one node.
pub(crate) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

impl Turns {
    /// Does the work when its turn comes.
    pub(crate) async fn take<T>(&self, work: impl Future<Output = T>) -> T {
        // Nobody closes it, and without a turn the work would be done all the same.
        let turn = self.0.acquire().await;
        tokio::pin!(work);
        match timeout(TURN, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                drop(turn);
                work.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_never_ends_keeps_others_waiting_for_a_turn_and_no_longer() {
        let turns = Arc::new(Turns::default());
        let stuck: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let turns = turns.clone();
                tokio::spawn(async move { turns.take(pending::<()>()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let begin = Instant::now();
        assert_eq!(turns.take(ready(7)).await, 7);
        assert!(begin.elapsed() >= TURN && begin.elapsed() < TURN * 2);
        let begin = Instant::now();
        turns.take(ready(())).await;
        assert_eq!(begin.elapsed(), Duration::ZERO, "the stuck ones have no turn any more");
        stuck.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
