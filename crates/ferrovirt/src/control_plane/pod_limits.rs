//! What a pod may ask of this machine. Whoever has a directory of it, or more power in a container than others, owns it, so a right
//! to create pods is not enough: it takes an administrator, or virt-controller, which mounts directories for `hostDisk` volumes when
//! their feature gate is on.
//!
//! A pod is judged as a whole when it is created, and again when somebody changes what it is: with a new image, an administrator's pod
//! with a directory of the machine would be somebody else's. Most of this the nodes refuse too, to everybody; here its author learns it at once.

use ferrovirt_apiserver::admission::{Operation, Plugin, Review};
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use ferrovirt_node::oci::security::{CAPABILITIES, SYSCTLS, capability_name};
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::Value;

use super::identities::VIRT_CONTROLLER;

/// The group that may do everything.
const ADMINISTRATORS: &str = "system:masters";
/// Lists of containers in a pod.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// What a pod may set for the whole machine: field, and what to do instead.
const NAMESPACES: [(&str, &str); 3] = [
    ("hostNetwork", "use a Service, or kubectl port-forward"),
    ("hostPID", "leave it out"),
    ("hostIPC", "leave it out"),
];

/// The admission plugin.
pub(super) struct PodLimits;

impl Plugin for PodLimits {
    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            let is_pod = review.resource.group.is_empty() && &*review.resource.plural == "pods";
            if !is_pod || !is_judged(review) || may(review.user) {
                return Ok(());
            }
            excess(&review.object["spec"]).map_or(Ok(()), |excess| Err(refusal(review.name, &excess)))
        })
    }
}

/// A new pod, or one that becomes another. Its node and its status are the scheduler's and the node's.
fn is_judged(review: &Review<'_>) -> bool {
    let changes = match review.operation {
        Operation::Create => true,
        Operation::Update => review.object["spec"] != review.old_object["spec"],
        Operation::Delete | Operation::Connect => false,
    };
    changes && matches!(review.subresource, "" | "ephemeralcontainers")
}

fn may(user: &UserInfo) -> bool {
    user.name == VIRT_CONTROLLER || user.groups.iter().any(|group| group == ADMINISTRATORS)
}

/// What only an administrator may ask for.
#[derive(Debug, PartialEq, Eq)]
struct Excess {
    /// Where it is.
    path: String,
    /// What is wrong with it, and what to do.
    why: String,
}

impl Excess {
    fn new(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self { path: path.into(), why: why.into() }
    }
}

/// The first thing that a pod may not ask for.
fn excess(spec: &Value) -> Option<Excess> {
    of_machine(spec).or_else(|| of_pod_context(&spec["securityContext"])).or_else(|| {
        let containers =
            CONTAINERS.iter().flat_map(|kind| list(&spec[*kind]).iter().enumerate().map(move |it| (kind, it)));
        containers.into_iter().find_map(|(kind, (index, container))| {
            of_container(&container["securityContext"], &format!("spec.{kind}[{index}].securityContext"))
        })
    })
}

fn of_machine(spec: &Value) -> Option<Excess> {
    if let Some((field, instead)) = NAMESPACES.iter().find(|(field, _)| spec[*field] == true) {
        return Some(Excess::new(format!("spec.{field}"), format!("pods do not share this machine's; {instead}")));
    }
    let index = list(&spec["volumes"]).iter().position(|volume| !volume["hostPath"].is_null())?;
    let why = "only administrators may mount directories of this machine; use a PersistentVolumeClaim";
    Some(Excess::new(format!("spec.volumes[{index}].hostPath"), why))
}

fn of_pod_context(context: &Value) -> Option<Excess> {
    let at = "spec.securityContext";
    let unsafe_one = |setting: &Value| !SYSCTLS.contains(&text(&setting["name"]));
    if let Some(index) = list(&context["sysctls"]).iter().position(unsafe_one) {
        let name = text(&context["sysctls"][index]["name"]);
        return Some(Excess::new(
            format!("{at}.sysctls[{index}].name"),
            format!("{name} is not one of those that pods may set: {}", SYSCTLS.join(", ")),
        ));
    }
    of_profiles(context, at)
}

