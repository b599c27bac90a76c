//! The operator on a real API server: install, drift, update, certificates, removal.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrovirt_operator::certificates::Facts;
use ferrovirt_operator::kinds::{KINDS, Place};
use serde_json::{Value, json};

use crate::world::{KUBEVIRT, World, condition};

const API: &str = "/apis/apps/v1/namespaces/kubevirt/deployments/virt-api";
const CONTROLLER: &str = "/apis/apps/v1/namespaces/kubevirt/deployments/virt-controller";
const HANDLER: &str = "/apis/apps/v1/namespaces/kubevirt/daemonsets/virt-handler";
const WEBHOOKS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/virt-api-validator",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/virt-api-mutator",
];
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kubevirt-handler";
const BUNDLE: &str = "/api/v1/namespaces/kubevirt/configmaps/kubevirt-ca";
const AUTHORITY: &str = "/api/v1/namespaces/kubevirt/secrets/kubevirt-ca";
const CERTIFICATE: &str = "/api/v1/namespaces/kubevirt/secrets/kubevirt-virt-api-certs";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const GUESTS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

fn image(object: &Value) -> &str {
    object["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn an_installation_is_made_in_order_and_says_how_far_it_is() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.wait(API, "virt-api", Value::is_object).await;
    let deploying = |it: &Value| condition(it, "Progressing")["reason"] == "DeploymentInProgress";
    let kubevirt = world.wait(KUBEVIRT, "the phase", deploying).await;
    assert_eq!(kubevirt["status"]["phase"], "Deploying");
    assert_eq!(condition(&kubevirt, "Available")["status"], "False");
    assert!(world.get("/api/v1/namespaces/kubevirt/configmaps/kubevirt-first-installation").await.is_none());
    // Nothing that needs virt-api is there before it answers, but the door is already closed.
    let group = "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io";
    for later in [CONTROLLER, HANDLER, group] {
        assert!(world.get(later).await.is_none(), "{later}");
    }
    for path in WEBHOOKS {
        let bundle = world.get(path).await.unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
        let published = world.get(BUNDLE).await.unwrap()["data"]["ca-bundle"].clone();
        assert_eq!(STANDARD.decode(bundle.as_str().unwrap()).unwrap(), published.as_str().unwrap().as_bytes());
    }
    world.start(API).await;
    world.wait(HANDLER, "virt-handler", Value::is_object).await;
    world.wait(group, "the aggregated API", Value::is_object).await;
    world.start(CONTROLLER).await;
    world.start(HANDLER).await;
    let ready = |it: &Value| condition(it, "Available")["status"] == "True";
    let kubevirt = world.wait(KUBEVIRT, "readiness", ready).await;
    let status = &kubevirt["status"];
    assert_eq!(status["phase"], "Deployed");
    assert_eq!(status["observedGeneration"], kubevirt["metadata"]["generation"]);
    assert_eq!((&status["observedKubeVirtVersion"], &status["operatorVersion"]), (&json!("v1"), &json!("v1")));
    for (kind, holds) in [("Created", "True"), ("Progressing", "False"), ("Degraded", "False")] {
        assert_eq!(condition(&kubevirt, kind)["status"], holds, "{kind}");
    }
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
async fn what_somebody_changes_is_repaired_and_what_they_add_stays() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    world.delete(ROLE).await;
    world.wait(ROLE, "the role", Value::is_object).await;
    let other = json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "plan9"}}}}});
    world.merge(CONTROLLER, &other).await;
    let repaired = |it: &Value| it["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux";
    world.wait(CONTROLLER, "the repair", repaired).await;
    world.merge(BUNDLE, &json!({"data": {"ca-bundle": "somebody else's"}})).await;
    let certificate = |it: &Value| it["data"]["ca-bundle"].as_str().is_some_and(|text| text.starts_with("-----BEGIN"));
    world.wait(BUNDLE, "the bundle", certificate).await;
    world.merge(ROLE, &json!({"metadata": {"labels": {"team": "a"}}, "rules": []})).await;
    let role = world.wait(ROLE, "the rules", |it| it["rules"].as_array().is_some_and(|rules| !rules.is_empty())).await;
    assert_eq!(role["metadata"]["labels"]["team"], "a");
    // A label of ours is how we find it again.
    world.merge(ROLE, &json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})).await;
    world
        .wait(ROLE, "the label", |it| it["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "virt-operator")
        .await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
async fn an_update_starts_at_the_nodes_and_touches_no_guest() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    operator.stop().await;
    let guest = guest(&world, &[]).await;
    let left = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "old", "labels": {"app.kubernetes.io/managed-by": "virt-operator"}}});
    let accounts = "/api/v1/namespaces/kubevirt/serviceaccounts";
    world.create(accounts, &left).await;

    let operator = world.operator("v2", 0);
    world.wait(HANDLER, "the new virt-handler", |it| image(it) == "registry.example/launcher:v2").await;
    let updating = |it: &Value| condition(it, "Progressing")["reason"] == "UpdateInProgress";
    let kubevirt = world.wait(KUBEVIRT, "the update", updating).await;
    for kind in ["Available", "Progressing", "Degraded"] {
        assert_eq!(condition(&kubevirt, kind)["status"], "True", "{kind}");
    }
    assert_eq!(image(&world.get(CONTROLLER).await.unwrap()), "registry.example/control-plane:v1");
    world.start(HANDLER).await;
    world.wait(CONTROLLER, "virt-controller", |it| image(it) == "registry.example/control-plane:v2").await;
    assert_eq!(image(&world.get(API).await.unwrap()), "registry.example/control-plane:v1");
    world.start(CONTROLLER).await;
    world.wait(API, "virt-api", |it| image(it) == "registry.example/control-plane:v2").await;
    world.start(API).await;
    world.wait(KUBEVIRT, "the end", |it| it["status"]["observedKubeVirtVersion"] == "v2").await;
    world.wait(&format!("{accounts}/old"), "no leftover", Value::is_null).await;
    let now = world.get(&format!("{GUESTS}/web")).await.unwrap();
    assert_eq!(now["metadata"]["resourceVersion"], guest["metadata"]["resourceVersion"], "nobody wrote to the guest");
    operator.stop().await;
    world.end().await;
}

