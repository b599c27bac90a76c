//! Requests that are answered once: commands, facts of the agent, screenshots, the version; and who may ask.

use http::Method;
use serde_json::{Value, json};

use crate::fixture::{Cluster, Handler, admin};

const BASE: &str = "/apis/subresources.kubevirt.io/v1";

fn path(guest: &str, wanted: &str) -> String {
    format!("{BASE}/namespaces/default/virtualmachineinstances/{guest}/{wanted}")
}

#[tokio::test]
async fn commands_reach_the_node_of_the_guest() {
    let cluster = Cluster::start().await;
    let handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &[]).await;
    let put = async |wanted: &str, body: Value| cluster.ask(admin(), Method::PUT, &path("a", wanted), &body).await;
    assert_eq!(put("pause", Value::Null).await, (200, json!("")));
    assert_eq!(put("pause", json!({"dryRun": ["All"]})).await.0, 200);
    assert_eq!(put("freeze", json!({"unfreezeTimeout": "10s"})).await.0, 200);
    assert_eq!(put("softreboot", json!("nonsense")).await.0, 400);
    let (code, refused) = put("reset", Value::Null).await;
    assert_eq!(code, 409);
    let why = "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"a\": the domain is shutting down";
    assert_eq!(refused["message"], why);
    let at = |wanted: &str| format!("/v1/namespaces/default/virtualmachineinstances/a/{wanted}");
    let expected = [
        ("PUT".to_owned(), at("pause"), Value::Null),
        ("PUT".to_owned(), at("freeze"), json!({"unfreezeTimeoutSeconds": 10})),
        ("PUT".to_owned(), at("reset"), Value::Null),
    ];
    assert_eq!(*handler.seen.lock().unwrap(), expected, "the dry run and the wrong body went nowhere");
}

#[tokio::test]
async fn a_missing_guest_and_a_missing_handler_say_so() {
    let cluster = Cluster::start().await;
    let (code, status) = cluster.ask(admin(), Method::PUT, &path("nobody", "pause"), &Value::Null).await;
    assert_eq!((code, status["reason"].as_str()), (404, Some("NotFound")));
    cluster.guest("a", "Running", &[]).await;
    let (code, status) = cluster.ask(admin(), Method::PUT, &path("a", "pause"), &Value::Null).await;
    assert_eq!(code, 503);
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("virt-handler of node node1 cannot be reached: "), "{message}");
}

#[tokio::test]
async fn the_agent_s_facts_have_the_shape_that_users_know() {
    let cluster = Cluster::start().await;
    let _handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &["AgentConnected"]).await;
    let mut answers = Vec::new();
    for wanted in ["guestosinfo", "userlist", "filesystemlist"] {
        let (code, answer) = cluster.ask(admin(), Method::GET, &path("a", wanted), &Value::Null).await;
        assert_eq!(code, 200, "{answer}");
        answers.push(answer);
    }
    insta::assert_json_snapshot!(answers);
}

#[tokio::test]
async fn a_screenshot_is_a_picture() {
    let cluster = Cluster::start().await;
    let _handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &[]).await;
    let shot = cluster.ask(admin(), Method::GET, &path("a", "vnc/screenshot"), &Value::Null).await;
    assert_eq!(shot, (200, json!("pixels")));
    let (code, _) = cluster.ask(admin(), Method::GET, &path("a", "vnc/screenshot?moveCursor=true"), &Value::Null).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn both_versions_are_announced() {
    let cluster = Cluster::start().await;
    for version in ["v1", "v1alpha3"] {
        let path = format!("/apis/subresources.kubevirt.io/{version}");
        let (code, list) = cluster.ask(admin(), Method::GET, &path, &Value::Null).await;
        assert_eq!((code, list["resources"].as_array().unwrap().len()), (200, 24), "{list}");
    }
}
