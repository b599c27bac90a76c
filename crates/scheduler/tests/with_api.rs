//! The scheduler on a real API server in memory.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::controllers::Housekeeper;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_reconcile::Clock;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct World {
    server: Arc<Server>,
    keeper: Arc<Housekeeper>,
    stop: CancellationToken,
    _keys: tempfile::TempDir,
}

impl World {
    /// A cluster with the scheduler running.
    async fn new() -> Self {
        let keys = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, keeper) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        let world = Self { server, keeper, stop, _keys: keys };
        world.seen("/api/v1/namespaces/default/serviceaccounts/default", Value::is_object).await;
        tokio::spawn(ferrovirt_scheduler::run(world.client(), Clock::System, world.stop.clone()));
        world
    }

    async fn end(self) {
        self.stop.cancel();
        self.keeper.stopped().await;
    }

    fn client(&self) -> Client {
        let server = self.server.clone();
        let peer = Peer::Trusted(UserInfo::new("admin", ["system:masters"]));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, peer) = (server.clone(), peer.clone());
            async move { Ok::<_, Infallible>(server.handle(request.map(erase), &peer).await) }
        });
        Client::new(service, "default")
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder().method(method).uri(path);
        let patch = "application/merge-patch+json";
        let kind = if method == "PATCH" { patch } else { "application/json" };
        let request = request.header("content-type", kind).body(body.to_string().into_bytes()).unwrap();
        self.client().request(request).await.unwrap()
    }

    /// The object at a path once it is as wanted; `Null` is one that is not there.
    async fn seen(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let look = async {
            loop {
                let revision = self.server.store.revision();
                let request = Request::get(path).body(Vec::new()).unwrap();
                let found = self.client().request::<Value>(request).await.unwrap_or_default();
                if wanted(&found) {
                    return found;
                }
                let _ =
                    tokio::time::timeout(Duration::from_millis(100), self.server.store.wait_for(revision + 1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), look).await.unwrap_or_else(|_| panic!("never as wanted: {path}"))
    }

    async fn node(&self, name: &str, memory: &str) {
        let allocatable = json!({"cpu": "4", "memory": memory, "pods": "110", "devices.kubevirt.io/tun": "1"});
        let node = json!({"metadata": {"name": name}});
        self.send("POST", "/api/v1/nodes", &node).await;
        let status = json!({"status": {
            "allocatable": allocatable, "capacity": allocatable,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        }});
        self.send("PATCH", &format!("/api/v1/nodes/{name}/status"), &status).await;
        // The API server's own taint goes when the node is ready.
        self.send("PATCH", &format!("/api/v1/nodes/{name}"), &json!({"spec": {"taints": null}})).await;
    }

    async fn pod(&self, name: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"memory": "600Mi"}}},
        ]}});
        change(&mut pod["spec"]);
        self.send("POST", "/api/v1/namespaces/default/pods", &pod).await;
        format!("/api/v1/namespaces/default/pods/{name}")
    }
}

fn condition(pod: &Value) -> &Value {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == "PodScheduled").unwrap_or(&Value::Null)
}

fn is_on(node: &str) -> impl Fn(&Value) -> bool {
    move |pod| pod["spec"]["nodeName"] == node
}

