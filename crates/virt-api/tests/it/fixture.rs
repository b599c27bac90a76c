//! A cluster in memory, guests in it, and a virt-handler that can be watched.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::cluster;
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::serve;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_virt_api::LocalHandlers;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// A component, as the API server knows it.
pub(crate) const HANDLER: &str = "system:serviceaccount:kubevirt:virt-handler";
pub(crate) const GUESTS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

pub(crate) const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

/// A user who may do everything.
pub(crate) fn admin() -> UserInfo {
    UserInfo::new("jane", ["system:masters"])
}

/// An API server with virt-api, which ends with the test.
pub(crate) struct Cluster {
    pub(crate) server: Arc<Server>,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) stop: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    /// With virt-api in the server's process.
    pub(crate) async fn start() -> Self {
        let cluster = Self::without_virt_api().await;
        let handlers = LocalHandlers::new(cluster.directory.path().join("nodes"));
        ferrovirt_virt_api::install(&cluster.server, handlers).await.unwrap();
        cluster
    }

    /// With our kinds and nothing that knows them.
    pub(crate) async fn without_virt_api() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, _) =
            cluster::in_memory(&directory.path().join("pki"), Arc::new(Machine), stop.clone()).await.unwrap();
        let crds = server.internal("apiextensions.k8s.io", "v1", "customresourcedefinitions", "test").unwrap();
        for crd in ferrovirt_api::crds::crds() {
            crds.create(serde_json::to_value(crd).unwrap()).await.unwrap();
        }
        for kind in ["virtualmachines", "virtualmachineinstances", "virtualmachineinstancemigrations", "kubevirts"] {
            while server.registry.snapshot().find("kubevirt.io", "v1", kind).is_none() {
                tokio::task::yield_now().await;
            }
        }
        Self { server, directory, stop }
    }

    /// One request as that user: its code and what was answered.
    pub(crate) async fn ask(&self, user: UserInfo, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(serve::erase(Full::new(body))).unwrap();
        let answer = self.server.handle(request, &Peer::Trusted(user)).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = || json!(String::from_utf8_lossy(&body));
        (code, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
    }

    /// What an administrator is warned about who creates that.
    pub(crate) async fn warnings(&self, path: &str, object: &Value) -> Vec<String> {
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
        let request = request.body(serve::erase(Full::new(Bytes::from(object.to_string())))).unwrap();
        let answer = self.server.handle(request, &Peer::Trusted(admin())).await;
        assert_eq!(answer.status().as_u16(), 201);
        let warnings = answer.headers().get_all("warning").iter();
        warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect()
    }

    /// A guest in that state on node `node1`.
    pub(crate) async fn guest(&self, name: &str, phase: &str, conditions: &[&str]) -> Value {
        let guest = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name},
            "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        });
        let (code, made) = self.ask(admin(), Method::POST, GUESTS, &guest).await;
        assert_eq!(code, 201, "{made}");
        let conditions: Vec<Value> = conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let guests = self.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
        let change = |guest: &mut Value| {
            guest["status"]["phase"] = phase.into();
            guest["status"]["nodeName"] = "node1".into();
            guest["status"]["conditions"] = json!(conditions);
        };
        guests.change(&Place::new("default", name), "", change).await.unwrap()
    }

    /// Makes a user with one of our roles.
    pub(crate) async fn user(&self, role: &str) -> UserInfo {
        let bindings = self.server.internal("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "test").unwrap();
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("kubevirt.io:{role}")},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
        });
        bindings.create(binding).await.unwrap();
        let user = UserInfo::new(role, ["system:authenticated"]);
        // Roles arrive with the store's events; this is the last of those that the user gets.
        let policies = "/apis/migrations.kubevirt.io/v1alpha1/migrationpolicies";
        let migrations = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
        let probe = if role == "migrate" { migrations } else { policies };
        while self.ask(user.clone(), Method::GET, probe, &Value::Null).await.0 == 403 {
            tokio::task::yield_now().await;
        }
        user
    }

    /// A launcher pod of a guest on node `node1`.
    pub(crate) async fn launcher(&self, guest: &Value) -> String {
        let name = format!("virt-launcher-{}", guest["metadata"]["name"].as_str().unwrap());
        let accounts = self.server.internal("", "v1", "serviceaccounts", "test").unwrap();
        while accounts.get("default", "default").is_none() {
            tokio::task::yield_now().await;
        }
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "default",
                "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": guest["metadata"]["uid"]},
                "annotations": {"kubevirt.io/domain": guest["metadata"]["name"]},
                "ownerReferences": [{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": guest["metadata"]["name"],
                    "controller": true, "uid": guest["metadata"]["uid"],
                }],
            },
            "spec": {"nodeName": "node1", "containers": [{"name": "compute", "image": "a"}]},
        });
        let pods = self.server.internal("", "v1", "pods", "test").unwrap();
        pods.create(pod).await.unwrap();
        let running = |pod: &mut Value| pod["status"] = json!({"phase": "Running", "podIP": "127.0.0.1"});
        pods.change(&Place::new("default", &name), "status", running).await.unwrap();
        name
    }

    /// A virtual machine with that run strategy.
    pub(crate) async fn machine(&self, name: &str, strategy: &str) -> Value {
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"runStrategy": strategy, "template": {"spec": {
                "domain": {"memory": {"guest": "64Mi"}, "devices": {}},
            }}},
        });
        let (code, made) = self.ask(admin(), Method::POST, MACHINES, &machine).await;
        assert_eq!(code, 201, "{made}");
        made
    }

    /// A connection to the server, as a user's.
    pub(crate) fn connect(&self) -> tokio::io::DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (server, stop) = (self.server.clone(), self.stop.clone());
        tokio::spawn(serve::connection(server, theirs, Peer::Trusted(admin()), stop));
        ours
    }
}

