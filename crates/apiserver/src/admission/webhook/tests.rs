//! Webhooks against a server in memory and a real TLS server on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::auth::UserInfo;
use crate::outgoing::testing::Loopback;
use crate::serve::erase;
use crate::server::{Machine, Peer, Server};

type Decide = dyn Fn(&str, &Value) -> Option<Value> + Send + Sync;

/// A cluster in memory and the webhook server that it calls.
struct World {
    server: Arc<Server>,
    port: u16,
    /// Every request that a webhook got, with its path.
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<AtomicUsize>,
    stop: CancellationToken,
    _home: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// A world whose webhooks answer with what `decide` makes of path and request: the `response`, or nothing ever.
    async fn new(decide: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        let home = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, _) = crate::cluster::in_memory(home.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        let names = ["hook.default.svc".to_owned(), "127.0.0.1".to_owned()];
        let identity = server.identity.pki().server_identity("hook", &names, SystemTime::now()).unwrap();
        let asked = Arc::default();
        let hook = Webhook { asked: Arc::clone(&asked), decide: Arc::new(decide) };
        let answer = move |request| hook.clone().answer(request);
        let Loopback { port, connections } = Loopback::start(&identity, None, stop.clone(), answer).await;
        Self { server, port, asked, connections, stop, _home: home }
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value, Vec<String>) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.body(erase(Full::new(Bytes::from(body.to_string())))).unwrap();
        let admin = UserInfo::new("admin", ["system:masters"]);
        let answer = self.server.handle(request, &Peer::Trusted(admin)).await;
        let (parts, body) = answer.into_parts();
        let warnings = parts.headers.get_all("warning").iter().map(|text| text.to_str().unwrap().to_owned()).collect();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), serde_json::from_slice(&body).unwrap_or(Value::Null), warnings)
    }

    /// Registers webhooks, and waits until the server knows them.
    async fn register(&self, kind: &str, name: &str, hooks: Value) {
        let plural = format!("{}s", kind.to_lowercase());
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        let object = json!({"metadata": {"name": name}, "webhooks": hooks});
        let (code, answer, _) = self.send(Method::POST, &path, &object).await;
        assert_eq!(code, 201, "{answer}");
        let webhooks = &self.server.admission.webhooks;
        let index = if kind.starts_with("Mutating") { &webhooks.mutating } else { &webhooks.validating };
        while !index.configurations.read().contains_key(name) {
            tokio::task::yield_now().await;
        }
    }

    async fn create(&self, name: &str) -> (u16, Value, Vec<String>) {
        let object = json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"a": "1"}});
        self.send(Method::POST, "/api/v1/namespaces/default/configmaps", &object).await
    }

    /// A webhook for config maps at a path of the server, with some fields set otherwise.
    fn hook(&self, path: &str, change: &Value) -> Value {
        let mut hook = json!({
            "name": format!("{path}.example.com"), "sideEffects": "None",
            // The cluster has config maps of its own to write.
            "objectSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://127.0.0.1:{}/{path}", self.port)},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        });
        for (field, value) in change.as_object().into_iter().flatten() {
            hook[field] = value.clone();
        }
        hook
    }

    fn paths(&self) -> Vec<String> {
        self.asked.lock().iter().map(|(path, _)| path.clone()).collect()
    }
}

#[derive(Clone)]
struct Webhook {
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    decide: Arc<Decide>,
}

impl Webhook {
    async fn answer(self, request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let request = &review["request"];
        self.asked.lock().push((path.clone(), request.clone()));
        let Some(mut response) = (self.decide)(&path, request) else {
            return std::future::pending().await;
        };
        if response["uid"].is_null() {
            response["uid"] = request["uid"].clone();
        }
        let answer = json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response});
        Response::new(Full::new(Bytes::from(answer.to_string())))
    }
}

fn allow() -> Option<Value> {
    Some(json!({"allowed": true}))
}

fn patch(operations: &Value) -> Option<Value> {
    Some(json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())}))
}

const MUTATING: &str = "MutatingWebhookConfiguration";
const VALIDATING: &str = "ValidatingWebhookConfiguration";

