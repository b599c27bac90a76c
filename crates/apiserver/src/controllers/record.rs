//! Events that the controllers of this process tell users: one object per subject, reason and message, counted up when
//! it happens again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::handlers::write::format_time;
use crate::internal::Place;
use crate::server::Server;

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    /// `Normal` or `Warning`.
    pub(super) kind: &'static str,
    /// One word for machines.
    pub(super) reason: &'static str,
    /// A sentence for people.
    pub(super) message: String,
}

impl Note {
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: "Normal", reason, message: message.into() }
    }

    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind: "Warning", reason, message: message.into() }
    }
}

/// Records a note about an object. That this fails is not worth failing for.
pub(super) async fn record(server: &Arc<Server>, component: &str, subject: &Value, note: &Note) {
    let Ok(events) = server.internal("", "v1", "events", "kube-controller-manager") else { return };
    let now = format_time(server.environment.now());
    let event = event(component, subject, note, &now);
    let text = |field: &str| event["metadata"][field].as_str().unwrap_or_default().to_owned();
    let place = Place::new(&text("namespace"), &text("name"));
    let result = if events.get(&place.namespace, &place.name).is_some() {
        let again = |old: &mut Value| {
            old["count"] = (old["count"].as_i64().unwrap_or(0) + 1).into();
            old["lastTimestamp"] = now.clone().into();
        };
        events.change(&place, "", again).await
    } else {
        events.create(event).await
    };
    if let Err(error) = result {
        tracing::debug!(%error, reason = note.reason, "an event was not recorded");
    }
}

fn event(component: &str, subject: &Value, note: &Note, now: &str) -> Value {
    let metadata = &subject["metadata"];
    let namespace = metadata["namespace"].as_str().filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    let mut hasher = DefaultHasher::new();
    (component, metadata["uid"].as_str(), note.reason, &note.message).hash(&mut hasher);
    let name = format!("{}.{:016x}", metadata["name"].as_str().unwrap_or_default(), hasher.finish());
    let mut involved = json!({
        "apiVersion": subject["apiVersion"], "kind": subject["kind"], "name": metadata["name"],
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
    });
    if metadata["namespace"].is_string() {
        involved["namespace"] = metadata["namespace"].clone();
    }
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "type": note.kind, "reason": note.reason, "message": note.message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
        "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_note_has_the_same_name_and_another_has_not() {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "ns", "uid": "u"}});
        let name = |note: &Note| event("x", &claim, note, "t")["metadata"]["name"].as_str().unwrap().to_owned();
        let waiting = Note::normal("Waiting", "for a pod");
        assert_eq!(name(&waiting), name(&waiting.clone()));
        assert_ne!(name(&waiting), name(&Note::normal("Waiting", "for a node")));
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v", "uid": "u"}});
        assert_eq!(event("x", &volume, &waiting, "t")["metadata"]["namespace"], "default");
    }
}
