//! How fast the reports of one launcher are heard. Each may lead to a write to the API server, and a hostile launcher has as many as it likes;
//! an honest one has a dozen while its guest starts, and then one now and then.
//!
//! Nothing is lost by hearing slowly: a launcher that is not heard tells only what holds in the end.

use std::time::Duration;

use tokio::time::Instant;

/// One more report is heard at once after each such time.
const INTERVAL: Duration = Duration::from_millis(200);
/// So many are heard at once after a quiet time.
const BURST: u32 = 25;

/// The pace of one launcher.
#[derive(Debug)]
pub(super) struct Pace {
    /// When everything that was heard would have been heard at the even pace.
    even: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { even: now }
    }

    /// A report is heard now; when the next one may be.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        self.even = self.even.max(now) + INTERVAL;
        self.even.checked_sub(INTERVAL * (BURST - 1)).map_or(now, |earliest| earliest.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_heard_at_once_and_what_follows_at_an_even_pace() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        let (mut now, mut heard) = (begin, 0);
        while now == begin {
            now = pace.next(now);
            heard += 1;
        }
        assert_eq!(heard, BURST);
        for _ in 0..100 {
            now = pace.next(now);
        }
        assert_eq!(now - begin, INTERVAL * 101);
        // After a quiet time there is room for a burst again, and for no more than one.
        let later = now + INTERVAL * 1000;
        let mut again = 0;
        while pace.next(later) == later {
            again += 1;
        }
        assert_eq!(again, BURST - 1);
    }
}
