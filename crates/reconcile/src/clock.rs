//! The wall clock, in a form that a simulation can drive.

use jiff::Timestamp;
use tokio::time::Instant;

/// Where timestamps in objects come from.
///
/// Durations in this crate are measured with tokio's monotonic clock, which tests can pause. Timestamps that end up in
/// objects (events, leases, conditions) come from a `Clock`, so that a paused test also writes paused timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub enum Clock {
    /// The machine's clock.
    #[default]
    System,
    /// A clock that starts at `epoch` and moves with tokio's clock.
    Virtual {
        /// The timestamp at `start`.
        epoch: Timestamp,
        /// The moment at which the clock showed `epoch`.
        start: Instant,
    },
}

impl Clock {
    /// A clock that shows `epoch` now and then follows tokio's (possibly paused) clock.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self::Virtual { epoch, start: Instant::now() }
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Virtual { epoch, start } => {
                // Only a test that runs for thousands of years reaches the end of the calendar; it then stands still.
                epoch.checked_add(start.elapsed()).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_follows_tokio() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().as_second(), 90);
    }
}
