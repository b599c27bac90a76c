//! An extension API server on loopback behind an `APIService`, asked through a cluster in memory.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::auth::UserInfo;
use crate::outgoing::testing::Loopback;
use crate::serve::erase;
use crate::server::{Machine, Peer, Server};

struct World {
    server: Arc<Server>,
    port: u16,
    stop: CancellationToken,
    _home: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Lists `things`, redirects, switches protocols to an echo, or tells what it was sent.
async fn extension(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let text = |text: String| Response::new(Full::new(Bytes::from(text)));
    match request.uri().path() {
        "/apis/ext.example.com/v1" => {
            let things = json!({
                "name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list"],
            });
            let list = json!({"kind": "APIResourceList", "groupVersion": "ext.example.com/v1", "resources": [things]});
            text(list.to_string())
        }
        path if path.ends_with("/away") => {
            let mut response = text(String::new());
            *response.status_mut() = StatusCode::FOUND;
            response.headers_mut().insert("location", HeaderValue::from_static("https://evil.example.com/"));
            response
        }
        path if path.ends_with("/echo") => {
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgraded.await.unwrap());
                let mut buffer = [0; 64];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    stream.write_all(&buffer[..read].to_ascii_uppercase()).await.unwrap();
                }
            });
            let mut response = text(String::new());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
            response
        }
        _ => {
            let (parts, body) = request.into_parts();
            let headers: Vec<(String, String)> = parts
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().to_owned()))
                .collect();
            let body = body.collect().await.unwrap().to_bytes();
            let seen = json!({
                "method": parts.method.as_str(), "uri": parts.uri.to_string(), "headers": headers,
                "body": String::from_utf8_lossy(&body),
            });
            text(seen.to_string())
        }
    }
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, _) = crate::cluster::in_memory(home.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        let pki = server.identity.pki();
        let identity = pki.server_identity("ext", &["ext.default.svc".to_owned()], SystemTime::now()).unwrap();
        let front_proxy = pki.front_proxy_ca_certificate().to_owned();
        let Loopback { port, .. } = Loopback::start(&identity, Some(&front_proxy), stop.clone(), extension).await;
        Self { server, port, stop, _home: home }
    }

    async fn send(&self, method: Method, path: &str, accept: &str, body: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("accept", accept).header("authorization", "Bearer secret");
        let request = request.body(erase(Full::new(Bytes::from(body.to_owned())))).unwrap();
        let jane = UserInfo::new("jane", ["dev", "system:masters"]).with_extra("example.com/x", "y");
        let answer = self.server.handle(request, &Peer::Trusted(jane)).await;
        let code = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    async fn get(&self, path: &str) -> Value {
        let (_, body) = self.send(Method::GET, path, "application/json", "").await;
        serde_json::from_str(&body).unwrap_or(Value::Null)
    }

    async fn create(&self, path: &str, object: &Value) {
        let (code, body) = self.send(Method::POST, path, "application/json", &object.to_string()).await;
        assert_eq!(code, StatusCode::CREATED, "{body}");
    }

    async fn register(&self) {
        let spec = json!({
            "group": "ext.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
            "service": {"namespace": "default", "name": "ext"},
        });
        let object = json!({"metadata": {"name": "v1.ext.example.com"}, "spec": spec});
        self.create("/apis/apiregistration.k8s.io/v1/apiservices", &object).await;
    }

    async fn add_service(&self) {
        let service = json!({"metadata": {"name": "ext"}, "spec": {"ports": [{"port": 443}]}});
        self.create("/api/v1/namespaces/default/services", &service).await;
    }

    async fn add_endpoints(&self, port: u16) {
        let slice = json!({
            "metadata": {"name": "ext-1", "labels": {"kubernetes.io/service-name": "ext"}}, "addressType": "IPv4",
            "ports": [{"name": "", "port": port}], "endpoints": [{"addresses": ["127.0.0.1"]}],
        });
        self.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    }

    /// Waits until an `APIService` says why it is (not) available, and until the proxy has heard of it.
    async fn wait_for(&self, name: &str, reason: &str) -> Value {
        loop {
            let object = self.get(&format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}")).await;
            let condition = &object["status"]["conditions"][0];
            let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
            let known = self.server.mounts.proxied.get(name).is_none_or(|remote| Some(remote.revision) == version);
            if condition["reason"] == reason && known {
                return object;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn available() -> Self {
        let world = Self::new().await;
        world.add_service().await;
        world.add_endpoints(world.port).await;
        world.register().await;
        world.wait_for("v1.ext.example.com", "Passed").await;
        world
    }
}

#[tokio::test]
async fn requests_arrive_with_the_caller_and_without_credentials() {
    let world = World::available().await;
    let path = "/apis/ext.example.com/v1/namespaces/a/things/b%20c?x=1&y=%2F";
    let (code, body) = world.send(Method::PUT, path, "application/json", "{\"a\":1}").await;
    assert_eq!(code, StatusCode::OK);
    let seen: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&seen["method"], &seen["uri"], &seen["body"]), (&json!("PUT"), &json!(path), &json!("{\"a\":1}")));
    let all = |wanted: &str| -> Vec<String> {
        let headers = seen["headers"].as_array().unwrap().iter();
        headers.filter(|pair| pair[0] == wanted).map(|pair| pair[1].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(all("x-remote-user"), ["jane"]);
    assert_eq!(all("x-remote-group"), ["dev", "system:masters"]);
    assert_eq!(all("x-remote-extra-example.com%2fx"), ["y"]);
    assert_eq!(all("content-type"), ["application/json"]);
    assert!(all("authorization").is_empty());
    let (code, body) = world.send(Method::GET, "/apis/ext.example.com/v1/away", "application/json", "").await;
    assert_eq!(code, StatusCode::BAD_GATEWAY);
    assert_eq!(body, "the backend attempted to redirect this request, which is not permitted");
}

#[tokio::test]
async fn discovery_shows_what_the_other_server_serves() {
    let world = World::available().await;
    let groups = world.get("/apis").await;
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().filter_map(|group| group["name"].as_str()).collect();
    assert_eq!(names[0], "apiregistration.k8s.io");
    assert_eq!(names.last(), Some(&"ext.example.com"));
    let list = world.get("/apis/ext.example.com/v1").await;
    assert_eq!(list["resources"][0]["name"], "things");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, body) = world.send(Method::GET, "/apis", accept, "").await;
    let document: Value = serde_json::from_str(&body).unwrap();
    let items = document["items"].as_array().unwrap();
    let group = items.iter().find(|item| item["metadata"]["name"] == "ext.example.com").unwrap();
    let version = &group["versions"][0];
    assert_eq!((&version["freshness"], &version["resources"][0]["resource"]), (&json!("Current"), &json!("things")));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_says_why() {
    let world = World::new().await;
    world.register().await;
    let object = world.wait_for("v1.ext.example.com", "ServiceNotFound").await;
    let condition = &object["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Available"), &json!("False")));
    assert_eq!(condition["message"], "service/ext in \"default\" is not present");
    let (code, body) = world.send(Method::GET, "/apis/ext.example.com/v1/things", "application/json", "").await;
    assert_eq!((code, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n"));
    world.add_service().await;
    world.wait_for("v1.ext.example.com", "EndpointsNotFound").await;
    // Nothing listens on port 1.
    world.add_endpoints(1).await;
    let object = world.wait_for("v1.ext.example.com", "FailedDiscoveryCheck").await;
    let address = "https://127.0.0.1:1/apis/ext.example.com/v1";
    let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
    let message = format!("failing or missing response from {address}: Get \"{address}\": {refused}");
    assert_eq!(object["status"]["conditions"][0]["message"], message);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, body) = world.send(Method::GET, "/apis", accept, "").await;
    assert!(body.contains(r#"{"freshness":"Stale","version":"v1"}"#), "{body}");
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/ext-1";
    world.send(Method::DELETE, slice, "application/json", "").await;
    world.add_endpoints(world.port).await;
    world.wait_for("v1.ext.example.com", "Passed").await;
}

#[tokio::test]
async fn an_upgraded_connection_reaches_through() {
    let world = World::available().await;
    let (near, far) = tokio::io::duplex(1 << 16);
    let jane = Peer::Trusted(UserInfo::new("jane", ["system:masters"]));
    tokio::spawn(crate::serve::connection(world.server.clone(), far, jane, world.stop.clone()));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::builder()
        .uri("/apis/ext.example.com/v1/namespaces/a/things/b/echo")
        .header(HOST, "localhost")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let mut response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()[UPGRADE], "websocket");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    for word in ["hello", "again"] {
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, word.to_uppercase().as_bytes());
    }
}

#[tokio::test]
async fn what_is_served_here_has_an_api_service_too() {
    let world = World::new().await;
    let apps = world.wait_for("v1.apps", "Local").await;
    assert_eq!(apps["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"}));
    let spec = json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15});
    assert_eq!(apps["spec"], spec);
    let condition = &apps["status"]["conditions"][0];
    assert_eq!(condition["message"], "Local APIServices are always available");
    assert_eq!(world.wait_for("v1.", "Local").await["spec"]["version"], "v1");
    let names = json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let crd = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "names": names, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
    let gadgets = world.wait_for("v1.example.com", "Local").await;
    assert_eq!(gadgets["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "true"}));
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.example.com";
    world.send(Method::DELETE, path, "application/json", "").await;
    while world.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com").await["kind"] == "APIService" {
        tokio::task::yield_now().await;
    }
}
