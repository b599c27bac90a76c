//! What happens in one run, all of it decided by a seed.

use std::time::Duration;

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

/// One run.
#[derive(Debug, Clone)]
pub struct Course {
    /// Decides everything that is not said here.
    pub seed: u64,
    /// The guests, and what each does.
    pub guests: Vec<Fate>,
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
        Self { seed: 0, guests: vec![Fate::Obedient], delete_after: None, kills: Vec::new(), chaos: Duration::ZERO }
    }

    /// Whatever the seed brings.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let guests = (0..dice.random_range(1..=2)).map(|_| fate(&mut dice)).collect();
        let hasty = dice.random_bool(0.4);
        let delete_after = hasty.then(|| Duration::from_millis(dice.random_range(0..15_000)));
        let chaos = Duration::from_millis(dice.random_range(2_000..20_000));
        Self { seed, guests, delete_after, kills: Vec::new(), chaos }
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
