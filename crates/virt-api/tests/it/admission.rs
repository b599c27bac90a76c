//! Guests get defaults, wrong ones causes, and only components write a status.

use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::internal::Place;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::{Cluster, GUESTS, HANDLER, MACHINES, admin};

fn guest(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
    })
}

#[tokio::test]
async fn a_new_guest_gets_its_defaults() {
    let cluster = Cluster::start().await;
    let mut wanted = guest("a");
    wanted["status"] = json!({"phase": "Running", "nodeName": "elsewhere"});
    let (code, made) = cluster.ask(admin(), Method::POST, GUESTS, &wanted).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["status"]["nodeName"], Value::Null);
    assert_eq!(made["spec"]["domain"]["devices"]["interfaces"][0]["bridge"], json!({}));
    assert_eq!(made["metadata"]["finalizers"], json!(["kubevirt.io/foregroundDeleteVirtualMachine"]));
    let identity = made["spec"]["domain"]["firmware"]["uuid"].as_str().unwrap();
    assert_eq!(identity.len(), 36);
}

#[tokio::test]
async fn the_configuration_of_the_cluster_counts() {
    let cluster = Cluster::start().await;
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt"},
        "spec": {"configuration": {"network": {"defaultNetworkInterface": "masquerade"}}},
    });
    let path = "/apis/kubevirt.io/v1/namespaces/default/kubevirts";
    assert_eq!(cluster.ask(admin(), Method::POST, path, &kubevirt).await.0, 201);
    let (_, made) = cluster.ask(admin(), Method::POST, GUESTS, &guest("a")).await;
    assert_eq!(made["spec"]["domain"]["devices"]["interfaces"][0]["masquerade"], json!({}));
}

#[tokio::test]
async fn the_older_version_is_defaulted_too() {
    let cluster = Cluster::start().await;
    let mut wanted = guest("a");
    wanted["apiVersion"] = "kubevirt.io/v1alpha3".into();
    let (code, made) = cluster.ask(admin(), Method::POST, &GUESTS.replace("/v1/", "/v1alpha3/"), &wanted).await;
    assert_eq!((code, &made["apiVersion"]), (201, &json!("kubevirt.io/v1alpha3")), "{made}");
    assert_eq!(made["status"]["phase"], "Pending");
}

#[tokio::test]
async fn a_wrong_guest_is_answered_with_all_causes() {
    let cluster = Cluster::start().await;
    let mut wrong = guest("a");
    wrong["spec"]["domain"]["devices"]["disks"] = json!([{"name": "nowhere"}]);
    wrong["spec"]["volumes"] = json!([{"name": "empty"}]);
    wrong["metadata"]["labels"] = json!({"kubevirt.io/nodeName": "node1"});
    let (code, status) = cluster.ask(admin(), Method::POST, GUESTS, &wrong).await;
    assert_eq!(code, 422);
    insta::assert_json_snapshot!(status);
}

#[tokio::test]
async fn what_the_schema_refuses_is_refused_in_its_words() {
    let cluster = Cluster::start().await;
    let mut wrong = guest("a");
    wrong["spec"]["architecture"] = "pdp11".into();
    let (code, status) = cluster.ask(admin(), Method::POST, GUESTS, &wrong).await;
    assert_eq!(code, 422);
    assert_eq!(status["details"]["causes"][0]["field"], "spec.architecture", "{status}");
}

#[tokio::test]
async fn users_change_neither_status_nor_spec() {
    let cluster = Cluster::start().await;
    cluster.ask(admin(), Method::POST, GUESTS, &guest("a")).await;
    let path = format!("{GUESTS}/a");
    let (_, stored) = cluster.ask(admin(), Method::GET, &path, &Value::Null).await;

    let mut status = stored.clone();
    status["status"]["nodeName"] = "mine".into();
    status["metadata"]["labels"] = json!({"team": "red"});
    let (code, kept) = cluster.ask(admin(), Method::PUT, &path, &status).await;
    assert_eq!((code, &kept["status"]), (200, &stored["status"]), "{kept}");
    assert_eq!(kept["metadata"]["labels"]["team"], "red");

    let mut spec = kept.clone();
    spec["spec"]["terminationGracePeriodSeconds"] = 1.into();
    spec["metadata"]["labels"]["kubevirt.io/nodeName"] = "mine".into();
    let (code, refused) = cluster.ask(admin(), Method::PUT, &path, &spec).await;
    assert_eq!(code, 422);
    let fields: Vec<&Value> =
        refused["details"]["causes"].as_array().unwrap().iter().map(|cause| &cause["field"]).collect();
    assert_eq!(fields, ["metadata.labels.kubevirt.io/nodeName", "spec"]);
}