#[tokio::test]
async fn an_allowed_write_goes_through_with_its_warnings() {
    let world = World::new(|_, _| Some(json!({"allowed": true, "warnings": ["mind the \"gap\""]}))).await;
    world.register(VALIDATING, "v", json!([world.hook("ok", &json!({}))])).await;
    let (code, _, warnings) = world.create("one").await;
    assert_eq!((code, warnings), (201, vec!["299 - \"mind the \\\"gap\\\"\"".to_owned()]));
    assert_eq!(world.create("two").await.0, 201);
    assert_eq!(world.connections.load(Ordering::Relaxed), 1, "the connection is used again");
    let asked = world.asked.lock().clone();
    let (_, request) = &asked[0];
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(request["requestKind"], request["kind"]);
    assert_eq!((&request["name"], &request["namespace"]), (&json!("one"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!((&request["object"]["data"]["a"], &request["oldObject"]), (&json!("1"), &Value::Null));
    assert_eq!(request["options"]["kind"], "CreateOptions");
}

#[tokio::test]
async fn a_refusal_reaches_the_client_and_nothing_is_stored() {
    let world = World::new(|_, request| match request["operation"].as_str() {
        Some("DELETE") => Some(json!({"allowed": false})),
        _ if request["name"] == "bad" => {
            Some(json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "not that one"}}))
        }
        _ => allow(),
    })
    .await;
    world.register(VALIDATING, "v", json!([world.hook("deny", &json!({"failurePolicy": "Ignore"}))])).await;
    let (code, status, _) = world.create("bad").await;
    let message = "admission webhook \"deny.example.com\" denied the request: not that one";
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "Forbidden", "code": 403,
    });
    assert_eq!((code, status), (403, expected));
    let (code, _, _) = world.send(Method::GET, "/api/v1/namespaces/default/configmaps/bad", &Value::Null).await;
    assert_eq!(code, 404);
    assert_eq!(world.create("good").await.0, 201);
    let (code, status, _) =
        world.send(Method::DELETE, "/api/v1/namespaces/default/configmaps/good", &Value::Null).await;
    let message = "admission webhook \"deny.example.com\" denied the request without explanation";
    assert_eq!((code, &status["message"]), (400, &json!(message)));
    let asked = world.asked.lock().clone();
    let (_, request) = asked.last().unwrap();
    assert_eq!((&request["object"], &request["oldObject"]["data"]["a"]), (&Value::Null, &json!("1")));
}

#[tokio::test]
async fn patches_apply_in_order_of_the_configurations_and_are_cleaned() {
    let world = World::new(|path, request| match path {
        "first" => patch(&json!([
            {"op": "add", "path": "/data/first", "value": "x"},
            {"op": "add", "path": "/nonsense", "value": "gone"},
        ])),
        "second" => {
            let seen = request["object"]["data"]["first"].as_str().unwrap_or("nothing");
            patch(&json!([{"op": "add", "path": "/data/second", "value": format!("saw {seen}")}]))
        }
        _ => allow(),
    })
    .await;
    world.register(MUTATING, "b", json!([world.hook("second", &json!({}))])).await;
    world.register(MUTATING, "a", json!([world.hook("first", &json!({}))])).await;
    world.register(VALIDATING, "v", json!([world.hook("last", &json!({}))])).await;
    let (code, object, _) = world.create("one").await;
    assert_eq!((code, &object["data"]), (201, &json!({"a": "1", "first": "x", "second": "saw x"})));
    assert!(object.get("nonsense").is_none());
    assert_eq!(world.paths(), ["first", "second", "last"]);
    assert_eq!(world.asked.lock()[2].1["object"]["data"]["second"], "saw x");
}

#[tokio::test]
async fn only_those_who_ask_see_later_changes() {
    let world = World::new(|path, request| {
        let round = request["object"]["data"]["count"].as_str().map_or(1, |_| 2);
        match path {
            "early" => patch(&json!([{"op": "add", "path": format!("/data/round{round}"), "value": "x"}])),
            "late" => patch(&json!([{"op": "add", "path": "/data/count", "value": "1"}])),
            _ => allow(),
        }
    })
    .await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = json!([world.hook("never", &json!({})), world.hook("early", &again), world.hook("late", &again)]);
    world.register(MUTATING, "m", hooks).await;
    let (_, object, _) = world.create("one").await;
    assert_eq!(world.paths(), ["never", "early", "late", "early", "late"]);
    assert_eq!(object["data"], json!({"a": "1", "round1": "x", "count": "1", "round2": "x"}));
}