fn of_container(context: &Value, at: &str) -> Option<Excess> {
    if context["privileged"] == true {
        return Some(Excess::new(
            format!("{at}.privileged"),
            "containers have no power over this machine; leave it out",
        ));
    }
    let too_much = |name: &Value| !CAPABILITIES.contains(&capability_name(text(name)).as_str());
    let added = &context["capabilities"]["add"];
    if let Some(index) = list(added).iter().position(too_much) {
        let name = text(&added[index]);
        return Some(Excess::new(
            format!("{at}.capabilities.add[{index}]"),
            format!("{name} is not one of those that containers may have: {}", CAPABILITIES.join(", ")),
        ));
    }
    if !is_one_of(&context["procMount"], &["Default"]) {
        return Some(Excess::new(format!("{at}.procMount"), "parts of /proc stay hidden; leave it out"));
    }
    of_profiles(context, at)
}

/// Confinement that a context takes off, for the pod or for a container.
fn of_profiles(context: &Value, at: &str) -> Option<Excess> {
    let rows = [("seccompProfile", &["RuntimeDefault"][..]), ("appArmorProfile", &["RuntimeDefault", "Localhost"][..])];
    let (field, known) = rows.into_iter().find(|(field, known)| !is_one_of(&context[*field]["type"], known))?;
    let why = format!("{} is not supported: {}, or leave it out", text(&context[field]["type"]), known.join(" or "));
    Some(Excess::new(format!("{at}.{field}.type"), why))
}

