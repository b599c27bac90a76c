//! Conditions that keep their times: what says the same as before is left alone, so that no write comes of it.

use ferrovirt_api::meta::{Condition, ConditionStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Sets a condition. One that says the same already stays as it is, times included.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    now: &Time,
    r#type: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
) {
    let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
    let message = Some(message.to_owned()).filter(|message| !message.is_empty());
    match conditions.iter_mut().find(|condition| condition.r#type == r#type) {
        Some(old) if old.status == status && old.reason == reason && old.message == message => {}
        Some(old) => {
            if old.status != status {
                old.last_transition_time = Some(now.clone());
            }
            (old.status, old.reason, old.message, old.last_probe_time) = (status, reason, message, Some(now.clone()));
        }
        None => conditions.push(Condition {
            last_probe_time: Some(now.clone()),
            last_transition_time: Some(now.clone()),
            reason,
            message,
            ..Condition::new(r#type, status)
        }),
    }
}

/// Objects carry whole seconds.
pub(crate) fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}
