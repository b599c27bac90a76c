//! The `KubeVirt` object of a cluster without operator: the manifest of KubeVirt's guide changes the one that is there.

use ferrovirt_apiserver::serve;
use ferrovirt_apiserver::server::Peer;
use ferrovirt_virt_api::local;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::fixture::{Cluster, admin};

const OBJECTS: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts";
const OBJECT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";

fn usual() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {
            "certificateRotateStrategy": {}, "configuration": {"developerConfiguration": {"featureGates": ["HostDisk"]}},
            "customizeComponents": {}, "imagePullPolicy": "IfNotPresent", "workloadUpdateStrategy": {},
        },
    })
}

impl Cluster {
    async fn patch(&self, content_type: &str, manager: &str, body: &Value) -> (u16, Value) {
        let uri = format!("{OBJECT}?fieldManager={manager}");
        let request = Request::builder().method(Method::PATCH).uri(uri).header("content-type", content_type);
        let request = request.body(serve::erase(Full::new(bytes::Bytes::from(body.to_string())))).unwrap();
        let answer = self.server.handle(request, &Peer::Trusted(admin())).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap())
    }

    async fn installed() -> Self {
        let cluster = Self::start().await;
        let namespaces = cluster.server.internal("", "v1", "namespaces", "test").unwrap();
        namespaces.create(json!({"metadata": {"name": "kubevirt"}})).await.unwrap();
        local::install(&cluster.server).await.unwrap();
        tokio::spawn(local::follow(cluster.server.clone(), cluster.stop.clone()));
        cluster
    }

    /// Waits until the object says that its newest spec holds.
    async fn observed(&self) -> Value {
        loop {
            let (_, object) = self.ask(admin(), Method::GET, OBJECT, &Value::Null).await;
            if object["status"]["observedGeneration"] == object["metadata"]["generation"] {
                return object;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn the_object_looks_like_that_of_an_installation() {
    let cluster = Cluster::installed().await;
    let status = cluster.observed().await["status"].clone();
    let holds = |kind: &str| {
        let all = status["conditions"].as_array().unwrap();
        all.iter().find(|condition| condition["type"] == kind).unwrap()["status"].clone()
    };
    let four = ["Available", "Created", "Progressing", "Degraded"].map(holds);
    assert_eq!(four, ["True", "True", "False", "False"]);
    assert_eq!((&status["phase"], &status["observedGeneration"]), (&json!("Deployed"), &json!(1)));
    assert!(status["defaultArchitecture"].is_string() && status["observedKubeVirtVersion"].is_string(), "{status}");
}

#[tokio::test]
async fn the_usual_manifest_changes_the_object_that_is_there() {
    for (content_type, manager) in
        [("application/merge-patch+json", "kubectl-client-side-apply"), ("application/apply-patch+yaml", "kubectl")]
    {
        let cluster = Cluster::installed().await;
        let (code, object) = cluster.patch(content_type, manager, &usual()).await;
        assert_eq!(code, 200, "{content_type}: {object}");
        assert_eq!(object["spec"], usual()["spec"]);
        let observed = cluster.observed().await;
        assert_eq!(observed["status"]["observedGeneration"], 2, "{content_type}");
    }
}

#[tokio::test]
async fn a_second_manifest_of_the_name_is_there_already_and_one_of_another_name_is_one_too_many() {
    let cluster = Cluster::installed().await;
    let (code, status) = cluster.ask(admin(), Method::POST, OBJECTS, &usual()).await;
    assert_eq!((code, status["reason"].as_str()), (409, Some("AlreadyExists")), "{status}");
    let mut other = usual();
    other["metadata"]["name"] = "other".into();
    let (code, status) = cluster.ask(admin(), Method::POST, OBJECTS, &other).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("kubevirt/kubevirt is there already"), "{status}");
}