fn is_one_of(value: &Value, known: &[&str]) -> bool {
    value.is_null() || value.as_str().is_some_and(|value| known.contains(&value))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn refusal(name: &str, excess: &Excess) -> ApiError {
    let message = format!("pods \"{name}\" is forbidden: {}: {}", excess.path, excess.why);
    ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use ferrovirt_apiserver::cluster;
    use ferrovirt_apiserver::serve::erase;
    use ferrovirt_apiserver::server::{Machine, Peer, Server};
    use http::Request;
    use http_body_util::{BodyExt, Full};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Whether it was done; else why not.
    async fn ask(server: &Arc<Server>, user: &UserInfo, kind: &str, request: &str, body: Value) -> Result<(), String> {
        let (method, path) = request.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(path).header("content-type", format!("application/{kind}"));
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let answer = server.handle(request.map(erase), &Peer::Trusted(user.clone())).await;
        let is_done = answer.status().is_success();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        if is_done { Ok(()) } else { Err(String::from_utf8_lossy(&body).into_owned()) }
    }

    #[tokio::test]
    async fn a_tenant_makes_no_powerful_pod_and_takes_none_over() {
        const PODS: &str = "/api/v1/namespaces/default/pods";
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let directory = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (server, _keeper) = cluster::in_memory(directory.path(), Arc::new(Machine), stop.clone()).await.unwrap();
        server.admission.add(Arc::new(PodLimits));
        let root = UserInfo::new("root", [ADMINISTRATORS]);
        let tenant = UserInfo::new("tenant", ["system:authenticated"]);
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]);
        let role = json!({"metadata": {"name": "pods"}, "rules": rules});
        ask(&server, &root, "json", &format!("POST {RBAC}/clusterroles"), role).await.unwrap();
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "metadata": {"name": "pods"}, "subjects": [{"apiGroup": group, "kind": "User", "name": "tenant"}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "pods"},
        });
        ask(&server, &root, "json", &format!("POST {RBAC}/clusterrolebindings"), binding).await.unwrap();
        let account = json!({"metadata": {"name": "default"}});
        // Somebody else may have made it.
        let _ = ask(&server, &root, "json", "POST /api/v1/namespaces/default/serviceaccounts", account).await;
        let wait = async {
            // Roles are known a moment after they were made.
            while ask(&server, &tenant, "json", &format!("GET {PODS}"), Value::Null).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();

        let pod = |name: &str, context: Value| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"containers": [{"name": "a", "image": "i", "securityContext": context}]},
            })
        };
        let refused = |answer: Result<(), String>| {
            let why = answer.unwrap_err();
            assert!(why.contains("capabilities.add[0]: SYS_ADMIN is not one of those"), "{why}");
        };
        let powerful = json!({"capabilities": {"add": ["SYS_ADMIN"]}});
        let create = format!("POST {PODS}");
        refused(ask(&server, &tenant, "json", &create, pod("a", powerful.clone())).await);
        let apply = format!("PATCH {PODS}/a?fieldManager=t");
        refused(ask(&server, &tenant, "apply-patch+yaml", &apply, pod("a", powerful.clone())).await);
        ask(&server, &tenant, "json", &create, pod("usual", json!({}))).await.unwrap();

        ask(&server, &root, "json", &create, pod("root", powerful)).await.unwrap();
        let change = format!("PATCH {PODS}/root");
        let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "mine"}]);
        refused(ask(&server, &tenant, "json-patch+json", &change, image.clone()).await);
        let label = json!({"metadata": {"labels": {"seen": "yes"}}});
        ask(&server, &tenant, "merge-patch+json", &change, label).await.unwrap();
        ask(&server, &root, "json-patch+json", &change, image).await.unwrap();
        stop.cancel();
    }

    fn path(spec: &Value) -> Option<String> {
        excess(spec).map(|excess| excess.path)
    }

    #[test]
    fn only_administrators_and_the_controller_are_not_limited() {
        let authenticated = |name: &str| UserInfo::new(name, ["system:authenticated"]);
        assert!(may(&authenticated(VIRT_CONTROLLER)));
        assert!(may(&UserInfo::new("root", ["system:authenticated", ADMINISTRATORS])));
        assert!(!may(&authenticated("system:serviceaccount:default:virt-controller")));
        assert!(!may(&authenticated("editor")));
    }

    #[test]
    fn the_first_host_path_is_named() {
        let pod = |volumes: Value| json!({"volumes": volumes});
        assert_eq!(path(&json!({})), None);
        assert_eq!(path(&pod(json!([{"name": "a", "emptyDir": {}}]))), None);
        let volumes = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/etc"}}]);
        assert_eq!(path(&pod(volumes.clone())).as_deref(), Some("spec.volumes[1].hostPath"));
        assert!(refusal("p", &excess(&pod(volumes)).unwrap()).to_string().contains("spec.volumes[1].hostPath"));
    }

    #[test]
    fn no_way_to_the_machine_is_given_to_any_container() {
        let ways = [
            (json!({"privileged": true}), "privileged"),
            (json!({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}), "capabilities.add[1]"),
            (json!({"capabilities": {"add": ["cap_dac_read_search"]}}), "capabilities.add[0]"),
            (json!({"capabilities": {"add": ["NET_RAW"]}}), "capabilities.add[0]"),
            (json!({"capabilities": {"add": ["ALL"]}}), "capabilities.add[0]"),
            (json!({"procMount": "Unmasked"}), "procMount"),
            (json!({"seccompProfile": {"type": "Unconfined"}}), "seccompProfile.type"),
            (json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}), "seccompProfile.type"),
            (json!({"appArmorProfile": {"type": "Unconfined"}}), "appArmorProfile.type"),
        ];
        for kind in CONTAINERS {
            for (context, field) in &ways {
                let mut spec = json!({"containers": [{"name": "good"}]});
                spec[kind] = json!([{"name": "good"}, {"name": "bad", "securityContext": context}]);
                assert_eq!(path(&spec), Some(format!("spec.{kind}[1].securityContext.{field}")), "{context}");
            }
        }
    }

    #[test]
    fn no_pod_has_the_machines_namespaces_and_settings() {
        assert_eq!(path(&json!({"hostNetwork": false})), None);
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(path(&json!({field: true})), Some(format!("spec.{field}")));
        }
        let context = |context: Value| path(&json!({"securityContext": context}));
        let sysctls = |name: &str| context(json!({"sysctls": [{"name": name, "value": "1"}]}));
        assert_eq!(sysctls("net.ipv4.tcp_syncookies"), None);
        assert_eq!(sysctls("kernel.core_pattern").as_deref(), Some("spec.securityContext.sysctls[0].name"));
        let seccomp = |kind: &str| context(json!({"seccompProfile": {"type": kind}}));
        assert_eq!(seccomp("RuntimeDefault"), None);
        assert_eq!(seccomp("Unconfined").as_deref(), Some("spec.securityContext.seccompProfile.type"));
    }

    #[test]
    fn what_pods_usually_ask_for_is_theirs() {
        let spec = json!({
            "securityContext": {"runAsNonRoot": true, "fsGroup": 107, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "a", "securityContext": {
                "allowPrivilegeEscalation": false, "privileged": false, "procMount": "Default", "runAsUser": 107,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            }}],
        });
        assert_eq!(excess(&spec), None);
    }
}
