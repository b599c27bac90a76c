//! The target's side of a move.
//!
//! ```text
//!   Waiting ── Prepare ──► Receiving ── Finish ──► Starting ──► Started
//!      │                      │                        │
//!      └── discarded, asked ──┴── cut, failed ─────────┴──► Never     and it stays that way
//! ```

use serde::{Deserialize, Serialize};

use crate::{ToSource, ToTarget};

/// Where a move is, as the target sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TargetStage {
    /// Disks and libvirt are ready; nobody has called.
    Waiting,
    /// The hypervisor gets ready, or receives.
    Receiving,
    /// Told to run the guest.
    Starting,
    /// The guest runs, or ran, here.
    Started,
    /// It does not and never will, for this reason.
    Never(String),
}

/// What happens to the target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetInput {
    /// The source said something.
    Heard(ToTarget),
    /// The link broke.
    LinkLost,
    /// The hypervisor can receive.
    Prepared,
    /// The guest runs.
    Finished,
    /// The hypervisor cannot receive or run it, or ended. One that was told to run the guest: only if it is known that the guest's
    /// processors never ran, and never will. A launcher that cannot know says nothing, and ends without a word.
    Failed(String),
    /// The handler wants none of it any more.
    Discard(String),
}

/// What the target does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetAction {
    /// Get the hypervisor ready to receive.
    Prepare,
    /// Run the guest.
    Finish,
    /// End the hypervisor, if there is one. Repeated until it works.
    Discard,
    /// Answer the source, if there is a link.
    Say(ToSource),
}

/// The machine of one move.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    stage: TargetStage,
}

impl Default for Target {
    /// Ready for a call.
    fn default() -> Self {
        Self { stage: TargetStage::Waiting }
    }
}

impl Target {
    /// Where it is.
    pub fn stage(&self) -> &TargetStage {
        &self.stage
    }

    /// What follows.
    pub fn on(&mut self, input: TargetInput) -> Vec<TargetAction> {
        match (&self.stage, input) {
            (TargetStage::Waiting, TargetInput::Heard(ToTarget::Prepare)) => {
                self.stage = TargetStage::Receiving;
                vec![TargetAction::Prepare]
            }
            (TargetStage::Receiving, TargetInput::Prepared) => vec![TargetAction::Say(ToSource::Prepared)],
            (TargetStage::Receiving, TargetInput::Heard(ToTarget::Finish)) => {
                self.stage = TargetStage::Starting;
                vec![TargetAction::Finish]
            }
            (TargetStage::Starting, TargetInput::Finished) => {
                self.stage = TargetStage::Started;
                vec![TargetAction::Say(ToSource::Started)]
            }
            (TargetStage::Started, TargetInput::Heard(_)) => vec![TargetAction::Say(ToSource::Started)],
            (TargetStage::Never(reason), TargetInput::Heard(_)) => {
                vec![TargetAction::Say(ToSource::Never(reason.clone()))]
            }
            // A source that asks has said Finish on a link that broke before we heard it: now we never will.
            (TargetStage::Waiting | TargetStage::Receiving, TargetInput::Heard(ToTarget::Query | ToTarget::Finish)) => {
                self.vow("the source's last word was lost".to_owned())
            }
            (TargetStage::Receiving, TargetInput::LinkLost) => {
                self.vow("the connection to the source was lost".to_owned())
            }
            (
                TargetStage::Waiting | TargetStage::Receiving,
                TargetInput::Failed(reason) | TargetInput::Discard(reason),
            )
            | (TargetStage::Starting, TargetInput::Failed(reason)) => self.vow(reason),
            // The source may call again; the answer to a question while starting comes when it is known; what was said stays said.
            (TargetStage::Waiting, TargetInput::LinkLost | TargetInput::Prepared | TargetInput::Finished)
            | (TargetStage::Receiving, TargetInput::Heard(ToTarget::Prepare) | TargetInput::Finished)
            | (
                TargetStage::Starting,
                TargetInput::Heard(_) | TargetInput::LinkLost | TargetInput::Prepared | TargetInput::Discard(_),
            )
            | (TargetStage::Started | TargetStage::Never(_), _) => Vec::new(),
        }
    }

