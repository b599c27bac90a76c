//! The source's side of a move.
//!
//! ```text
//!            prepared           everything sent: Finish
//!  Connecting ──────► Copying ───────────────────────► Doubtful ──── Started ───► Over(Moved)
//!      │                 │                               │  ▲ └────── Never ────► Over(Stayed)
//!      └── refused, cut, cancelled, failed ──────────┐   └──┘ cut: ask again
//!                                                    ▼   └───────── nobody knows ► Over(Lost)
//!                                               Over(Stayed)
//! ```

use serde::{Deserialize, Serialize};

use crate::{ToSource, ToTarget, Verdict};

/// Where a move is, as the source sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceStage {
    /// The target is being reached and gets ready.
    Connecting,
    /// Memory and disks are sent; the guest runs here.
    Copying,
    /// The target was told to run the guest, and has not answered. The guest stands still here.
    Doubtful,
    /// It is over.
    Over(Outcome),
}

/// How a move ended for the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The guest runs on the target.
    Moved,
    /// The guest is still here, for this reason.
    Stayed(String),
    /// The guest may have run on the target, which is gone. It is not run again here.
    Lost,
}

/// What happens to the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SourceInput {
    /// There is a link to the target's launcher: the first, or another.
    Linked,
    /// The link broke.
    LinkLost,
    /// The target said something.
    Heard(ToSource),
    /// The hypervisor has sent everything; the guest stands still.
    Copied,
    /// The hypervisor gave up; the guest runs here, or can.
    CopyFailed(String),
    /// Somebody wants the move to end, for this reason.
    Cancel(String),
    /// What the object says about a move in doubt.
    Told(Verdict),
}

/// What the source does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceAction {
    /// Make a link to the target's launcher.
    OpenLink,
    /// Say it.
    Say(ToTarget),
    /// Send memory and disks.
    Copy,
    /// Stop sending.
    StopCopying,
    /// Run the guest here again, if it stands still because of the move. Repeated until it works.
    Resume,
    /// End the copy here. Repeated until it works.
    Release,
}

/// The machine of one move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    stage: SourceStage,
    /// Why the move is to end, once somebody wants that.
    cancelled: Option<String>,
}

impl Source {
    /// A move begins.
    pub fn begin() -> (Self, Vec<SourceAction>) {
        (Self { stage: SourceStage::Connecting, cancelled: None }, vec![SourceAction::OpenLink])
    }

    /// A move that was called off before it began: it will not begin later.
    pub fn called_off(reason: String) -> Self {
        Self { stage: SourceStage::Over(Outcome::Stayed(reason)), cancelled: None }
    }

    /// Where it is.
    pub fn stage(&self) -> &SourceStage {
        &self.stage
    }

