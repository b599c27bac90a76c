//! virt-api as a server of its own on loopback, behind the webhooks and the aggregation layer of an API server in memory.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ferrovirt_apiserver::auth::{Identity, UserInfo};
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::serve::erase;
use ferrovirt_apiserver::server::Peer;
use ferrovirt_virt_api::server::{Certificate, Files, Service, VirtApi};
use ferrovirt_virt_api::{Kubernetes, LocalHandlers, Subresources};
use futures::{SinkExt, StreamExt};
use http::request::Builder;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::evictions::{evict, guest_with, marked};
use crate::fixture::{Cluster, GUESTS, Handler, MACHINES, admin};

const NAME: &str = "virt-api.kubevirt.svc";
const START: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/a/start";

/// A cluster and the server that it knows as virt-api.
struct World {
    cluster: Cluster,
    address: SocketAddr,
    kubernetes: Arc<Kubernetes>,
}

impl World {
    async fn start() -> Self {
        let cluster = Cluster::without_virt_api().await;
        for role in ferrovirt_virt_api::roles() {
            let roles = cluster.server.internal("rbac.authorization.k8s.io", "v1", "clusterroles", "test").unwrap();
            roles.create(role).await.unwrap();
        }
        let (kubernetes, watching) = Kubernetes::watch(client(&cluster), "kubevirt").unwrap();
        let kubernetes = Arc::new(kubernetes);
        let stop = cluster.stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(watching).await });
        kubernetes.synced().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let certificate = Certificate::read(files(&cluster)).unwrap();
        let handlers = LocalHandlers::new(cluster.directory.path().join("nodes"));
        let server = Arc::new(VirtApi::new(kubernetes.clone(), Subresources::new(Arc::new(handlers))));
        tokio::spawn(server.serve(listener, Arc::new(certificate.server_config().unwrap()), cluster.stop.clone()));
        let world = Self { cluster, address, kubernetes };
        world.register().await;
        world
    }

    /// Makes the server known, and waits until it is.
    async fn register(&self) {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": "kubevirt"}})).await;
        let service = json!({"metadata": {"name": "virt-api"}, "spec": {"ports": [{"port": 443}]}});
        self.create("/api/v1/namespaces/kubevirt/services", &service).await;
        let slice = json!({
            "metadata": {"name": "virt-api-1", "labels": {"kubernetes.io/service-name": "virt-api"}}, "addressType": "IPv4",
            "ports": [{"name": "", "port": self.address.port()}], "endpoints": [{"addresses": ["127.0.0.1"]}],
        });
        self.create("/apis/discovery.k8s.io/v1/namespaces/kubevirt/endpointslices", &slice).await;
        let ca = self.cluster.server.identity.ca_certificate();
        let service = Service {
            namespace: "kubevirt".to_owned(),
            name: "virt-api".to_owned(),
            port: 443,
            ca_bundle: STANDARD.encode(ca),
        };
        for object in service.objects() {
            let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
            self.create(&format!("/apis/{}/{plural}", object["apiVersion"].as_str().unwrap()), &object).await;
        }
        // The server hears of its webhooks with the store's events: until then a wrong guest gets through, without defaults.
        let (path, wrong) = (format!("{GUESTS}?dryRun=All"), wrong_guest());
        while self.cluster.ask(admin(), Method::POST, &path, &wrong).await.0 != 422 {
            tokio::task::yield_now().await;
        }
        let version = "/apis/subresources.kubevirt.io/v1/version";
        while self.cluster.ask(admin(), Method::GET, version, &Value::Null).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    }

    async fn create(&self, path: &str, object: &Value) {
        let (code, made) = self.cluster.ask(admin(), Method::POST, path, object).await;
        assert_eq!(code, 201, "{made}");
    }

    /// A webhook call on HTTP/2, as API servers make it.
    async fn direct_http_2(&self, path: &str, body: &[u8]) -> (u16, Value) {
        let mut tls = self.tls(None);
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.address).await.unwrap();
        let stream =
            TlsConnector::from(Arc::new(tls)).connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder().method(Method::POST).uri(format!("https://{NAME}{path}"));
        let answer = sender.send_request(request.body(Full::new(Bytes::copy_from_slice(body))).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// A request to the server itself, past the API server.
    async fn direct(&self, identity: Option<&Identity>, method: Method, path: &str, body: &[u8]) -> (u16, Value) {
        let answer = self.answered(identity, Request::builder().method(method).uri(path), body).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn answered(&self, identity: Option<&Identity>, request: Builder, body: &[u8]) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(self.tls(identity)));
        let stream = connector.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = request.header("host", NAME);
        let request = request.header("x-remote-user", "jane").header("x-remote-group", "system:masters");
        sender.send_request(request.body(Full::new(Bytes::copy_from_slice(body))).unwrap()).await.unwrap()
    }

    fn tls(&self, identity: Option<&Identity>) -> rustls::ClientConfig {
        let mut roots = RootCertStore::empty();
        let ca = self.cluster.server.identity.ca_certificate();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let Some(identity) = identity else { return builder.with_no_client_auth() };
        let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    }
}

