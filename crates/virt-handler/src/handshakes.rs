//! Connections whose other end is not known yet. Anybody can open them, so there are only so many: when another one comes, the oldest gives
//! way. A handshake takes milliseconds; whoever opens connections and says nothing keeps nobody else from being heard.

use std::collections::VecDeque;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many may be under way.
const MOST: usize = 64;

/// The handshakes of one listener.
#[derive(Default)]
pub(crate) struct Handshakes(VecDeque<CancellationToken>);

impl Handshakes {
    /// Shakes hands in a task of its own, and goes on with `then` when that ended in time. `who` calls says for the log who was expected.
    pub(crate) fn begin<
        T: Send + 'static,
        E: std::fmt::Display + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    >(
        &mut self,
        who: &'static str,
        welcome: impl Future<Output = Result<T, E>> + Send + 'static,
        then: impl FnOnce(T) -> F + Send + 'static,
    ) {
        if self.0.len() == MOST
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.cancel();
        }
        let gives_way = CancellationToken::new();
        self.0.push_back(gives_way.clone());
        tokio::spawn(async move {
            let welcomed = gives_way.run_until_cancelled(tokio::time::timeout(PATIENCE, welcome)).await;
            match welcomed {
                Some(Ok(Ok(stream))) => then(stream).await,
                Some(Ok(Err(error))) => tracing::debug!(%error, "a caller is not {who}"),
                Some(Err(_)) | None => tracing::debug!("a caller who should be {who} did not shake hands in time"),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::io;

    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_silent_give_way_and_whoever_was_welcomed_stays() {
        let mut handshakes = Handshakes::default();
        let (welcomed, mut heard) = mpsc::unbounded_channel();
        let (left, mut gone) = mpsc::unbounded_channel::<()>();
        let stays = welcomed.clone();
        handshakes.begin("a friend", ready(io::Result::Ok(())), move |()| async move {
            let _ = stays.send(0);
            pending::<()>().await;
        });
        assert_eq!(heard.recv().await, Some(0));
        for _ in 0..MOST {
            let left = left.clone();
            let silent = async move {
                let _left = left;
                pending::<io::Result<()>>().await
            };
            handshakes.begin("a friend", silent, |()| ready(()));
        }
        tokio::task::yield_now().await;
        assert_eq!(left.strong_count(), 1 + MOST, "all of them wait");
        let more = welcomed.clone();
        handshakes.begin("a friend", ready(io::Result::Ok(())), move |()| async move { _ = more.send(1) });
        assert_eq!(heard.recv().await, Some(1));
        while left.strong_count() > MOST {
            tokio::task::yield_now().await;
        }
        assert!(heard.try_recv().is_err(), "who was welcomed first is still here");
        assert_eq!(welcomed.strong_count(), 2);
        tokio::time::sleep(PATIENCE).await;
        drop(left);
        assert_eq!(gone.recv().await, None, "the others had their time");
    }
}
