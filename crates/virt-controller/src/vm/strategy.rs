//! The run strategies: one table from strategy, guest and request to the next step.
//!
//! Rows are strategies, columns what the guest is. Words in brackets are the first request that waits, where it matters.
//!
//! ```text
//!                 | no guest              | lives            | Succeeded            | Failed               | deleted
//! ----------------+-----------------------+------------------+----------------------+----------------------+--------
//!  Always         | start, after back-off | let be           | remove               | remove               | wait
//!                 |                       | [stop] remove    |                      |                      |
//!  RerunOnFailure | [start] start         | let be           | remove               | ask for a start      | wait
//!                 | new here: start       | [stop] remove    |                      | [start, stop] remove |
//!                 | else: let be          |                  |                      |                      |
//!  Manual         | [start] start         | let be           | let be               | let be               | wait
//!                 | else: let be          | [stop] remove    | [start, stop] remove | [start, stop] remove |
//!  Halted         | [start] turn Always   | remove           | remove               | remove               | wait
//!                 | else: let be          |                  |                      |                      |
//!  Once           | start                 | let be           | let be               | let be               | wait
//! ```
//!
//! - A **restart** is a stop of this guest followed by a start: the guest is removed, and what starts the next one is the strategy
//!   (`Always`) or the second request.
//! - A start that waits for a **halted** machine is a paused one; others have been [dropped](super::requests) before this table.
//! - A guest that is removed comes back only when its object is gone, whoever held it.
//! - **New here**: the machine has not had a guest under this strategy, as far as its status says.
//! - A guest that failed before anybody deleted it is a crash; one that was deleted and then failed was being stopped.
//! - Back-off belongs to `Always` and `RerunOnFailure`; see [`backoff`](super::backoff).

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vm::RunStrategy;
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;

/// What a machine's guest is, as far as its machine is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// There is none.
    Absent,
    /// It is on its way up, or runs.
    Live,
    /// It ended in order.
    Succeeded,
    /// It ended by a failure.
    Failed,
    /// Somebody has deleted it; it may still be shutting down.
    Leaving,
}

impl Life {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Absent, Self::Live, Self::Succeeded, Self::Failed, Self::Leaving];

    /// What a guest is.
    pub fn of(vmi: Option<&VirtualMachineInstance>) -> Self {
        let Some(vmi) = vmi else { return Self::Absent };
        if vmi.metadata.deletion_timestamp.is_some() {
            return Self::Leaving;
        }
        match vmi.status.as_ref().and_then(|status| status.phase) {
            Some(Phase::Succeeded) => Self::Succeeded,
            Some(Phase::Failed) => Self::Failed,
            _ => Self::Live,
        }
    }

    /// Whether the guest has ended by itself and nobody has deleted it.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// The first request that waits and that concerns the guest that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    None,
    /// Start a guest.
    Start,
    /// Stop this guest.
    Stop,
}

impl Wish {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Start, Self::Stop];
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: all is as it should be.
    LetBe,
    /// Nothing, until the guest's object is gone.
    AwaitTheEnd,
    /// Make a guest.
    Start {
        /// Not before the back-off after failed starts is over.
        after_back_off: bool,
    },
    /// Delete the guest's object, which ends the guest if it lives.
    Remove,
    /// Write down that a start is wanted; the guest is removed after that.
    AskForStart,
    /// Turn the strategy into `Always`: somebody asked for a start.
    TurnAlways,
}

/// The table. `None`: the strategy is one that this controller does not carry out.
///
/// `is_new_here` says that no guest of this machine has been seen under this strategy.
pub fn step(strategy: RunStrategy, life: Life, wish: Wish, is_new_here: bool) -> Option<Step> {
    Some(match (strategy, life, wish) {
        (RunStrategy::WaitAsReceiver, ..) => return None,
        (_, Life::Leaving, _) => Step::AwaitTheEnd,

        (RunStrategy::Always, Life::Absent, _) => Step::Start { after_back_off: true },
        (RunStrategy::Always, Life::Live, Wish::Stop) => Step::Remove,
        (RunStrategy::Always, Life::Live, Wish::None | Wish::Start) => Step::LetBe,
        (RunStrategy::Always, Life::Succeeded | Life::Failed, _) => Step::Remove,

        (RunStrategy::RerunOnFailure, Life::Absent, Wish::Start) => Step::Start { after_back_off: true },
        (RunStrategy::RerunOnFailure, Life::Absent, Wish::None | Wish::Stop) if is_new_here => {
            Step::Start { after_back_off: true }
        }
        (RunStrategy::RerunOnFailure, Life::Absent, Wish::None | Wish::Stop) => Step::LetBe,
        (RunStrategy::RerunOnFailure, Life::Live, Wish::Stop) => Step::Remove,
        (RunStrategy::RerunOnFailure, Life::Live, Wish::None | Wish::Start) => Step::LetBe,
        (RunStrategy::RerunOnFailure, Life::Succeeded, _) => Step::Remove,
        (RunStrategy::RerunOnFailure, Life::Failed, Wish::None) => Step::AskForStart,
        (RunStrategy::RerunOnFailure, Life::Failed, Wish::Start | Wish::Stop) => Step::Remove,

        (RunStrategy::Manual, Life::Absent, Wish::Start) => Step::Start { after_back_off: false },
        (RunStrategy::Manual, Life::Absent, Wish::None | Wish::Stop) => Step::LetBe,
        (RunStrategy::Manual, Life::Live, Wish::Stop) => Step::Remove,
        (RunStrategy::Manual, Life::Live, Wish::None | Wish::Start) => Step::LetBe,
        (RunStrategy::Manual, Life::Succeeded | Life::Failed, Wish::None) => Step::LetBe,
        (RunStrategy::Manual, Life::Succeeded | Life::Failed, Wish::Start | Wish::Stop) => Step::Remove,

        (RunStrategy::Halted, Life::Absent, Wish::Start) => Step::TurnAlways,
        (RunStrategy::Halted, Life::Absent, Wish::None | Wish::Stop) => Step::LetBe,
        (RunStrategy::Halted, Life::Live | Life::Succeeded | Life::Failed, _) => Step::Remove,

        (RunStrategy::Once, Life::Absent, _) => Step::Start { after_back_off: false },
        (RunStrategy::Once, Life::Live | Life::Succeeded | Life::Failed, _) => Step::LetBe,
    })
}

