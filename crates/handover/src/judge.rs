//! What handlers make of a move: the object's record on one hand, what their launcher says on the other.

use crate::{Outcome, SourceStage, TargetStage, Verdict};

/// What the guest's object says about its newest move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Record {
    /// The target listens: its address is known.
    pub has_address: bool,
    /// Somebody wants the move to end: it was asked for, or the guest was deleted or has ended.
    pub abort: bool,
    /// The move failed.
    pub failed: bool,
    /// It failed, the target never ran the guest, and it goes on at the source.
    pub source_may_resume: bool,
    /// The object names the target's node: the guest has moved.
    pub is_targets: bool,
}

/// What the source's handler does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceOrder {
    /// Nothing.
    Nothing,
    /// The launcher begins the move.
    Begin,
    /// The launcher calls the move off. One that it never heard of will not begin later.
    Cancel,
    /// The launcher is told how it ended.
    Tell(Verdict),
    /// The object says how far the move is.
    Progress,
    /// The object says that the move failed, for this reason unless it has one, and that the guest goes on here (`sourceMayResume`).
    Fail(String),
    /// The object says that the guest is lost.
    Lose,
}

/// The judgement at the source: of a launcher that can be spoken to and what it says about this move; `None`: it knows nothing of it.
pub fn at_source(record: &Record, stage: Option<&SourceStage>) -> SourceOrder {
    if record.is_targets {
        // Only a source in doubt needs the word; any other knows better.
        return match stage {
            Some(SourceStage::Doubtful) => SourceOrder::Tell(Verdict::Started),
            _ => SourceOrder::Nothing,
        };
    }
    match stage {
        None if record.failed && record.source_may_resume => SourceOrder::Nothing,
        None if record.failed || record.abort => SourceOrder::Cancel,
        None if record.has_address => SourceOrder::Begin,
        None => SourceOrder::Nothing,
        Some(SourceStage::Connecting | SourceStage::Copying) if record.failed || record.abort => SourceOrder::Cancel,
        Some(SourceStage::Connecting | SourceStage::Copying) => SourceOrder::Progress,
        Some(SourceStage::Doubtful) if record.failed && record.source_may_resume => SourceOrder::Tell(Verdict::Never),
        Some(SourceStage::Doubtful) if record.failed => SourceOrder::Tell(Verdict::Lost),
        Some(SourceStage::Doubtful) => SourceOrder::Nothing,
        // Also where it failed already: only when the object says that the guest goes on here may another move begin.
        Some(SourceStage::Over(Outcome::Stayed(reason))) if !(record.failed && record.source_may_resume) => {
            SourceOrder::Fail(reason.clone())
        }
        Some(SourceStage::Over(Outcome::Stayed(_) | Outcome::Moved)) => SourceOrder::Nothing,
        Some(SourceStage::Over(Outcome::Lost)) => SourceOrder::Lose,
    }
}

/// The judgement at the source of a launcher whose newest move is not the one that the record is about.
///
/// A record is replaced by the next move's only when the guest has moved, or when it says that the source may go on. The guest is still
/// here, so it did not move: a launcher that is not done with that older move can have its word. It may be in doubt, or nobody has told
/// it yet that the move was called off; the next one cannot begin before it knows.
pub fn at_source_of_older(stage: &SourceStage) -> Option<Verdict> {
    (!matches!(stage, SourceStage::Over(_))).then_some(Verdict::Never)
}

/// What the last words of a source's launcher say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceWords {
    /// It ended with its guest, and never told the target to run it.
    NeverFinished,
    /// It told the target, or nobody knows.
    Unknown,
}

/// What the source's handler does about a launcher that has ended during a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedSourceOrder {
    /// Nothing: the target's handler has the word.
    Nothing,
    /// The object asks for the move's end, so that a target that waits says how it is with the guest.
    Abort,
    /// The object says that the guest ended.
    End,
}

/// The judgement at the source when its launcher's pod has ended. The guest may run at the target, unless somebody knows better.
pub fn at_ended_source(record: &Record, words: SourceWords) -> EndedSourceOrder {
    if record.is_targets {
        return EndedSourceOrder::Nothing;
    }
    // Without an address nobody was ever told anything. (The object is written on the condition that it is still like this.)
    if record.failed || words == SourceWords::NeverFinished || !record.has_address {
        return EndedSourceOrder::End;
    }
    if record.abort { EndedSourceOrder::Nothing } else { EndedSourceOrder::Abort }
}

