//! Guests that move, through all trouble: every death after every write, nodes that die, networks that are cut, and thousands of seeds of
//! everything at once.
//!
//! - `SIMULATION_SEED=123 cargo test -p ferrovirt-testkit --test moves one_move_seed -- --nocapture` plays one seed and tells how it went.
//! - `SIMULATION_SEEDS=100000 cargo test … many_move_seeds` plays more of them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use ferrovirt_api::vm::RunStrategy;
use ferrovirt_testkit::component::Name;
use ferrovirt_testkit::{Course, Kill, MachineCourse, MoveDeed, NodeFate};

use players::{play, play_all, play_seed, play_seeds, play_twice};

mod players;

/// Seeds that are played with every change.
const SEEDS: u64 = 5_000;
/// The same for more nodes and guests, which take longer.
const LARGE_SEEDS: u64 = 300;
/// Writes of ours for a whole move, from the request to the tidied up end; five of them are events, and one tells that the new pod is ready.
const WRITES: u64 = 17;

#[test]
fn a_guest_moves_with_few_writes_of_ours() {
    let outcome = play(&Course::of_moves(&[MoveDeed::Move(0)]));
    let ours = |writes: &std::collections::BTreeMap<String, u64>| -> u64 {
        writes.iter().filter(|(name, _)| name.starts_with("virt-")).map(|(_, count)| count).sum()
    };
    let cost = ours(&outcome.writes_until_moved) - ours(&outcome.writes_until_running);
    assert!(cost <= WRITES, "{cost}: {outcome:?}");
}

/// Courses in which one thing happens after the other, and nothing else is wrong.
fn courses() -> Vec<Course> {
    use MoveDeed::{
        Cancel, Crashes, Cut, Delete, Evacuate, KillSource, KillTarget, LosePod, LoseTarget, Move, NodeDies, PowersOff,
        Stumble,
    };
    let second = Duration::from_secs(1);
    let back = NodeFate::ComesBack(20 * second);
    let fenced = NodeFate::Fenced(20 * second);
    let gone = NodeFate::Gone(20 * second);
    [
        vec![Move(0)],
        vec![Move(0), Cancel(0)],
        vec![Evacuate(0)],
        vec![Evacuate(0), Stumble],
        vec![Move(0), Delete(0)],
        vec![Move(0), PowersOff(0)],
        vec![Move(0), Crashes(0)],
        vec![Move(0), Stumble],
        vec![Move(0), Cut(Some(10 * second))],
        vec![Move(0), Cut(None)],
        vec![Move(0), KillSource(0)],
        vec![Move(0), KillTarget(0)],
        vec![Move(0), NodeDies(0, back)],
        vec![Move(0), NodeDies(1, back)],
        vec![Move(0), NodeDies(0, fenced)],
        vec![Move(0), NodeDies(1, fenced)],
        vec![NodeDies(0, fenced)],
        vec![LosePod(0)],
        vec![Move(0), LosePod(0)],
        vec![Move(0), LoseTarget(0)],
        vec![NodeDies(0, gone)],
        vec![Move(0), NodeDies(0, gone)],
        vec![Move(0), NodeDies(1, gone)],
    ]
    .iter()
    .map(|moves| Course::of_moves(moves))
    .collect()
}

#[test]
fn moves_end_well_when_one_thing_happens_after_the_other() {
    play_all(&courses());
}

/// With six on three nodes it is the limit of the cluster that holds some of them back; that it is kept is checked with every write.
#[test]
fn a_crowd_moves_five_at_a_time() {
    let outcome = play(&Course::of_crowd());
    assert_eq!(outcome.most_moves, 5, "{}", outcome.record);
}

/// What ran on a node that is fenced, or gone and vouched for, runs again on one of the others, also when the guest was moving from there
/// or to there. So does what ran in a pod that somebody deleted by force, once nothing of it is left.
#[test]
fn machines_start_again_when_nothing_of_them_runs_any_more() {
    let fenced = |node| MoveDeed::NodeDies(node, NodeFate::Fenced(Duration::from_secs(20)));
    let gone = |node| MoveDeed::NodeDies(node, NodeFate::Gone(Duration::from_secs(20)));
    let of = |moves: &[MoveDeed]| Course {
        nodes: 3,
        guests: Vec::new(),
        machines: vec![MachineCourse::quiet(RunStrategy::Always)],
        ..Course::of_moves(moves)
    };
    let deaths = (0..3).flat_map(|node| [fenced(node), gone(node)]);
    let losses = [MoveDeed::LosePod(0), MoveDeed::LoseTarget(0)];
    let courses = deaths.chain(losses).flat_map(|deed| [of(&[deed]), of(&[MoveDeed::Move(0), deed])]);
    play_all(&courses.collect::<Vec<_>>());
}

#[test]
fn a_guest_moves_there_and_back_and_there() {
    let moves = (0..3).map(|_| (Duration::from_secs(30), MoveDeed::Move(0))).collect();
    play(&Course { moves, ..Course::quiet() });
}

/// Every component dies after each of its writes.
#[test]
fn moves_end_well_whenever_anybody_dies() {
    let names = (0..2).flat_map(|node| [Name::Handler(node), Name::Kubelet(node)]);
    let names: Vec<Name> = [Name::Controller, Name::Scheduler].into_iter().chain(names).collect();
    let deaths: Vec<Course> = courses()
        .iter()
        .flat_map(|quiet| {
            let writes = play(quiet).writes;
            let kills = names.iter().flat_map(|name| {
                (1..=writes[&name.to_string()]).map(|after_writes| Kill { component: *name, after_writes })
            });
            kills.map(|kill| Course { kills: vec![kill], ..quiet.clone() }).collect::<Vec<_>>()
        })
        .collect();
    assert!(deaths.len() > 200, "everybody writes: {}", deaths.len());
    play_all(&deaths);
}

/// Each write of each component is its last.
#[test]
fn components_that_die_after_all_of_their_writes_move_guests_too() {
    let names = (0..2).map(Name::Handler).chain([Name::Controller]);
    let courses: Vec<Course> = names
        .flat_map(|component| {
            let kills: Vec<Kill> = (1..=60).map(|after_writes| Kill { component, after_writes }).collect();
            [Course { kills, ..Course::of_moves(&[MoveDeed::Move(0)]) }]
        })
        .collect();
    play_all(&courses);
}

#[test]
fn many_move_seeds_end_well() {
    play_seeds(SEEDS, "moves", "one_move_seed", Course::of_move_seed);
}

#[test]
fn many_large_move_seeds_end_well() {
    play_seeds(LARGE_SEEDS, "moves", "one_large_move_seed", Course::of_large_move_seed);
}

#[test]
fn one_large_move_seed() {
    play_seed(Course::of_large_move_seed);
}

#[test]
fn one_move_seed() {
    play_seed(Course::of_move_seed);
}

#[test]
fn a_move_seed_goes_the_same_way_each_time() {
    play_twice(0..50, Course::of_move_seed);
    play_twice(0..5, Course::of_large_move_seed);
}