#[tokio::test]
async fn pods_are_bound_and_those_that_do_not_fit_say_why_and_get_their_turn() {
    let world = World::new().await;
    let first = world.pod("first", |_| {}).await;
    let waiting = world.seen(&first, |pod| condition(pod)["status"] == "False").await;
    assert_eq!(condition(&waiting)["reason"], "Unschedulable");
    assert_eq!(condition(&waiting)["message"], "no nodes available to schedule pods");

    world.node("one", "1Gi").await;
    let bound = world.seen(&first, is_on("one")).await;
    assert_eq!(condition(&bound)["status"], "True");

    // Both fit by themselves, and only one of them beside the first.
    let second = world.pod("second", |_| {}).await;
    let full = "0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    world.seen(&second, |pod| condition(pod)["message"] == full).await;
    let events = "/api/v1/namespaces/default/events";
    let told = |reason: &'static str, name: &'static str| {
        move |list: &Value| {
            let mut events = list["items"].as_array().into_iter().flatten();
            events.any(|event| event["reason"] == reason && event["involvedObject"]["name"] == name)
        }
    };
    world.seen(events, told("FailedScheduling", "second")).await;
    world.seen(events, told("Scheduled", "first")).await;

    world.send("DELETE", &first, &json!({"gracePeriodSeconds": 0})).await;
    world.seen(&second, is_on("one")).await;
    world.node("two", "8Gi").await;
    let third = world.pod("third", |spec| spec["nodeSelector"] = json!({"kubernetes.io/hostname": "two"})).await;
    world.send("PATCH", "/api/v1/nodes/two", &json!({"metadata": {"labels": {"kubernetes.io/hostname": "two"}}})).await;
    world.seen(&third, is_on("two")).await;
    world.end().await;
}

#[tokio::test]
async fn a_burst_is_spread_and_never_overfills_a_node() {
    let world = World::new().await;
    for node in ["one", "two"] {
        world.node(node, "4Gi").await;
    }
    let mut paths = Vec::new();
    for number in 0..14 {
        paths.push(world.pod(&format!("p{number}"), |_| {}).await);
    }
    let mut count = std::collections::BTreeMap::<String, usize>::new();
    for path in &paths {
        let judged = world.seen(path, |pod| !condition(pod).is_null()).await;
        *count.entry(judged["spec"]["nodeName"].as_str().unwrap_or("none").to_owned()).or_default() += 1;
    }
    // Six of 600Mi fit into 4Gi.
    assert_eq!(count.into_iter().collect::<Vec<_>>(), [("none".into(), 2), ("one".into(), 6), ("two".into(), 6)]);
    world.end().await;
}

#[tokio::test]
async fn pods_of_others_and_gated_ones_are_left_alone() {
    let world = World::new().await;
    world.node("one", "8Gi").await;
    let foreign = world.pod("foreign", |spec| spec["schedulerName"] = json!("another")).await;
    let gated = world.pod("gated", |spec| spec["schedulingGates"] = json!([{"name": "wait"}])).await;
    let ours = world.pod("ours", |_| {}).await;
    world.seen(&ours, is_on("one")).await;
    for path in [&foreign, &gated] {
        assert!(world.seen(path, Value::is_object).await["spec"]["nodeName"].is_null());
    }
    world.send("PATCH", &gated, &json!({"spec": {"schedulingGates": []}})).await;
    world.seen(&gated, is_on("one")).await;
    world.end().await;
}

#[tokio::test]
async fn pods_wait_for_their_claims_and_tell_them_the_node() {
    let world = World::new().await;
    world.node("one", "8Gi").await;
    let with_claim = |claim: &'static str| {
        move |spec: &mut Value| spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])
    };
    let pod = world.pod("p", with_claim("data")).await;
    let missing = "0/1 nodes are available: persistentvolumeclaim \"data\" not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    world.seen(&pod, |pod| condition(pod)["message"] == missing).await;

    let class =
        json!({"metadata": {"name": "later"}, "provisioner": "none", "volumeBindingMode": "WaitForFirstConsumer"});
    world.send("POST", "/apis/storage.k8s.io/v1/storageclasses", &class).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "later", "resources": {"requests": {"storage": "1Gi"}},
    }});
    world.send("POST", "/api/v1/namespaces/default/persistentvolumeclaims", &claim).await;
    let claim = "/api/v1/namespaces/default/persistentvolumeclaims/data";
    world.seen(claim, |claim| claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "one").await;
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "later",
        "hostPath": {"path": "/nowhere"},
    }});
    world.send("POST", "/api/v1/persistentvolumes", &volume).await;
    world.seen(&pod, is_on("one")).await;
    world.end().await;
}
