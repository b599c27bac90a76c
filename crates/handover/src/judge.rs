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
    /// It failed and the target never ran the guest.
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
    /// The object says that the move failed, for this reason; the guest goes on here.
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
        None if record.failed => SourceOrder::Nothing,
        None if record.abort => SourceOrder::Cancel,
        None if record.has_address => SourceOrder::Begin,
        None => SourceOrder::Nothing,
        Some(SourceStage::Connecting | SourceStage::Copying) if record.failed || record.abort => SourceOrder::Cancel,
        Some(SourceStage::Connecting | SourceStage::Copying) => SourceOrder::Progress,
        Some(SourceStage::Doubtful) if record.failed && record.source_may_resume => SourceOrder::Tell(Verdict::Never),
        Some(SourceStage::Doubtful) if record.failed => SourceOrder::Tell(Verdict::Lost),
        Some(SourceStage::Doubtful) => SourceOrder::Nothing,
        Some(SourceStage::Over(Outcome::Stayed(reason))) if !record.failed => SourceOrder::Fail(reason.clone()),
        Some(SourceStage::Over(Outcome::Stayed(_) | Outcome::Moved)) => SourceOrder::Nothing,
        Some(SourceStage::Over(Outcome::Lost)) => SourceOrder::Lose,
    }
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
