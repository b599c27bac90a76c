//! Guests through all trouble: every death after every write, and a thousand seeds of everything at once.
//!
//! - `SIMULATION_SEED=123 cargo test -p ferrovirt-testkit --test simulation one_seed -- --nocapture` plays one seed and tells how it went.
//! - `SIMULATION_SEEDS=100000 cargo test …  many_seeds` plays more of them.
//! - Machines have seeds of their own: `one_machine_seed`, `many_machine_seeds`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use ferrovirt_api::vm::RunStrategy;
use ferrovirt_testkit::component::Name;
use ferrovirt_testkit::course::STRATEGIES;
use ferrovirt_testkit::{Course, Deed, Farewell, Fate, Kill, MachineCourse};

use players::{play, play_all, play_seed, play_seeds, play_twice};

mod players;

/// Seeds that are played with every change.
const SEEDS: u64 = 1_000;
/// The same for machines, whose runs are longer.
const MACHINE_SEEDS: u64 = 150;

#[test]
fn a_guest_comes_up_with_four_writes_of_ours() {
    let outcome = play(&Course::quiet());
    let ours = |(name, _): &(&String, &u64)| name.starts_with("virt-");
    let writes: u64 = outcome.writes_until_running.iter().filter(ours).map(|(_, count)| count).sum();
    assert!(writes <= 4, "{:?}", outcome.writes_until_running);
}

#[test]
fn a_seed_goes_the_same_way_each_time() {
    play_twice(0..30, Course::of_seed);
    play_twice(0..10, Course::of_machine_seed);
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
    play_seeds(SEEDS, "simulation", "one_seed", Course::of_seed);
}

#[test]
fn many_machine_seeds_end_well() {
    play_seeds(MACHINE_SEEDS, "simulation", "one_machine_seed", Course::of_machine_seed);
}

#[test]
fn one_seed() {
    play_seed(Course::of_seed);
}

#[test]
fn one_machine_seed() {
    play_seed(Course::of_machine_seed);
}

/// A machine's own writes are its revision, its guest, and that it runs. The guest's four are as always.
#[test]
fn a_machine_comes_up_with_seven_writes_of_ours() {
    let outcome = play(&Course::of_machine(MachineCourse::quiet(RunStrategy::Always)));
    let ours = |(name, _): &(&String, &u64)| name.starts_with("virt-");
    let writes: u64 = outcome.writes_until_running.iter().filter(ours).map(|(_, count)| count).sum();
    assert!(writes <= 7, "{:?}", outcome.writes_until_running);
}

/// Machines that are left alone, each with what its first guest does.
fn left_alone() -> impl Iterator<Item = MachineCourse> {
    STRATEGIES.into_iter().flat_map(|strategy| {
        let fates = [vec![], vec![Fate::PowersOff], vec![Fate::Crashes], vec![Fate::Stubborn]];
        fates.map(|fates| MachineCourse { fates, ..MachineCourse::quiet(strategy) })
    })
}

/// A machine that is started, if it does not start by itself, and whose user then does something.
fn used(strategy: RunStrategy, deeds: &[Deed]) -> MachineCourse {
    let first = matches!(strategy, RunStrategy::Manual | RunStrategy::Halted).then_some(Deed::Start);
    let deeds = first.into_iter().chain(deeds.iter().copied()).map(|deed| (Duration::from_secs(8), deed)).collect();
    MachineCourse { deeds, ..MachineCourse::quiet(strategy) }
}

fn left_behind() -> MachineCourse {
    MachineCourse { farewell: Farewell::LeavesGuest, ..MachineCourse::quiet(RunStrategy::Always) }
}

#[test]
fn machines_end_well_when_nothing_is_in_their_way() {
    let uses: [&[Deed]; 4] = [&[Deed::Stop], &[Deed::Restart], &[Deed::Stop, Deed::StartPaused], &[Deed::DeleteGuest]];
    let used = STRATEGIES.into_iter().flat_map(|strategy| uses.map(|deeds| used(strategy, deeds)));
    for machine in left_alone().chain(used).chain([left_behind()]) {
        play(&Course::of_machine(machine));
    }
}

/// virt-controller dies after each of its writes, whatever its machine is at.
#[test]
fn machines_end_well_whenever_their_controller_dies() {
    let fated = |strategy, fate| MachineCourse { fates: vec![fate], ..MachineCourse::quiet(strategy) };
    let courses = [
        fated(RunStrategy::Always, Fate::Crashes),
        fated(RunStrategy::RerunOnFailure, Fate::Crashes),
        fated(RunStrategy::RerunOnFailure, Fate::PowersOff),
        fated(RunStrategy::Once, Fate::PowersOff),
        used(RunStrategy::Manual, &[Deed::Restart]),
        used(RunStrategy::RerunOnFailure, &[Deed::DeleteGuest]),
        used(RunStrategy::Always, &[Deed::Stop, Deed::StartPaused]),
        left_behind(),
    ];
    let deaths: Vec<Course> = courses.into_iter().flat_map(|machine| deaths(&Course::of_machine(machine))).collect();
    assert!(deaths.len() > 50, "it writes: {}", deaths.len());
    play_all(&deaths);
}

/// The course with a death of virt-controller after each of its writes.
fn deaths(quiet: &Course) -> Vec<Course> {
    let component = Name::Controller;
    let writes = play(quiet).writes[&component.to_string()];
    (1..=writes).map(|after_writes| Course { kills: vec![Kill { component, after_writes }], ..quiet.clone() }).collect()
}
