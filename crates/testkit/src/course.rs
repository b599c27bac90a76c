//! What happens in one run, all of it decided by a seed.

use std::time::Duration;

use ferrovirt_api::vm::RunStrategy;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::component::Name;

/// What a guest does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Runs until it is told to power off.
    Obedient,
    /// Runs, and does not listen when it is told to power off.
    Stubborn,
    /// Powers off by itself.
    PowersOff,
    /// Its QEMU dies.
    Crashes,
}

/// A component dies after one of its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Who.
    pub component: Name,
    /// After how many writes, counted from 1. The write is done; its answer is lost.
    pub after_writes: u64,
}

/// What a user does to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Starts it.
    Start,
    /// Starts it, paused.
    StartPaused,
    /// Stops it.
    Stop,
    /// Stops it, and starts it again.
    Restart,
    /// Deletes its guest.
    DeleteGuest,
}

/// How a machine is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// With its guest.
    WithGuest,
    /// Without: the guest goes on, until it is deleted too.
    LeavesGuest,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineCourse {
    /// When it runs.
    pub strategy: RunStrategy,
    /// What its first guests do, one after the other; all later ones are obedient.
    pub fates: Vec<Fate>,
    /// What its user does, each so long after the one before. A refused deed is tried again a few times.
    pub deeds: Vec<(Duration, Deed)>,
    /// How it is deleted.
    pub farewell: Farewell,
}

/// What happens to guests that can move. Numbers are guests, or nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveDeed {
    /// Its user wants the guest on another node.
    Move(usize),
    /// Its user does not want that any more.
    Cancel(usize),
    /// Its node is drained of the guest.
    Evacuate(usize),
    /// The guest powers off by itself.
    PowersOff(usize),
    /// The guest's QEMU dies.
    Crashes(usize),
    /// The guest is deleted.
    Delete(usize),
    /// The nodes do not reach each other, for a time or for good.
    Cut(Option<Duration>),
    /// Every connection between the nodes breaks.
    Stumble,
    /// The launcher that has the guest is killed.
    KillSource(usize),
    /// The launcher that gets the guest is killed.
    KillTarget(usize),
    /// Somebody deletes the pod of the guest by force.
    LosePod(usize),
    /// Somebody deletes the pod that the guest moves to by force.
    LoseTarget(usize),
    /// A node's handler and kubelet stop.
    NodeDies(usize, NodeFate),
}

/// What becomes of a node that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFate {
    /// It answers again.
    ComesBack(Duration),
    /// Somebody makes sure that nothing runs on it any more, and says so.
    Fenced(Duration),
    /// Its object is deleted, and with it those of its pods, while its guests go on. Later somebody switches it off, and vouches for the pods.
    Gone(Duration),
}

/// One run.
#[derive(Debug, Clone)]
pub struct Course {
    /// Decides everything that is not said here.
    pub seed: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// The guests without a machine, and what each does.
    pub guests: Vec<Fate>,
    /// The machines, and what happens to each.
    pub machines: Vec<MachineCourse>,
    /// What happens to the guests once all of them run, each so long after the one before. Those of machines are counted last.
    pub moves: Vec<(Duration, MoveDeed)>,
    /// When the guests are deleted; `None`: when all of them are where they should be.
    pub delete_after: Option<Duration>,
    /// Deaths at exact places.
    pub kills: Vec<Kill>,
    /// How long components die, watches misbehave and requests fail at random.
    pub chaos: Duration,
}

impl Course {
    /// One guest, from its creation to its end, with nothing in its way.
    pub fn quiet() -> Self {
        let guests = vec![Fate::Obedient];
        Self {
            seed: 0,
            nodes: 2,
            guests,
            machines: Vec::new(),
            moves: Vec::new(),
            delete_after: None,
            kills: Vec::new(),
            chaos: Duration::ZERO,
        }
    }

    /// One machine, with nothing in its way.
    pub fn of_machine(machine: MachineCourse) -> Self {
        Self { guests: Vec::new(), machines: vec![machine], ..Self::quiet() }
    }

