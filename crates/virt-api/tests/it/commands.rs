//! Requests that are answered once: commands, facts of the agent, screenshots, the version; and who may ask.

use ferrovirt_apiserver::auth::UserInfo;
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
async fn roles_say_who_may_what() {
    let cluster = Cluster::start().await;
    let _handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &["AgentConnected"]).await;
    let bindings = cluster.server.internal("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "test").unwrap();
    for role in ["view", "edit"] {
        let binding = json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("kubevirt.io:{role}")},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
        });
        bindings.create(binding).await.unwrap();
    }
    let user = |name: &str| UserInfo::new(name, ["system:authenticated"]);
    let ask = async |name: &str, method: Method, wanted: &str| {
        cluster.ask(user(name), method, &path("a", wanted), &Value::Null).await.0
    };
    // The roles arrive with the store's events.
    while ask("edit", Method::PUT, "unfreeze").await == 403 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask("view", Method::GET, "guestosinfo").await, 200);
    assert_eq!(ask("view", Method::PUT, "unfreeze").await, 403);
    assert_eq!(ask("view", Method::GET, "console").await, 403);
    assert_eq!(ask("edit", Method::GET, "console").await, 400, "allowed, but this is no websocket");
    assert_eq!(ask("nobody", Method::GET, "guestosinfo").await, 403);
    let (code, version) = cluster.ask(user("nobody"), Method::GET, &format!("{BASE}/version"), &Value::Null).await;
    assert_eq!(code, 200);
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.9.0"), "{version}");
    assert_eq!(cluster.ask(user("nobody"), Method::GET, &format!("{BASE}/healthz"), &Value::Null).await.0, 200);
    let anonymous = cluster.ask(UserInfo::anonymous(), Method::GET, &format!("{BASE}/version"), &Value::Null).await;
    assert_eq!(anonymous.0, 403);
}

#[tokio::test]
async fn both_versions_are_announced() {
    let cluster = Cluster::start().await;
    for version in ["v1", "v1alpha3"] {
        let path = format!("/apis/subresources.kubevirt.io/{version}");
        let (code, list) = cluster.ask(admin(), Method::GET, &path, &Value::Null).await;
        assert_eq!((code, list["resources"].as_array().unwrap().len()), (200, 41), "{list}");
    }
}
