//! Never two copies that run: a thread looks all the time which QEMUs of the guest let its processors compute, and so sees too when a copy
//! that was not there at the beginning began to run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    thread: Option<JoinHandle<Seen>>,
}

/// What was seen.
struct Seen {
    /// The most looks in a row in which two copies had run.
    longest: u32,
    /// When a new copy ran first.
    switch_over: Option<Instant>,
}

impl Watchdog {
    /// Begins to look.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (ends, namespace, name) = (is_over.clone(), namespace.to_owned(), name.to_owned());
        let thread = std::thread::spawn(move || {
            let look = || -> HashMap<i32, u64> {
                qemus_of(&namespace, &name).into_iter().map(|pid| (pid, computed_by_processors(pid))).collect()
            };
            let first = look();
            let (mut before, mut row, mut seen) = (first.clone(), 0, Seen { longest: 0, switch_over: None });
            while !ends.load(Ordering::Relaxed) {
                std::thread::park_timeout(GLANCE);
                let now = look();
                let running: Vec<i32> = running(&before, &now).collect();
                row = if running.len() > 1 { row + 1 } else { 0 };
                seen.longest = seen.longest.max(row);
                if seen.switch_over.is_none() && running.iter().any(|pid| !first.contains_key(pid)) {
                    seen.switch_over = Some(Instant::now());
                }
                before = now;
            }
            seen
        });
        Self { is_over, thread: Some(thread) }
    }

    /// Whether two copies ever ran beside each other; when a new one ran first.
    pub(crate) fn judge(mut self) -> Result<Option<Instant>> {
        self.is_over.store(true, Ordering::Relaxed);
        let Some(Ok(seen)) = self.thread.take().map(JoinHandle::join) else { bail!("nobody has looked") };
        if seen.longest >= PROOF {
            let time = u128::from(seen.longest) * GLANCE.as_millis();
            bail!("two copies of the guest ran beside each other for {time} ms");
        }
        Ok(seen.switch_over)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Those that have computed since the last look.
fn running(before: &HashMap<i32, u64>, now: &HashMap<i32, u64>) -> impl Iterator<Item = i32> {
    now.iter().filter(|(pid, ticks)| before.get(*pid).is_some_and(|earlier| earlier < *ticks)).map(|(pid, _)| *pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_computed_run() {
        let before = HashMap::from([(1, 10), (2, 5), (3, 7)]);
        let now = HashMap::from([(1, 11), (2, 5), (3, 9), (4, 100)]);
        let mut running: Vec<i32> = running(&before, &now).collect();
        running.sort_unstable();
        assert_eq!(running, [1, 3]);
    }
}