/// Whether a machine in this state is meant to have a guest.
pub fn wants_a_guest(strategy: RunStrategy, life: Life, wish: Wish, is_new_here: bool) -> bool {
    match strategy {
        RunStrategy::Always => true,
        RunStrategy::Halted | RunStrategy::WaitAsReceiver => false,
        RunStrategy::Manual if life == Life::Absent => wish == Wish::Start,
        RunStrategy::Manual => wish != Wish::Stop,
        RunStrategy::RerunOnFailure if life == Life::Absent => wish == Wish::Start || is_new_here,
        RunStrategy::RerunOnFailure => life != Life::Succeeded,
        RunStrategy::Once => life == Life::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};
    use Step::{AskForStart, AwaitTheEnd, LetBe, Remove, TurnAlways};

    const START: Step = Step::Start { after_back_off: false };
    const START_LATER: Step = Step::Start { after_back_off: true };

    /// The table as it is meant, one line for each strategy and state: without a request, with a start, with a stop.
    #[rustfmt::skip]
    const TABLE: [(RunStrategy, Life, [Step; 3]); 25] = [
        (Always, Life::Absent,    [START_LATER, START_LATER, START_LATER]),
        (Always, Life::Live,      [LetBe, LetBe, Remove]),
        (Always, Life::Succeeded, [Remove, Remove, Remove]),
        (Always, Life::Failed,    [Remove, Remove, Remove]),
        (Always, Life::Leaving,   [AwaitTheEnd, AwaitTheEnd, AwaitTheEnd]),

        (RerunOnFailure, Life::Absent,    [LetBe, START_LATER, LetBe]),
        (RerunOnFailure, Life::Live,      [LetBe, LetBe, Remove]),
        (RerunOnFailure, Life::Succeeded, [Remove, Remove, Remove]),
        (RerunOnFailure, Life::Failed,    [AskForStart, Remove, Remove]),
        (RerunOnFailure, Life::Leaving,   [AwaitTheEnd, AwaitTheEnd, AwaitTheEnd]),

        (Manual, Life::Absent,    [LetBe, START, LetBe]),
        (Manual, Life::Live,      [LetBe, LetBe, Remove]),
        (Manual, Life::Succeeded, [LetBe, Remove, Remove]),
        (Manual, Life::Failed,    [LetBe, Remove, Remove]),
        (Manual, Life::Leaving,   [AwaitTheEnd, AwaitTheEnd, AwaitTheEnd]),

        (Halted, Life::Absent,    [LetBe, TurnAlways, LetBe]),
        (Halted, Life::Live,      [Remove, Remove, Remove]),
        (Halted, Life::Succeeded, [Remove, Remove, Remove]),
        (Halted, Life::Failed,    [Remove, Remove, Remove]),
        (Halted, Life::Leaving,   [AwaitTheEnd, AwaitTheEnd, AwaitTheEnd]),

        (Once, Life::Absent,    [START, START, START]),
        (Once, Life::Live,      [LetBe, LetBe, LetBe]),
        (Once, Life::Succeeded, [LetBe, LetBe, LetBe]),
        (Once, Life::Failed,    [LetBe, LetBe, LetBe]),
        (Once, Life::Leaving,   [AwaitTheEnd, AwaitTheEnd, AwaitTheEnd]),
    ];

    #[test]
    fn every_strategy_in_every_state_with_every_request() {
        for (strategy, life, steps) in TABLE {
            for (wish, expected) in Wish::ALL.into_iter().zip(steps) {
                assert_eq!(step(strategy, life, wish, false), Some(expected), "{strategy} {life:?} {wish:?}");
                // That no guest was seen yet matters to one cell only.
                let is_the_cell = strategy == RerunOnFailure && life == Life::Absent;
                let new_here = if is_the_cell { START_LATER } else { expected };
                assert_eq!(step(strategy, life, wish, true), Some(new_here), "{strategy} {life:?} {wish:?}, new here");
            }
        }
    }

    #[test]
    fn receivers_are_not_carried_out() {
        for life in Life::ALL {
            for wish in Wish::ALL {
                assert_eq!(step(RunStrategy::WaitAsReceiver, life, wish, true), None);
            }
        }
    }

    #[test]
    fn whoever_is_started_was_meant_to_have_a_guest() {
        for strategy in [Always, RerunOnFailure, Manual, Halted, Once] {
            for (wish, is_new_here) in Wish::ALL.into_iter().flat_map(|wish| [(wish, false), (wish, true)]) {
                let starts = matches!(step(strategy, Life::Absent, wish, is_new_here), Some(Step::Start { .. }));
                let wanted = wants_a_guest(strategy, Life::Absent, wish, is_new_here);
                assert_eq!(starts, wanted, "{strategy} {wish:?} {is_new_here}");
            }
        }
    }
}
