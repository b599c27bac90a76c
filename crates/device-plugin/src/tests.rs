//! Plugins and a kubelet that is played: it speaks real gRPC on real sockets, and is restarted as a real one would be.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use futures::stream;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::grpc;
use crate::messages::as_kubelet;

/// A kubelet for as long as it lives; its socket's file stays when it is killed.
struct Kubelet {
    registered: mpsc::UnboundedReceiver<(String, String)>,
    _serving: AbortOnDropHandle<()>,
}

impl Kubelet {
    /// Removes what is in the directory, as a kubelet does when it starts, and listens.
    fn start(directory: &Path) -> Self {
        for entry in std::fs::read_dir(directory).unwrap() {
            // The plugin may be about to replace its own.
            let _ = std::fs::remove_file(entry.unwrap().path());
        }
        let listener = UnixListener::bind(directory.join(kubelet::SOCKET)).unwrap();
        let (tell, registered) = mpsc::unbounded_channel();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let tell = tell.clone();
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let tell = tell.clone();
                    async move {
                        assert_eq!(request.uri().path(), "/v1beta1.Registration/Register");
                        let message = grpc::request_message(request).await.unwrap();
                        let [version, endpoint, resource] =
                            [1, 2, 3].map(|field| as_kubelet::text(&message, field).unwrap());
                        assert_eq!(version, "v1beta1");
                        let _ = tell.send((endpoint, resource));
                        Ok::<_, Infallible>(grpc::answer(stream::iter([Vec::new()])))
                    }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { registered, _serving: AbortOnDropHandle::new(serving) }
    }

    async fn next(&mut self) -> (String, String) {
        self.registered.recv().await.unwrap()
    }
}

/// A kubelet's stream of devices.
struct Devices {
    body: Incoming,
    arrived: BytesMut,
}

impl Devices {
    async fn of(socket: &Path) -> Self {
        let body = grpc::call(socket, "/v1beta1.DevicePlugin/ListAndWatch", b"").await.unwrap();
        Self { body, arrived: BytesMut::new() }
    }

    /// The names of the next list, and the health of all of them.
    async fn next(&mut self) -> (Vec<String>, String) {
        let message = loop {
            if let Some(message) = grpc::unframed(&mut self.arrived) {
                break message;
            }
            let frame = self.body.frame().await.unwrap().unwrap();
            self.arrived.extend_from_slice(frame.data_ref().unwrap());
        };
        let devices = as_kubelet::all(&message, 1).unwrap();
        let names = devices.iter().map(|device| as_kubelet::text(device, 1).unwrap()).collect();
        let health = as_kubelet::text(&devices[0], 2).unwrap();
        assert!(devices.iter().all(|device| as_kubelet::text(device, 2).unwrap() == health));
        (names, health)
    }
}

/// Directories of one test, and a plugin for a device in them.
struct Node {
    _directory: TempDir,
    plugins: PathBuf,
    device: PathBuf,
    running: AbortOnDropHandle<()>,
    stop: CancellationToken,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (plugins, device) = (directory.path().join("plugins"), directory.path().join("dev/kvm"));
        std::fs::create_dir_all(&plugins).unwrap();
        let config = Config { directory: plugins.clone(), devices: vec![Device::new("kvm", &device)], count: 3 };
        let stop = CancellationToken::new();
        let running = AbortOnDropHandle::new(tokio::spawn(run(config, stop.clone())));
        Self { _directory: directory, plugins, device, running, stop }
    }

    fn appear(&self) {
        std::fs::create_dir_all(self.device.parent().unwrap()).unwrap();
        std::fs::write(&self.device, "").unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.plugins.join("kubevirt-kvm.sock")
    }
}

fn kvm() -> (String, String) {
    ("kubevirt-kvm.sock".to_owned(), "devices.kubevirt.io/kvm".to_owned())
}

#[tokio::test]
async fn a_kubelet_that_comes_later_is_told() {
    let node = Node::new();
    tokio::task::yield_now().await;
    let mut kubelet = Kubelet::start(&node.plugins);
    assert_eq!(kubelet.next().await, kvm());
}

#[tokio::test]
async fn devices_are_healthy_while_their_file_is_there() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.plugins);
    kubelet.next().await;
    let mut devices = Devices::of(&node.socket()).await;
    let names = ["kvm0", "kvm1", "kvm2"].map(str::to_owned).to_vec();
    assert_eq!(devices.next().await, (names.clone(), "Unhealthy".to_owned()), "not even its directory is there");
    node.appear();
    assert_eq!(devices.next().await, (names.clone(), "Healthy".to_owned()));
    std::fs::remove_file(&node.device).unwrap();
    assert_eq!(devices.next().await, (names, "Unhealthy".to_owned()));
}

#[tokio::test]
async fn a_kubelet_that_restarts_is_told_again_and_finds_the_plugin() {
    let node = Node::new();
    node.appear();
    for _ in 0..3 {
        let mut kubelet = Kubelet::start(&node.plugins);
        assert_eq!(kubelet.next().await, kvm());
        let mut devices = Devices::of(&node.socket()).await;
        assert_eq!(devices.next().await.1, "Healthy");
    }
}

#[tokio::test]
async fn a_socket_that_somebody_removes_comes_back() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.plugins);
    kubelet.next().await;
    std::fs::remove_file(node.socket()).unwrap();
    assert_eq!(kubelet.next().await, kvm());
    Devices::of(&node.socket()).await.next().await;
}

#[tokio::test]
async fn a_kubelet_that_does_not_listen_is_told_again() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.plugins);
    kubelet.next().await;
    tokio::time::pause();
    assert_eq!(kubelet.next().await, kvm(), "nobody ever listened");
    let mut devices = Devices::of(&node.socket()).await;
    devices.next().await;
    let again = tokio::time::timeout(Duration::from_secs(3600), kubelet.next()).await;
    assert!(again.is_err(), "somebody listens");
    drop(devices);
    assert_eq!(kubelet.next().await, kvm(), "nobody listens any more");
}

#[tokio::test]
async fn what_is_allocated_is_the_file() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.plugins);
    kubelet.next().await;
    let request = as_kubelet::allocate_request(&["kvm2"]);
    let body = grpc::call(&node.socket(), "/v1beta1.DevicePlugin/Allocate", &request).await.unwrap();
    let body = body.collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    let answer = grpc::unframed(&mut BytesMut::from(&body.to_bytes()[..])).unwrap();
    assert_eq!(answer, messages::allocated(&Device::new("kvm", &node.device), 1));
    let refused = grpc::tell(&node.socket(), "/v1beta1.DevicePlugin/PreStartContainer", b"").await;
    assert!(matches!(refused, Err(grpc::CallError::Refused { status, .. }) if status == "12"));
}

#[tokio::test]
async fn a_plugin_that_ends_leaves_no_socket() {
    let node = Node::new();
    let mut kubelet = Kubelet::start(&node.plugins);
    kubelet.next().await;
    node.stop.cancel();
    node.running.await.unwrap();
    assert!(!node.plugins.join("kubevirt-kvm.sock").exists());
}
