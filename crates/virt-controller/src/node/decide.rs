//! The judgement about one node. No IO, no clock.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::{annotations, labels};
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_kubernetes::Node;
use ferrovirt_pods::LauncherPod;
use ferrovirt_reconcile::Plan;
use jiff::Timestamp;

use super::{Action, SILENCE, View, is_fenced};
use crate::migration::candidate::has_ended;

/// How long virt-handler may be silent.
const PATIENCE: Duration = Duration::from_secs(300);
/// When to look again at a node that is silent.
const RECHECK: Duration = Duration::from_secs(60);

/// The plan for a node.
pub fn decide(view: &View) -> Plan<Action, ()> {
    let mut plan = Plan::nothing();
    if let Some(beat) = heartbeat(&view.node) {
        let silent = Duration::try_from(view.now.duration_since(beat)).unwrap_or_default();
        match PATIENCE.checked_sub(silent).filter(|rest| !rest.is_zero()) {
            Some(rest) => plan = plan.look_again_after(rest),
            None => {
                plan = plan.look_again_after(RECHECK);
                let close = takes_guests(&view.node) && !view.guests.iter().any(|(vmi, _)| may_run(vmi));
                let tell = !is_told(&view.node);
                if close || tell {
                    plan = plan.then(Action::Silent { node: view.node.clone(), silent, close, tell });
                }
            }
        }
    }
    if !is_fenced(&view.node) {
        return plan;
    }
    view.guests.iter().fold(plan, |plan, (vmi, pods)| match judge(vmi, pods) {
        Some(action) => plan.then(action),
        None => plan,
    })
}

/// What becomes of a guest whose node is out of service.
fn judge(vmi: &Arc<VirtualMachineInstance>, pods: &[Arc<LauncherPod>]) -> Option<Action> {
    let status = vmi.status.as_ref()?;
    let is_over =
        status.phase.is_none_or(|phase| phase.is_final() || matches!(phase, Phase::Pending | Phase::Scheduling));
    // A deleted guest vanishes with its pods.
    if is_over || vmi.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let open = status.migration_state.as_ref().filter(|state| !has_ended(vmi, state));
    let Some(open) = open else { return Some(Action::Fail(vmi.clone())) };
    let has_target = pods.iter().any(|pod| pod.metadata.name == open.target_pod);
    match has_target {
        // The target may run the guest: its handler says so, once it is asked for the end of the move.
        true if open.abort_requested => None,
        true => Some(Action::AbortMove(vmi.clone())),
        // The migration controller writes down that the move failed.
        false => None,
    }
}

/// A guest that may run there. A kubelet that restarts turns away running pods whose node lacks a label that they select, so such a node
/// keeps its label; without virt-handler it has no devices for new guests anyway, or is unreachable as a whole.
fn may_run(vmi: &VirtualMachineInstance) -> bool {
    vmi.status.as_ref().and_then(|status| status.phase).is_some_and(|phase| !phase.is_final())
}

/// When virt-handler last spoke: a time as JSON writes it, or plain.
fn heartbeat(node: &Node) -> Option<Timestamp> {
    let text = node.metadata.annotations.as_ref()?.get(annotations::NODE_HEARTBEAT)?;
    text.trim().trim_matches('"').parse().ok()
}

/// Whether the present silence was told about.
fn is_told(node: &Node) -> bool {
    let annotation = |key: &str| node.metadata.annotations.as_ref()?.get(key);
    annotation(SILENCE) == annotation(annotations::NODE_HEARTBEAT)
}

