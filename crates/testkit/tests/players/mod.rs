//! Plays courses and seeds, on as many threads as there are processors.
//!
//! `SIMULATION_SEEDS` says how many seeds, `SIMULATION_FIRST` which is the first, `SIMULATION_PART` which part of these (`0/4` to `3/4` are
//! quarters), and `SIMULATION_SEED` the one that is played alone.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrovirt_testkit::{Course, Outcome, simulate};

/// Failed seeds that are told.
const TOLD: usize = 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}: not a number")))
}

/// The seeds of the part that was asked for.
fn part(seeds: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SIMULATION_PART") else { return seeds };
    let parsed = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    match parsed {
        Some((number, of)) if number < of => part_of(&seeds, number, of),
        _ => panic!("SIMULATION_PART={text}: write 0/4, 1/4, 2/4 or 3/4 for a quarter of the seeds"),
    }
}

fn part_of(seeds: &Range<u64>, number: u64, of: u64) -> Range<u64> {
    let length = seeds.end - seeds.start;
    seeds.start + length * number / of..seeds.start + length * (number + 1) / of
}

#[test]
fn parts_follow_each_other() {
    assert_eq!([part_of(&(5..15), 0, 4), part_of(&(5..15), 1, 4)], [5..7, 7..10]);
    assert_eq!([part_of(&(5..15), 2, 4), part_of(&(5..15), 3, 4)], [10..12, 12..15]);
}

/// Plays a course that has to end well.
pub(crate) fn play(course: &Course) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    simulate(course, directory.path()).unwrap_or_else(|wrong| panic!("{course:?}: {wrong}"))
}

/// Plays all of them, and tells of each that went wrong.
pub(crate) fn play_all(courses: &[Course]) {
    let next = AtomicU64::new(0);
    on_all_processors(|| {
        while let Some(course) = courses.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap()) {
            play(course);
        }
    });
}

/// Plays many seeds. Whoever reads of a failure plays it again with the test `alone` of `file`.
pub(crate) fn play_seeds(usual: u64, file: &str, alone: &str, course: fn(u64) -> Course) {
    let first = number("SIMULATION_FIRST").unwrap_or_default();
    let Range { start, end } = part(first..first + number("SIMULATION_SEEDS").unwrap_or(usual));
    let (next, failed) = (AtomicU64::new(start), Mutex::new(Vec::new()));
    on_all_processors(|| {
        let directory = tempfile::tempdir().unwrap();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end || failed.lock().unwrap().len() >= TOLD {
                return;
            }
            if let Err(wrong) = simulate(&course(seed), directory.path()) {
                failed.lock().unwrap().push((seed, wrong.to_string()));
            }
        }
    });
    let failed = failed.into_inner().unwrap();
    if let Some((seed, wrong)) = failed.first() {
        let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
        let again = format!("cargo test -p ferrovirt-testkit --test {file} {alone} -- --nocapture");
        panic!("seed {seed}: {wrong}\n\nfailed: {seeds:?}\nplay it again: SIMULATION_SEED={seed} {again}");
    }
}

/// Plays one seed, and tells how it went.
pub(crate) fn play_seed(course: fn(u64) -> Course) {
    let seed = number("SIMULATION_SEED").unwrap_or_default();
    let course = course(seed);
    let outcome = play(&course);
    println!("{}\n\nseed {seed}: {course:?} {:?}", outcome.record, outcome.writes);
}

/// Plays seeds twice: whatever is not in a seed must not have a say, or nobody could play a failed one again.
pub(crate) fn play_twice(seeds: Range<u64>, course: fn(u64) -> Course) {
    let first = number("SIMULATION_FIRST").unwrap_or_default();
    let (next, end) = (AtomicU64::new(first + seeds.start), first + seeds.end);
    on_all_processors(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let course = course(seed);
            let (one, other) = (play(&course), play(&course));
            let difference = one.record.lines().zip(other.record.lines()).find(|(one, other)| one != other);
            assert_eq!(difference, None, "seed {seed} went another way");
            assert_eq!(one, other, "seed {seed} went another way");
        }
    });
}

fn on_all_processors(work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(&work);
        }
    });
}