    /// Whether a second move may begin here.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, SourceStage::Over(_))
    }

    /// What follows.
    pub fn on(&mut self, input: SourceInput) -> Vec<SourceAction> {
        match self.stage {
            SourceStage::Connecting => self.connecting(input),
            SourceStage::Copying => self.copying(input),
            SourceStage::Doubtful => self.doubtful(input),
            SourceStage::Over(_) => Vec::new(),
        }
    }

    fn connecting(&mut self, input: SourceInput) -> Vec<SourceAction> {
        match input {
            SourceInput::Linked => vec![SourceAction::Say(ToTarget::Prepare)],
            SourceInput::Heard(ToSource::Prepared) => {
                self.stage = SourceStage::Copying;
                vec![SourceAction::Copy]
            }
            SourceInput::Heard(ToSource::Never(reason))
            | SourceInput::Cancel(reason)
            | SourceInput::CopyFailed(reason) => self.stay(reason),
            SourceInput::LinkLost => self.stay("the connection to the target was lost".to_owned()),
            SourceInput::Told(Verdict::Never | Verdict::Lost) => self.stay("the target gave up".to_owned()),
            // It was not told to, so it is not so.
            SourceInput::Heard(ToSource::Started) | SourceInput::Told(Verdict::Started) | SourceInput::Copied => {
                Vec::new()
            }
        }
    }

    fn copying(&mut self, input: SourceInput) -> Vec<SourceAction> {
        match input {
            SourceInput::Copied => match self.cancelled.take() {
                Some(reason) => self.stay(reason),
                None => {
                    self.stage = SourceStage::Doubtful;
                    vec![SourceAction::Say(ToTarget::Finish)]
                }
            },
            SourceInput::CopyFailed(reason) => {
                let reason = self.cancelled.take().unwrap_or(reason);
                self.stay(reason)
            }
            SourceInput::Heard(ToSource::Never(reason)) | SourceInput::Cancel(reason) => self.cancel(reason),
            SourceInput::LinkLost => self.cancel("the connection to the target was lost".to_owned()),
            SourceInput::Told(Verdict::Never | Verdict::Lost) => self.cancel("the target gave up".to_owned()),
            SourceInput::Linked
            | SourceInput::Heard(ToSource::Prepared | ToSource::Started)
            | SourceInput::Told(Verdict::Started) => Vec::new(),
        }
    }

    fn doubtful(&mut self, input: SourceInput) -> Vec<SourceAction> {
        match input {
            SourceInput::Heard(ToSource::Started) | SourceInput::Told(Verdict::Started) => self.leave(Outcome::Moved),
            SourceInput::Heard(ToSource::Never(reason)) => self.stay(reason),
            SourceInput::Told(Verdict::Never) => self.stay("the target never ran the guest".to_owned()),
            SourceInput::Told(Verdict::Lost) => self.leave(Outcome::Lost),
            SourceInput::LinkLost => vec![SourceAction::OpenLink],
            SourceInput::Linked => vec![SourceAction::Say(ToTarget::Query)],
            // Too late: the target was told.
            SourceInput::Cancel(_)
            | SourceInput::Copied
            | SourceInput::CopyFailed(_)
            | SourceInput::Heard(ToSource::Prepared) => Vec::new(),
        }
    }

    /// The first wish stops the hypervisor, which then says how far it came.
    fn cancel(&mut self, reason: String) -> Vec<SourceAction> {
        let is_first = self.cancelled.is_none();
        self.cancelled.get_or_insert(reason);
        if is_first { vec![SourceAction::StopCopying] } else { Vec::new() }
    }

    fn stay(&mut self, reason: String) -> Vec<SourceAction> {
        self.stage = SourceStage::Over(Outcome::Stayed(reason));
        vec![SourceAction::Resume]
    }

    fn leave(&mut self, outcome: Outcome) -> Vec<SourceAction> {
        self.stage = SourceStage::Over(outcome);
        vec![SourceAction::Release]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(stage: SourceStage, cancelled: Option<&str>) -> Source {
        Source { stage, cancelled: cancelled.map(str::to_owned) }
    }

    fn stayed(reason: &str) -> SourceStage {
        SourceStage::Over(Outcome::Stayed(reason.to_owned()))
    }

    fn text(reason: &str) -> String {
        reason.to_owned()
    }

    #[track_caller]
    fn goes(from: &Source, input: SourceInput, stage: &SourceStage, actions: &[SourceAction]) {
        let mut machine = from.clone();
        let case = format!("{from:?} {input:?}");
        assert_eq!(machine.on(input), actions, "{case}");
        assert_eq!(machine.stage(), stage, "{case}");
    }

    #[test]
    fn a_move_begins_with_a_link() {
        let (machine, actions) = Source::begin();
        assert_eq!((machine.stage(), actions.as_slice()), (&SourceStage::Connecting, &[SourceAction::OpenLink][..]));
        assert!(!machine.is_over());
    }

    #[test]
    fn a_move_that_was_called_off_never_begins() {
        let machine = Source::called_off(text("no"));
        assert!(machine.is_over());
        for input in [SourceInput::Linked, SourceInput::Heard(ToSource::Prepared), SourceInput::Copied] {
            goes(&machine, input, &stayed("no"), &[]);
        }
    }

    #[test]
    fn connecting() {
        use SourceInput as In;
        let (at, here) = (source(SourceStage::Connecting, None), SourceStage::Connecting);
        goes(&at, In::Linked, &here, &[SourceAction::Say(ToTarget::Prepare)]);
        goes(&at, In::Heard(ToSource::Prepared), &SourceStage::Copying, &[SourceAction::Copy]);
        let resumes = &[SourceAction::Resume];
        goes(&at, In::LinkLost, &stayed("the connection to the target was lost"), resumes);
        goes(&at, In::Heard(ToSource::Never(text("full"))), &stayed("full"), resumes);
        goes(&at, In::Cancel(text("no")), &stayed("no"), resumes);
        goes(&at, In::CopyFailed(text("broke")), &stayed("broke"), resumes);
        goes(&at, In::Told(Verdict::Never), &stayed("the target gave up"), resumes);
        goes(&at, In::Told(Verdict::Lost), &stayed("the target gave up"), resumes);
        for nothing in [In::Heard(ToSource::Started), In::Told(Verdict::Started), In::Copied] {
            goes(&at, nothing, &here, &[]);
        }
    }

    #[test]
    fn copying() {
        use SourceInput as In;
        let (at, here) = (source(SourceStage::Copying, None), SourceStage::Copying);
        goes(&at, In::Copied, &SourceStage::Doubtful, &[SourceAction::Say(ToTarget::Finish)]);
        goes(&at, In::CopyFailed(text("broke")), &stayed("broke"), &[SourceAction::Resume]);
        let wishes = [
            In::Cancel(text("no")),
            In::LinkLost,
            In::Heard(ToSource::Never(text("full"))),
            In::Told(Verdict::Never),
            In::Told(Verdict::Lost),
        ];
        for wish in wishes {
            goes(&at, wish.clone(), &here, &[SourceAction::StopCopying]);
            goes(&source(SourceStage::Copying, Some("before")), wish, &here, &[]);
        }
        for nothing in
            [In::Linked, In::Heard(ToSource::Prepared), In::Heard(ToSource::Started), In::Told(Verdict::Started)]
        {
            goes(&at, nothing, &here, &[]);
        }
    }

    /// The hypervisor may be done before it hears that it should stop.
    #[test]
    fn a_move_that_is_to_end_does_not_finish() {
        let at = source(SourceStage::Copying, Some("no"));
        goes(&at, SourceInput::Copied, &stayed("no"), &[SourceAction::Resume]);
        goes(&at, SourceInput::CopyFailed(text("stopped")), &stayed("no"), &[SourceAction::Resume]);
    }

    #[test]
    fn in_doubt() {
        use SourceInput as In;
        let (at, here) = (source(SourceStage::Doubtful, None), SourceStage::Doubtful);
        let moved = SourceStage::Over(Outcome::Moved);
        goes(&at, In::Heard(ToSource::Started), &moved, &[SourceAction::Release]);
        goes(&at, In::Told(Verdict::Started), &moved, &[SourceAction::Release]);
        goes(&at, In::Heard(ToSource::Never(text("full"))), &stayed("full"), &[SourceAction::Resume]);
        goes(&at, In::Told(Verdict::Never), &stayed("the target never ran the guest"), &[SourceAction::Resume]);
        goes(&at, In::Told(Verdict::Lost), &SourceStage::Over(Outcome::Lost), &[SourceAction::Release]);
        goes(&at, In::LinkLost, &here, &[SourceAction::OpenLink]);
        goes(&at, In::Linked, &here, &[SourceAction::Say(ToTarget::Query)]);
        for late in [In::Cancel(text("no")), In::Copied, In::CopyFailed(text("broke")), In::Heard(ToSource::Prepared)] {
            goes(&at, late, &here, &[]);
        }
    }
}
