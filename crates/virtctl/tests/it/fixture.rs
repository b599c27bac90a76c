//! A cluster in memory behind a port of this machine, and the program that talks to it.

use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::server::{Machine, Peer, Server};
use ferrovirt_apiserver::{cluster, serve};
use ferrovirt_virt_api::LocalHandlers;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// An API server with virt-api, which ends with the test.
pub(crate) struct Cluster {
    pub(crate) server: Arc<Server>,
    pub(crate) directory: tempfile::TempDir,
    stop: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, _) =
            cluster::in_memory(&directory.path().join("pki"), Arc::new(Machine), stop.clone()).await.unwrap();
        let crds = server.internal("apiextensions.k8s.io", "v1", "customresourcedefinitions", "test").unwrap();
        for crd in ferrovirt_api::crds::crds() {
            crds.create(serde_json::to_value(crd).unwrap()).await.unwrap();
        }
        for kind in ["virtualmachines", "virtualmachineinstances", "kubevirts"] {
            while server.registry.snapshot().find("kubevirt.io", "v1", kind).is_none() {
                tokio::task::yield_now().await;
            }
        }
        ferrovirt_virt_api::install(&server, LocalHandlers::new(directory.path().join("nodes"))).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        write_kubeconfig(directory.path(), &format!("http://{}", listener.local_addr().unwrap()));
        let (shared, stopped) = (server.clone(), stop.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let user = Peer::Trusted(UserInfo::new("jane", ["system:masters"]));
                        tokio::spawn(serve::connection(shared.clone(), accepted.unwrap().0, user, stopped.clone()));
                    }
                    () = stopped.cancelled() => return,
                }
            }
        });
        Self { server, directory, stop }
    }

    /// The program, which talks to this cluster.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_virtctl"));
        command.arg("--kubeconfig").arg(self.directory.path().join("kubeconfig")).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs the program to its end: exit code, output, errors.
    pub(crate) async fn run(&self, words: &[&str]) -> (i32, String, String) {
        self.feed(words, "").await
    }

    /// The same with something on its standard input.
    pub(crate) async fn feed(&self, words: &[&str], input: &str) -> (i32, String, String) {
        let mut child = self.command(words).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let done = child.wait_with_output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
    }

    /// Makes an object.
    pub(crate) async fn create(&self, group: &str, resource: &str, object: Value) -> Value {
        let version = "v1";
        self.server.internal(group, version, resource, "test").unwrap().create(object).await.unwrap()
    }

    /// A guest in that state on node `node1`.
    pub(crate) async fn guest(&self, name: &str, phase: &str, conditions: &[&str]) -> Value {
        let guest = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        });
        self.create("kubevirt.io", "virtualmachineinstances", guest).await;
        let conditions: Vec<Value> = conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let guests = self.server.internal("kubevirt.io", "v1", "virtualmachineinstances", "test").unwrap();
        let change = |guest: &mut Value| {
            guest["status"]["phase"] = phase.into();
            guest["status"]["nodeName"] = "node1".into();
            guest["status"]["conditions"] = json!(conditions);
        };
        guests.change(&Place::new("default", name), "", change).await.unwrap()
    }
}

fn write_kubeconfig(directory: &Path, server: &str) {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
    });
    std::fs::write(directory.join("kubeconfig"), kubeconfig.to_string()).unwrap();
}

/// A virt-handler of `node1`: streams echo after a line that repeats the request's query, reads answer from a table.
pub(crate) fn start_handler(directory: &Path) {
    let node = directory.join("nodes/node1");
    std::fs::create_dir_all(&node).unwrap();
    let listener = UnixListener::bind(node.join("virt-handler.sock")).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades().await;
            });
        }
    });
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let wanted = path.rsplit_once("virtualmachineinstances/").unwrap().1.split_once('/').unwrap().1.to_owned();
    if ["console", "vnc"].contains(&wanted.as_str()) {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move { echo(TokioIo::new(upgrade.await.unwrap()), query).await });
        let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        return Ok(answer.header("connection", "upgrade").header("upgrade", "plain").body(Full::default()).unwrap());
    }
    let _ = request.into_body().collect().await;
    let (code, kind, body) = match wanted.as_str() {
        "userlist" => (200, "application/json", json!([{"user": "root", "loginTime": 1.5}]).to_string()),
        "vnc/screenshot" => (200, "image/png", "pixels".to_owned()),
        "reset" => (409, "application/json", json!({"message": "the domain is shutting down"}).to_string()),
        _ => (200, "application/json", String::new()),
    };
    Ok(Response::builder().status(code).header("content-type", kind).body(Full::from(body)).unwrap())
}

/// Ends at the word `bye`.
async fn echo(mut stream: TokioIo<hyper::upgrade::Upgraded>, query: String) {
    let mut buffer = vec![0; 4096];
    stream.write_all(format!("guest[{query}]\n").as_bytes()).await.unwrap();
    loop {
        let length = stream.read(&mut buffer).await.unwrap_or(0);
        if length == 0 || stream.write_all(&buffer[..length]).await.is_err() || buffer[..length].ends_with(b"bye\n") {
            return;
        }
    }
}
