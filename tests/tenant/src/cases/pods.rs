//! Pods that ask for more of the machine than a tenant may have: refused, with the field that does.

use blackbox::scene::Scene;
use blackbox::suite::{Case, Need};
use serde_json::{Value, json};

use crate::tenant::{Ask, Role, Tenant};

/// The image of the machine's own programs.
pub(crate) const IMAGE: &str = "host.ferrovirt.io/usr";

/// A pod that runs a script.
pub(crate) fn pod(script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try"},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [{"name": "try", "image": IMAGE, "command": ["sh", "-c", script]}],
        },
    })
}

/// Name, what is set, and where.
const ROWS: &[(&str, &str, &str)] = &[
    ("privileged", "/spec/containers/0/securityContext", r#"{"privileged": true}"#),
    ("capability-sys-admin", "/spec/containers/0/securityContext", r#"{"capabilities": {"add": ["SYS_ADMIN"]}}"#),
    ("capability-search", "/spec/containers/0/securityContext", r#"{"capabilities": {"add": ["DAC_READ_SEARCH"]}}"#),
    ("capability-all", "/spec/containers/0/securityContext", r#"{"capabilities": {"add": ["ALL"]}}"#),
    ("capability-lower-case", "/spec/containers/0/securityContext", r#"{"capabilities": {"add": ["cap_sys_ptrace"]}}"#),
    ("capability-net-admin", "/spec/containers/0/securityContext", r#"{"capabilities": {"add": ["NET_ADMIN"]}}"#),
    (
        "capability-of-init",
        "/spec/initContainers",
        r#"[{"name": "i", "image": "i", "securityContext": {"capabilities": {"add": ["SYS_MODULE"]}}}]"#,
    ),
    ("seccomp-off", "/spec/securityContext", r#"{"seccompProfile": {"type": "Unconfined"}}"#),
    ("seccomp-of-container-off", "/spec/containers/0/securityContext", r#"{"seccompProfile": {"type": "Unconfined"}}"#),
    ("apparmor-off", "/spec/securityContext", r#"{"appArmorProfile": {"type": "Unconfined"}}"#),
    ("proc-unmasked", "/spec/containers/0/securityContext", r#"{"procMount": "Unmasked"}"#),
    ("sysctl", "/spec/securityContext", r#"{"sysctls": [{"name": "kernel.core_pattern", "value": "|/bin/sh"}]}"#),
    ("host-path", "/spec/volumes", r#"[{"name": "v", "hostPath": {"path": "/"}}]"#),
    ("host-network", "/spec/hostNetwork", "true"),
    ("host-pid", "/spec/hostPID", "true"),
    ("host-ipc", "/spec/hostIPC", "true"),
    ("mount-dots", "/spec/containers/0/volumeMounts", r#"[{"name": "v", "mountPath": "/a", "subPath": "../.."}]"#),
];

/// One case for each row.
pub(super) fn all() -> Vec<Case<Scene>> {
    let rows = ROWS.iter().map(|(name, pointer, value)| {
        let run = move |scene: Scene| async move {
            let mut pod = pod("sleep 1");
            set(&mut pod, pointer, serde_json::from_str(value)?);
            if *pointer == "/spec/containers/0/volumeMounts" {
                pod["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
            }
            let tenant = Tenant::new(scene, Role::Editor).await?;
            let field = pointer.trim_start_matches("/spec/").split('/').next().unwrap_or_default();
            tenant.refused(&Ask::post("/api/v1/namespaces/{ns}/pods", &pod), &[403, 422], field).await
        };
        Case::new(&format!("pod/{name}"), "A pod that asks for more than a tenant may have is refused.", run)
            .needing(Need::LocalNodes)
    });
    rows.collect()
}

/// Sets a field by its JSON pointer.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (above, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(above) = object.pointer_mut(above) {
        above[field] = value;
    }
}
