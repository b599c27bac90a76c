//! The way back: nothing is left, and no guest is cut off from those who end it.

use std::time::Duration;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::{KubeVirtPhase, KubeVirtStatus, UninstallStrategy};
use ferrovirt_api::names::finalizers;
use ferrovirt_reconcile::Plan;
use serde_json::Value;

use super::View;
use super::act::Action;
use super::status;

/// The API server's own hold on a kind until its objects are gone.
const INSTANCES: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How soon to look again at what wakes nobody.
const SOON: Duration = Duration::from_secs(2);

fn is_webhook(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration"))
}

fn is_kind(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

fn is_component(object: &Value) -> bool {
    let kinds = ["APIService", "DaemonSet", "PodDisruptionBudget", "Deployment"];
    object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind))
}

fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn is_held_by(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().any(|it| it == finalizer)
}

/// Judges an installation that is to go.
pub(super) fn decide(view: &View, kubevirt: &KubeVirt) -> Plan<Action, KubeVirtStatus> {
    let held = kubevirt.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == finalizers::KUBEVIRT);
    if !held {
        return Plan::nothing();
    }
    let mut plan = Plan::nothing();
    let phase = kubevirt.status.as_ref().and_then(|status| status.phase);
    let begun = matches!(phase, Some(KubeVirtPhase::Deleting | KubeVirtPhase::Deleted));
    let blocks = kubevirt.spec.uninstall_strategy == Some(UninstallStrategy::BlockUninstallIfWorkloadsExist);
    if blocks && !begun {
        plan.actions.push(Action::ForbidWorkloads);
    }
    let waiting = steps(view, &mut plan.actions);
    if let Some(waiting) = waiting {
        return plan.report(status::removing(kubevirt, waiting, view.now)).look_again_after(SOON);
    }
    // The word about the end first: with the finalizer the object goes.
    match phase {
        Some(KubeVirtPhase::Deleted) => plan.then(Action::Release),
        _ => plan.report(status::removed(kubevirt, view.now)).look_again_after(SOON),
    }
}

/// Adds what can be done now; tells what has to be waited for.
fn steps(view: &View, actions: &mut Vec<Action>) -> Option<&'static str> {
    let all = || view.present.values();
    let go = |object: &&Value| !is_deleted(object);
    actions.extend(all().filter(|it| is_webhook(it)).filter(go).map(Action::delete));
    actions.extend(all().filter(|it| is_kind(it)).filter(go).map(Action::delete));
    if all().any(|it| is_kind(it) && (!is_deleted(it) || is_held_by(it, INSTANCES))) {
        return Some("machines and guests are being removed");
    }
    if all().any(is_kind) {
        actions.extend(all().filter(|it| is_kind(it) && is_held_by(it, finalizers::CRD)).map(Action::let_go));
        return Some("kinds are being removed");
    }
    actions.extend(all().filter(|it| is_component(it)).filter(go).map(Action::delete));
    if all().any(is_component) {
        return Some("components are being stopped");
    }
    let marked = view.nodes.iter().filter(|node| !(node.labels.is_empty() && node.annotations.is_empty()));
    actions.extend(marked.cloned().map(Action::CleanNode));
    actions.push(Action::RemoveTraces);
    actions.extend(all().filter(go).map(Action::delete));
    (!view.present.is_empty()).then_some("everything else is being removed")
}
