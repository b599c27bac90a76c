//! The node that the guest is on, and the virt-handler there.

use serde_json::Value;

use super::object::{condition, list, name, text, time};
use super::snapshot::Snapshot;
use super::verdict::Finding;
use crate::time::human;

/// virt-handler shows a sign of life every minute; after this time the cluster treats it as dead.
const HEARTBEAT_AGE: i64 = 300;

/// What is wrong with the node.
pub(super) fn blocker(seen: &Snapshot) -> Option<Finding> {
    let Some(node) = &seen.node else {
        if !seen.is_node_missing {
            return None;
        }
        let named = seen.vmi.as_ref().and_then(|vmi| text(vmi, "/status/nodeName"));
        let named = named.or_else(|| seen.pod().and_then(|pod| text(pod, "/spec/nodeName"))).unwrap_or_default();
        let fix = format!(
            "bring the node back, or make sure that it is switched off, \"virtctl delete vmi {0}\", and \"virtctl vouch {0}\" when it is asked for",
            seen.name
        );
        return Some(Finding::new(format!("Node {named}"), "NodeGone", "its node is no longer in the cluster", fix));
    };
    trouble(seen, node)
}

/// What is wrong with a node that a guest is on, or moves to.
pub(super) fn trouble(seen: &Snapshot, node: &Value) -> Option<Finding> {
    let object = format!("Node {}", name(node));
    if is_fenced(node) {
        let what = "its node is declared to be off (taint node.kubernetes.io/out-of-service)";
        let fix = "its guests are given up and may start elsewhere; take the taint off before the node comes back";
        return Some(Finding::new(object, "NodeOutOfService", what, fix));
    }
    let ready = condition(node, "Ready");
    if let Some(ready) = ready.filter(|ready| !ready.is_true()) {
        let (reason, what) = if ready.is_false() {
            ("NodeNotReady", "its node is not ready")
        } else {
            ("NodeDead", "its node is not heard from; whether the guest still runs there is not known")
        };
        let fix = format!(
            "look at the node; a guest is never started a second time while the first may live. If the node is dead, switch it off for certain, and \
             say so: kubectl taint node {} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
            name(node)
        );
        return Some(Finding::new(object, reason, what, fix).says(ready.words()));
    }
    let beat = time(node, "/metadata/annotations/kubevirt.io~1heartbeat")?;
    let age = seen.seconds_since(beat);
    if age <= HEARTBEAT_AGE {
        return None;
    }
    let what =
        format!("virt-handler of its node was last heard {} ago; nobody looks after the node's guests", human(age));
    let fix = "start virt-handler there again; guests go on meanwhile. On a local cluster: \"ferrovirt status\", then \"ferrovirt up\"";
    Some(Finding::new(object, "HandlerSilent", what, fix))
}

/// Somebody made sure that the node is off, and says so.
fn is_fenced(node: &Value) -> bool {
    list(node, "/spec/taints").any(|taint| text(taint, "/key") == Some("node.kubernetes.io/out-of-service"))
}