/// A guest with a disk that has no volume.
fn wrong_guest() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "b"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "d", "disk": {}}]}}},
    })
}

/// The server's certificate, in files as a cluster mounts them.
fn files(cluster: &Cluster) -> Files {
    let pki = cluster.server.identity.pki();
    let identity = pki.server_identity("virt-api", &[NAME.to_owned()], SystemTime::now()).unwrap();
    let directory = cluster.directory.path();
    let files = Files { certificate: directory.join("tls.crt"), key: directory.join("tls.key") };
    std::fs::write(&files.certificate, identity.certificate).unwrap();
    std::fs::write(&files.key, identity.key).unwrap();
    files
}

/// The API server, as virt-api's service account.
fn client(cluster: &Cluster) -> kube::Client {
    let server = cluster.server.clone();
    let user = UserInfo::new("system:serviceaccount:kubevirt:kubevirt-apiserver", ["system:masters"]);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (server, peer) = (server.clone(), Peer::Trusted(user.clone()));
        async move { Ok::<_, Infallible>(server.handle(request.map(erase), &peer).await) }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn webhooks_fill_in_and_refuse() {
    let world = World::start().await;
    let guest = world.cluster.guest("a", "Running", &[]).await;
    assert!(guest["spec"]["domain"]["firmware"]["uuid"].is_string(), "{guest}");
    assert_eq!(guest["metadata"]["finalizers"][0], "kubevirt.io/foregroundDeleteVirtualMachine");
    let (code, refused) = world.cluster.ask(admin(), Method::POST, GUESTS, &wrong_guest()).await;
    assert_eq!(code, 422, "{refused}");
    let message = refused["message"].as_str().unwrap();
    let by = "admission webhook \"virtualmachineinstances-create-validator.kubevirt.io\" denied the request: ";
    assert!(message.starts_with(by), "{message}");
    assert!(refused["details"]["causes"][0]["field"].is_string(), "{refused}");
    let path = format!("{GUESTS}/a");
    let (_, mut stored) = world.cluster.ask(admin(), Method::GET, &path, &Value::Null).await;
    stored["status"]["nodeName"] = "mine".into();
    let (code, kept) = world.cluster.ask(admin(), Method::PUT, &path, &stored).await;
    assert_eq!((code, &kept["status"]["nodeName"]), (200, &json!("node1")), "users do not write the status");
}

#[tokio::test]
async fn subresources_are_served_behind_the_api_server() {
    let world = World::start().await;
    world.cluster.machine("a", "Halted").await;
    let view = world.cluster.user("view").await;
    let (code, refused) = world.cluster.ask(view, Method::PUT, START, &Value::Null).await;
    assert_eq!(code, 403, "{refused}");
    assert_eq!(world.cluster.ask(admin(), Method::PUT, START, &json!({"dryRun": ["All"]})).await.0, 202);
    let edit = world.cluster.user("edit").await;
    assert_eq!(world.cluster.ask(edit.clone(), Method::PUT, START, &Value::Null).await.0, 202);
    let (_, vm) = world.cluster.ask(admin(), Method::GET, &format!("{MACHINES}/a"), &Value::Null).await;
    assert_eq!(vm["spec"]["runStrategy"], "Always");
    let (code, conflict) = world.cluster.ask(edit, Method::PUT, START, &Value::Null).await;
    assert_eq!((code, conflict["reason"].as_str()), (409, Some("Conflict")), "{conflict}");
    let (code, list) = world.cluster.ask(admin(), Method::GET, "/apis/subresources.kubevirt.io/v1", &Value::Null).await;
    assert_eq!((code, list["resources"].as_array().unwrap().len()), (200, 24), "{list}");
}

#[tokio::test]
async fn a_console_goes_through_the_aggregation_layer() {
    let world = World::start().await;
    let _handler = Handler::start(world.cluster.directory.path());
    world.cluster.guest("a", "Running", &[]).await;
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a/console";
    let mut request = format!("ws://cluster{path}").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "plain.kubevirt.io".parse().unwrap());
    let (mut console, answer) = tokio_tungstenite::client_async(request, world.cluster.connect()).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
    console.send(Message::Binary(Bytes::from_static(b"root\n"))).await.unwrap();
    assert_eq!(console.next().await.unwrap().unwrap().into_data(), "root\n");
}

