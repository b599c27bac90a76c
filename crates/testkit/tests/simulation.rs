//! Guests through all trouble: every death after every write, and a thousand seeds of everything at once.
//!
//! - `SIMULATION_SEED=123 cargo test -p ferrovirt-testkit --test simulation one_seed -- --nocapture` plays one seed and tells how it went.
//! - `SIMULATION_SEEDS=100000 cargo test …  many_seeds` plays more of them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicU64, Ordering};

use ferrovirt_testkit::component::Name;
use ferrovirt_testkit::{Course, Fate, Kill, Outcome, simulate};

/// Seeds that are played with every change.
const SEEDS: u64 = 1_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn play(course: &Course) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    simulate(course, directory.path()).unwrap_or_else(|wrong| panic!("{course:?}: {wrong}"))
}

#[test]
fn a_guest_comes_up_with_four_writes_of_ours() {
    let outcome = play(&Course::quiet());
    let ours = |(name, _): &(&String, &u64)| name.starts_with("virt-");
    let writes: u64 = outcome.writes_until_running.iter().filter(ours).map(|(_, count)| count).sum();
    assert!(writes <= 4, "{:?}", outcome.writes_until_running);
}

#[test]
fn the_same_course_goes_the_same_way() {
    let course = Course { kills: vec![Kill { component: Name::Controller, after_writes: 1 }], ..Course::quiet() };
    assert_eq!(play(&course), play(&course));
}

/// Every component dies after each of its writes, on the way up and on the way down.
#[test]
fn every_death_after_every_write_ends_well() {
    for fate in [Fate::Obedient, Fate::Stubborn, Fate::PowersOff, Fate::Crashes] {
        let quiet = Course { guests: vec![fate], ..Course::quiet() };
        let writes = play(&quiet).writes;
        let names = (0..2).flat_map(|node| [Name::Handler(node), Name::Kubelet(node)]);
        let mut deaths = 0;
        for component in [Name::Controller, Name::Scheduler].into_iter().chain(names) {
            for after_writes in 1..=writes[&component.to_string()] {
                let kills = vec![Kill { component, after_writes }];
                play(&Course { kills, ..quiet.clone() });
                deaths += 1;
            }
        }
        assert!(deaths >= 6, "{fate:?}: somebody writes: {writes:?}");
    }
}

/// Each write of each component is its last.
#[test]
fn components_that_die_after_all_of_their_writes_get_there_too() {
    let names = (0..2).flat_map(|node| [Name::Handler(node), Name::Kubelet(node)]);
    for component in [Name::Controller, Name::Scheduler].into_iter().chain(names) {
        let kills = (1..=50).map(|after_writes| Kill { component, after_writes }).collect();
        play(&Course { kills, guests: vec![Fate::Obedient, Fate::Stubborn], ..Course::quiet() });
    }
}

#[test]
fn many_seeds_end_well() {
    let seeds = number("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().unwrap().get();
    let failed = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(|| first_failure(&next, seeds))).collect();
        workers.into_iter().filter_map(|worker| worker.join().unwrap()).next()
    });
    if let Some((seed, wrong)) = failed {
        let again = "cargo test -p ferrovirt-testkit --test simulation one_seed -- --nocapture";
        panic!("seed {seed}: {wrong}\n\nplay it again: SIMULATION_SEED={seed} {again}");
    }
}

/// Plays seeds until one fails or none is left.
fn first_failure(next: &AtomicU64, seeds: u64) -> Option<(u64, String)> {
    let directory = tempfile::tempdir().unwrap();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds {
            return None;
        }
        if let Err(wrong) = simulate(&Course::of_seed(seed), directory.path()) {
            next.store(seeds, Ordering::Relaxed);
            return Some((seed, wrong.to_string()));
        }
    }
}

#[test]
fn one_seed() {
    let seed = number("SIMULATION_SEED").unwrap_or_default();
    let outcome = play(&Course::of_seed(seed));
    println!("seed {seed}: {outcome:?}");
}