/// A guest that was let in before; nobody is there to answer webhooks.
async fn guest(world: &World, finalizers: &[&str]) -> Value {
    for path in WEBHOOKS {
        world.delete(path).await;
    }
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "web", "finalizers": finalizers},
        "spec": {"domain": {"devices": {}}}, "status": {"phase": "Running", "nodeName": "node-1"},
    });
    world.create(GUESTS, &object).await
}

#[tokio::test]
async fn removal_ends_guests_first_and_leaves_nothing() {
    let world = World::new().await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-1", "labels": {"kubevirt.io/schedulable": "true", "disk": "ssd", "cpu-model.node.kubevirt.io/x": "true"},
            "annotations": {"kubevirt.io/heartbeat": "now", "own": "yes"}},
    });
    world.create("/api/v1/nodes", &node).await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    operator.stop().await;
    guest(&world, &["kubevirt.io/foregroundDeleteVirtualMachine"]).await;
    let operator = world.operator("v1", 0);
    for path in WEBHOOKS {
        world.wait(path, "the webhooks", Value::is_object).await;
    }
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "virt-controller"}, "spec": {}});
    world.create("/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases", &lease).await;

    world.delete(KUBEVIRT).await;
    let web = format!("{GUESTS}/web");
    world.wait(&web, "the guest's deletion", |it| it["metadata"]["deletionTimestamp"].is_string()).await;
    let deleting = |it: &Value| condition(it, "Degraded")["reason"] == "DeletionInProgress";
    let kubevirt = world.wait(KUBEVIRT, "the word about it", deleting).await;
    assert_eq!(kubevirt["status"]["phase"], "Deleting");
    for path in WEBHOOKS {
        assert!(world.get(path).await.is_none(), "{path} could hold everything up");
    }
    for path in [API, CONTROLLER, HANDLER] {
        let component = world.get(path).await.unwrap();
        assert!(component["metadata"]["deletionTimestamp"].is_null(), "{path} is needed to end the guest");
    }
    world.merge(&web, &json!({"metadata": {"finalizers": null}})).await;
    world.wait(KUBEVIRT, "nothing", Value::is_null).await;
    operator.stop().await;
    for kind in KINDS {
        let base = if kind.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", kind.group) };
        let place = match kind.place {
            Place::Cluster => String::new(),
            Place::Own => "/namespaces/kubevirt".to_owned(),
            Place::System => "/namespaces/kube-system".to_owned(),
        };
        let ours = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dvirt-operator";
        let path = format!("{base}{place}/{}?{ours}", kind.plural);
        assert_eq!(world.get(&path).await.unwrap()["items"], json!([]), "{path}");
    }
    assert!(world.get("/apis/coordination.k8s.io/v1/namespaces/kubevirt/leases/virt-controller").await.is_none());
    let node = world.get("/api/v1/nodes/node-1").await.unwrap();
    assert_eq!(node["metadata"]["labels"], json!({"disk": "ssd"}));
    assert_eq!(node["metadata"]["annotations"], json!({"own": "yes"}));
    world.end().await;
}