fn takes_guests(node: &Node) -> bool {
    let label = node.metadata.labels.as_ref().and_then(|all| all.get(labels::NODE_SCHEDULABLE));
    label.is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(beat: &str, schedulable: &str, taint: Option<&str>, ready: &str) -> Arc<Node> {
        let taints: Vec<_> =
            taint.iter().map(|effect| json!({"key": super::super::OUT_OF_SERVICE, "effect": effect})).collect();
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {
                    "name": "n1", "labels": {"kubevirt.io/schedulable": schedulable},
                    "annotations": {"kubevirt.io/heartbeat": format!("\"{beat}\"")},
                },
                "spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap(),
        )
    }

    fn view(node: Arc<Node>, guests: Vec<(Value, Vec<&str>)>) -> View {
        let pod = |name: &str| Arc::new(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap());
        let guests = guests.into_iter().map(|(vmi, pods)| {
            (Arc::new(serde_json::from_value(vmi).unwrap()), pods.into_iter().map(pod).collect::<Vec<_>>())
        });
        View { node, guests: guests.collect(), now: "2026-01-01T12:00:00Z".parse().unwrap() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "a literal of JSON reads better without a reference")]
    fn guest(phase: &str, state: Value) -> Value {
        json!({
            "metadata": {"name": "g"}, "spec": {"domain": {"devices": {}}},
            "status": {"phase": phase, "nodeName": "n1", "migrationState": state},
        })
    }

    #[test]
    fn a_silent_node_gets_no_more_guests() {
        let with = |guests: Vec<(Value, Vec<&'static str>)>| {
            view(node("2026-01-01T11:50:00Z", "true", None, "Unknown"), guests)
        };
        for silent in [with(vec![]), with(vec![(guest("Failed", Value::Null), vec![])])] {
            let (node, plan) = (silent.node.clone(), decide(&silent));
            let expected = Action::Silent { node, silent: Duration::from_secs(600), close: true, tell: true };
            assert_eq!(plan.actions, [expected]);
            assert_eq!(plan.requeue, Some(RECHECK));
        }
        let in_use = decide(&with(vec![(guest("Running", Value::Null), vec![])])).actions;
        let left_alone = matches!(in_use[..], [Action::Silent { close: false, tell: true, .. }]);
        assert!(left_alone, "its guest would be turned away when the kubelet restarts");
        let mut closed = Node::clone(&node("2026-01-01T11:50:00Z", "false", None, "Unknown"));
        let all = closed.metadata.annotations.as_mut().unwrap();
        all.insert(SILENCE.to_owned(), all[annotations::NODE_HEARTBEAT].clone());
        assert!(decide(&view(closed.into(), vec![])).is_idle(), "once is enough");
        let alive = decide(&view(node("2026-01-01T11:59:00Z", "true", None, "True"), vec![]));
        assert!(alive.is_idle());
        assert_eq!(alive.requeue, Some(Duration::from_secs(240)));
    }

    #[test]
    fn only_a_fenced_node_fails_its_guests() {
        let fails = |effect: Option<&str>, ready: &str| {
            let node = node("2026-01-01T11:59:00Z", "true", effect, ready);
            let plan = decide(&view(node, vec![(guest("Running", Value::Null), vec!["p"])]));
            plan.actions.iter().any(|action| matches!(action, Action::Fail(_)))
        };
        assert!(fails(Some("NoExecute"), "Unknown"));
        assert!(fails(Some("NoExecute"), "False"));
        assert!(!fails(Some("NoExecute"), "True"), "the node says otherwise");
        assert!(!fails(Some("NoSchedule"), "Unknown"));
        assert!(!fails(None, "Unknown"));
    }

    #[test]
    fn a_guest_that_may_have_left_a_fenced_node_is_asked_for() {
        let judged = |phase: &str, state: Value, pods: Vec<&str>| {
            let fenced = node("2026-01-01T11:59:00Z", "false", Some("NoExecute"), "Unknown");
            decide(&view(fenced, vec![(guest(phase, state), pods)])).actions.pop()
        };
        let open = json!({"migrationUid": "m", "targetNode": "n2", "targetPod": "t"});
        assert!(matches!(judged("Running", open.clone(), vec!["t"]), Some(Action::AbortMove(_))));
        assert_eq!(judged("Running", open.clone(), vec![]), None, "the migration controller ends the move");
        let mut asked = open.clone();
        asked["abortRequested"] = json!(true);
        assert_eq!(judged("Running", asked, vec!["t"]), None);
        let mut failed = open;
        failed["failed"] = json!(true);
        assert!(matches!(judged("Running", failed, vec!["t"]), Some(Action::Fail(_))), "nobody took it");
        for phase in ["Succeeded", "Failed", "Pending", "Scheduling"] {
            assert_eq!(judged(phase, Value::Null, vec![]), None, "{phase}");
        }
        assert!(matches!(judged("Scheduled", Value::Null, vec!["p"]), Some(Action::Fail(_))));
    }
}
