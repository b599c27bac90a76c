//! The life of nodes, for a cluster that has no kube-controller-manager: a node that does not renew its lease is marked, and pods of a
//! node that is out of service go.
//!
//! | what is known | what follows |
//! |---|---|
//! | the lease was not renewed for 40 s | `Ready` is `Unknown`, and the taint `node.kubernetes.io/unreachable:NoSchedule` |
//! | the node says again that it is ready | the taint goes |
//! | it is not ready, and has the taint `node.kubernetes.io/out-of-service:NoExecute` | its pods are deleted without waiting for it |
//!
//! Nothing else is taken from a silent node: what runs on it may run. A node without a lease is left alone.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::record::{Note, record};
use crate::handlers::write::format_time;
use crate::http::options::DeleteOptions;
use crate::internal::Place;
use crate::server::Server;
use crate::status::ApiResult;

/// How often nodes are looked at.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a node may be silent.
const PATIENCE: SignedDuration = SignedDuration::from_secs(40);
/// Where nodes keep their leases.
const LEASES: &str = "kube-node-lease";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const COMPONENT: &str = "node-controller";

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Verdict {
    /// It is silent, and does not say so yet.
    mark_unknown: bool,
    /// Whether it shall have the taint, if that is to be changed.
    taint: Option<bool>,
    /// Its pods go.
    remove_pods: bool,
}

/// Looks after nodes until `stop`.
pub async fn run(server: Arc<Server>, stop: CancellationToken) {
    // Nobody could renew a lease while there was no server.
    let started = server.environment.now();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        if let Err(error) = look(&server, started).await {
            tracing::debug!(%error, "cannot look after nodes");
        }
    }
}

/// One look at all nodes. Silence before `started` does not count.
pub async fn look(server: &Arc<Server>, started: Timestamp) -> ApiResult<()> {
    let now = server.environment.now();
    let leases = server.internal("coordination.k8s.io", "v1", "leases", COMPONENT)?;
    for node in server.internal("", "v1", "nodes", COMPONENT)?.list(None) {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        let lease = leases.get(LEASES, name);
        let renewed = lease.and_then(|lease| lease["spec"]["renewTime"].as_str()?.parse::<Timestamp>().ok());
        let verdict = judge(&node, renewed.map(|renewed| renewed.max(started)), now);
        carry_out(server, &node, name, verdict, now).await?;
    }
    Ok(())
}

fn judge(node: &Value, heard: Option<Timestamp>, now: Timestamp) -> Verdict {
    let ready = ready(node).and_then(|ready| ready["status"].as_str()).unwrap_or_default();
    let is_silent = heard.is_some_and(|heard| now.duration_since(heard) >= PATIENCE);
    let is_tainted = has_taint(node, UNREACHABLE, "NoSchedule");
    let taint = match (is_silent, is_tainted) {
        (true, false) => Some(true),
        (false, true) if ready == "True" => Some(false),
        _ => None,
    };
    let mark_unknown = is_silent && ready != "Unknown";
    Verdict { mark_unknown, taint, remove_pods: ready != "True" && has_taint(node, OUT_OF_SERVICE, "NoExecute") }
}

fn ready(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")
}

fn has_taint(node: &Value, key: &str, effect: &str) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["key"] == key && taint["effect"] == effect)
}

async fn carry_out(server: &Arc<Server>, node: &Value, name: &str, verdict: Verdict, now: Timestamp) -> ApiResult<()> {
    let nodes = server.internal("", "v1", "nodes", COMPONENT)?;
    let place = Place::new("", name);
    if verdict.mark_unknown {
        nodes.change(&place, "status", |node| mark_unknown(node, &format_time(now))).await?;
        record(
            server,
            COMPONENT,
            node,
            &Note::normal("NodeNotReady", format!("Node {name} status is now: NodeNotReady")),
        )
        .await;
    }
    if let Some(wanted) = verdict.taint {
        nodes.change(&place, "", |node| set_taint(node, wanted, &format_time(now))).await?;
    }
    if verdict.remove_pods {
        remove_pods(server, name).await?;
    }
    Ok(())
}

