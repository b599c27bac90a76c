//! Evictions of launcher pods on the local cluster.

use ferrovirt_apiserver::internal::Place;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::{Cluster, GUESTS, admin};

/// Evicts a pod: the code and the words.
pub(crate) async fn evict(cluster: &Cluster, pod: &str, dry_run: bool) -> (u16, String) {
    let mut eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}});
    if dry_run {
        eviction["deleteOptions"] = json!({"dryRun": ["All"]});
    }
    let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
    let (code, status) = cluster.ask(admin(), Method::POST, &path, &eviction).await;
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

/// Where a guest is marked to leave.
pub(crate) async fn marked(cluster: &Cluster, guest: &str) -> Value {
    let (_, guest) = cluster.ask(admin(), Method::GET, &format!("{GUESTS}/{guest}"), &Value::Null).await;
    guest["status"]["evacuationNodeName"].clone()
}

/// A guest with a strategy, and its pod.
pub(crate) async fn guest_with(cluster: &Cluster, name: &str, strategy: &str) -> String {
    let guest = cluster.guest(name, "Running", &["LiveMigratable"]).await;
    let guests = cluster.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
    let change = |guest: &mut Value| guest["spec"]["evictionStrategy"] = strategy.into();
    guests.change(&Place::new("default", name), "", change).await.unwrap();
    cluster.launcher(&guest).await
}

#[tokio::test]
async fn a_guest_that_shall_move_is_marked_and_its_pod_stays() {
    let cluster = Cluster::start().await;
    let pod = guest_with(&cluster, "a", "LiveMigrate").await;
    let told = "Eviction triggered evacuation of VMI \"default/a\"";
    assert_eq!(evict(&cluster, &pod, true).await, (429, told.to_owned()));
    assert_eq!(marked(&cluster, "a").await, Value::Null, "a dry run marks nobody");
    assert_eq!(evict(&cluster, &pod, false).await, (429, told.to_owned()));
    assert_eq!(marked(&cluster, "a").await, "node1");
    assert_eq!(evict(&cluster, &pod, false).await, (429, format!("Evacuation in progress: {told}")));
}

#[tokio::test]
async fn other_pods_go() {
    let cluster = Cluster::start().await;
    let pod = guest_with(&cluster, "a", "None").await;
    assert_eq!(evict(&cluster, &pod, false).await.0, 201);
    assert_eq!(marked(&cluster, "a").await, Value::Null);
}
