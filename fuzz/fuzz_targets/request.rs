//! Whole requests to a server: paths, options, content negotiation, bodies in JSON, YAML and protobuf, and everything
//! behind them.
//!
//! Input: a request as it is written on the wire; or bytes from which requests are put together whose objects are
//! almost right.
#![no_main]

use std::sync::LazyLock;

use bytes::Bytes;
use ferrovirt_apiserver::http::body;
use ferrovirt_apiserver::http::info::{RequestInfo, query_pairs};
use ferrovirt_apiserver::http::negotiate::Output;
use ferrovirt_apiserver::http::options::{DeleteOptions, ListOptions, Query, WriteOptions};
use ferrovirt_fuzz::{Source, WORLD};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|input: &[u8]| {
    let Some(request) = parse(input).or_else(|| compose(input)) else { return };
    let query = query_pairs(request.uri().query().unwrap_or_default());
    let _ = RequestInfo::parse(request.method(), request.uri().path(), &query);
    let query = Query(query);
    let _ = ListOptions::parse(&query, false);
    let _ = ListOptions::parse(&query, true);
    let _ = WriteOptions::parse(&query, "PatchOptions", true);
    let _ = Output::negotiate(request.headers(), &query);
    if let Ok(decoded) = body::decode_object(request.headers(), request.body()) {
        let _ = DeleteOptions::parse(Some(&decoded.value), &query);
    }
    let method = request.method().clone();
    let status = WORLD.ask(request);
    assert!(status != StatusCode::UNAUTHORIZED, "{method}: the administrator is known");
});

/// The request line, headers up to an empty line, and the body.
fn parse(input: &[u8]) -> Option<Request<Bytes>> {
    let end = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
    let head = str::from_utf8(&input[..end]).ok()?;
    let body = Bytes::copy_from_slice(input.get(end + 2..).unwrap_or_default());
    let mut lines = head.lines();
    let (method, uri) = lines.next()?.split_once(' ')?;
    let mut request = Request::new(body);
    *request.method_mut() = Method::from_bytes(method.as_bytes()).ok()?;
    *request.uri_mut() = uri.parse::<Uri>().ok().filter(|uri| uri.path().starts_with('/'))?;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        request.headers_mut().append(name, HeaderValue::from_str(value.trim()).ok()?);
    }
    Some(request)
}

/// Collections and an object of each. Nothing here makes the server call others.
static KINDS: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    let namespaced = |spec: Value| json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": spec});
    let pod = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let selector = json!({"matchLabels": {"a": "b"}});
    vec![
        ("/api/v1/namespaces/default/pods", namespaced(pod)),
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": "a"}, "data": {"k": "v"}, "binaryData": {"b": "AAA="}}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}, "type": "Opaque"}),
        ),
        (
            "/api/v1/namespaces/default/services",
            namespaced(json!({"ports": [{"port": 80, "targetPort": "x"}], "selector": {"a": "b"}, "type": "NodePort"})),
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            namespaced(json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})),
        ),
        (
            "/api/v1/persistentvolumes",
            namespaced(
                json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}),
            ),
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            namespaced(
                json!({"hard": {"pods": "1", "requests.cpu": "2", "count/secrets": "9"}, "scopes": ["NotBestEffort"]}),
            ),
        ),
        (
            "/api/v1/namespaces/default/limitranges",
            namespaced(json!({"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]})),
        ),
        (
            "/api/v1/namespaces/default/events",
            json!({"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "name": "a"}, "reason": "r", "message": "m", "type": "Normal"}),
        ),
        ("/api/v1/nodes", namespaced(json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}))),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            namespaced(json!({"replicas": 1, "selector": selector, "template": template})),
        ),
        ("/apis/batch/v1/namespaces/default/jobs", namespaced(json!({"template": template}))),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            namespaced(json!({"minAvailable": "50%", "selector": selector})),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}], "aggregationRule": {"clusterRoleSelectors": [selector]}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            json!({"metadata": {"name": "a"}, "roleRef": {"kind": "ClusterRole", "name": "a"}, "subjects": [{"kind": "User", "name": "jane"}]}),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            json!({"metadata": {"name": "a"}, "provisioner": "example.com/p", "volumeBindingMode": "WaitForFirstConsumer"}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({"metadata": {"name": "things.example.com"}, "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                    "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "a": {"type": "string", "default": "x", "pattern": "^x", "maxLength": 5}, "replicas": {"type": "integer", "minimum": 0},
                            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
                        }, "x-kubernetes-validations": [{"rule": "self.replicas > 0", "message": "m"}]},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    }}}}],
            }}),
        ),
        (
            "/apis/example.com/v1/namespaces/default/things",
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"a": "x", "replicas": 1, "list": [{"name": "n"}]}}),
        ),
        (
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}),
        ),
    ]
});

const QUERIES: &[&str] = &[
    "",
    "",
    "dryRun=All",
    "fieldValidation=Strict",
    "fieldManager=m&force=true",
    "watch=true&timeoutSeconds=1",
    "limit=1",
    "labelSelector=a%3Db",
    "fieldSelector=metadata.name%3Da",
    "propagationPolicy=Foreground",
    "resourceVersion=0",
    "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
];
const PATCH_TYPES: &[&str] = &[
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/json-patch+json",
];
const ACCEPTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
];

fn compose(input: &[u8]) -> Option<Request<Bytes>> {
    let mut source = Source::new(input);
    let (path, object) = source.choose(&KINDS).ok()?;
    let method = source.choose(&[Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::GET]).ok()?;
    let mut path = path.to_owned();
    if method != Method::POST && source.choose(&[true, true, true, false]).ok()? {
        path.push('/');
        path.push_str(object["metadata"]["name"].as_str().unwrap_or("a"));
        path.push_str(source.choose(&["", "", "/status", "/scale", "/eviction", "/binding", "/token"]).ok()?);
    }
    let uri = format!("{path}?{}", source.choose(QUERIES).ok()?);
    let content_type = match method {
        Method::PATCH => source.choose(PATCH_TYPES).ok()?,
        _ => source.choose(&["application/json", "application/yaml"]).ok()?,
    };
    let accept = source.choose(ACCEPTS).ok()?;
    let operations =
        json!([{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}, {"op": "remove", "path": "/spec"}]);
    let base = if content_type == "application/json-patch+json" { &operations } else { &object };
    let body = source.edited(base).ok()?;
    Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", content_type)
        .header("accept", accept)
        .body(Bytes::from(body.to_string()))
        .ok()
}