    fn vow(&mut self, reason: String) -> Vec<TargetAction> {
        self.stage = TargetStage::Never(reason.clone());
        vec![TargetAction::Discard, TargetAction::Say(ToSource::Never(reason))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(reason: &str) -> TargetStage {
        TargetStage::Never(reason.to_owned())
    }

    #[track_caller]
    fn goes(from: &TargetStage, input: TargetInput, stage: &TargetStage, actions: &[TargetAction]) {
        let mut machine = Target { stage: from.clone() };
        let case = format!("{from:?} {input:?}");
        assert_eq!(machine.on(input), actions, "{case}");
        assert_eq!(machine.stage(), stage, "{case}");
    }

    #[track_caller]
    fn vows(from: &TargetStage, input: TargetInput, reason: &str) {
        let says = TargetAction::Say(ToSource::Never(reason.to_owned()));
        goes(from, input, &never(reason), &[TargetAction::Discard, says]);
    }

    fn failed() -> TargetInput {
        TargetInput::Failed("broke".to_owned())
    }

    fn discard() -> TargetInput {
        TargetInput::Discard("no".to_owned())
    }

    #[test]
    fn waiting() {
        use TargetInput as In;
        let at = TargetStage::Waiting;
        assert_eq!(Target::default().stage(), &at);
        goes(&at, In::Heard(ToTarget::Prepare), &TargetStage::Receiving, &[TargetAction::Prepare]);
        vows(&at, In::Heard(ToTarget::Query), "the source's last word was lost");
        vows(&at, In::Heard(ToTarget::Finish), "the source's last word was lost");
        vows(&at, failed(), "broke");
        vows(&at, discard(), "no");
        for nothing in [In::LinkLost, In::Prepared, In::Finished] {
            goes(&at, nothing, &at, &[]);
        }
    }

    #[test]
    fn receiving() {
        use TargetInput as In;
        let at = TargetStage::Receiving;
        goes(&at, In::Prepared, &at, &[TargetAction::Say(ToSource::Prepared)]);
        goes(&at, In::Heard(ToTarget::Finish), &TargetStage::Starting, &[TargetAction::Finish]);
        vows(&at, In::Heard(ToTarget::Query), "the source's last word was lost");
        vows(&at, In::LinkLost, "the connection to the source was lost");
        vows(&at, failed(), "broke");
        vows(&at, discard(), "no");
        for nothing in [In::Heard(ToTarget::Prepare), In::Finished] {
            goes(&at, nothing, &at, &[]);
        }
    }

    #[test]
    fn starting_ends_by_the_hypervisors_word_alone() {
        use TargetInput as In;
        let at = TargetStage::Starting;
        goes(&at, In::Finished, &TargetStage::Started, &[TargetAction::Say(ToSource::Started)]);
        vows(&at, failed(), "broke");
        for nothing in [
            In::Heard(ToTarget::Prepare),
            In::Heard(ToTarget::Finish),
            In::Heard(ToTarget::Query),
            In::LinkLost,
            In::Prepared,
            discard(),
        ] {
            goes(&at, nothing, &at, &[]);
        }
    }

    #[test]
    fn what_was_said_stays_said() {
        use TargetInput as In;
        for (at, says) in [(TargetStage::Started, ToSource::Started), (never("no"), ToSource::Never("no".to_owned()))] {
            for word in [ToTarget::Prepare, ToTarget::Finish, ToTarget::Query] {
                goes(&at, In::Heard(word), &at, &[TargetAction::Say(says.clone())]);
            }
            for nothing in [In::LinkLost, In::Prepared, In::Finished, failed(), discard()] {
                goes(&at, nothing, &at, &[]);
            }
        }
    }
}
