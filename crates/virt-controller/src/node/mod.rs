//! The node controller: nodes that do not answer, and the guests that were on them.

use k8s_openapi::api::core::v1::Node;

/// The taint by which somebody vouches that nothing runs on a node any more.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether somebody vouches that nothing runs on the node any more, and the node does not say otherwise.
pub(crate) fn is_fenced(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let is_marked =
        |taint: &k8s_openapi::api::core::v1::Taint| taint.key == OUT_OF_SERVICE && taint.effect == "NoExecute";
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready = conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    taints.into_iter().flatten().any(is_marked) && !is_ready
}
