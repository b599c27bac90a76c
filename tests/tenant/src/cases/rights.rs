//! Requests for what is somebody else's. Whoever has `edit` in a namespace has nothing outside of it, and gives no rights.

use blackbox::scene::Scene;
use blackbox::suite::Case;
use http::Method;
use serde_json::{Value, json};

use crate::tenant::{Ask, Role, Tenant};

const CORE: &str = "/api/v1/namespaces/{ns}";
const KUBEVIRT: &str = "/apis/kubevirt.io/v1";

fn object(api: &str, kind: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "stolen"}});
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

fn asks() -> Vec<(&'static str, Ask)> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let bound = json!({"roleRef": reference, "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]});
    let everything = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let hook = json!({"webhooks": []});
    vec![
        ("secrets-of-others", Ask::get("/api/v1/namespaces/kube-system/secrets")),
        ("secrets-of-all", Ask::get("/api/v1/secrets")),
        ("pods-of-all", Ask::get("/api/v1/pods")),
        ("guests-of-others", Ask::get(&format!("{KUBEVIRT}/namespaces/default/virtualmachineinstances"))),
        ("watch-of-all", Ask::get("/api/v1/configmaps?watch=1&timeoutSeconds=1")),
        ("nodes", Ask::get("/api/v1/nodes")),
        ("change-node", Ask::merge("/api/v1/nodes/node1", &json!({"spec": {"unschedulable": true}}))),
        ("node-proxy", Ask::get("/api/v1/nodes/node1/proxy/containerLogs/default/a/b")),
        ("namespace", Ask::post("/api/v1/namespaces", &object("v1", "Namespace", json!({})))),
        ("delete-namespace", Ask::new(Method::DELETE, "/api/v1/namespaces/default")),
        ("volume", Ask::post("/api/v1/persistentvolumes", &object("v1", "PersistentVolume", json!({"spec": {}})))),
        (
            "role",
            Ask::post(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
                &object(rbac, "Role", everything.clone()),
            ),
        ),
        (
            "binding",
            Ask::post(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
                &object(rbac, "RoleBinding", bound.clone()),
            ),
        ),
        (
            "cluster-role",
            Ask::post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &object(rbac, "ClusterRole", everything)),
        ),
        (
            "cluster-binding",
            Ask::post(
                "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                &object(rbac, "ClusterRoleBinding", bound),
            ),
        ),
        (
            "definition",
            Ask::post(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                &object("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({"spec": {}})),
            ),
        ),
        (
            "webhook",
            Ask::post(
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
                &object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", hook),
            ),
        ),
        (
            "token-of-others",
            Ask::post(
                "/api/v1/namespaces/kube-system/serviceaccounts/default/token",
                &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
            ),
        ),
        ("exec-in-others", Ask::post("/api/v1/namespaces/default/pods/a/exec?command=sh&stdout=1", &json!({}))),
        (
            "console-of-others",
            Ask::get("/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a/console"),
        ),
        (
            "stop-others",
            Ask::new(Method::PUT, "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/a/stop"),
        ),
        (
            "settings",
            Ask::merge(
                &format!("{KUBEVIRT}/namespaces/kubevirt/kubevirts/kubevirt"),
                &json!({"spec": {"configuration": {}}}),
            ),
        ),
        (
            "status-of-guest",
            Ask::merge(
                &format!("{KUBEVIRT}/namespaces/{{ns}}/virtualmachineinstances/a/status"),
                &json!({"status": {"phase": "Running"}}),
            ),
        ),
        ("status-of-pod", Ask::merge(&format!("{CORE}/pods/a/status"), &json!({"status": {"podIP": "10.0.0.1"}}))),
        (
            "binding-of-pod",
            Ask::post(
                &format!("{CORE}/pods/a/binding"),
                &json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "node1"}}),
            ),
        ),
        (
            "be-admin",
            Ask::get("/api/v1/namespaces/kube-system/secrets")
                .header("x-remote-user", "admin")
                .header("x-remote-group", "system:masters"),
        ),
    ]
}

/// One case for each request.
pub(super) fn all() -> Vec<Case<Scene>> {
    let rows = asks().into_iter().map(|(name, ask)| {
        let run = move |scene: Scene| {
            let ask = ask.clone();
            async move { Tenant::new(scene, Role::Editor).await?.refused(&ask, &[403], "").await }
        };
        Case::new(&format!("rights/{name}"), "What is somebody else's is refused.", run)
    });
    rows.chain(changes()).collect()
}

/// Whoever may change objects, and make none, makes none by changing what is not there.
fn changes() -> Vec<Case<Scene>> {
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "stolen", "annotations": {"kubernetes.io/service-account.name": "default"}},
    });
    let apply = |path: &str, object: &Value| {
        Ask::post(&format!("{path}?fieldManager=m"), object)
            .with_method(Method::PATCH)
            .of("application/apply-patch+yaml")
    };
    let map = object("v1", "ConfigMap", json!({}));
    let lease = object("coordination.k8s.io/v1", "Lease", json!({"spec": {}}));
    let asks = [
        ("make-by-apply", apply(&format!("{CORE}/configmaps/stolen"), &map)),
        ("token-by-apply", apply(&format!("{CORE}/secrets/stolen"), &token)),
        (
            "make-by-update",
            Ask::post("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/stolen", &lease).with_method(Method::PUT),
        ),
    ];
    let cases = asks.into_iter().map(|(name, ask)| {
        let run = move |scene: Scene| {
            let ask = ask.clone();
            async move { Tenant::new(scene, Role::Changer).await?.refused(&ask, &[403, 404], "").await }
        };
        Case::new(&format!("rights/{name}"), "Who may change objects makes none by that.", run)
    });
    cases.collect()
}