/// kube-apiserver gives such a connection up, and clients keep what they are not told about.
#[tokio::test]
async fn who_is_refused_a_websocket_is_told_that_the_connection_ends() {
    let world = World::start().await;
    let proxy = world.cluster.server.identity.pki().front_proxy_client();
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/nobody/console";
    let plain = world.answered(Some(proxy), Request::builder().uri(path), b"").await;
    assert_eq!((plain.status().as_u16(), plain.headers().get("connection")), (404, None));
    let asked = Request::builder().uri(path).header("connection", "Upgrade").header("upgrade", "websocket");
    let asked = asked.header("sec-websocket-version", "13").header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
    let refused = world.answered(Some(proxy), asked, b"").await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["connection"]), (404, &"close".parse().unwrap()));
}

#[tokio::test]
async fn headers_are_believed_from_the_aggregation_layer_only() {
    let world = World::start().await;
    world.cluster.machine("a", "Halted").await;
    let pki = world.cluster.server.identity.pki();
    let namesake = pki.client_identity("front-proxy-client", &["system:masters"], SystemTime::now()).unwrap();
    let ask = async |identity: Option<&Identity>, path: &str| {
        world.direct(identity, Method::PUT, path, br#"{"dryRun": ["All"]}"#).await.0
    };
    assert_eq!(ask(None, START).await, 401, "no certificate");
    assert_eq!(ask(Some(&namesake), START).await, 401, "the right name, another authority");
    let proxy = pki.front_proxy_client();
    assert_eq!(ask(Some(proxy), START).await, 202);
    for hostile in ["a%2F..%2F..%2Fb", "..", "a%3Fb", "A"] {
        let path = START.replace("/a/", &format!("/{hostile}/"));
        assert_eq!(ask(Some(proxy), &path).await, 404, "{hostile}");
    }
    // The cluster changes its mind about who the aggregation layer is.
    let before = world.kubernetes.trust();
    let maps = world.cluster.server.internal("", "v1", "configmaps", "test").unwrap();
    let place = Place::new("kube-system", "extension-apiserver-authentication");
    let rename = |map: &mut Value| map["data"]["requestheader-allowed-names"] = "[\"somebody-else\"]".into();
    maps.change(&place, "", rename).await.unwrap();
    while Arc::ptr_eq(&before, &world.kubernetes.trust()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(Some(proxy), START).await, 401);
}

#[tokio::test]
async fn only_discovery_health_and_version_are_open() {
    let world = World::start().await;
    let get = async |path: &str| world.direct(None, Method::GET, path, b"").await.0;
    let base = "/apis/subresources.kubevirt.io";
    for open in ["/", "/apis", base, "/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3", "/version"] {
        assert_eq!(get(open).await, 200, "{open}");
    }
    for version in ["v1", "v1alpha3"] {
        for open in ["", "/version", "/healthz"] {
            assert_eq!(get(&format!("{base}/{version}{open}")).await, 200, "{version} {open}");
        }
        assert_eq!(get(&format!("/openapi/v3{base}/{version}")).await, 200);
        let closed = format!("{base}/{version}/namespaces/default/virtualmachineinstances/a/console");
        assert_eq!(get(&closed).await, 401);
    }
    for unknown in
        ["/metrics", "/api/v1/pods", "/apis/kubevirt.io/v1/virtualmachines", "/apis/subresources.kubevirt.io/v2/x"]
    {
        assert_eq!(get(unknown).await, 404, "{unknown}");
    }
}

#[tokio::test]
async fn nonsense_does_no_harm() {
    let world = World::start().await;
    let path = "/virtualmachineinstances-validate-create";
    let post = async |body: &[u8]| world.direct(None, Method::POST, path, body).await.0;
    assert_eq!(world.direct(None, Method::GET, path, b"").await.0, 405);
    for nonsense in [&b""[..], b"{", b"[]", b"{\"kind\": \"AdmissionReview\"}", &b"[".repeat(100_000)] {
        assert_eq!(post(nonsense).await, 400);
    }
    assert_eq!(post(&vec![b' '; 8 << 20]).await, 413);
    let review = |resource: &str, object: Value| {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "namespace": "../x", "name": "a",
                "resource": {"group": "kubevirt.io", "version": "v1", "resource": resource}, "object": object,
            },
        })
        .to_string()
    };
    let refused = async |resource: &str, object: Value| {
        let (code, answer) = world.direct(None, Method::POST, path, review(resource, object).as_bytes()).await;
        assert_eq!((code, &answer["response"]["uid"]), (200, &json!("u")));
        assert_eq!(answer["response"]["allowed"], false, "{answer}");
        answer["response"]["status"]["code"].as_u64()
    };
    assert_eq!(refused("virtualmachineinstances", json!({"spec": 7})).await, Some(422));
    assert_eq!(refused("virtualmachineinstances", json!(["x"])).await, Some(422));
    assert_eq!(refused("secrets", json!({})).await, Some(400));
}

