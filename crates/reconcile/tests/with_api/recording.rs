//! Events: one object that counts.

use std::time::Duration;

use ferrovirt_reconcile::{Clock, Note, Recorder, events::reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;
use serde_json::Value;

use crate::fake::{Effect, FakeApi};

fn pod() -> Pod {
    let metadata = ObjectMeta {
        name: Some("p".into()),
        namespace: Some("shop".into()),
        uid: Some("1".into()),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

fn recorder(api: &FakeApi, clock: Clock) -> Recorder {
    Recorder::new(api.client(), "virt-controller", "virt-controller-0", clock)
}

/// The one event that there is, found through the write that made it.
fn event(api: &FakeApi, name: &str) -> Value {
    api.get("events", "shop", name).unwrap()
}

fn name_of_first_raise(writes: &[String]) -> String {
    let patch = writes.iter().find(|line| line.starts_with("PATCH")).unwrap();
    patch.rsplit('/').next().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn repetitions_raise_the_count_of_one_object() {
    let api = FakeApi::default();
    let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).unwrap());
    let recorder_before = recorder(&api, clock);
    let note = Note::warning("FailedCreate", "no quota");
    for _ in 0..21 {
        recorder_before.record(&reference(&pod()), &note).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let writes = api.take_writes();
    assert_eq!(writes.len(), 3, "one creation, two raises: {writes:?}");
    let name = name_of_first_raise(&writes);
    let told = event(&api, &name);
    assert_eq!(
        (&told["count"], &told["type"], &told["reason"]),
        (&21.into(), &"Warning".into(), &"FailedCreate".into())
    );
    assert_eq!((&told["involvedObject"]["kind"], &told["involvedObject"]["uid"]), (&"Pod".into(), &"1".into()));
    assert_eq!(told["source"]["component"], "virt-controller");
    assert_ne!(told["firstTimestamp"], told["lastTimestamp"]);

    // A new process finds the same object, without the right to read it.
    api.disturb("GET", 1, Effect::Refuse(403, "Forbidden"));
    recorder(&api, clock).record(&reference(&pod()), &note).await.unwrap();
    assert_eq!(event(&api, &name)["count"], 22);

    // An event that has expired is told anew.
    api.remove("events", "shop", &name);
    tokio::time::sleep(Duration::from_secs(10)).await;
    recorder_before.record(&reference(&pod()), &note).await.unwrap();
    assert_eq!(event(&api, &name)["count"], 22);
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_is_reported_and_told_next_time() {
    let api = FakeApi::default();
    let recorder = recorder(&api, Clock::starting_at(Timestamp::UNIX_EPOCH));
    let note = Note::normal("Started", "up");
    api.disturb("POST", 1, Effect::Refuse(500, "InternalError"));
    let failure = recorder.record(&reference(&pod()), &note).await.unwrap_err();
    assert!(failure.message().starts_with("cannot record event shop/p."), "{}", failure.message());
    recorder.record(&reference(&pod()), &note).await.unwrap();
    assert_eq!(api.take_writes().len(), 2);
}
