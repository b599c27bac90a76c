//! Setting and clearing conditions so that nothing changes unless something changed.

use ferrovirt_api::meta::{Condition, ConditionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// A condition to set.
pub(super) struct Wanted<'a> {
    pub(super) kind: &'a str,
    pub(super) status: ConditionStatus,
    pub(super) reason: Option<&'a str>,
    pub(super) message: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// A fact that holds and needs no words.
    pub(super) fn holds(kind: &'a str) -> Self {
        Self { kind, status: ConditionStatus::True, reason: None, message: None }
    }

    /// A fact that does not hold, and why.
    pub(super) fn fails(kind: &'a str, reason: &'a str, message: &'a str) -> Self {
        Self { kind, status: ConditionStatus::False, reason: Some(reason), message: Some(message) }
    }
}

/// Sets a condition. The time of transition changes with the status only.
pub(super) fn set(conditions: &mut Vec<Condition>, wanted: &Wanted<'_>, now: Timestamp) {
    let (reason, message) = (wanted.reason.map(str::to_owned), wanted.message.map(str::to_owned));
    match conditions.iter_mut().find(|condition| condition.r#type == wanted.kind) {
        Some(condition) => {
            if condition.status != wanted.status {
                condition.last_transition_time = Some(Time(now));
            }
            condition.status = wanted.status;
            condition.reason = reason;
            condition.message = message;
        }
        None => {
            let mut condition = Condition::new(wanted.kind, wanted.status);
            condition.last_transition_time = Some(Time(now));
            condition.reason = reason;
            condition.message = message;
            conditions.push(condition);
        }
    }
}

/// Removes a condition.
pub(super) fn clear(conditions: &mut Vec<Condition>, kind: &str) {
    conditions.retain(|condition| condition.r#type != kind);
}

/// Sets a condition that is there only while it holds.
pub(super) fn set_while(conditions: &mut Vec<Condition>, holds: bool, wanted: &Wanted<'_>, now: Timestamp) {
    if holds { set(conditions, wanted, now) } else { clear(conditions, wanted.kind) }
}
