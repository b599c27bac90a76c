//! Growing pauses between attempts, spread so that many keys do not come back at the same moment.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

/// How long to wait before attempt number `n`: doubling from `base` up to `max`, shortened by a pseudo-random share.
///
/// The spread is not drawn from a random source but computed from the seed, the key and the attempt. Different keys still
/// scatter, and a simulation that fixes the seed repeats exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub base: Duration,
    /// No pause is longer than this.
    pub max: Duration,
    /// The largest share, between 0 and 1, that the spread takes off a pause.
    pub jitter: f64,
    /// Makes two processes (or two simulations) spread differently.
    pub seed: u64,
}

impl Default for Backoff {
    /// 5 ms doubling to 5 minutes: fast enough for a stale cache, slow enough for a broken object.
    fn default() -> Self {
        Self { base: Duration::from_millis(5), max: Duration::from_secs(300), jitter: 0.25, seed: 0 }
    }
}

impl Backoff {
    /// The pause after `failures` failures in a row (counted from 1) of `key`.
    pub fn delay<K: Hash + ?Sized>(&self, key: &K, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(63);
        let full = self.base.as_secs_f64() * 2f64.powi(i32::try_from(doublings).unwrap_or(63));
        let capped = full.min(self.max.as_secs_f64());
        let spread = 1.0 - self.jitter.clamp(0.0, 1.0) * self.share(key, failures);
        Duration::try_from_secs_f64(capped * spread).unwrap_or(self.max)
    }

    /// A number in `[0, 1)` that depends on nothing but seed, key and attempt.
    fn share<K: Hash + ?Sized>(&self, key: &K, failures: u32) -> f64 {
        let mut hasher = DefaultHasher::new();
        self.seed.hash(&mut hasher);
        key.hash(&mut hasher);
        failures.hash(&mut hasher);
        // 32 bits are plenty for a spread and exact in an f64.
        f64::from((hasher.finish() >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_until_the_cap_without_jitter() {
        let backoff = Backoff {
            base: Duration::from_millis(10),
            max: Duration::from_millis(75),
            jitter: 0.0,
            ..Backoff::default()
        };
        let pauses: Vec<_> = (1..=5).map(|n| backoff.delay("vm", n).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 75, 75]);
        assert_eq!(backoff.delay("vm", u32::MAX), backoff.max);
    }

    #[test]
    fn jitter_only_shortens_repeats_itself_and_differs_between_keys() {
        let backoff = Backoff { jitter: 0.5, base: Duration::from_secs(1), ..Backoff::default() };
        let pauses: Vec<_> = (0..50u32).map(|key| backoff.delay(&key, 1)).collect();
        assert!(pauses.iter().all(|pause| *pause <= backoff.base && *pause >= backoff.base / 2));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        assert_eq!(pauses[7], backoff.delay(&7u32, 1));
    }
}