fn mark_unknown(node: &mut Value, now: &str) {
    let unknown = json!({
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.", "lastTransitionTime": now,
    });
    let Some(conditions) = node["status"]["conditions"].as_array_mut() else {
        node["status"]["conditions"] = json!([unknown]);
        return;
    };
    match conditions.iter_mut().find(|condition| condition["type"] == "Ready") {
        Some(ready) => {
            let heartbeat = ready["lastHeartbeatTime"].take();
            *ready = unknown;
            ready["lastHeartbeatTime"] = heartbeat;
        }
        None => conditions.push(unknown),
    }
}

fn set_taint(node: &mut Value, wanted: bool, now: &str) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.retain(|taint| taint["key"] != UNREACHABLE || taint["effect"] != "NoSchedule");
    if wanted {
        taints.push(json!({"key": UNREACHABLE, "effect": "NoSchedule", "timeAdded": now}));
    }
    node["spec"]["taints"] = if taints.is_empty() { Value::Null } else { taints.into() };
}

/// Somebody vouches that nothing of them runs, and nobody on the node will say so.
async fn remove_pods(server: &Arc<Server>, node: &str) -> ApiResult<()> {
    let pods = server.internal("", "v1", "pods", COMPONENT)?;
    for pod in pods.list(None).into_iter().filter(|pod| pod["spec"]["nodeName"] == node) {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let options =
            DeleteOptions { grace_period: Some(0), uid: Some(text("uid").to_owned()), ..DeleteOptions::default() };
        pods.delete(&Place::new(text("namespace"), text("name")), &options).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn node(ready: &str, taints: &[(&str, &str)]) -> Value {
        let taints: Vec<_> = taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        json!({"spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn a_node_is_marked_when_it_is_silent_and_freed_when_it_is_back() {
        let judged = |ready: &str, taints: &[(&str, &str)], heard: Option<&str>| {
            judge(&node(ready, taints), heard.map(time), time("2026-01-01T00:01:00Z"))
        };
        let tainted = [(UNREACHABLE, "NoSchedule")];
        let nothing = Verdict::default();
        assert_eq!(judged("True", &[], Some("2026-01-01T00:00:21Z")), nothing);
        let silent = judged("True", &[], Some("2026-01-01T00:00:20Z"));
        assert_eq!(silent, Verdict { mark_unknown: true, taint: Some(true), remove_pods: false });
        assert_eq!(judged("Unknown", &tainted, Some("2026-01-01T00:00:00Z")), nothing, "once is enough");
        assert_eq!(
            judged("Unknown", &tainted, Some("2026-01-01T00:00:50Z")),
            nothing,
            "it has to say that it is ready"
        );
        assert_eq!(judged("True", &tainted, Some("2026-01-01T00:00:50Z")).taint, Some(false));
        assert_eq!(judged("True", &[], None), nothing, "a node without a lease is left alone");
    }

    #[test]
    fn pods_go_only_from_a_node_that_is_out_of_service_and_not_ready() {
        let removes = |ready: &str, effect: &str| {
            judge(&node(ready, &[(OUT_OF_SERVICE, effect)]), None, time("2026-01-01T00:01:00Z")).remove_pods
        };
        assert!(removes("Unknown", "NoExecute") && removes("False", "NoExecute"));
        assert!(!removes("True", "NoExecute"), "the node says otherwise");
        assert!(!removes("Unknown", "NoSchedule"));
    }

    #[test]
    fn taints_and_conditions_of_others_stay() {
        let mut node = json!({
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True", "lastHeartbeatTime": "x"}]},
        });
        set_taint(&mut node, true, "now");
        set_taint(&mut node, true, "now");
        mark_unknown(&mut node, "now");
        assert_eq!(node["spec"]["taints"].as_array().map(Vec::len), Some(2));
        assert_eq!(node["status"]["conditions"][0]["status"], "False");
        assert_eq!(node["status"]["conditions"][1]["status"], "Unknown");
        assert_eq!(node["status"]["conditions"][1]["lastHeartbeatTime"], "x");
        set_taint(&mut node, false, "now");
        assert_eq!(node["spec"]["taints"], json!([{"key": "a", "effect": "NoSchedule"}]));
    }
}