#[tokio::test]
async fn a_bad_patch_fails_the_write() {
    let world = World::new(|path, _| match path {
        "missing" => patch(&json!([{"op": "remove", "path": "/data/nothing"}])),
        "shape" => patch(&json!({"op": "add"})),
        "types" => patch(&json!([{"op": "replace", "path": "/data", "value": "text"}])),
        "type" => Some(json!({"allowed": true, "patchType": "Magic", "patch": STANDARD.encode("[{}]")})),
        _ => Some(json!({"allowed": true, "uid": "other"})),
    })
    .await;
    let table = [
        (
            "missing",
            "error in remove for path: '/data/nothing': Unable to remove nonexistent key: nothing: missing value",
        ),
        ("shape", "failed calling webhook \"shape.example.com\": received undecodable patch in webhook response: "),
        ("types", "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string"),
        ("type", "failed calling webhook \"type.example.com\": unsupported patch type \"Magic\""),
        (
            "uid",
            "failed calling webhook \"uid.example.com\": received invalid webhook response: expected response.uid=",
        ),
    ];
    for (path, _) in table {
        let only = json!({"objectSelector": {"matchLabels": {"app": path}}});
        world.register(MUTATING, path, json!([world.hook(path, &only)])).await;
    }
    for (path, message) in table {
        let (code, status, _) = world.create(path).await;
        assert_eq!((code, &status["reason"]), (500, &json!("InternalError")), "{path}");
        let text = status["message"].as_str().unwrap();
        assert!(text.starts_with(&format!("Internal error occurred: {message}")), "{text}");
    }
}

#[tokio::test]
async fn a_webhook_that_cannot_be_asked_counts_as_its_policy_says() {
    let world = World::new(|_, _| None).await;
    let unreachable = json!({"clientConfig": {"service": {"namespace": "default", "name": "nowhere"}}});
    let mut ignored = unreachable.clone();
    ignored["failurePolicy"] = "Ignore".into();
    world.register(VALIDATING, "ignored", json!([world.hook("ignored", &ignored)])).await;
    assert_eq!(world.create("one").await.0, 201);
    let slow = json!({"timeoutSeconds": 1, "objectSelector": {"matchLabels": {"app": "slow"}}});
    world.register(VALIDATING, "slow", json!([world.hook("slow", &slow)])).await;
    let (code, status, _) = world.create("slow").await;
    let post = format!("Post \"https://127.0.0.1:{}/slow?timeout=1s\"", world.port);
    let failed = "Internal error occurred: failed calling webhook \"slow.example.com\": failed to call webhook: ";
    assert_eq!((code, &status["message"]), (500, &json!(format!("{failed}{post}: context deadline exceeded"))));
    assert_eq!(status["reason"], "InternalError");
    world.register(VALIDATING, "unreachable", json!([world.hook("unreachable", &unreachable)])).await;
    let (code, status, _) = world.create("two").await;
    let failed =
        "Internal error occurred: failed calling webhook \"unreachable.example.com\": failed to call webhook: ";
    let post = "Post \"https://nowhere.default.svc:443/?timeout=10s\": service \"nowhere\" not found";
    assert_eq!((code, &status["message"]), (500, &json!(format!("{failed}{post}"))));
}

#[tokio::test]
async fn services_are_reached_at_their_endpoints_and_by_their_name() {
    let world = World::new(|_, _| Some(json!({"allowed": false}))).await;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443, "targetPort": 1}]}});
    let (code, answer, _) = world.send(Method::POST, "/api/v1/namespaces/default/services", &service).await;
    assert_eq!(code, 201, "{answer}");
    let hook = world.hook("svc", &json!({"clientConfig": {"service": {"namespace": "default", "name": "hook"}}}));
    world.register(VALIDATING, "v", json!([hook])).await;
    let (_, status, _) = world.create("one").await;
    let text = status["message"].as_str().unwrap().to_owned();
    assert!(text.ends_with("no endpoints available for service \"hook\""), "{text}");
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "ports": [{"name": "", "port": world.port}], "endpoints": [{"addresses": ["127.0.0.1"]}],
    });
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let (code, answer, _) = world.send(Method::POST, path, &slice).await;
    assert_eq!(code, 201, "{answer}");
    let (code, status, _) = world.create("one").await;
    assert_eq!(code, 400, "{status}");
    // A certificate for another name, or of another authority, is refused.
    let other = json!({"clientConfig": {"url": format!("https://localhost:{}/", world.port)}});
    let other = world.hook("name", &other);
    world.register(VALIDATING, "u", json!([other])).await;
    let text = world.create("two").await.1["message"].as_str().unwrap().to_owned();
    assert!(text.contains("x509: certificate is valid for "), "{text}");
}

