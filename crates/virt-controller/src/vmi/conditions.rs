//! A guest's record while it is being changed: conditions that keep their times, phases that are written down once.

use ferrovirt_api::meta::{Condition, ConditionStatus, find_condition};
use ferrovirt_api::vmi::{PhaseTransitionTimestamp, VirtualMachineInstancePhase as Phase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Record, View};
use crate::conditions::{self, whole_seconds};

/// A record that is being changed.
pub(super) struct Draft {
    pub(super) record: Record,
    now: Time,
}

impl Draft {
    pub(super) fn of(view: &View) -> Self {
        Self { record: view.record.clone(), now: whole_seconds(view.now) }
    }

    /// Sets a condition. One that says the same already is left alone, times included: no write comes of it.
    pub(super) fn set(&mut self, r#type: &str, status: ConditionStatus, reason: &str, message: &str) {
        conditions::set(&mut self.record.status.conditions, &self.now, r#type, status, reason, message);
    }

    pub(super) fn get(&self, r#type: &str) -> Option<&Condition> {
        find_condition(&self.record.status.conditions, r#type)
    }

    pub(super) fn remove(&mut self, r#type: &str) {
        self.record.status.conditions.retain(|condition| condition.r#type != r#type);
    }

    /// Moves to a phase; staying is fine.
    pub(super) fn enter(&mut self, phase: Phase) {
        if self.record.status.phase != Some(phase) {
            self.record.status.phase = Some(phase);
            let now = self.now.clone();
            self.stamp(phase, now);
        }
    }

    /// Writes down when a phase began, unless that is known.
    pub(super) fn stamp(&mut self, phase: Phase, time: Time) {
        let stamps = &mut self.record.status.phase_transition_timestamps;
        if stamps.iter().all(|stamp| stamp.phase != Some(phase)) {
            stamps.push(PhaseTransitionTimestamp { phase: Some(phase), phase_transition_timestamp: Some(time) });
        }
    }

    pub(super) fn now(&self) -> Time {
        self.now.clone()
    }
}