/// What the target's handler knows about its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSeen<'a> {
    /// Nothing: it was not heard yet, or cannot be reached. No reason for anything.
    Silence,
    /// It knows nothing of the move.
    Idle,
    /// It is at this stage.
    At(&'a TargetStage),
    /// Its pod ended, and its last words are that it never ran the guest.
    EndedUnstarted,
    /// Its pod ended, and nobody knows whether it ran the guest.
    EndedUnknown,
}

/// What the target's handler does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetOrder {
    /// Nothing.
    Nothing,
    /// Links, disks and libvirt are made ready.
    Prepare,
    /// The object gets the address at which this node listens.
    Announce,
    /// The launcher never runs the guest.
    Discard,
    /// The object names this node: the guest is ours.
    TakeOver,
    /// The object says that the move failed, for this reason, and whether the source may go on.
    Fail {
        /// Why.
        reason: String,
        /// The target never ran the guest.
        source_may_resume: bool,
    },
}

/// The judgement at the target.
pub fn at_target(record: &Record, seen: &TargetSeen<'_>) -> TargetOrder {
    if record.is_targets {
        return TargetOrder::Nothing;
    }
    let is_over = record.failed || record.abort;
    let fail = |reason: &str, source_may_resume| match record.failed {
        true => TargetOrder::Nothing,
        false => TargetOrder::Fail { reason: reason.to_owned(), source_may_resume },
    };
    match seen {
        TargetSeen::Silence => TargetOrder::Nothing,
        // Runs here: whatever was written meanwhile, the source does not.
        TargetSeen::At(TargetStage::Started) => TargetOrder::TakeOver,
        TargetSeen::At(TargetStage::Starting) => TargetOrder::Nothing,
        TargetSeen::At(TargetStage::Never(reason)) => fail(reason, true),
        TargetSeen::Idle | TargetSeen::At(TargetStage::Waiting | TargetStage::Receiving) if is_over => {
            TargetOrder::Discard
        }
        TargetSeen::Idle => TargetOrder::Prepare,
        TargetSeen::At(TargetStage::Waiting | TargetStage::Receiving) if !record.has_address => TargetOrder::Announce,
        TargetSeen::At(TargetStage::Waiting | TargetStage::Receiving) => TargetOrder::Nothing,
        TargetSeen::EndedUnstarted => fail("the launcher on the target ended before it had the guest", true),
        TargetSeen::EndedUnknown => {
            fail("the launcher on the target ended, and did not say whether it had run the guest", false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Record =
        Record { has_address: true, abort: false, failed: false, source_may_resume: false, is_targets: false };
    const BEFORE: Record = Record { has_address: false, ..OPEN };
    const UNWANTED: Record = Record { abort: true, ..OPEN };
    const FAILED: Record = Record { failed: true, ..OPEN };
    const FREE: Record = Record { source_may_resume: true, ..FAILED };
    const MOVED: Record = Record { is_targets: true, ..OPEN };
    const ALL: [Record; 6] = [OPEN, BEFORE, UNWANTED, FAILED, FREE, MOVED];

    fn stayed() -> SourceStage {
        SourceStage::Over(Outcome::Stayed("full".to_owned()))
    }

    #[track_caller]
    fn source(stage: Option<&SourceStage>, rows: [(Record, SourceOrder); 6]) {
        for (record, order) in rows {
            assert_eq!(at_source(&record, stage), order, "{record:?} {stage:?}");
        }
    }

    fn each(orders: [SourceOrder; 6]) -> [(Record, SourceOrder); 6] {
        let mut orders = orders.into_iter();
        ALL.map(|record| (record, orders.next().unwrap()))
    }

    #[test]
    fn the_source_begins_when_it_can_and_should() {
        use SourceOrder::{Begin, Cancel, Nothing};
        source(None, each([Begin, Nothing, Cancel, Cancel, Nothing, Nothing]));
    }

    #[test]
    fn a_move_that_runs_is_told_about_or_called_off() {
        use SourceOrder::{Cancel, Nothing, Progress};
        for stage in [SourceStage::Connecting, SourceStage::Copying] {
            source(Some(&stage), each([Progress, Progress, Cancel, Cancel, Cancel, Nothing]));
        }
    }

    #[test]
    fn only_the_object_ends_a_doubt() {
        use SourceOrder::{Nothing, Tell};
        let orders = [Nothing, Nothing, Nothing, Tell(Verdict::Lost), Tell(Verdict::Never), Tell(Verdict::Started)];
        source(Some(&SourceStage::Doubtful), each(orders));
    }

    #[test]
    fn a_guest_that_stayed_is_told_about_once() {
        use SourceOrder::{Fail, Nothing};
        let fail = || Fail("full".to_owned());
        source(Some(&stayed()), each([fail(), fail(), fail(), fail(), Nothing, Nothing]));
    }

    #[test]
    fn who_is_not_done_with_an_older_move_may_go_on() {
        for stage in [SourceStage::Connecting, SourceStage::Copying, SourceStage::Doubtful] {
            assert_eq!(at_source_of_older(&stage), Some(Verdict::Never), "{stage:?}");
        }
        for stage in [stayed(), SourceStage::Over(Outcome::Moved)] {
            assert_eq!(at_source_of_older(&stage), None, "{stage:?}");
        }
    }

    #[test]
    fn a_lost_guest_is_told_about_unless_it_moved() {
        use SourceOrder::{Lose, Nothing};
        source(Some(&SourceStage::Over(Outcome::Lost)), each([Lose, Lose, Lose, Lose, Lose, Nothing]));
        let moved = SourceStage::Over(Outcome::Moved);
        source(Some(&moved), each([Nothing, Nothing, Nothing, Nothing, Nothing, Nothing]));
    }

    #[track_caller]
    fn ended(words: SourceWords, orders: [EndedSourceOrder; 6]) {
        for (record, order) in ALL.into_iter().zip(orders) {
            assert_eq!(at_ended_source(&record, words), order, "{record:?} {words:?}");
        }
    }

    #[test]
    fn a_dead_source_ends_its_guest_only_when_nobody_else_can_have_it() {
        use EndedSourceOrder::{Abort, End, Nothing};
        ended(SourceWords::NeverFinished, [End, End, End, End, End, Nothing]);
        ended(SourceWords::Unknown, [Abort, End, Nothing, End, End, Nothing]);
    }

    #[track_caller]
    fn target(seen: &TargetSeen<'_>, orders: [TargetOrder; 6]) {
        for (record, order) in ALL.into_iter().zip(orders) {
            assert_eq!(at_target(&record, seen), order, "{record:?} {seen:?}");
        }
    }

    #[test]
    fn silence_is_no_reason_for_anything() {
        target(&TargetSeen::Silence, [const { TargetOrder::Nothing }; 6]);
        target(&TargetSeen::At(&TargetStage::Starting), [const { TargetOrder::Nothing }; 6]);
    }

    #[test]
    fn the_target_gets_ready_and_says_so() {
        use TargetOrder::{Announce, Discard, Nothing, Prepare};
        target(&TargetSeen::Idle, [Prepare, Prepare, Discard, Discard, Discard, Nothing]);
        for stage in [TargetStage::Waiting, TargetStage::Receiving] {
            target(&TargetSeen::At(&stage), [Nothing, Announce, Discard, Discard, Discard, Nothing]);
        }
    }

    #[test]
    fn a_guest_that_runs_is_taken_whatever_was_written() {
        use TargetOrder::{Nothing, TakeOver};
        let seen = TargetSeen::At(&TargetStage::Started);
        target(&seen, [TakeOver, TakeOver, TakeOver, TakeOver, TakeOver, Nothing]);
    }

    #[test]
    fn an_end_is_told_about_once_and_with_what_is_known() {
        let fails = |seen: TargetSeen<'_>, free: bool| {
            for record in ALL {
                let order = at_target(&record, &seen);
                match order {
                    TargetOrder::Fail { source_may_resume, reason } => {
                        assert!(!record.failed && !record.is_targets && !reason.is_empty(), "{record:?} {seen:?}");
                        assert_eq!(source_may_resume, free, "{seen:?}");
                    }
                    order => {
                        assert_eq!(order, TargetOrder::Nothing);
                        assert!(record.failed || record.is_targets, "{record:?} {seen:?}");
                    }
                }
            }
        };
        fails(TargetSeen::At(&TargetStage::Never("full".to_owned())), true);
        fails(TargetSeen::EndedUnstarted, true);
        fails(TargetSeen::EndedUnknown, false);
    }
}
