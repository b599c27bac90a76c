//! Events: one store, two shapes. `events.k8s.io/v1` renames fields of the core kind, which is what is stored.

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::names;
use serde_json::Value;

use super::Strategy;
use super::check::{Errors, text};
use crate::registry::Resource;

/// Events of both groups.
pub struct Events;
/// The strategy of events.
pub static EVENT: Events = Events;

/// `(core name, events.k8s.io name)`
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

impl Strategy for Events {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut core = object.clone();
        let is_new = object["apiVersion"] != "v1";
        if is_new {
            rename(&mut core, |(core, new)| (new, core));
        }
        let mut errors = Errors::default();
        common(&core, if is_new { "reportingController" } else { "reportingComponent" }, &mut errors);
        if is_new {
            strict(&core, &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if new["apiVersion"] == "v1" {
            return Vec::new();
        }
        for (core, name) in [
            ("involvedObject", "regarding"),
            ("reason", "reason"),
            ("message", "note"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            errors.unchanged(core, &new[name], &old[name]);
        }
        errors.into_vec()
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }

    fn converts(&self, resource: &Resource) -> bool {
        !resource.group.is_empty()
    }

    fn to_storage(&self, resource: &Resource, object: &mut Value) {
        if self.converts(resource) {
            rename(object, |(core, new)| (new, core));
            super::settle("v1", "Event", object);
        }
    }

    fn from_storage(&self, resource: &Resource, object: &mut Value) {
        if self.converts(resource) {
            rename(object, |(core, new)| (core, new));
        }
    }
}

/// Checks of every event, in the core shape.
fn common(event: &Value, controller: &str, errors: &mut Errors) {
    const NAMESPACE: &str = "involvedObject.namespace";
    const WHY: &str = "does not match event.namespace";
    let (own, involved) = (text(&event["metadata"]["namespace"]), text(&event["involvedObject"]["namespace"]));
    if event["eventTime"].is_null() {
        let fits = if involved.is_empty() { matches!(own, "" | "default") } else { own == involved };
        if !fits {
            errors.invalid_text(NAMESPACE, involved, WHY);
        }
        return;
    }
    if involved.is_empty() && !matches!(own, "default" | "kube-system") {
        errors.invalid_text(NAMESPACE, involved, WHY);
    }
    let reporter = text(&event["reportingComponent"]);
    if reporter.is_empty() {
        errors.required(controller, "");
    }
    names::label_key(reporter).iter().for_each(|why| errors.invalid_text(controller, reporter, why));
    for (name, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)] {
        let length = text(&event[name]).len();
        if length == 0 && name != "message" {
            errors.required(name, "");
        }
        if length > most {
            errors.invalid_text(name, "", &format!("can have at most {most} characters"));
        }
    }
}

/// Checks of events that are made through the new group.
fn strict(event: &Value, errors: &mut Errors) {
    if event["eventTime"].is_null() {
        errors.required("eventTime", "");
    }
    let kind = text(&event["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid_text("type", "", &format!("has invalid value: {kind}"));
    }
    for name in ["firstTimestamp", "lastTimestamp"] {
        if !event[name].is_null() {
            errors.invalid_text(name, "", "needs to be unset");
        }
    }
    if event["count"].as_i64().unwrap_or(0) != 0 {
        errors.invalid_text("count", "", "needs to be unset");
    }
    if !text(&event["source"]["component"]).is_empty() || !text(&event["source"]["host"]).is_empty() {
        errors.invalid_text("source", "", "needs to be unset");
    }
}

fn rename(object: &mut Value, direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Value::Object(map) = object else { return };
    for pair in RENAMED {
        let (from, to) = direction(*pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    // The new shape leaves out reporters that nobody named; the core shape always has them.
    for name in ["reportingController", "reportingInstance"] {
        if map.contains_key("regarding") && map.get(name).is_some_and(|value| value == "") {
            map.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_shapes_say_the_same() {
        let mut event = json!({"regarding": {"name": "a"}, "note": "n", "deprecatedCount": 2, "reason": "r"});
        rename(&mut event, |(core, new)| (new, core));
        assert_eq!(event, json!({"involvedObject": {"name": "a"}, "message": "n", "count": 2, "reason": "r"}));
        rename(&mut event, |(core, new)| (core, new));
        assert_eq!(event["regarding"]["name"], "a");
    }
}
