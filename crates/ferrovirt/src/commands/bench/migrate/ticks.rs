//! When a guest ticked, as somebody sees it who reads its serial port wherever it is.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the logs are looked at: a fraction of a tick.
const LOOK: Duration = Duration::from_millis(1);
/// How often it is looked for new logs.
const SEARCH: Duration = Duration::from_millis(20);

/// What a guest writes; every line is a tick. Some print more than one character: what counts is that it moves.
pub(super) const TICKING: &str = "while :; do echo tick >/dev/ttyS0; usleep 10000; done &";

/// Reads logs until it is asked for the longest silence.
pub(super) struct Listener {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Instant>>,
}

impl Listener {
    /// Listens to all logs that `find` finds, now and later. What they hold already is no tick.
    pub(super) fn start(find: impl Fn() -> Vec<PathBuf> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || listen(&find, &stopped));
        Self { stop, thread }
    }

    /// Ends, and tells the longest time without a tick and the usual one.
    pub(super) fn end(self) -> Silence {
        self.stop.store(true, Ordering::Relaxed);
        Silence::of(&self.thread.join().unwrap_or_default())
    }
}

/// Times without a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Silence {
    /// The longest.
    pub(super) longest: Duration,
    /// The usual one: what lies between two ticks.
    pub(super) usual: Duration,
}

impl Silence {
    fn of(ticks: &[Instant]) -> Self {
        let mut gaps: Vec<Duration> = ticks.windows(2).map(|pair| pair[1].saturating_duration_since(pair[0])).collect();
        gaps.sort();
        let usual = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
        Self { longest: gaps.last().copied().unwrap_or_default(), usual }
    }
}

fn listen(find: &dyn Fn() -> Vec<PathBuf>, stop: &AtomicBool) -> Vec<Instant> {
    let mut logs: HashMap<PathBuf, (File, u64)> = HashMap::new();
    let (mut ticks, mut searched, mut is_first) = (Vec::new(), None::<Instant>, true);
    while !stop.load(Ordering::Relaxed) {
        if searched.is_none_or(|last| last.elapsed() >= SEARCH) {
            searched = Some(Instant::now());
            for path in find() {
                if !logs.contains_key(&path)
                    && let Ok(file) = File::open(&path)
                {
                    // A log that appears later is the target's: all of it is new.
                    let length = if is_first { file.metadata().map_or(0, |meta| meta.len()) } else { 0 };
                    logs.insert(path, (file, length));
                }
            }
            is_first = false;
        }
        let heard = logs.values_mut().map(|(file, position)| read_on(file, position)).filter(|heard| *heard).count();
        if heard > 0 {
            ticks.push(Instant::now());
        }
        std::thread::park_timeout(LOOK);
    }
    ticks
}

/// Reads what is new; says whether there was a whole line.
fn read_on(file: &File, position: &mut u64) -> bool {
    let mut buffer = [0; 4096];
    let mut ticked = false;
    while let Ok(count @ 1..) = file.read_at(&mut buffer, *position) {
        *position += count as u64;
        ticked |= buffer[..count].contains(&b'\n');
    }
    ticked
}

/// The whole of a small file, for messages.
pub(super) fn tail(path: &std::path::Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(64 << 10).read_to_string(&mut text));
    if read.is_err() {
        return String::new();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_and_the_usual_silence() {
        let begin = Instant::now();
        let at = |milliseconds: &[u64]| -> Vec<Instant> {
            milliseconds.iter().map(|time| begin + Duration::from_millis(*time)).collect()
        };
        let silence = Silence::of(&at(&[0, 10, 21, 31, 331, 341]));
        assert_eq!(silence, Silence { longest: Duration::from_millis(300), usual: Duration::from_millis(10) });
        assert_eq!(Silence::of(&[]), Silence { longest: Duration::ZERO, usual: Duration::ZERO });
    }

    #[test]
    fn ticks_are_whole_lines_wherever_they_appear() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "ti").unwrap();
        let file = File::open(&path).unwrap();
        let mut position = 0;
        assert!(!read_on(&file, &mut position));
        std::fs::write(&path, "tick\nti").unwrap();
        assert!(read_on(&file, &mut position));
        assert!(!read_on(&file, &mut position));
    }
}
