//! Kubernetes events that count instead of multiplying.
//!
//! The same event about the same object within a window is **one** object whose count grows. Its name is derived from what it
//! says and from the window, so that two replicas, or one before and after a restart, find the same object instead of making a
//! second. Repetitions that come faster than an interval are added up and written with the next one after it, so a controller in
//! a tight loop cannot flood the API server; the count in the cluster may lag behind by those.
//!
//! [`Aggregator`] is the bookkeeping, without IO; [`Recorder`] writes.

use std::{collections::HashMap, fmt::Write, sync::Arc, time::Duration};

use ferrovirt_kubernetes::{Event, Foreign};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{self, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use parking_lot::Mutex;
use serde_json::json;
use tracing::debug;

use crate::{clock::Clock, controller::Failure};

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Things go their way.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What to tell about an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Good news or bad.
    pub severity: Severity,
    /// One word for machines, such as `SuccessfulCreate`.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Note {
    /// Good news.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Normal, reason: reason.into(), message: message.into() }
    }

    /// Bad news.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, reason: reason.into(), message: message.into() }
    }
}

/// The reference to an object of a kind known at compile time.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}

/// How events are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// Within it, the same event is the same object.
    pub window: Duration,
    /// The shortest time between two writes of the same event.
    pub interval: Duration,
}

impl Default for Aggregation {
    /// 10 minutes, and a write every 10 seconds at most.
    fn default() -> Self {
        Self { window: Duration::from_secs(600), interval: Duration::from_secs(10) }
    }
}

/// What to do about one occurrence.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The first one: create the object with this name.
    Create {
        /// Its derived name.
        name: String,
    },
    /// Raise the count of the object.
    Raise {
        /// Its derived name.
        name: String,
        /// To how much.
        count: i32,
    },
    /// Nothing to write yet.
    Quiet,
}

/// The bookkeeping of what was told already. No IO, no clock.
#[derive(Debug)]
pub struct Aggregator {
    aggregation: Aggregation,
    /// The window to which everything in `told` belongs.
    window: i64,
    told: HashMap<String, Told>,
}

#[derive(Debug)]
struct Told {
    written: Timestamp,
    count: i32,
}

impl Aggregator {
    /// Nothing told yet.
    pub fn new(aggregation: Aggregation) -> Self {
        Self { aggregation, window: i64::MIN, told: HashMap::new() }
    }

    /// Takes in one occurrence of `note` about `regarding` by `reporter`.
    pub fn occurred(&mut self, regarding: &ObjectReference, note: &Note, reporter: &str, now: Timestamp) -> Step {
        let window_length = i64::try_from(self.aggregation.window.as_secs()).unwrap_or(i64::MAX).max(1);
        let window = now.as_second().div_euclid(window_length);
        let name = derived_name(regarding, note, reporter, window);
        if window != self.window {
            // What belongs to another window can never be raised again.
            self.told.clear();
            self.window = window;
        }
        let Some(told) = self.told.get_mut(&name) else {
            self.told.insert(name.clone(), Told { written: now, count: 1 });
            return Step::Create { name };
        };
        told.count = told.count.saturating_add(1);
        let quiet_until = told.written.checked_add(self.aggregation.interval).unwrap_or(Timestamp::MAX);
        if now < quiet_until {
            return Step::Quiet;
        }
        told.written = now;
        Step::Raise { name, count: told.count }
    }

    /// The event had been told `before` times by somebody else; returns how often that makes it altogether.
    pub fn adopt(&mut self, name: &str, before: i32) -> i32 {
        match self.told.get_mut(name) {
            Some(told) => {
                told.count = told.count.saturating_add(before);
                told.count
            }
            None => before.saturating_add(1),
        }
    }

    /// Forgets an event that could not be written, so that its next occurrence starts over.
    pub fn forget(&mut self, name: &str) {
        self.told.remove(name);
    }
}

/// `<object>.<16 hex digits>`: the form that kubectl users know, with digits that depend on content instead of chance.
fn derived_name(regarding: &ObjectReference, note: &Note, reporter: &str, window: i64) -> String {
    const LONGEST_NAME: usize = 253;
    let object = regarding.name.as_deref().unwrap_or_default();
    let uid = regarding.uid.as_deref().unwrap_or(object);
    let window = window.to_string();
    let field_path = regarding.field_path.as_deref().unwrap_or_default();
    let parts = [uid, field_path, note.severity.as_str(), &note.reason, &note.message, reporter, &window];
    let mut name: String = object.chars().take(LONGEST_NAME - 17).collect();
    let _ = write!(name, ".{:016x}", fingerprint(&parts));
    name
}

/// FNV-1a: stable over versions and machines, which names in a cluster must be. Nothing secret rests on it.
fn fingerprint(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes events; clones share their bookkeeping.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    component: String,
    instance: String,
    clock: Clock,
    aggregator: Arc<Mutex<Aggregator>>,
}

impl Recorder {
    /// A recorder for `component` (such as `virt-controller`) running as `instance` (its pod or node).
    pub fn new(client: Client, component: impl Into<String>, instance: impl Into<String>, clock: Clock) -> Self {
        let aggregator = Arc::new(Mutex::new(Aggregator::new(Aggregation::default())));
        Self { client, component: component.into(), instance: instance.into(), clock, aggregator }
    }

