//! Events: one store, two shapes. `events.k8s.io/v1` renames fields of the core kind, which is what is stored.

use serde_json::Value;

use super::{Strategy, defaults};
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
    fn default(&self, object: &mut Value) {
        if object["apiVersion"] == "v1" {
            defaults::field(object, "firstTimestamp", Value::Null);
            defaults::field(object, "lastTimestamp", Value::Null);
            defaults::field(object, "eventTime", Value::Null);
            defaults::field(object, "source", serde_json::json!({}));
            defaults::field(object, "reportingComponent", "");
            defaults::field(object, "reportingInstance", "");
        }
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
        }
    }

    fn from_storage(&self, resource: &Resource, object: &mut Value) {
        if self.converts(resource) {
            rename(object, |(core, new)| (core, new));
        }
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
