//! An API server in memory, an operator with exactly the rights that its manifest gives it, and a test that plays the kubelets.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::controllers::Housekeeper;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_install::{Images, Parameters, operator};
use ferrovirt_operator::{OperatorConfig, run};
use ferrovirt_reconcile::Clock;
use http::{Method, Request};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";
const APPS: &str = "/apis/apps/v1/namespaces/kubevirt";
const OPERATOR: &str = "system:serviceaccount:kubevirt:kubevirt-operator";

/// An operator that runs until it is stopped.
pub(crate) struct Running {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

pub(crate) struct World {
    server: Arc<Server>,
    keeper: Arc<Housekeeper>,
    stop: CancellationToken,
    _keys: tempfile::TempDir,
}

impl World {
    /// A cluster to which the manifest was applied.
    pub(crate) async fn new() -> Self {
        let keys = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, keeper) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        let world = Self { server, keeper, stop, _keys: keys };
        let parameters = Parameters::new("kubevirt", Images::of("registry.example", "v1"));
        for object in operator::objects(&parameters) {
            let path = path_of(&object);
            world.until(&path, || async { world.apply(&path, &object).await.is_ok() }).await;
        }
        world.until("the kind", || async { world.get(&collection(KUBEVIRT)).await.is_some() }).await;
        world
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.keeper.stopped().await;
    }

    fn client(&self, user: UserInfo) -> kube::Client {
        let (server, peer) = (self.server.clone(), Peer::Trusted(user));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, peer) = (server.clone(), peer.clone());
            async move { Ok::<_, Infallible>(server.handle(request.map(erase), &peer).await) }
        });
        kube::Client::new(service, "default")
    }

    fn admin(&self) -> kube::Client {
        self.client(UserInfo::new("admin", ["system:masters"]))
    }

    /// An operator of some version, whose clock is ahead by some hours.
    pub(crate) fn operator(&self, version: &str, hours: i64) -> Running {
        let stop = self.stop.child_token();
        let groups = ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:kubevirt"];
        let client = self.client(UserInfo::new(OPERATOR, groups));
        let config = OperatorConfig {
            namespace: "kubevirt".to_owned(),
            images: Images::of("registry.example", version),
            flags: Arc::new([("virt-handler", ["max-devices".to_owned()].into())].into()),
            version: version.to_owned(),
            leader: None,
            clock: Clock::starting_at(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours)),
        };
        let working = stop.clone();
        let task = tokio::spawn(async move { run(client, config, working).await.unwrap() });
        Running { task, stop }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value, kube::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        self.admin().request::<Value>(request).await
    }

    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Result<Value, kube::Error> {
        let path = format!("{path}?fieldManager=user&force=true");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", object).await
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        self.send(Method::GET, path, "application/json", &Value::Null).await.ok()
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Value {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await.unwrap()
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Value {
        self.send(Method::POST, path, "application/json", object).await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.send(Method::DELETE, path, "application/json", &Value::Null).await.unwrap();
    }

    /// Waits for a state; every change of the store is a reason to look again.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, mut wanted: impl FnMut() -> F) {
        let look = async {
            loop {
                let seen = self.server.store.revision();
                if wanted().await {
                    return;
                }
                let change = self.server.store.wait_for(seen + 1);
                let _ = tokio::time::timeout(Duration::from_millis(100), change).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(120), look).await.is_err() {
            let installation = self.get(KUBEVIRT).await.unwrap_or_default();
            panic!("never saw {what}; the installation says {:#}", installation["status"]["conditions"]);
        }
    }

    /// Waits until an object is as wanted; `Null` is one that is not there.
    pub(crate) async fn wait(&self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until(&format!("{what} at {path}"), || async { wanted(&self.get(path).await.unwrap_or_default()) }).await;
        self.get(path).await.unwrap_or_default()
    }

    /// The controllers of workloads and the kubelets: one component has become ready.
    pub(crate) async fn start(&self, path: &str) {
        let object = self.get(path).await.unwrap();
        let status = json!({
            "observedGeneration": object["metadata"]["generation"], "replicas": object["spec"]["replicas"],
            "updatedReplicas": object["spec"]["replicas"], "availableReplicas": object["spec"]["replicas"],
            "readyReplicas": object["spec"]["replicas"],
        });
        let daemons = json!({
            "observedGeneration": object["metadata"]["generation"], "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 3, "numberAvailable": 3, "numberReady": 3, "numberMisscheduled": 0,
        });
        let status = if path.contains("daemonsets") { daemons } else { status };
        self.merge(&format!("{path}/status"), &json!({"status": status})).await;
    }

    /// Installs with everything ready.
    pub(crate) async fn deployed(&self) {
        for path in ["deployments/virt-api", "deployments/virt-controller", "daemonsets/virt-handler"] {
            let path = format!("{APPS}/{path}");
            self.wait(&path, &path, Value::is_object).await;
            self.start(&path).await;
        }
        self.wait(KUBEVIRT, "Deployed", |it| it["status"]["phase"] == "Deployed").await;
    }
}

/// The path of the collection that an object is in.
pub(crate) fn collection(path: &str) -> String {
    path.rsplit_once('/').map_or(path, |(collection, _)| collection).to_owned()
}

/// The path of an object of the manifest.
fn path_of(object: &Value) -> String {
    let plural = match object["kind"].as_str().unwrap() {
        "PriorityClass" => "priorityclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let version = object["apiVersion"].as_str().unwrap();
    let base = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let name = object["metadata"]["name"].as_str().unwrap();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}/{name}"),
        None => format!("{base}/{plural}/{name}"),
    }
}

/// The condition of a type.
pub(crate) fn condition<'a>(kubevirt: &'a Value, kind: &str) -> &'a Value {
    let all = kubevirt["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}
