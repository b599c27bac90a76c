//! The standard actions: what counts as success, and what kind of failure the rest is.

use std::time::Duration;

use ferrovirt_reconcile::{
    Cache, Expectations, ObjectKey,
    controller::{
        Category,
        standard::{self, Created, Deleted, Guard},
    },
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{Api, api::DeleteParams, core::ObjectMeta, runtime::watcher::Event};
use serde_json::json;

use crate::fake::{Effect, FakeApi};

fn pod(owner: &str) -> Pod {
    let owner = OwnerReference { uid: owner.into(), controller: Some(true), ..OwnerReference::default() };
    let metadata = ObjectMeta {
        name: Some("p".into()),
        namespace: Some("shop".into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}

fn pods(api: &FakeApi) -> Api<Pod> {
    Api::namespaced(api.client(), "shop")
}

#[tokio::test]
async fn creating_twice_finds_the_first_one() {
    let api = FakeApi::default();
    let first = standard::create(&pods(&api), &pod("vm")).await.unwrap();
    let second = standard::create(&pods(&api), &pod("vm")).await.unwrap();
    assert!(matches!((&first, &second), (Created::New(_), Created::Existing(_))));
    assert_eq!(first.into_inner().metadata.uid, second.into_inner().metadata.uid);
}

#[tokio::test]
async fn a_name_that_belongs_to_somebody_else_is_a_failure() {
    let api = FakeApi::default();
    standard::create(&pods(&api), &pod("vm")).await.unwrap();
    let failure = standard::create(&pods(&api), &pod("another")).await.unwrap_err();
    assert_eq!(failure.category(), Category::NameTaken);
    assert_eq!(
        failure.message(),
        "cannot create /api/v1/namespaces/shop/pods/p: the name belongs to an object of another owner"
    );
    // Without an owner there is nothing to prove that the object is ours.
    let orphan = Pod { metadata: ObjectMeta { owner_references: None, ..pod("vm").metadata }, ..Pod::default() };
    assert_eq!(standard::create(&pods(&api), &orphan).await.unwrap_err().category(), Category::NameTaken);
}

#[tokio::test]
async fn a_predecessor_that_is_still_leaving_is_waited_for() {
    let api = FakeApi::default();
    let mut leaving = serde_json::to_value(pod("vm")).unwrap();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    api.put("pods", &leaving);
    let failure = standard::create(&pods(&api), &pod("vm")).await.unwrap_err();
    assert_eq!(failure.category(), Category::Terminating);
}

#[tokio::test]
async fn deleting_is_guarded_and_what_is_gone_is_gone() {
    let api = FakeApi::default();
    let observed: Pod = serde_json::from_value(api.put("pods", &pod("vm"))).unwrap();
    let changed = api.put("pods", &{
        let mut changed = observed.clone();
        changed.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        changed
    });
    let delete = |pod: Pod, guard| {
        let api = pods(&api);
        async move { standard::delete(&api, &pod, guard, DeleteParams::default()).await }
    };
    let stale = delete(observed.clone(), Guard::Unchanged).await.unwrap_err();
    assert_eq!(stale.category(), Category::Conflict);
    let mut namesake = observed.clone();
    namesake.metadata.uid = Some("another".into());
    assert_eq!(delete(namesake, Guard::SameObject).await.unwrap_err().category(), Category::Conflict);
    assert_eq!(api.get("pods", "shop", "p").as_ref(), Some(&changed));
    assert_eq!(delete(observed.clone(), Guard::SameObject).await.unwrap(), Deleted::Requested);
    assert_eq!(delete(observed, Guard::SameObject).await.unwrap(), Deleted::AlreadyGone);
}

#[tokio::test]
async fn guarded_patches_refuse_a_stale_view() {
    let api = FakeApi::default();
    let observed: Pod = serde_json::from_value(api.put("pods", &pod("vm"))).unwrap();
    let labels = json!({"metadata": {"labels": {"seen": "yes"}}});
    let newer = standard::patch_unchanged(&pods(&api), &observed, labels.clone()).await.unwrap();
    let newer = Pod { metadata: newer.metadata, ..observed.clone() };
    let failure = standard::patch_unchanged(&pods(&api), &observed, labels).await.unwrap_err();
    assert_eq!(failure.category(), Category::Conflict);
    let status = json!({"phase": "Running"});
    let failure = standard::patch_status_unchanged(&pods(&api), &observed, &status).await.unwrap_err();
    assert_eq!(failure.category(), Category::Conflict);
    let written = standard::patch_status_unchanged(&pods(&api), &newer, &status).await.unwrap();
    assert_eq!(api.get("pods", "shop", "p").unwrap()["status"], status);
    assert_eq!(written.metadata.labels.unwrap()["seen"], "yes");
}

#[tokio::test(start_paused = true)]
async fn expectations_follow_the_calls() {
    let api = FakeApi::default();
    let cache = Cache::<Pod>::builder().build();
    let expectations = Expectations::new(&cache, Duration::from_secs(30));

    api.disturb("POST", 1, Effect::Refuse(403, "Forbidden"));
    let refused = standard::create_expected(&pods(&api), &pod("vm"), &"vm", &expectations).await;
    assert_eq!(refused.unwrap_err().category(), Category::Forbidden);
    assert_eq!(expectations.hold(&"vm"), None);

    let created = standard::create_expected(&pods(&api), &pod("vm"), &"vm", &expectations).await.unwrap().into_inner();
    let created = Pod { metadata: created.metadata, ..pod("vm") };
    assert!(expectations.hold(&"vm").is_some());
    cache.handle(Event::Apply(created.clone()));
    assert_eq!(expectations.hold(&"vm"), None);

    // A call that is cancelled half-way holds nobody back.
    api.disturb("DELETE", 1, Effect::Hang);
    let pods = pods(&api);
    let params = DeleteParams::default;
    let hanging = standard::delete_expected(&pods, &created, Guard::SameObject, params(), &"vm", &expectations);
    assert!(tokio::time::timeout(Duration::from_secs(1), hanging).await.is_err());
    assert_eq!(expectations.hold(&"vm"), None);

    standard::delete_expected(&pods, &created, Guard::SameObject, params(), &"vm", &expectations).await.unwrap();
    assert!(expectations.hold(&"vm").is_some());
    cache.handle(Event::Delete(created));
    assert_eq!(expectations.hold(&"vm"), None);
    assert!(cache.get_key(&ObjectKey::new("shop", "p")).is_none());
}