    /// Machines, with whatever the seed brings.
    pub fn of_machine_seed(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed ^ 0x6d61_6368_696e_6573);
        let machines = (0..dice.random_range(1..=2)).map(|_| MachineCourse::random(&mut dice)).collect();
        let chaos = Duration::from_millis(dice.random_range(2_000..30_000));
        Self { seed, guests: Vec::new(), machines, chaos, ..Self::quiet() }
    }

    /// Whatever the seed brings.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let guests = (0..dice.random_range(1..=2)).map(|_| fate(&mut dice)).collect();
        let hasty = dice.random_bool(0.4);
        let delete_after = hasty.then(|| Duration::from_millis(dice.random_range(0..15_000)));
        let chaos = Duration::from_millis(dice.random_range(2_000..20_000));
        Self { seed, guests, delete_after, chaos, ..Self::quiet() }
    }

    /// One guest to which all of this happens, each a little after the one before.
    pub fn of_moves(moves: &[MoveDeed]) -> Self {
        let moves = moves.iter().map(|deed| (Duration::from_millis(2_500), *deed)).collect();
        Self { moves, ..Self::quiet() }
    }

    /// Guests that move, with whatever the seed brings.
    pub fn of_move_seed(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed ^ 0x006d_6f76_6573);
        let count = if dice.random_bool(0.25) { 2 } else { 1 };
        let fate = |dice: &mut StdRng| if dice.random_bool(0.9) { Fate::Obedient } else { Fate::Stubborn };
        let guests: Vec<Fate> = (0..count).map(|_| fate(&mut dice)).collect();
        let moves = (0..dice.random_range(0..=3)).map(|_| {
            let delay = Duration::from_millis(dice.random_range(0..4_000));
            (delay, move_deed(&mut dice, count))
        });
        let moves = std::iter::once((Duration::ZERO, MoveDeed::Move(0))).chain(moves).collect();
        let chaos = Duration::from_millis(dice.random_range(2_000..15_000));
        Self { seed, guests, moves, chaos, ..Self::quiet() }
    }

    /// Six guests on three nodes, which all want to move at the same time.
    pub fn of_crowd() -> Self {
        let moves = (0..6).map(|guest| (Duration::ZERO, MoveDeed::Move(guest))).collect();
        Self { nodes: 3, guests: vec![Fate::Obedient; 6], moves, ..Self::quiet() }
    }

    /// Three nodes, with whatever the seed brings: now and then a crowd, else machines.
    pub fn of_large_move_seed(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed ^ 0x006c_6172_6765);
        if dice.random_bool(0.2) {
            Self::of_crowd_seed(seed, &mut dice)
        } else {
            Self::of_fenced_machines(seed, &mut dice)
        }
    }

    fn of_crowd_seed(seed: u64, dice: &mut StdRng) -> Self {
        let mut crowd = Self::of_crowd();
        let deeds = (0..dice.random_range(0..=3)).map(|_| {
            let delay = Duration::from_millis(dice.random_range(0..4_000));
            (delay, large_deed(dice, crowd.guests.len()))
        });
        crowd.moves.extend(deeds.collect::<Vec<_>>());
        let chaos = Duration::from_millis(dice.random_range(2_000..15_000));
        Self { seed, chaos, ..crowd }
    }

    /// Machines whose guests move, until one of three nodes dies and is fenced: what it had starts again elsewhere, and not before.
    fn of_fenced_machines(seed: u64, dice: &mut StdRng) -> Self {
        let nodes = 3;
        let count = dice.random_range(1..=2);
        let machines = vec![MachineCourse::quiet(RunStrategy::Always); count];
        let deeds: Vec<_> = (0..dice.random_range(0..=2)).map(|_| large_deed(dice, count)).collect();
        // A machine starts its deleted guest again, and that is no matter of moves.
        let deeds = deeds.into_iter().filter(|deed| !matches!(deed, MoveDeed::Delete(_)));
        let away = Duration::from_millis(dice.random_range(1_000..20_000));
        let fate = if dice.random_bool(0.5) { NodeFate::Fenced(away) } else { NodeFate::Gone(away) };
        let death = MoveDeed::NodeDies(dice.random_range(0..nodes), fate);
        let deeds = std::iter::once(MoveDeed::Move(0)).chain(deeds).chain([death]);
        let moves = deeds.map(|deed| (Duration::from_millis(dice.random_range(0..4_000)), deed)).collect();
        let chaos = Duration::from_millis(dice.random_range(2_000..15_000));
        Self { seed, nodes, guests: Vec::new(), machines, moves, chaos, ..Self::quiet() }
    }

    /// Whether somebody vouches for a node in the end.
    pub(crate) fn has_fence(&self) -> bool {
        self.moves.iter().any(|(_, deed)| matches!(deed, MoveDeed::NodeDies(_, NodeFate::Fenced(_))))
    }
}