#[tokio::test]
async fn a_bundle_of_another_authority_is_no_proof() {
    let world = World::new(|_, _| allow()).await;
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let url = format!("https://127.0.0.1:{}/x", world.port);
    let config = |bundle: &str| json!({"clientConfig": {"url": url, "caBundle": STANDARD.encode(bundle)}});
    let own = world.server.identity.ca_certificate().to_owned();
    world.register(VALIDATING, "own", json!([world.hook("own", &config(&own))])).await;
    assert_eq!(world.create("one").await.0, 201);
    world.register(VALIDATING, "other", json!([world.hook("other", &config(&stranger.cert.pem()))])).await;
    let text = world.create("two").await.1["message"].as_str().unwrap().to_owned();
    assert!(
        text.ends_with("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{text}"
    );
}

#[tokio::test]
async fn dry_runs_ask_only_webhooks_without_side_effects() {
    let world = World::new(|_, _| allow()).await;
    world.register(VALIDATING, "v", json!([world.hook("dry", &json!({"sideEffects": "NoneOnDryRun"}))])).await;
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let object = json!({"metadata": {"name": "one", "labels": {"app": "one"}}});
    assert_eq!(world.send(Method::POST, path, &object).await.0, 201);
    let asked = world.asked.lock().clone();
    assert_eq!((&asked[0].1["dryRun"], &asked[0].1["options"]["dryRun"]), (&json!(true), &json!(["All"])));
    // The API refuses such a configuration today, but a store may hold one from before.
    let hook = super::hook::Hook::parse(&world.hook("wet", &json!({"sideEffects": "Unknown"})));
    world
        .server
        .admission
        .webhooks
        .validating
        .configurations
        .write()
        .insert("w".into(), super::Configuration { revision: 1, hooks: vec![Arc::new(hook)] });
    world
        .server
        .admission
        .webhooks
        .validating
        .publish(&world.server.admission.webhooks.validating.configurations.read());
    let (code, status, _) = world.send(Method::POST, path, &object).await;
    let message = "admission webhook \"wet.example.com\" does not support dry run";
    assert_eq!((code, &status["reason"], &status["message"]), (400, &json!("BadRequest"), &json!(message)));
}

#[tokio::test]
async fn selectors_conditions_and_versions_narrow_what_is_asked() {
    let world = World::new(|_, _| allow()).await;
    let hooks = json!([
        world.hook(
            "namespace",
            &json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}})
        ),
        world.hook(
            "elsewhere",
            &json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}})
        ),
        world.hook("label", &json!({"objectSelector": {"matchLabels": {"app": "one"}}})),
        world.hook("no-label", &json!({"objectSelector": {"matchLabels": {"app": "two"}}})),
        world.hook("condition", &json!({"matchConditions": [{"name": "c", "expression": "object.data.a == '1'"}]})),
        world.hook("no-condition", &json!({"matchConditions": [{"name": "c", "expression": "request.dryRun"}]})),
        world.hook(
            "open",
            &json!({
                "failurePolicy": "Ignore", "matchConditions": [{"name": "c", "expression": "object.spec.x == 1"}],
            })
        ),
    ]);
    world.register(VALIDATING, "v", hooks).await;
    assert_eq!(world.create("one").await.0, 201);
    let mut paths = world.paths();
    paths.sort();
    assert_eq!(paths, ["condition", "label", "namespace"]);
    let closed = json!({"matchConditions": [{"name": "c", "expression": "object.spec.x == 1"}]});
    world.register(VALIDATING, "w", json!([world.hook("closed", &closed)])).await;
    let (code, status, _) = world.create("two").await;
    let why = "expression 'object.spec.x == 1' resulted in error: no such key: spec";
    assert_eq!((code, &status["message"]), (403, &json!(format!("configmaps \"two\" is forbidden: {why}"))));
}

