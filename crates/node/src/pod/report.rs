//! Writing to the pod's object: its status, and its end.

use ferrovirt_kubernetes::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::context::Context;

/// Compares two patches without the moment in which they were made.
pub(super) fn same_status(one: &Value, other: &Value) -> bool {
    fn plain(patch: &Value) -> Value {
        let mut status = patch["status"].clone();
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"] = Value::Null;
        }
        status
    }
    plain(one) == plain(other)
}

/// Whether the object already says what the patch would write, as after a restart of this process.
pub(super) fn shows(pod: &Pod, patch: &Value) -> bool {
    let mut present = json!({"status": pod.status});
    for field in ["reason", "message"] {
        if present["status"][field].is_null() {
            present["status"][field] = Value::Null;
        }
    }
    same_status(&present, patch)
}

/// Writes the status as a merge patch, which names the uid: another pod of the same name is left alone.
pub(super) async fn write_status(node: &Context, pod: &Pod, patch: &Value) -> kube::Result<()> {
    let api: Api<Pod> = pods(node, pod);
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
}

/// Lets the object go. One that is gone, or is another pod's by now, is fine.
pub(super) async fn delete_object(node: &Context, pod: &Pod, uid: &str) -> kube::Result<()> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
    let parameters = DeleteParams::default().grace_period(0).preconditions(preconditions);
    match pods(node, pod).delete(name, &parameters).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other.map(|_| ()),
    }
}

fn pods(node: &Context, pod: &Pod) -> Api<Pod> {
    Api::namespaced(node.client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_moment_of_a_transition_does_not_count() {
        let status = |time: &str, value: &str| json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": value, "lastTransitionTime": time}]}});
        assert!(same_status(&status("1", "True"), &status("2", "True")));
        assert!(!same_status(&status("1", "True"), &status("1", "False")));
    }
}