/// Strategies that a machine can have.
pub const STRATEGIES: [RunStrategy; 5] =
    [RunStrategy::Always, RunStrategy::RerunOnFailure, RunStrategy::Manual, RunStrategy::Halted, RunStrategy::Once];

impl MachineCourse {
    /// A machine that is left alone.
    pub fn quiet(strategy: RunStrategy) -> Self {
        Self { strategy, fates: Vec::new(), deeds: Vec::new(), farewell: Farewell::WithGuest }
    }

    fn random(dice: &mut StdRng) -> Self {
        const DEEDS: [Deed; 5] = [Deed::Start, Deed::StartPaused, Deed::Stop, Deed::Restart, Deed::DeleteGuest];
        let strategy = STRATEGIES[dice.random_range(0..STRATEGIES.len())];
        let fates = (0..dice.random_range(0..3)).map(|_| fate(dice)).collect();
        let deeds = (0..dice.random_range(0..5))
            .map(|_| (Duration::from_millis(dice.random_range(0..8_000)), DEEDS[dice.random_range(0..DEEDS.len())]));
        let deeds = deeds.collect();
        let farewell = if dice.random_bool(0.25) { Farewell::LeavesGuest } else { Farewell::WithGuest };
        Self { strategy, fates, deeds, farewell }
    }
}

fn fate(dice: &mut StdRng) -> Fate {
    match dice.random_range(0..10) {
        0..6 => Fate::Obedient,
        6..8 => Fate::Stubborn,
        8 => Fate::PowersOff,
        _ => Fate::Crashes,
    }
}

/// What happens in small worlds too, and guests that end by themselves.
fn large_deed(dice: &mut StdRng, guests: usize) -> MoveDeed {
    let guest = dice.random_range(0..guests);
    match dice.random_range(0..10) {
        0 => MoveDeed::PowersOff(guest),
        1 => MoveDeed::Crashes(guest),
        _ => move_deed(dice, guests),
    }
}

fn move_deed(dice: &mut StdRng, guests: usize) -> MoveDeed {
    let guest = dice.random_range(0..guests);
    let mut seconds = |range: std::ops::Range<u64>| Duration::from_millis(dice.random_range(range));
    let (cut, away) = (seconds(500..10_000), seconds(1_000..20_000));
    match dice.random_range(0..28) {
        0..9 => MoveDeed::Move(guest),
        9..12 => MoveDeed::Cancel(guest),
        12..14 => MoveDeed::Evacuate(guest),
        14 => MoveDeed::Delete(guest),
        15..17 => MoveDeed::Cut(Some(cut)),
        17..19 => MoveDeed::Stumble,
        19 => MoveDeed::KillSource(guest),
        20 => MoveDeed::KillTarget(guest),
        24..26 => MoveDeed::LosePod(guest),
        26..28 => MoveDeed::LoseTarget(guest),
        _ => MoveDeed::NodeDies(dice.random_range(0..2), NodeFate::ComesBack(away)),
    }
}