/// What a virt-handler was asked: method, path, body.
pub(crate) type Seen = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A virt-handler of `node1` that echoes streams, answers reads from a table and refuses to reset.
pub(crate) struct Handler {
    pub(crate) seen: Seen,
    /// Ends every open stream from the guest's side.
    pub(crate) end_streams: CancellationToken,
}

impl Handler {
    pub(crate) fn start(directory: &Path) -> Self {
        let node = directory.join("nodes/node1");
        std::fs::create_dir_all(&node).unwrap();
        let listener = UnixListener::bind(node.join("virt-handler.sock")).unwrap();
        let handler = Self { seen: Seen::default(), end_streams: CancellationToken::new() };
        let (seen, end) = (handler.seen.clone(), handler.end_streams.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, end) = (seen.clone(), end.clone());
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(request, seen.clone(), end.clone()));
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        });
        handler
    }
}

async fn answer(
    mut request: Request<Incoming>,
    seen: Seen,
    end: CancellationToken,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let wanted = path.rsplit_once("virtualmachineinstances/").unwrap().1.split_once('/').unwrap().1.to_owned();
    if ["console", "vnc"].contains(&wanted.as_str()) {
        seen.lock().unwrap().push((method, path, Value::Null));
        assert_eq!(request.headers()["upgrade"], "plain");
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move { echo(TokioIo::new(upgrade.await.unwrap()), end).await });
        let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        return Ok(answer.header("connection", "upgrade").header("upgrade", "plain").body(Full::default()).unwrap());
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    seen.lock().unwrap().push((method, path, serde_json::from_slice(&body).unwrap_or_default()));
    let (code, kind, body) = match wanted.as_str() {
        "guestosinfo" => (200, "application/json", json!({"version": "8.2", "hostname": "g", "os": {"id": "debian"}, "frozen": true}).to_string()),
        "userlist" => (200, "application/json", json!([{"user": "root", "loginTime": 1.5}]).to_string()),
        "filesystemlist" => (200, "application/json", json!([{"name": "vda1", "mountpoint": "/", "kind": "ext4", "usedBytes": 1, "totalBytes": 2, "disks": [["s1", "virtio"]]}]).to_string()),
        "vnc/screenshot" => (200, "image/png", "pixels".to_owned()),
        "reset" => (409, "application/json", json!({"message": "the domain is shutting down"}).to_string()),
        _ => (200, "application/json", String::new()),
    };
    Ok(Response::builder().status(code).header("content-type", kind).body(Full::from(body)).unwrap())
}

async fn echo(mut stream: TokioIo<hyper::upgrade::Upgraded>, end: CancellationToken) {
    let mut buffer = vec![0; 4096];
    loop {
        let length = tokio::select! {
            read = stream.read(&mut buffer) => read.unwrap_or(0),
            () = end.cancelled() => 0,
        };
        if length == 0 || stream.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
