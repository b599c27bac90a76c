//! A move's status while it is being changed: phases that are written down once, and how it ended.

use ferrovirt_api::meta::ConditionStatus;
use ferrovirt_api::migration::VirtualMachineInstanceMigrationStatus as Status;
use ferrovirt_api::migration::{MigrationPhase as Phase, MigrationPhaseTransitionTimestamp};
use ferrovirt_api::names::conditions as kinds;
use ferrovirt_api::vmi::MigrationState;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::View;
use crate::conditions::{self, whole_seconds};

pub(super) struct Draft {
    pub(super) status: Status,
    now: Time,
}

impl Draft {
    pub(super) fn of(view: &View) -> Self {
        Self { status: view.status.clone(), now: whole_seconds(view.now) }
    }

    /// Moves to a phase, with those that were passed on the way; staying is fine.
    pub(super) fn enter(&mut self, phase: Phase) -> &mut Self {
        if self.status.phase != Some(phase) {
            for passed in passed(phase) {
                self.stamp(*passed);
            }
            self.stamp(phase);
            self.status.phase = Some(phase);
        }
        self
    }

    fn stamp(&mut self, phase: Phase) {
        let stamps = &mut self.status.phase_transition_timestamps;
        if stamps.iter().all(|stamp| stamp.phase != Some(phase)) {
            let phase_transition_timestamp = Some(self.now.clone());
            stamps.push(MigrationPhaseTransitionTimestamp { phase: Some(phase), phase_transition_timestamp });
        }
    }

    /// When a phase began.
    pub(super) fn since(&self, phase: Phase) -> Option<Timestamp> {
        let stamps = &self.status.phase_transition_timestamps;
        let stamp = stamps.iter().find(|stamp| stamp.phase == Some(phase))?;
        stamp.phase_transition_timestamp.as_ref().map(|time| time.0)
    }

    /// Keeps the guest's account of the move.
    pub(super) fn keep(&mut self, state: Option<&MigrationState>) -> &mut Self {
        if let Some(state) = state {
            self.status.migration_state = Some(Box::new(state.clone()));
        }
        self
    }

    /// Ends the move: the reason in a word and in a sentence, in a condition and where tools look for it.
    pub(super) fn fail(&mut self, uid: &str, reason: &str, message: &str) -> &mut Self {
        self.enter(Phase::Failed);
        self.set(kinds::FAILURE, ConditionStatus::True, reason, message);
        let state = self.status.migration_state.get_or_insert_default();
        state.migration_uid = Some(uid.to_owned());
        state.failed = true;
        state.failure_reason.get_or_insert_with(|| message.to_owned());
        state.end_timestamp.get_or_insert_with(|| self.now.clone());
        self
    }

    pub(super) fn set(&mut self, r#type: &str, status: ConditionStatus, reason: &str, message: &str) -> &mut Self {
        conditions::set(&mut self.status.conditions, &self.now, r#type, status, reason, message);
        self
    }

    pub(super) fn remove(&mut self, r#type: &str) -> &mut Self {
        self.status.conditions.retain(|condition| condition.r#type != r#type);
        self
    }
}

/// Phases that a move has behind it in this one, on the straight way. They may have been too short to be written down by themselves.
fn passed(phase: Phase) -> &'static [Phase] {
    const WAY: [Phase; 6] = [
        Phase::Pending,
        Phase::Scheduling,
        Phase::Scheduled,
        Phase::PreparingTarget,
        Phase::TargetReady,
        Phase::Running,
    ];
    match phase {
        Phase::Succeeded => &WAY,
        // Where it was when it failed is told by the times.
        Phase::Failed => &[],
        _ => WAY.iter().position(|other| *other == phase).map_or(&[], |index| &WAY[..index]),
    }
}
