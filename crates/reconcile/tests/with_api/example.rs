//! The example controller of the crate documentation, from the outside.

use std::time::Duration;

use ferrovirt_reconcile::{Controller, Plan};
use k8s_openapi::api::batch::v1::Job;
use kube::core::ObjectMeta;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    fake::{Effect, FakeApi},
    one_pod_per_job::{OnePodPerJob, View, run},
};

fn job(name: &str) -> Job {
    let metadata = ObjectMeta { name: Some(name.into()), namespace: Some("shop".into()), ..ObjectMeta::default() };
    Job { metadata, ..Job::default() }
}

/// Runs the controller until `test` is over.
async fn with_controller(api: &FakeApi, test: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    let test = async {
        test.await;
        stop.cancel();
    };
    let (result, ()) = tokio::join!(run(api.client(), stop.clone()), test);
    result.unwrap();
}

/// On the paused clock this lets everything settle that is due within the time.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(5)).await;
}

#[test]
fn deciding_needs_no_server() {
    let mut job = job("nightly");
    job.metadata.uid = Some("0123456789".into());
    let view = View { job: job.clone().into(), pods: vec![] };
    let plan = OnePodPerJob::decide(&view);
    assert_eq!((plan.actions.len(), plan.status.and_then(|status| status.active)), (1, Some(0)));
    job.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(OnePodPerJob::decide(&View { job: job.into(), pods: vec![] }), Plan::nothing());
}

#[tokio::test(start_paused = true)]
async fn a_job_gets_its_pod_and_its_status_in_three_writes() {
    let api = FakeApi::default();
    let old = api.put("jobs", &job("old"));
    with_controller(&api, async {
        settle().await;
        let pod = api.get("pods", "shop", &format!("old-{}", &old["metadata"]["uid"].as_str().unwrap()[..5])).unwrap();
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], old["metadata"]["uid"]);
        assert_eq!(api.get("jobs", "shop", "old").unwrap()["status"], json!({"active": 1}));
        assert_eq!(
            api.take_writes(),
            [
                "POST /api/v1/namespaces/shop/pods",
                "PUT /apis/batch/v1/namespaces/shop/jobs/old/status",
                "PUT /apis/batch/v1/namespaces/shop/jobs/old/status",
            ]
        );
        // Nothing happens, so nothing is written.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(api.take_writes(), Vec::<String>::new());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_disappears_is_made_again_even_if_no_watch_saw_it_go() {
    let api = FakeApi::default();
    let job = api.put("jobs", &job("nightly"));
    let pod = format!("nightly-{}", &job["metadata"]["uid"].as_str().unwrap()[..5]);
    with_controller(&api, async {
        settle().await;
        api.remove("pods", "shop", &pod);
        settle().await;
        let second = api.get("pods", "shop", &pod).unwrap();
        api.break_watches(true);
        api.remove_silently("pods", "shop", &pod);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let third = api.get("pods", "shop", &pod).unwrap();
        assert_ne!(second["metadata"]["uid"], third["metadata"]["uid"]);
        assert_eq!(api.get("jobs", "shop", "nightly").unwrap()["status"], json!({"active": 1}));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_refusals_still_end_with_one_pod() {
    let api = FakeApi::default();
    api.disturb("POST /api/v1/namespaces/shop/pods", 1, Effect::LoseAnswer);
    api.disturb("POST /api/v1/namespaces/shop/pods", 1, Effect::Refuse(500, "InternalError"));
    api.disturb("PUT /apis/batch", 2, Effect::Refuse(409, "Conflict"));
    api.put("jobs", &job("nightly"));
    with_controller(&api, async {
        settle().await;
        let status = &api.get("jobs", "shop", "nightly").unwrap()["status"];
        assert_eq!(*status, json!({"active": 1}));
    })
    .await;
}
