//! The controllers on a server in memory: what users see after they wrote something.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::controllers::{Housekeeper, Provisioner};
use ferrovirt_apiserver::http::options::DeleteOptions;
use ferrovirt_apiserver::internal::{Internal, Place};
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_apiserver::status::ApiResult;
use futures::future::BoxFuture;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct World {
    server: Arc<Server>,
    keeper: Arc<Housekeeper>,
    stop: CancellationToken,
    _keys: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let keys = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, keeper) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        let world = Self { server, keeper, stop, _keys: keys };
        world.until("", "serviceaccounts", "default", "default", Value::is_object).await;
        world
    }

    fn of(&self, group: &str, plural: &str) -> Internal<'_> {
        self.server.internal(group, "v1", plural, "test").unwrap()
    }

    async fn create(&self, group: &str, plural: &str, object: Value) -> Value {
        self.of(group, plural).create(object).await.unwrap()
    }

    async fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let _ = self.of("", plural).delete(&Place::new(namespace, name), &DeleteOptions::default()).await.unwrap();
    }

    /// Waits for a state; every change of the store is a reason to look again.
    async fn until(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let objects = self.of(group, plural);
        let look = async {
            loop {
                let seen = self.server.store.revision();
                let object = objects.get(namespace, name).unwrap_or_default();
                if wanted(&object) {
                    return object;
                }
                self.server.store.wait_for(seen + 1).await;
            }
        };
        let last = || objects.get(namespace, name);
        tokio::time::timeout(Duration::from_secs(60), look)
            .await
            .unwrap_or_else(|_| panic!("{plural} {namespace}/{name} stays {:?}", last()))
    }

    async fn ask(&self, user: UserInfo, method: Method, uri: &str, body: &Value) -> (StatusCode, Value) {
        let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
        let request = Request::builder().method(method).uri(uri).body(body).unwrap();
        let answer = self.server.handle(request, &Peer::Trusted(user)).await;
        let status = answer.status();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn end(self) {
        self.stop.cancel();
        self.keeper.stopped().await;
    }
}

fn claim(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }})
}

fn volume(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"},
        "hostPath": {"path": "/data"},
    }})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
    }})
}

#[tokio::test]
async fn a_volume_is_bound_protected_and_released() {
    let world = World::new().await;
    world.create("", "persistentvolumeclaims", claim("c", "slow")).await;
    world.create("", "persistentvolumes", volume("v", "slow")).await;
    let bound =
        world.until("", "persistentvolumeclaims", "default", "c", |claim| claim["status"]["phase"] == "Bound").await;
    assert_eq!(bound["spec"]["volumeName"], "v");
    assert_eq!(bound["status"]["capacity"]["storage"], "2Gi");
    let mut user = pod("user");
    user["spec"]["nodeName"] = "n".into();
    user["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
    world.create("", "pods", user).await;
    world.delete("persistentvolumeclaims", "default", "c").await;
    world.delete("persistentvolumes", "", "v").await;
    let pods = world.of("", "pods");
    let at_once = DeleteOptions { grace_period: Some(0), ..DeleteOptions::default() };
    assert!(world.of("", "persistentvolumeclaims").get("default", "c").is_some(), "a pod uses it");
    let _ = pods.delete(&Place::new("default", "user"), &at_once).await.unwrap();
    world.until("", "persistentvolumeclaims", "default", "c", Value::is_null).await;
    world.until("", "persistentvolumes", "", "v", Value::is_null).await;
    world.end().await;
}

struct Shelf;

impl Provisioner for Shelf {
    fn name(&self) -> &str {
        "shelf.example.com"
    }

    fn provision<'a>(&'a self, claim: &'a Value, _class: &'a Value) -> BoxFuture<'a, ApiResult<Value>> {
        let path = format!("/shelf/{}", claim["metadata"]["name"].as_str().unwrap_or_default());
        Box::pin(async move { Ok(json!({"hostPath": {"path": path}})) })
    }

    fn remove<'a>(&'a self, _volume: &'a Value) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_volume_is_made_for_the_first_consumer_and_removed_with_its_claim() {
    let world = World::new().await;
    let class = json!({
        "metadata": {"name": "shelf"}, "provisioner": "shelf.example.com", "volumeBindingMode": "WaitForFirstConsumer",
    });
    world.create("storage.k8s.io", "storageclasses", class).await;
    world.keeper.add_provisioner(Arc::new(Shelf));
    let made = world.create("", "persistentvolumeclaims", claim("c", "shelf")).await;
    let events = world.of("", "events");
    world
        .until("", "persistentvolumeclaims", "default", "c", |_| {
            events.list(Some("default")).iter().any(|event| event["reason"] == "WaitForFirstConsumer")
        })
        .await;
    let mut user = pod("user");
    user["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
    world.create("", "pods", user).await;
    world.until("", "persistentvolumeclaims", "default", "c", |claim| claim["status"]["phase"] == "Bound").await;
    let name = format!("pvc-{}", made["metadata"]["uid"].as_str().unwrap());
    let volume = world.of("", "persistentvolumes").get("", &name).unwrap();
    assert_eq!(volume["spec"]["hostPath"]["path"], "/shelf/c");
    world.delete("pods", "default", "user").await;
    world.delete("persistentvolumeclaims", "default", "c").await;
    world.until("", "persistentvolumes", "", &name, Value::is_null).await;
    world.end().await;
}