#[tokio::test]
async fn other_versions_of_a_kind_count_unless_the_match_is_exact() {
    let world = World::new(|_, _| allow()).await;
    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"]}]);
    let exact = json!({"rules": rules, "matchPolicy": "Exact"});
    world
        .register(
            VALIDATING,
            "v",
            json!([world.hook("equivalent", &json!({"rules": rules})), world.hook("exact", &exact)]),
        )
        .await;
    let event = json!({
        "metadata": {"name": "e", "labels": {"app": "e"}}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R", "message": "m", "type": "Normal", "count": 3,
    });
    let (code, answer, _) = world.send(Method::POST, "/api/v1/namespaces/default/events", &event).await;
    assert_eq!(code, 201, "{answer}");
    let asked = world.asked.lock().clone();
    assert_eq!(asked.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["equivalent"]);
    let request = &asked[0].1;
    assert_eq!(request["kind"], json!({"group": "events.k8s.io", "version": "v1", "kind": "Event"}));
    assert_eq!(request["requestKind"], json!({"group": "", "version": "v1", "kind": "Event"}));
    assert_eq!(
        (&request["object"]["apiVersion"], &request["object"]["note"]),
        (&json!("events.k8s.io/v1"), &json!("m"))
    );
}

#[tokio::test]
async fn a_broken_configuration_can_always_be_repaired() {
    let world = World::new(|_, _| Some(json!({"allowed": false}))).await;
    let everything =
        json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]});
    world.register(VALIDATING, "v", json!([world.hook("all", &everything)])).await;
    assert_eq!(world.create("one").await.0, 400);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
    assert_eq!(world.send(Method::DELETE, path, &Value::Null).await.0, 200);
    while !world.server.admission.webhooks.validating.hooks.read().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.create("one").await.0, 201);
}

#[tokio::test]
async fn a_scale_is_shown_and_changed_as_such() {
    let world = World::new(|_, _| patch(&json!([{"op": "replace", "path": "/spec/replicas", "value": 5}]))).await;
    let rules = json!([{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}]);
    let hook = world.hook("scale", &json!({"rules": rules, "objectSelector": {}}));
    world.register(MUTATING, "m", json!([hook])).await;
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": spec});
    assert_eq!(world.send(Method::POST, path, &deployment).await.0, 201);
    let scale = json!({"metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 3}});
    let (code, answer, _) = world.send(Method::PUT, &format!("{path}/d/scale"), &scale).await;
    assert_eq!((code, &answer["kind"], &answer["spec"]["replicas"]), (200, &json!("Scale"), &json!(5)), "{answer}");
    let asked = world.asked.lock().clone();
    let request = &asked[0].1;
    assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!((&request["subResource"], &request["resource"]["resource"]), (&json!("scale"), &json!("deployments")));
    assert_eq!((&request["object"]["kind"], &request["object"]["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    assert_eq!(request["oldObject"]["spec"]["replicas"], 1);
}

#[tokio::test]
async fn mutating_webhooks_may_refuse_a_deletion_but_not_change_it() {
    let world = World::new(|path, request| match (path, request["operation"].as_str()) {
        ("refuses", Some("DELETE")) => Some(json!({"allowed": false})),
        ("changes", Some("DELETE")) => patch(&json!([{"op": "add", "path": "/data", "value": {}}])),
        _ => allow(),
    })
    .await;
    for path in ["refuses", "changes"] {
        let only = json!({"objectSelector": {"matchLabels": {"app": path}}});
        world.register(MUTATING, path, json!([world.hook(path, &only)])).await;
        assert_eq!(world.create(path).await.0, 201);
    }
    let delete = |name: &str| format!("/api/v1/namespaces/default/configmaps/{name}");
    assert_eq!(world.send(Method::DELETE, &delete("refuses"), &Value::Null).await.0, 400);
    let (code, status, _) = world.send(Method::DELETE, &delete("changes"), &Value::Null).await;
    let why = "attempted to modify the object, which is not supported for this operation";
    let message = format!("Internal error occurred: admission webhook \"changes.example.com\" {why}");
    assert_eq!((code, &status["message"]), (500, &json!(message)));
}
