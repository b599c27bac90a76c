//! Who may do what, by the roles that users get.

use ferrovirt_apiserver::auth::UserInfo;
use http::Method;
use serde_json::{Value, json};

use crate::fixture::{Cluster, Handler};

const BASE: &str = "/apis/subresources.kubevirt.io/v1";
const MACHINE: &str = "virtualmachines/a";
const GUEST: &str = "virtualmachineinstances/a";

async fn code(cluster: &Cluster, user: &UserInfo, method: Method, wanted: &str) -> u16 {
    let path = format!("{BASE}/namespaces/default/{wanted}");
    cluster.ask(user.clone(), method, &path, &Value::Null).await.0
}

#[tokio::test]
async fn roles_say_who_may_what() {
    let cluster = Cluster::start().await;
    let _handler = Handler::start(cluster.directory.path());
    cluster.machine("a", "Manual").await;
    cluster.guest("a", "Running", &["AgentConnected", "LiveMigratable"]).await;
    let (admin, edit) = (cluster.user("admin").await, cluster.user("edit").await);
    let (view, migrate) = (cluster.user("view").await, cluster.user("migrate").await);
    let nobody = UserInfo::new("nobody", ["system:authenticated"]);
    // Method and path, and what admin, edit, view, migrate and nobody get. 400 and 409 are answers to somebody who may ask.
    let rows: [(Method, String, [u16; 5]); 13] = [
        (Method::PUT, format!("{MACHINE}/start"), [409, 409, 403, 403, 403]),
        (Method::PUT, format!("{MACHINE}/migrate"), [403, 403, 403, 202, 403]),
        (Method::GET, format!("{MACHINE}/expand-spec"), [200, 200, 200, 403, 403]),
        (Method::GET, format!("{MACHINE}/portforward/22/tcp"), [409, 409, 403, 403, 403]),
        (Method::PUT, format!("{MACHINE}/evacuate/cancel"), [409, 409, 403, 403, 403]),
        (Method::PUT, format!("{GUEST}/evacuate/cancel"), [200, 200, 403, 403, 403]),
        (Method::GET, format!("{GUEST}/console"), [400, 400, 403, 403, 403]),
        (Method::GET, format!("{GUEST}/vnc"), [400, 400, 403, 403, 403]),
        (Method::GET, format!("{GUEST}/vnc/screenshot"), [200, 200, 403, 403, 403]),
        (Method::PUT, format!("{GUEST}/unfreeze"), [200, 200, 403, 403, 403]),
        (Method::GET, format!("{GUEST}/guestosinfo"), [200, 200, 200, 403, 403]),
        (Method::PUT, format!("{GUEST}/sev/setupsession"), [400, 400, 403, 403, 403]),
        (Method::PUT, "expand-vm-spec".to_owned(), [400, 400, 400, 403, 403]),
    ];
    for (method, wanted, expected) in rows {
        for (user, expected) in [&admin, &edit, &view, &migrate, &nobody].into_iter().zip(expected) {
            let answered = code(&cluster, user, method.clone(), &wanted).await;
            assert_eq!(answered, expected, "{} {method} {wanted}", user.name);
        }
    }
}

#[tokio::test]
async fn everybody_with_a_name_sees_version_and_health() {
    let cluster = Cluster::start().await;
    let nobody = UserInfo::new("nobody", ["system:authenticated"]);
    let ask = async |user: &UserInfo, word: &str| {
        cluster.ask(user.clone(), Method::GET, &format!("{BASE}/{word}"), &Value::Null).await
    };
    // The roles arrive with the store's events.
    while ask(&nobody, "version").await.0 == 403 {
        tokio::task::yield_now().await;
    }
    let (_, version) = ask(&nobody, "version").await;
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.9.0"), "{version}");
    assert_eq!(ask(&nobody, "healthz").await, (200, json!({"apiserver": {"connectivity": "ok"}})));
    assert_eq!(ask(&nobody, "guestfs").await.0, 404);
    assert_eq!(ask(&UserInfo::anonymous(), "version").await.0, 403);
}

#[tokio::test]
async fn a_right_to_the_display_is_none_to_its_pictures() {
    let cluster = Cluster::start().await;
    let _handler = Handler::start(cluster.directory.path());
    cluster.guest("a", "Running", &[]).await;
    let create = async |kind: &str, object: Value| {
        let objects = cluster.server.internal("rbac.authorization.k8s.io", "v1", kind, "test").unwrap();
        objects.create(object).await.unwrap();
    };
    let rules = json!([{"apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachineinstances/vnc"], "verbs": ["get"]}]);
    create("clusterroles", json!({"metadata": {"name": "viewer"}, "rules": rules})).await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"});
    create("clusterrolebindings", json!({"metadata": {"name": "viewer"}, "roleRef": role, "subjects": [subject]}))
        .await;
    let viewer = UserInfo::new("viewer", ["system:authenticated"]);
    while code(&cluster, &viewer, Method::GET, &format!("{GUEST}/vnc")).await == 403 {
        tokio::task::yield_now().await;
    }
    assert_eq!(code(&cluster, &viewer, Method::GET, &format!("{GUEST}/vnc")).await, 400, "no websocket");
    assert_eq!(code(&cluster, &viewer, Method::GET, &format!("{GUEST}/vnc/screenshot")).await, 403);
}
