//! A whole API server in memory, with a controller on it and a node that does as it is told.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::names::finalizers;
use ferrovirt_api::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::controllers::Housekeeper;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_kubernetes::CustomResourceDefinition;
use ferrovirt_kubernetes::Pod;
use ferrovirt_reconcile::LeaderConfig;
use ferrovirt_virt_controller::{ControllerConfig, run};
use http::{Method, Request};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const NODE: &str = "node-1";

/// Requests of a controller, as `POST /api/v1/…`, in the order in which they were answered.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<parking_lot::Mutex<Vec<String>>>);

impl Requests {
    fn note(&self, method: &Method, path: &str) {
        self.0.lock().push(format!("{method} {path}"));
    }

    /// Those that changed something.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.0.lock().iter().filter(|request| !request.starts_with("GET")).cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// A controller that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) requests: Requests,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) struct World {
    server: Arc<Server>,
    keeper: Arc<Housekeeper>,
    stop: CancellationToken,
    _keys: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        let keys = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, keeper) = cluster::in_memory(keys.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        let world = Self { server, keeper, stop, _keys: keys };
        let definitions: Api<CustomResourceDefinition> = Api::all(world.admin());
        for definition in ferrovirt_api::crds::crds() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        world.until("custom resources", || async { world.vmis().list(&Default::default()).await.is_ok() }).await;
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        world.until("a service account", || async { world.get(account).await.is_some() }).await;
        world
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.keeper.stopped().await;
    }

    pub(crate) fn admin(&self) -> kube::Client {
        self.client(Requests::default(), usize::MAX)
    }

    /// A client that hears no more answers once it has made so many writes, as if its process had been killed right after.
    fn client(&self, requests: Requests, deadly_write: usize) -> kube::Client {
        let server = self.server.clone();
        let peer = Peer::Trusted(UserInfo::new("admin", ["system:masters"]));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, peer, requests) = (server.clone(), peer.clone(), requests.clone());
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                if requests.writes().len() >= deadly_write {
                    std::future::pending::<()>().await;
                }
                let answer = server.handle(request.map(erase), &peer).await;
                requests.note(&method, &path);
                if method != Method::GET && requests.writes().len() >= deadly_write {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn controller(&self) -> Running {
        self.controller_that_dies_after(usize::MAX)
    }

    pub(crate) fn controller_that_dies_after(&self, writes: usize) -> Running {
        self.start(writes, ControllerConfig::default())
    }

    /// Two of these never work at once.
    pub(crate) fn candidate(&self, identity: &str) -> Running {
        let leader = Some(LeaderConfig::new("default", "virt-controller", identity));
        self.start(usize::MAX, ControllerConfig { leader, ..ControllerConfig::default() })
    }

    pub(crate) fn start(&self, writes: usize, config: ControllerConfig) -> Running {
        let requests = Requests::default();
        let client = self.client(requests.clone(), writes);
        let stop = self.stop.clone();
        let task = tokio::spawn(async move {
            run(client, config, stop).await.unwrap();
        });
        Running { requests, task }
    }

    pub(crate) fn vmis(&self) -> Api<VirtualMachineInstance> {
        Api::default_namespaced(self.admin())
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::default_namespaced(self.admin())
    }

    pub(crate) fn migrations(&self) -> Api<VirtualMachineInstanceMigration> {
        Api::default_namespaced(self.admin())
    }

    /// The move as JSON once `wanted` holds of it; `Null` is one that is gone.
    pub(crate) async fn migration(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.object(&self.migrations(), name, what, wanted).await
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.admin())
    }

    /// Waits for a state; every change of the store is a reason to look again.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, mut wanted: impl FnMut() -> F) {
        let look = async {
            loop {
                let seen = self.revision();
                if wanted().await {
                    return;
                }
                self.changed_since(seen).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), look).await.is_ok(), "never saw {what}");
    }

    pub(crate) fn revision(&self) -> u64 {
        self.server.store.revision()
    }

    /// Waits for the next change, or a moment: what is waited for may leave no trace in the store.
    pub(crate) async fn changed_since(&self, revision: u64) {
        let change = self.server.store.wait_for(revision + 1);
        let _ = tokio::time::timeout(Duration::from_millis(100), change).await;
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        self.admin().request::<Value>(request).await.ok()
    }

    /// The guest as JSON once `wanted` holds of it; `Null` is one that is gone.
    pub(crate) async fn guest(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.object(&self.vmis(), name, what, wanted).await
    }

    /// The machine as JSON once `wanted` holds of it; `Null` is one that is gone.
    pub(crate) async fn machine(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.object(&self.vms(), name, what, wanted).await
    }

    /// The pod as JSON once `wanted` holds of it; `Null` is one that is gone.
    pub(crate) async fn pod(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.object(&self.pods(), name, what, wanted).await
    }

    async fn object<K>(&self, api: &Api<K>, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value
    where
        K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
    {
        let read = || async { serde_json::to_value(api.get_opt(name).await.unwrap()).unwrap() };
        self.until(what, || async { wanted(&read().await) }).await;
        read().await
    }

    /// Creates a guest as virt-api lets it in, and returns the name that its pod has to get.
    pub(crate) async fn create_guest(&self, name: &str, spec: Value) -> String {
        let object = json!({
            "metadata": {"name": name, "finalizers": [finalizers::VMI]},
            "spec": spec,
            "status": {"phase": "Pending"},
        });
        let vmi = serde_json::from_value(object).unwrap();
        let vmi = self.vmis().create(&PostParams::default(), &vmi).await.unwrap();
        ferrovirt_pods::pod_name(&vmi)
    }

    /// Creates a machine as virt-api lets it in.
    pub(crate) async fn create_machine(&self, name: &str, strategy: &str) {
        self.create_machine_with(name, json!({"runStrategy": strategy, "template": {"spec": small()}})).await;
    }

    pub(crate) async fn create_machine_with(&self, name: &str, mut spec: Value) {
        let firmware = json!({"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223"});
        spec["template"]["spec"]["domain"]["firmware"] = firmware;
        let object = json!({"metadata": {"name": name, "finalizers": [finalizers::VM_CONTROLLER]}, "spec": spec});
        let vm = serde_json::from_value(object).unwrap();
        self.vms().create(&PostParams::default(), &vm).await.unwrap();
    }

    pub(crate) async fn patch_machine(&self, name: &str, patch: Value) {
        self.vms().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// What the start and stop subresources do.
    pub(crate) async fn request(&self, name: &str, requests: Value) {
        let patch = Patch::Merge(json!({"status": {"stateChangeRequests": requests}}));
        self.vms().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Brings a machine's guest up, as the scheduler, its node and virt-handler do, and returns its uid.
    pub(crate) async fn bring_up(&self, name: &str) -> String {
        let alive = |guest: &Value| guest.is_object() && guest["metadata"]["deletionTimestamp"].is_null();
        let guest = self.guest(name, "a guest", alive).await;
        let uid = guest["metadata"]["uid"].as_str().unwrap().to_owned();
        let pod = ferrovirt_pods::pod_name(&serde_json::from_value(guest).unwrap());
        self.pod(&pod, "its pod", Value::is_object).await;
        self.start_pod(&pod).await;
        self.guest(name, "the hand-over", |guest| guest["status"]["phase"] == "Scheduled").await;
        let stamps = json!([{"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}]);
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"phase": "Running", "conditions": ready, "phaseTransitionTimestamps": stamps});
        self.patch_guest(name, json!({ "status": status })).await;
        uid
    }

    /// The guest ends by itself, or after it was told to.
    pub(crate) async fn end_guest(&self, name: &str, phase: &str) {
        self.patch_guest(name, json!({"status": {"phase": phase}})).await;
    }

    /// Removes the pod of a deleted guest when its time has come.
    pub(crate) async fn take_down(&self, name: &str, uid: &str) {
        let mut vmi = VirtualMachineInstance::default();
        vmi.metadata.name = Some(name.to_owned());
        vmi.metadata.uid = Some(uid.to_owned());
        let pod = ferrovirt_pods::pod_name(&vmi);
        self.pod(&pod, "its deletion", |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
        self.remove_pod(&pod).await;
    }

    /// What a scheduler does.
    pub(crate) async fn place(&self, pod: &str) {
        self.place_on(pod, NODE).await;
    }

    pub(crate) async fn place_on(&self, pod: &str, node: &str) {
        let binding = json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}});
        let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&binding).unwrap()).unwrap();
        self.admin().request::<Value>(request).await.unwrap();
    }

    /// What a node does.
    pub(crate) async fn set_pod_status(&self, pod: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.pods().patch_status(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn start_pod(&self, pod: &str) {
        self.place(pod).await;
        self.set_pod_status(pod, running()).await;
    }

    /// What a node does with a deleted pod whose processes have ended.
    pub(crate) async fn remove_pod(&self, pod: &str) {
        self.set_pod_status(pod, ended()).await;
        self.lose_pod(pod).await;
    }

    /// What somebody does by force: nobody hears what becomes of the pod's processes.
    pub(crate) async fn lose_pod(&self, pod: &str) {
        self.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// What a node's virt-handler says that is asked and finds nothing.
    pub(crate) async fn answer(&self, name: &str, node: &str) {
        let guest = self.guest(name, "the question", |guest| guest["metadata"]["labels"][ASKED] == node).await;
        let ledger = guest["status"]["activePods"].as_object().unwrap();
        let own: serde_json::Map<_, _> =
            ledger.iter().filter(|(_, on)| **on == node).map(|(uid, _)| (uid.clone(), Value::Null)).collect();
        self.patch_guest(name, json!({"status": {"activePods": own}})).await;
    }

    pub(crate) async fn patch_guest(&self, name: &str, patch: Value) {
        self.vmis().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// The label by which a node is asked about vanished pods.
pub(crate) const ASKED: &str = "ferrovirt.io/asked-node";

pub(crate) fn running() -> Value {
    json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "compute", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    })
}

/// What a node says of a launcher that has done its work.
pub(crate) fn ended() -> Value {
    json!({"phase": "Succeeded", "containerStatuses": [{
        "name": "compute", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0}},
    }]})
}

pub(crate) fn small() -> Value {
    json!({"domain": {"memory": {"guest": "64Mi"}, "devices": {}}})
}

pub(crate) fn condition(guest: &Value, r#type: &str) -> Value {
    let conditions = guest["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == r#type).unwrap_or_default()
}
