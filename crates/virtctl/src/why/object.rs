//! Looking into objects of any kind and any age. Nothing here fails: what is missing or strange is just not there.

use jiff::Timestamp;
use serde_json::Value;

/// The text at a JSON pointer; empty text is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}

/// The time at a JSON pointer.
pub(super) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer)?.trim_matches('"').parse().ok()
}

/// The elements of the list at a JSON pointer.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// `metadata.name`
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

/// Deletion was asked for.
pub(super) fn is_leaving(object: &Value) -> bool {
    text(object, "/metadata/deletionTimestamp").is_some()
}

/// What an object says about itself in `status.conditions`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition<'a> {
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

impl Condition<'_> {
    pub(super) fn is_true(self) -> bool {
        self.status == "True"
    }

    pub(super) fn is_false(self) -> bool {
        self.status == "False"
    }

    /// The message, or the reason where there is none.
    pub(super) fn words(self) -> Option<String> {
        [self.message, self.reason].into_iter().find(|text| !text.is_empty()).map(str::to_owned)
    }
}

/// The condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<Condition<'a>> {
    let found = list(object, "/status/conditions").find(|condition| condition["type"] == kind)?;
    let field = |name| text(found, name).unwrap_or_default();
    Some(Condition { status: field("/status"), reason: field("/reason"), message: field("/message") })
}

/// The condition of a type is true.
pub(super) fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(Condition::is_true)
}

/// When an event was last seen.
pub(super) fn last_seen(event: &Value) -> Option<Timestamp> {
    ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
        .iter()
        .find_map(|pointer| time(event, pointer))
}
