//! What admission adds to new pods, and what follows from their resources.

use serde_json::{Value, json};

use super::limits;
use crate::server::Server;
use crate::status::{ApiError, ApiResult, Subject};
use crate::store::Key;
use crate::strategy::check::{list, text};
use crate::strategy::defaults::{each, field};

const PODS: Subject<'static> = Subject { group: "", resource: "pods" };

/// What kube-apiserver's admission plugins do to a new pod, in their order.
pub(super) fn admit(server: &Server, object: &mut Value) -> ApiResult<()> {
    limits::apply(server, object)?;
    service_account(server, object)?;
    priority(server, object)?;
    default_tolerations(&mut object["spec"]);
    Ok(())
}

fn refuse(object: &Value, why: &str) -> ApiError {
    ApiError::forbidden(PODS, text(&object["metadata"]["name"]), why)
}

/// The account must exist; the pod gets its token and its image secrets.
fn service_account(server: &Server, object: &mut Value) -> ApiResult<()> {
    field(&mut object["spec"], "serviceAccountName", "default");
    let name = text(&object["spec"]["serviceAccountName"]).to_owned();
    let namespace = text(&object["metadata"]["namespace"]).to_owned();
    let Some(account) = server.store.current(&Key::new("/serviceaccounts", namespace.as_str(), name.as_str())) else {
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found");
        return Err(refuse(object, &why));
    };
    let account = account.body.value();
    let spec = &mut object["spec"];
    spec["serviceAccount"] = name.into();
    if list(&spec["imagePullSecrets"]).is_empty() && !list(&account["imagePullSecrets"]).is_empty() {
        spec["imagePullSecrets"] = account["imagePullSecrets"].clone();
    }
    let mounts = spec["automountServiceAccountToken"].as_bool();
    if mounts.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
        mount_token(spec, server);
    }
    Ok(())
}

/// The number and the preemption policy come from the class; without one, from the default class.
fn priority(server: &Server, object: &mut Value) -> ApiResult<()> {
    const CLASSES: &str = "scheduling.k8s.io/priorityclasses";
    let name = text(&object["spec"]["priorityClassName"]).to_owned();
    let class = if name.is_empty() {
        default_class(server, CLASSES)
    } else {
        let Some(class) = server.store.current(&Key::new(CLASSES, "", name.as_str())) else {
            return Err(refuse(object, &format!("no PriorityClass with name {name} was found")));
        };
        Some(class.body.value())
    };
    let class = class.unwrap_or_default();
    let value = class["value"].as_i64().unwrap_or(0);
    let spec = &mut object["spec"];
    let given = spec["priority"].as_i64();
    if let Some(name) = class["metadata"]["name"].as_str() {
        field(spec, "priorityClassName", name);
    }
    if given.is_some_and(|given| given != value) {
        let why = format!(
            "the integer value of priority ({}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name",
            given.unwrap_or(0)
        );
        return Err(refuse(object, &why));
    }
    spec["priority"] = value.into();
    field(spec, "preemptionPolicy", class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority"));
    Ok(())
}

/// Of several default classes the one with the lowest value counts.
fn default_class(server: &Server, classes: &str) -> Option<Value> {
    let page = server.store.list(classes, None, None, None, None).ok()?;
    let classes = page.objects.iter().map(|class| class.body.value());
    classes.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
}

/// A node that is not ready is given five minutes before its pods move.
fn default_tolerations(spec: &mut Value) {
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            (toleration["key"] == key || toleration["key"].as_str().is_none_or(str::is_empty))
                && (toleration["effect"] == "NoExecute" || toleration["effect"].as_str().is_none_or(str::is_empty))
        });
        if !tolerated {
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    spec["tolerations"] = tolerations.into();
}

/// Mounts the service account's token where nothing else is mounted.
fn mount_token(spec: &mut Value, server: &Server) {
    const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mounted = |container: &Value| {
        container["volumeMounts"].as_array().into_iter().flatten().any(|mount| mount["mountPath"] == MOUNT)
    };
    let needs = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .any(|container| !mounted(container));
    if !needs {
        return;
    }
    let name = format!("kube-api-access-{}", server.environment.name_suffix());
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            if !mounted(container) {
                let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT}));
                container["volumeMounts"] = mounts.into();
            }
        }
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}));
    spec["volumes"] = volumes.into();
}

pub(super) fn quality_of_service(spec: &Value) -> &'static str {
    let containers =
        || ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let resources =
        |container: &Value, kind: &str| container["resources"][kind].as_object().cloned().unwrap_or_default();
    let any = containers().any(|container| {
        ["requests", "limits"]
            .iter()
            .any(|kind| resources(container, kind).keys().any(|name| name == "cpu" || name == "memory"))
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        let (limits, requests) = (resources(container, "limits"), resources(container, "requests"));
        ["cpu", "memory"].iter().all(|name| {
            limits.get(*name).is_some_and(|limit| requests.get(*name).is_none_or(|request| request == limit))
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}