#[tokio::test]
async fn quotas_count_and_refuse_even_at_the_same_time() {
    let world = World::new().await;
    let quota = json!({"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "2"}}});
    world.create("", "resourcequotas", quota).await;
    let pods = world.of("", "pods");
    let names = ["a", "b", "c", "d"];
    let created = futures::future::join_all(names.iter().map(|name| pods.create(pod(name)))).await;
    let refused: Vec<String> = created.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert_eq!(refused.len(), 2, "{refused:?}");
    for message in refused {
        let want = "is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2";
        assert!(message.ends_with(want), "{message}");
    }
    world.until("", "resourcequotas", "default", "q", |quota| quota["status"]["used"]["pods"] == "2").await;
    world.end().await;
}

#[tokio::test]
async fn budgets_follow_their_pods() {
    let world = World::new().await;
    let budget = json!({"metadata": {"name": "b", "namespace": "default"}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"app": "x"}},
    }});
    world.create("policy", "poddisruptionbudgets", budget).await;
    for name in ["p", "q"] {
        world.create("", "pods", pod(name)).await;
        let ready = |pod: &mut Value| {
            pod["status"]["phase"] = "Running".into();
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        };
        world.of("", "pods").change(&Place::new("default", name), "status", ready).await.unwrap();
    }
    let allowed = |number: i64| move |budget: &Value| budget["status"]["disruptionsAllowed"] == number;
    world.until("policy", "poddisruptionbudgets", "default", "b", allowed(1)).await;
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let admin = || UserInfo::new("admin", ["system:masters"]);
    let path = |name: &str| format!("/api/v1/namespaces/default/pods/{name}/eviction");
    let (status, _) = world.ask(admin(), Method::POST, &path("p"), &evict("p")).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, answer) = world.ask(admin(), Method::POST, &path("q"), &evict("q")).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
    world.until("policy", "poddisruptionbudgets", "default", "b", |budget| budget["status"]["expectedPods"] == 1).await;
    world.end().await;
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let world = World::new().await;
    let role = |name: &str, resource: &str| {
        json!({"metadata": {"name": name, "namespace": "default"}, "rules": [
            {"verbs": ["create"], "apiGroups": ["*"], "resources": [resource]},
        ]})
    };
    world.create("rbac.authorization.k8s.io", "roles", role("writer", "*")).await;
    let binding = json!({
        "metadata": {"name": "writers", "namespace": "default"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
    });
    world.create("rbac.authorization.k8s.io", "rolebindings", binding).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let jane = || UserInfo::new("jane", ["system:authenticated"]);
    let mut greedy = role("greedy", "pods");
    greedy["rules"][0]["verbs"] = json!(["create", "delete"]);
    let answers = async {
        // The rights come with the observed binding.
        loop {
            let (status, answer) = world.ask(jane(), Method::POST, roles, &greedy).await;
            if !answer["message"].as_str().unwrap_or_default().contains("cannot create resource") {
                return (status, answer);
            }
            tokio::task::yield_now().await;
        }
    };
    let (status, answer) = tokio::time::timeout(Duration::from_secs(60), answers).await.unwrap();
    assert_eq!(status, StatusCode::FORBIDDEN);
    let want = r#"{APIGroups:["*"], Resources:["pods"], Verbs:["delete"]}"#;
    assert!(answer["message"].as_str().unwrap().ends_with(want), "{answer}");
    let (status, answer) = world.ask(jane(), Method::POST, roles, &role("modest", "pods")).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    world.end().await;
}

