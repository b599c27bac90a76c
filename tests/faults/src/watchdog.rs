//! Never two copies that run: a thread looks all the time which QEMUs of the guest let its processors compute.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};
use blackbox::machine::qemus_of;

use crate::processes::computed_by_processors;

/// How often it looks.
const GLANCE: Duration = Duration::from_millis(100);
/// In one look both may have run, one after the other. In so many in a row they ran beside each other.
const PROOF: u32 = 5;

/// Looks until it is asked.
pub(crate) struct Watchdog {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl Watchdog {
    /// Begins to look.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, namespace, name) = (is_over.clone(), namespace.to_owned(), name.to_owned());
        let thread = std::thread::spawn(move || {
            let (mut before, mut row, mut longest) = (HashMap::new(), 0, 0);
            while !ends.load(Ordering::Relaxed) {
                let now: HashMap<i32, u64> =
                    qemus_of(&namespace, &name).into_iter().map(|pid| (pid, computed_by_processors(pid))).collect();
                row = if running(&before, &now) > 1 { row + 1 } else { 0 };
                longest = longest.max(row);
                before = now;
                std::thread::park_timeout(GLANCE);
            }
            longest
        });
        Self { is_over, thread: Some(thread) }
    }

    /// Whether two copies ever ran beside each other.
    pub(crate) fn judge(mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let longest = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(PROOF);
        if longest >= PROOF {
            bail!("two copies of the guest ran beside each other for {} ms", u128::from(longest) * GLANCE.as_millis());
        }
        Ok(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// How many have computed since the last look.
fn running(before: &HashMap<i32, u64>, now: &HashMap<i32, u64>) -> usize {
    now.iter().filter(|(pid, ticks)| before.get(*pid).is_some_and(|earlier| earlier < *ticks)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_computed_run() {
        let before = HashMap::from([(1, 10), (2, 5), (3, 7)]);
        let now = HashMap::from([(1, 11), (2, 5), (3, 9), (4, 100)]);
        assert_eq!(running(&before, &now), 2);
    }
}
