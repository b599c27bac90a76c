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