#[tokio::test]
async fn a_removal_that_shall_lose_nothing_waits_and_says_for_what() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    operator.stop().await;
    guest(&world, &[]).await;
    let careful = json!({"spec": {"uninstallStrategy": "BlockUninstallIfWorkloadsExist"}});
    world.merge(KUBEVIRT, &careful).await;
    world.delete(KUBEVIRT).await;
    let operator = world.operator("v1", 0);
    let blocked = |it: &Value| condition(it, "Synchronized")["reason"] == "DeletionFailed";
    let kubevirt = world.wait(KUBEVIRT, "the refusal", blocked).await;
    let message = condition(&kubevirt, "Synchronized")["message"].as_str().unwrap();
    assert!(message.contains("VirtualMachineInstance default/web"), "{message}");
    assert!(world.get(&format!("{GUESTS}/web")).await.unwrap()["metadata"]["deletionTimestamp"].is_null());
    world.delete(&format!("{GUESTS}/web")).await;
    world.wait(KUBEVIRT, "nothing", Value::is_null).await;
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
async fn a_second_installation_is_told_that_it_does_not_count() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    let elsewhere = "/apis/kubevirt.io/v1/namespaces/default/kubevirts";
    let second =
        json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "second"}, "spec": {}});
    world.create(elsewhere, &second).await;
    let refused = |it: &Value| condition(it, "Synchronized")["reason"] == "ExistingDeployment";
    world.wait(&format!("{elsewhere}/second"), "the refusal", refused).await;
    world.delete(&format!("{elsewhere}/second")).await;
    assert_eq!(world.get(KUBEVIRT).await.unwrap()["status"]["phase"], "Deployed");
    operator.stop().await;
    world.end().await;
}

fn certificate(secret: &Value) -> Facts {
    let pem = STANDARD.decode(secret["data"]["tls.crt"].as_str().unwrap()).unwrap();
    Facts::parse(&String::from_utf8(pem).unwrap()).unwrap()
}

#[tokio::test]
async fn certificates_are_renewed_before_they_end() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    operator.stop().await;
    let (authority, first) = (world.get(AUTHORITY).await.unwrap(), world.get(CERTIFICATE).await.unwrap());

    // A day later virt-api has a new one of the same authority.
    let operator = world.operator("v1", 20);
    let second = world.wait(CERTIFICATE, "the next certificate", |it| it["data"] != first["data"]).await;
    assert_eq!(certificate(&second).issuer, certificate(&first).issuer);
    operator.stop().await;
    assert_eq!(world.get(AUTHORITY).await.unwrap()["data"], authority["data"]);

    // Near its end the authority has a successor, which everybody knows before it signs.
    let operator = world.operator("v1", 6 * 24);
    let successor = world.wait(AUTHORITY, "the successor", |it| it["data"]["next.crt"].is_string()).await;
    assert_eq!(successor["data"]["tls.crt"], authority["data"]["tls.crt"]);
    let both = |it: &Value| it["data"]["ca-bundle"].as_str().is_some_and(|text| text.matches("BEGIN").count() == 2);
    world.wait(BUNDLE, "both authorities", both).await;
    operator.stop().await;
    let operator = world.operator("v1", 6 * 24 + 1);
    let promoted = |it: &Value| it["data"]["tls.crt"] == successor["data"]["next.crt"];
    world.wait(AUTHORITY, "the new authority", promoted).await;
    assert!(both(&world.get(BUNDLE).await.unwrap()), "what the old one signed is still good");
    for path in WEBHOOKS {
        world
            .wait(path, "the webhooks", |it| {
                let known = it["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
                String::from_utf8(STANDARD.decode(known).unwrap()).unwrap().matches("BEGIN").count() == 2
            })
            .await;
    }
    operator.stop().await;
    world.end().await;
}

