//! Keeps every virt-handler to its own node.
//!
//! All virt-handlers share a service account, whose role lets it patch nodes. A token that a pod gets says on which node the pod is,
//! and with this policy it changes that node only, and of it only our labels and annotations. Guests are judged by virt-api in the
//! same way.

use serde_json::{Value, json};

use crate::Parameters;
use crate::names::{HANDLER_ACCOUNT, NODE_RESTRICTION, user};

/// What a bound token says about its pod's node.
const NODE_CLAIM: &str = "authentication.kubernetes.io/node-name";

/// The policy and its binding.
pub(crate) fn node_restriction(parameters: &Parameters) -> [Value; 2] {
    let handler = user(&parameters.namespace, HANDLER_ACCOUNT);
    let own = format!("request.userInfo.?extra[?'{NODE_CLAIM}'].orValue([]) == [request.name]");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NODE_RESTRICTION},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/*"],
            }]},
            "matchConditions": [{
                "name": "virt-handler", "expression": format!("request.userInfo.username == '{handler}'"),
            }],
            "variables": [
                {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
                {"name": "oldLabels", "expression": "oldObject.metadata.?labels.orValue({})"},
                {"name": "annotations", "expression": "object.metadata.?annotations.orValue({})"},
                {"name": "oldAnnotations", "expression": "oldObject.metadata.?annotations.orValue({})"},
            ],
            "validations": [
                validation(&own, "virt-handler changes the node only that it runs on"),
                validation("object.spec == oldObject.spec", "virt-handler does not change the spec of a node"),
                validation(
                    "object.metadata.?finalizers == oldObject.metadata.?finalizers && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences",
                    "virt-handler does not change finalizers or owners of a node",
                ),
                validation(
                    &unchanged("labels", "oldLabels"),
                    "virt-handler changes the labels of kubevirt.io and cpumanager only",
                ),
                validation(
                    &unchanged("annotations", "oldAnnotations"),
                    "virt-handler changes the annotations of kubevirt.io only",
                ),
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "kubevirt-node-restriction-binding"},
        "spec": {"policyName": NODE_RESTRICTION, "validationActions": ["Deny"]},
    });
    [policy, binding]
}

fn validation(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "message": message, "reason": "Forbidden"})
}

/// Keys of others are what they were: none is added, changed or removed.
fn unchanged(new: &str, old: &str) -> String {
    let ours = "key.contains('kubevirt.io') || key == 'cpumanager'";
    let same = |all: &str, other: &str| {
        format!(
            "variables.{all}.all(key, {ours} || (key in variables.{other} && variables.{all}[key] == variables.{other}[key]))"
        )
    };
    format!("{} && {}", same(new, old), same(old, new))
}