#[tokio::test]
async fn components_write_the_status() {
    let cluster = Cluster::start().await;
    cluster.ask(admin(), Method::POST, GUESTS, &guest("a")).await;
    let path = format!("{GUESTS}/a");
    let (_, mut stored) = cluster.ask(admin(), Method::GET, &path, &Value::Null).await;
    stored["status"]["nodeName"] = "node1".into();
    stored["metadata"]["labels"] = json!({"kubevirt.io/nodeName": "node1"});
    let controller = UserInfo::new(HANDLER.replace("handler", "controller"), ["system:masters"]);
    let (code, written) = cluster.ask(controller, Method::PUT, &path, &stored).await;
    assert_eq!((code, &written["status"]["nodeName"]), (200, &json!("node1")), "{written}");
}

#[tokio::test]
async fn a_machine_may_come_before_its_size_and_its_guest_may_not() {
    let cluster = Cluster::start().await;
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
        "spec": {"runStrategy": "Halted", "template": {}},
    });
    let warnings = cluster.warnings(MACHINES, &machine).await;
    assert!(warnings[0].contains("spec.template.spec.domain.memory.guest is missing"), "{warnings:?}");
    let (_, made) = cluster.ask(admin(), Method::GET, &format!("{MACHINES}/a"), &Value::Null).await;
    let mut sizeless = guest("a");
    sizeless["spec"] = made["spec"]["template"]["spec"].clone();
    let (code, status) = cluster.ask(admin(), Method::POST, GUESTS, &sizeless).await;
    assert_eq!((code, &status["details"]["causes"][0]["field"]), (422, &json!("spec.domain.memory.guest")), "{status}");
}

#[tokio::test]
async fn names_and_ranges_are_written_as_on_kubevirt() {
    let cluster = Cluster::start().await;
    let mut wanted = guest("a");
    wanted["spec"]["networks"] = json!([{"name": "Pod_Net", "pod": {"vmNetworkCIDR": "010.000.2.0/24"}}]);
    wanted["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "Pod_Net", "masquerade": {}}]);
    wanted["spec"]["domain"]["memory"]["guest"] = "1Ei".into();
    let warnings = cluster.warnings(GUESTS, &wanted).await;
    assert!(warnings[0].contains("no node can run the guest"), "{warnings:?}");
}

#[tokio::test]
async fn hyper_v_without_kvm_is_warned_about() {
    let cluster = Cluster::start().await;
    let mut windows = guest("a");
    windows["spec"]["domain"]["features"] = json!({"hyperv": {"relaxed": {}}});
    let path = format!("{GUESTS}?dryRun=All");
    let warned = async || cluster.warnings(&path, &windows).await;
    assert_eq!(warned().await, [] as [String; 0], "nobody knows the nodes");
    let nodes = cluster.server.internal("", "v1", "nodes", "test").unwrap();
    nodes.create(json!({"metadata": {"name": "node1"}})).await.unwrap();
    let [warning] = warned().await.try_into().unwrap();
    assert!(warning.contains("spec.domain.features.hyperv needs KVM, and no node of this cluster has it"), "{warning}");
    let able = |node: &mut Value| node["status"]["allocatable"] = json!({"devices.kubevirt.io/kvm": "110"});
    nodes.change(&Place::new("", "node1"), "status", able).await.unwrap();
    assert_eq!(warned().await, [] as [String; 0], "a node that has it will take the guest");
}
