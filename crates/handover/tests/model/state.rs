//! One moment of a move: two launchers with their hypervisors, two handlers, a controller, the object, and what is under way between them.

use ferrovirt_handover::{Record, Verdict};

use crate::tables::{Machine, Word};

/// The guest's copy at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SourceGuest {
    /// Runs; nothing is sent.
    Runs,
    /// Runs while it is sent.
    Sent,
    /// Stands still.
    Still,
    /// Is no more.
    Gone,
}

/// The guest's copy at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TargetGuest {
    /// There is none yet.
    Absent,
    /// The hypervisor gets ready.
    Preparing,
    /// It receives.
    Receives,
    /// It was told to run the guest, and may do so at any moment.
    Finishing,
    /// Runs.
    Runs,
    /// Is no more.
    Gone,
}

/// A launcher's process and pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Process {
    /// Lives.
    Alive,
    /// Ended, and its last words say that nothing began.
    EndedUnstarted,
    /// Ended, and nobody knows.
    EndedUnknown,
    /// Ended, and its pod is not there any more either.
    Gone,
}

/// What a handler last heard about its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Heard {
    Nothing,
    Idle,
    At(Machine),
    EndedUnstarted,
    EndedUnknown,
}

/// The object's facts; each is written once, and none is taken back, so that two revisions never look the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Object {
    pub(crate) record: Record,
    /// The guest is final: Failed, with a reason.
    pub(crate) ended: bool,
}

impl Object {
    /// What a handler makes of it: the end of the guest ends its move too.
    pub(crate) fn record(&self) -> Record {
        Record { abort: self.record.abort || self.ended, ..self.record }
    }
}

/// A handler: what it has heard. It has no other memory, and a crash takes all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handler {
    /// The object as it was at some moment.
    pub(crate) view: Object,
    pub(crate) heard: Heard,
}

impl Handler {
    pub(crate) const BLANK: Self = Self { view: Object { record: NO_RECORD, ended: false }, heard: Heard::Nothing };
}

const NO_RECORD: Record =
    Record { has_address: false, abort: false, failed: false, source_may_resume: false, is_targets: false };

/// Calls of handlers that are under way: first those to the source, then those to the target. One that is repeated, late or lost is one that stays here for long, or comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    Begin,
    Cancel,
    Tell(u8),
    Prepare,
    Discard,
}

pub(crate) const VERDICTS: [Verdict; 3] = [Verdict::Started, Verdict::Never, Verdict::Lost];

/// Words on their way in one direction, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Lane([Option<Word>; 5]);

impl Lane {
    pub(crate) fn push(&mut self, word: Word) {
        let free = self.0.iter_mut().find(|place| place.is_none()).expect("no lane is this long");
        *free = Some(word);
    }

    pub(crate) fn pop(&mut self) -> Option<Word> {
        let first = self.0[0]?;
        self.0.rotate_left(1);
        self.0[4] = None;
        Some(first)
    }
}

/// A connection between the launchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) to_target: Lane,
    pub(crate) to_source: Lane,
    /// Each end learns of it when it has read as much as reached it, which may be less than was sent.
    pub(crate) is_broken: bool,
    pub(crate) source_holds: bool,
    pub(crate) target_holds: bool,
}

/// The network between the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Network {
    Whole,
    Cut,
    Healed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) source: Option<Machine>,
    pub(crate) source_process: Process,
    pub(crate) source_guest: SourceGuest,
    /// The launcher wants a link.
    pub(crate) wants_link: bool,

    pub(crate) target: Option<Machine>,
    pub(crate) target_process: Process,
    pub(crate) target_guest: TargetGuest,
    /// The guest ran there, if only for a moment.
    pub(crate) target_ran: bool,

    /// The newest is the last. Links that both ends have left are gone.
    pub(crate) links: [Option<Link>; 3],
    pub(crate) calls: [bool; 7],

    pub(crate) source_handler: Handler,
    pub(crate) target_handler: Handler,
    pub(crate) object: Object,
    /// The controller may have read that the move is over and the guest not the target's, and may act on it at any later moment.
    pub(crate) was_over: bool,

    pub(crate) may_crash: bool,
    pub(crate) network: Network,
}

impl State {
    /// The hand-off was written; nobody knows yet.
    pub(crate) fn first() -> Self {
        Self {
            source: None,
            source_process: Process::Alive,
            source_guest: SourceGuest::Runs,
            wants_link: false,
            target: None,
            target_process: Process::Alive,
            target_guest: TargetGuest::Absent,
            target_ran: false,
            links: [None; 3],
            calls: [false; 7],
            source_handler: Handler::BLANK,
            target_handler: Handler::BLANK,
            object: Object::default(),
            was_over: false,
            may_crash: true,
            network: Network::Whole,
        }
    }

    pub(crate) fn call(&mut self, call: Call) -> &mut bool {
        let place = match call {
            Call::Begin => 0,
            Call::Cancel => 1,
            Call::Tell(verdict) => 2 + usize::from(verdict),
            Call::Prepare => 5,
            Call::Discard => 6,
        };
        &mut self.calls[place]
    }

    pub(crate) fn source_runs(&self) -> bool {
        matches!(self.source_guest, SourceGuest::Runs | SourceGuest::Sent)
    }

    /// The copy at the target runs, or may without anybody's leave.
    pub(crate) fn target_may_run(&self) -> bool {
        matches!(self.target_guest, TargetGuest::Finishing | TargetGuest::Runs)
    }
}