    /// Adds up differently from the default.
    #[must_use]
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.aggregator = Arc::new(Mutex::new(Aggregator::new(aggregation)));
        self
    }

    /// Tells `note` about `regarding`. A failure is returned for those who care; it is forgotten, never retried here.
    pub async fn record(&self, regarding: &ObjectReference, note: &Note) -> Result<(), Failure> {
        let now = self.clock.now();
        let step = self.aggregator.lock().occurred(regarding, note, &self.component, now);
        let name = match &step {
            Step::Create { name } | Step::Raise { name, .. } => name.clone(),
            Step::Quiet => return Ok(()),
        };
        // Events about objects without a namespace live in `default`, where kubectl looks for them.
        let namespace = regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default");
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let result = match step {
            Step::Raise { count, .. } => match raise(&api, &name, count, now).await {
                // Events expire.
                Err(error) if is_not_found(&error) => self.create(&api, &name, count, regarding, note, now).await,
                result => result,
            },
            _ => self.create(&api, &name, 1, regarding, note, now).await,
        };
        result.map_err(|error| {
            self.aggregator.lock().forget(&name);
            debug!(%name, %error, "cannot record an event");
            Failure::api(format!("record event {namespace}/{name}"), error)
        })
    }

    async fn create(
        &self,
        api: &Api<Event>,
        name: &str,
        count: i32,
        regarding: &ObjectReference,
        note: &Note,
        now: Timestamp,
    ) -> kube::Result<()> {
        let event = Foreign(v1::Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: api.namespace().map(str::to_owned),
                ..ObjectMeta::default()
            },
            count: Some(count),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            ..self.event(regarding, note)
        });
        match api.create(&PostParams::default(), &event).await {
            // Another replica, or this one before a restart, told it in the same window.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let before = touch(api, name, now).await?.count.unwrap_or(1);
                let count = self.aggregator.lock().adopt(name, before);
                raise(api, name, count, now).await
            }
            result => result.map(|_| ()),
        }
    }

    /// What does not change when the event repeats.
    fn event(&self, regarding: &ObjectReference, note: &Note) -> v1::Event {
        v1::Event {
            involved_object: regarding.clone(),
            type_: Some(note.severity.as_str().to_owned()),
            reason: Some(note.reason.clone()),
            message: Some(clipped(&note.message)),
            source: Some(EventSource { component: Some(self.component.clone()), host: Some(self.instance.clone()) }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..v1::Event::default()
        }
    }
}

/// Says that it happened again; the answer has the event as it is. Who tells events may change them, and not always read them.
async fn touch(api: &Api<Event>, name: &str, now: Timestamp) -> kube::Result<Event> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "lastTimestamp": Time(now) }))).await
}

async fn raise(api: &Api<Event>, name: &str, count: i32, now: Timestamp) -> kube::Result<()> {
    let changes = json!({ "count": count, "lastTimestamp": Time(now) });
    api.patch(name, &PatchParams::default(), &Patch::Merge(changes)).await.map(|_| ())
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// The API server takes messages of up to 1024 bytes.
fn clipped(message: &str) -> String {
    const LONGEST_MESSAGE: usize = 1024;
    const CUT: &str = " ...";
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(LONGEST_MESSAGE - CUT.len());
    format!("{}{CUT}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(uid: &str) -> ObjectReference {
        ObjectReference { name: Some("db".into()), uid: Some(uid.into()), ..ObjectReference::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn repetitions_are_added_up_and_written_after_the_interval() {
        let mut aggregator = Aggregator::new(Aggregation::default());
        let note = Note::warning("FailedCreate", "no quota");
        let Step::Create { name } = aggregator.occurred(&vm("1"), &note, "virt-controller", at(0)) else { panic!() };
        assert_eq!(aggregator.occurred(&vm("1"), &note, "virt-controller", at(1)), Step::Quiet);
        assert_eq!(aggregator.occurred(&vm("1"), &note, "virt-controller", at(9)), Step::Quiet);
        let raise = Step::Raise { name: name.clone(), count: 4 };
        assert_eq!(aggregator.occurred(&vm("1"), &note, "virt-controller", at(10)), raise);
        assert_eq!(aggregator.occurred(&vm("1"), &note, "virt-controller", at(11)), Step::Quiet);
        assert_eq!(aggregator.adopt(&name, 10), 15);
    }

    #[test]
    fn what_differs_is_told_separately_and_a_new_window_starts_over() {
        let mut aggregator = Aggregator::new(Aggregation::default());
        let note = Note::warning("FailedCreate", "no quota");
        let mut names = std::collections::BTreeSet::new();
        for (object, note, reporter, second) in [
            (vm("1"), note.clone(), "virt-controller", 0),
            (vm("2"), note.clone(), "virt-controller", 0),
            (vm("1"), Note::normal("FailedCreate", "no quota"), "virt-controller", 0),
            (vm("1"), Note::warning("FailedCreate", "no node"), "virt-controller", 0),
            (vm("1"), note.clone(), "virt-handler", 0),
            (vm("1"), note, "virt-controller", 600),
        ] {
            let Step::Create { name } = aggregator.occurred(&object, &note, reporter, at(second)) else { panic!() };
            assert!(name.starts_with("db.") && name.len() == 19, "{name}");
            names.insert(name);
        }
        assert_eq!(names.len(), 6);
        assert_eq!(aggregator.told.len(), 1, "earlier windows are forgotten");
    }

    #[test]
    fn a_name_survives_a_restart() {
        let note = Note::normal("Started", "up");
        let tell = || Aggregator::new(Aggregation::default()).occurred(&vm("1"), &note, "virt-handler", at(5));
        assert_eq!(tell(), tell());
    }

    #[test]
    fn long_texts_fit() {
        let long = ObjectReference { name: Some("x".repeat(253)), ..ObjectReference::default() };
        assert_eq!(derived_name(&long, &Note::normal("A", "b"), "c", 0).len(), 253);
        assert!(clipped(&"ü".repeat(2000)).len() <= 1024);
    }
}
