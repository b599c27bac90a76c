//! What users may do with guests: cluster roles that join the cluster's own `admin`, `edit` and `view`.

use std::sync::Arc;

use ferrovirt_api::names::{groups, labels};
use ferrovirt_apiserver::internal::Place;
use ferrovirt_apiserver::server::Server;
use ferrovirt_apiserver::status::ApiResult;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
const OWN: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// Kinds that users write.
const KINDS: &[&str] = &[
    "virtualmachines",
    "virtualmachineinstances",
    "virtualmachineinstancepresets",
    "virtualmachineinstancereplicasets",
];
/// What can be looked at without reaching into a guest.
const LOOK: &[&str] = &[
    "virtualmachines/expand-spec",
    "virtualmachines/objectgraph",
    "virtualmachineinstances/guestosinfo",
    "virtualmachineinstances/filesystemlist",
    "virtualmachineinstances/userlist",
    "virtualmachineinstances/sev/fetchcertchain",
    "virtualmachineinstances/sev/querylaunchmeasurement",
    "virtualmachineinstances/objectgraph",
];
/// Connections to a guest.
const CONNECT: &[&str] = &[
    "virtualmachines/portforward",
    "virtualmachineinstances/console",
    "virtualmachineinstances/vnc",
    "virtualmachineinstances/vnc/screenshot",
    "virtualmachineinstances/portforward",
    "virtualmachineinstances/usbredir",
];
/// What changes a guest or its machine.
const CHANGE: &[&str] = &[
    "expand-vm-spec",
    "virtualmachines/start",
    "virtualmachines/stop",
    "virtualmachines/restart",
    "virtualmachines/addvolume",
    "virtualmachines/removevolume",
    "virtualmachines/memorydump",
    "virtualmachines/removememorydump",
    "virtualmachines/evacuate/cancel",
    "virtualmachineinstances/pause",
    "virtualmachineinstances/unpause",
    "virtualmachineinstances/addvolume",
    "virtualmachineinstances/removevolume",
    "virtualmachineinstances/freeze",
    "virtualmachineinstances/unfreeze",
    "virtualmachineinstances/softreboot",
    "virtualmachineinstances/reset",
    "virtualmachineinstances/sev/setupsession",
    "virtualmachineinstances/sev/injectlaunchsecret",
    "virtualmachineinstances/evacuate/cancel",
];
/// The first words of subresources that have two: the API server in front of virt-api looks at those alone, and virt-api at both.
const FIRST_WORDS_READ: &[&str] = &["virtualmachineinstances/sev"];
const FIRST_WORDS_CHANGE: &[&str] =
    &["virtualmachines/evacuate", "virtualmachineinstances/evacuate", "virtualmachineinstances/sev"];
const MIGRATIONS: &[&str] = &["virtualmachineinstancemigrations"];

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn role(name: &str, joins: Option<&str>, rules: &[Value]) -> Value {
    let mut metadata = json!({"name": name, "labels": {labels::APP: ""}});
    if let Some(joins) = joins {
        metadata["labels"][format!("{RBAC}/aggregate-to-{joins}")] = "true".into();
    }
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
}

/// The rules of somebody who works with guests.
fn worker(verbs: &[&str]) -> Vec<Value> {
    vec![
        rule(groups::SUBRESOURCES, &[LOOK, CONNECT, FIRST_WORDS_READ].concat(), &["get"]),
        rule(groups::SUBRESOURCES, &[CHANGE, FIRST_WORDS_CHANGE].concat(), &["update"]),
        rule(groups::KUBEVIRT, KINDS, verbs),
        rule(groups::KUBEVIRT, MIGRATIONS, READ),
        rule(groups::KUBEVIRT, &["kubevirts"], &["get", "list"]),
        rule(groups::MIGRATIONS, &["migrationpolicies"], READ),
    ]
}

/// The cluster roles.
pub fn roles() -> Vec<Value> {
    let view = [
        rule(groups::SUBRESOURCES, &[LOOK, FIRST_WORDS_READ].concat(), &["get"]),
        rule(groups::SUBRESOURCES, &["expand-vm-spec"], &["update"]),
        rule(groups::KUBEVIRT, &[KINDS, MIGRATIONS].concat(), READ),
        rule(groups::KUBEVIRT, &["kubevirts"], &["get", "list"]),
        rule(groups::MIGRATIONS, &["migrationpolicies"], READ),
    ];
    let migrate = [
        rule(groups::SUBRESOURCES, &["virtualmachines/migrate"], &["update"]),
        rule(groups::KUBEVIRT, MIGRATIONS, OWN),
    ];
    let default = [
        rule(groups::KUBEVIRT, &["kubevirts"], &["get", "list"]),
        rule(groups::SUBRESOURCES, &["version", "guestfs", "healthz"], &["get", "list"]),
    ];
    vec![
        role("kubevirt.io:admin", Some("admin"), &worker(OWN)),
        role("kubevirt.io:edit", Some("edit"), &worker(WRITE)),
        role("kubevirt.io:view", Some("view"), &view),
        role("kubevirt.io:migrate", None, &migrate),
        role("kubevirt.io:default", None, &default),
    ]
}

/// What everybody may: see the version and the configuration.
pub fn bindings() -> Vec<Value> {
    vec![json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubevirt.io:default", "labels": {labels::APP: ""}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "kubevirt.io:default"},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}],
    })]
}

/// Makes roles and bindings, and brings the rules of those that are there up to date.
pub(crate) async fn install(server: &Arc<Server>) -> ApiResult<()> {
    let stored = server.internal(RBAC, "v1", "clusterroles", "virt-api")?;
    for role in roles() {
        let name = role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match stored.get("", &name) {
            Some(there) if there["rules"] == role["rules"] => {}
            Some(_) => {
                let rules = role["rules"].clone();
                stored.change(&Place::new("", &name), "", |there| there["rules"] = rules.clone()).await?;
            }
            None => stored.ensure(role).await?,
        }
    }
    let stored = server.internal(RBAC, "v1", "clusterrolebindings", "virt-api")?;
    for binding in bindings() {
        stored.ensure(binding).await?;
    }
    Ok(())
}