/// A request as the API server keeps it: who asks is the server's word there.
fn request(name: &str, node: &str, asked: &str) -> Value {
    let params = rcgen::CertificateParams::new(vec![format!("{asked}.node.migration.kubevirt.io")]).unwrap();
    let pem = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "signerName": "ferrovirt.io/virt-handler", "request": STANDARD.encode(pem),
            "usages": ["digital signature", "server auth", "client auth"],
            "username": "system:serviceaccount:kubevirt:kubevirt-handler",
            "extra": {"authentication.kubernetes.io/node-name": [node]},
        },
    })
}

#[tokio::test]
async fn virt_handlers_get_certificates_and_others_do_not() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    world.create(REQUESTS, &request("own", "node-1", "node-1")).await;
    world.create(REQUESTS, &request("foreign", "node-1", "node-2")).await;
    let signed =
        world.wait(&format!("{REQUESTS}/own"), "a certificate", |it| it["status"]["certificate"].is_string()).await;
    let pem = STANDARD.decode(signed["status"]["certificate"].as_str().unwrap()).unwrap();
    let facts = Facts::parse(&String::from_utf8(pem).unwrap()).unwrap();
    assert_eq!(facts.names, ["node-1.node.migration.kubevirt.io"]);
    assert_eq!(facts.issuer, certificate(&world.get(AUTHORITY).await.unwrap()).subject);
    let denied = |it: &Value| it["status"]["conditions"][0]["type"] == "Denied";
    let foreign = world.wait(&format!("{REQUESTS}/foreign"), "the refusal", denied).await;
    assert!(foreign["status"]["certificate"].is_null());
    operator.stop().await;
    // Answers are cleared away later.
    let operator = world.operator("v1", 1);
    for name in ["own", "foreign"] {
        world.wait(&format!("{REQUESTS}/{name}"), "nothing", Value::is_null).await;
    }
    operator.stop().await;
    world.end().await;
}

#[tokio::test]
async fn users_change_what_is_installed_and_are_told_what_cannot_be() {
    let world = World::new().await;
    let operator = world.operator("v1", 0);
    world.deployed().await;
    let patch = |name: &str, path: &str| {
        let patch = json!([{"op": "replace", "path": path, "value": 5}]).to_string();
        json!({"resourceType": "Deployment", "resourceName": name, "type": "json", "patch": patch})
    };
    let change = |patches: Value| json!({"spec": {"customizeComponents": {"patches": patches, "flags": {"handler": {"max-devices": "9"}}}}});
    world.merge(KUBEVIRT, &change(json!([patch("virt-controller", "/spec/replicas"), patch("nobody", "/spec")]))).await;
    world.wait(CONTROLLER, "the replicas", |it| it["spec"]["replicas"] == 5).await;
    let flagged = |it: &Value| it["spec"]["template"]["spec"]["containers"][0]["command"][2] == "--max-devices=9";
    world.wait(HANDLER, "the flag", flagged).await;
    let unused = |it: &Value| condition(it, "Synchronized")["reason"] == "PatchesUnused";
    world.wait(KUBEVIRT, "a word about the second patch", unused).await;
    world.start(CONTROLLER).await;
    world.start(HANDLER).await;
    world.wait(KUBEVIRT, "readiness", |it| condition(it, "Available")["status"] == "True").await;

    // What cannot be done changes nothing, and does not hold up anything else.
    let before = world.get(API).await.unwrap();
    world.merge(KUBEVIRT, &change(json!([patch("virt-api", "/spec/nothing/below")]))).await;
    let failed = |it: &Value| condition(it, "Degraded")["reason"] == "CustomizationFailed";
    let kubevirt = world.wait(KUBEVIRT, "the refusal", failed).await;
    let message = condition(&kubevirt, "Synchronized")["message"].as_str().unwrap();
    assert!(
        message.starts_with("Deployment virt-api is left as it is: spec.customizeComponents.patches[0]"),
        "{message}"
    );
    world.wait(CONTROLLER, "the usual replicas", |it| it["spec"]["replicas"] == 2).await;
    assert_eq!(world.get(API).await.unwrap()["spec"], before["spec"]);
    operator.stop().await;
    world.end().await;
}