#[tokio::test]
async fn what_every_namespace_has_comes_back() {
    let world = World::new().await;
    let old = world.until("", "configmaps", "default", "kube-root-ca.crt", Value::is_object).await;
    let spoil = |map: &mut Value| map["data"]["ca.crt"] = "nonsense".into();
    world.of("", "configmaps").change(&Place::new("default", "kube-root-ca.crt"), "", spoil).await.unwrap();
    world.until("", "configmaps", "default", "kube-root-ca.crt", |map| map["data"] == old["data"]).await;
    let first = world.of("", "serviceaccounts").get("default", "default").unwrap();
    world.delete("serviceaccounts", "default", "default").await;
    let again = |account: &Value| account.is_object() && account["metadata"]["uid"] != first["metadata"]["uid"];
    world.until("", "serviceaccounts", "default", "default", again).await;
    world.end().await;
}

#[tokio::test]
async fn token_secrets_are_filled_and_go_with_their_account() {
    let world = World::new().await;
    world.create("", "serviceaccounts", json!({"metadata": {"name": "robot", "namespace": "default"}})).await;
    let secret = json!({
        "metadata": {"name": "s", "namespace": "default", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token",
    });
    world.create("", "secrets", secret).await;
    let filled = world.until("", "secrets", "default", "s", |secret| secret["data"]["token"].is_string()).await;
    assert!(filled["data"]["ca.crt"].is_string());
    world.delete("serviceaccounts", "default", "robot").await;
    world.until("", "secrets", "default", "s", Value::is_null).await;
    let mut stray = pod("p");
    stray["spec"]["serviceAccountName"] = "robot".into();
    let refused = world.of("", "pods").create(stray).await.unwrap_err();
    let want =
        r#"pods "p" is forbidden: error looking up service account default/robot: serviceaccount "robot" not found"#;
    assert_eq!((refused.code(), refused.message()), (StatusCode::FORBIDDEN, want));
    world.end().await;
}

#[tokio::test]
async fn a_dead_node_is_marked_and_its_pods_go_when_somebody_vouches_for_its_death() {
    use ferrovirt_apiserver::controllers::nodes;
    let world = World::new().await;
    world.create("", "nodes", json!({"metadata": {"name": "dead"}})).await;
    let ready = |status: &'static str| {
        move |node: &mut Value| node["status"]["conditions"] = json!([{"type": "Ready", "status": status}])
    };
    let node = Place::new("", "dead");
    world.of("", "nodes").change(&node, "status", ready("True")).await.unwrap();
    let lease = json!({
        "metadata": {"name": "dead", "namespace": "kube-node-lease"}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
    });
    world.create("coordination.k8s.io", "leases", lease).await;
    let pod = json!({
        "metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "dead", "containers": [{"name": "c", "image": "i"}]},
    });
    world.create("", "pods", pod).await;
    let seen = || world.of("", "nodes").get("", "dead").unwrap();
    nodes::look(&world.server, world.server.environment.now()).await.unwrap();
    assert_eq!(seen()["status"]["conditions"][0]["status"], "True", "silence before the server's start does not count");
    nodes::look(&world.server, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(seen()["status"]["conditions"][0]["status"], "Unknown");
    assert_eq!(seen()["spec"]["taints"][0]["key"], "node.kubernetes.io/unreachable");
    let pod = || world.of("", "pods").get("default", "p");
    assert!(pod().is_some(), "what runs on a silent node may run");
    let vouch = |node: &mut Value| {
        let taint = json!({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"});
        node["spec"]["taints"].as_array_mut().unwrap().push(taint);
    };
    world.of("", "nodes").change(&node, "", vouch).await.unwrap();
    nodes::look(&world.server, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(pod(), None);
    world.end().await;
}