#[tokio::test]
async fn evictions_are_judged_by_a_webhook_too() {
    let world = World::start().await;
    let pod = guest_with(&world.cluster, "a", "External").await;
    let told = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: \
                Eviction triggered evacuation of VMI \"default/a\"";
    assert_eq!(evict(&world.cluster, &pod, true).await, (429, told.to_owned()));
    assert_eq!(marked(&world.cluster, "a").await, Value::Null);
    assert_eq!(evict(&world.cluster, &pod, false).await, (429, told.to_owned()));
    assert_eq!(marked(&world.cluster, "a").await, "node1");
}

#[tokio::test]
async fn migrations_are_judged_by_their_guest() {
    let world = World::start().await;
    world.cluster.machine("a", "Always").await;
    world.cluster.guest("a", "Running", &["LiveMigratable"]).await;
    let migrate = START.replace("/start", "/migrate");
    assert_eq!(world.cluster.ask(admin(), Method::PUT, &migrate, &Value::Null).await.0, 202);
    let (code, refused) = world.cluster.ask(admin(), Method::PUT, &migrate, &Value::Null).await;
    assert!((400..500).contains(&code), "one is under way: {refused}");
}

#[tokio::test]
async fn defaults_come_as_a_patch_on_http_2_too() {
    let world = World::start().await;
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {}},
        }}},
    });
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "default", "name": "a", "userInfo": {"username": "jane"},
            "resource": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"}, "object": machine,
        },
    });
    let (code, answer) = world.direct_http_2("/virtualmachines-mutate", review.to_string().as_bytes()).await;
    let response = &answer["response"];
    assert_eq!((code, &response["allowed"], &response["patchType"]), (200, &json!(true), &json!("JSONPatch")));
    let patch: Value = serde_json::from_slice(&STANDARD.decode(response["patch"].as_str().unwrap()).unwrap()).unwrap();
    let spec = patch.as_array().unwrap().iter().find(|operation| operation["path"] == "/spec").unwrap();
    assert!(spec["value"]["template"]["spec"]["domain"]["firmware"]["uuid"].is_string(), "{patch}");
}
