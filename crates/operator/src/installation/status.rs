//! What the `KubeVirt` object says about its installation.

use std::sync::Arc;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::{KubeVirtPhase, KubeVirtStatus};
use ferrovirt_api::meta::{Condition, ConditionStatus, find_condition};
use ferrovirt_api::names::conditions::SYNCHRONIZED;
use ferrovirt_install::Parameters;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::View;
use super::act::Action;
use super::decide::deployment_id;

const CREATED: &str = "Created";
const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DEGRADED: &str = "Degraded";
const CUSTOMIZATION_FAILED: &str = "CustomizationFailed";

/// What is to be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) id: String,
    config: String,
    registry: String,
    version: String,
}

impl Target {
    pub(super) fn of(view: &View, parameters: &Parameters) -> Self {
        let (registry, tag) = parameters.images.registry_and_tag();
        let config = json!({
            "namespace": parameters.namespace, "registry": registry, "imagePullPolicy": parameters.pull_policy,
            "kubeVirtVersion": tag, "operatorVersion": view.version,
            "controlPlaneImage": parameters.images.control_plane, "launcherImage": parameters.images.launcher,
        })
        .to_string();
        let (registry, version) = (registry.to_owned(), tag.to_owned());
        Self { id: deployment_id(&config), config, registry, version }
    }
}

/// How far an installation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    /// What it waits for; nothing when it is done.
    pub(super) waiting: Option<String>,
    /// It replaces another one.
    pub(super) updates: bool,
    /// Every object is there.
    pub(super) created: bool,
    /// Every component does its work, if not with all its pods.
    pub(super) serves: bool,
    /// Why something is not as the users want it.
    pub(super) unfit: Option<String>,
    /// Patches that nothing fits.
    pub(super) unused: Vec<String>,
}

/// Conditions of a status; those that stay as they were keep their times.
struct Conditions<'a> {
    list: &'a mut Vec<Condition>,
    now: Timestamp,
}

impl Conditions<'_> {
    fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let since = find_condition(self.list, kind).filter(|old| old.status == status);
        let since = since.and_then(|old| old.last_transition_time.clone()).unwrap_or(Time(self.now));
        self.list.retain(|old| old.r#type != kind);
        self.list.push(Condition {
            r#type: kind.to_owned(),
            status,
            last_probe_time: Some(since.clone()),
            last_transition_time: Some(since),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
        });
    }

    fn remove(&mut self, kind: &str) {
        self.list.retain(|old| old.r#type != kind);
    }

    fn three(&mut self, [available, progressing, degraded]: [bool; 3], reason: &str, message: &str) {
        self.set(AVAILABLE, available, reason, message);
        self.set(PROGRESSING, progressing, reason, message);
        self.set(DEGRADED, degraded, reason, message);
        self.list.sort_by(|a, b| a.r#type.cmp(&b.r#type));
    }
}

fn changed(kubevirt: &KubeVirt, now: Timestamp, change: impl FnOnce(&mut Conditions<'_>)) -> KubeVirtStatus {
    let mut status = kubevirt.status.clone().unwrap_or_default();
    change(&mut Conditions { list: &mut status.conditions, now });
    status
}

/// An installation that is being made, or is ready.
pub(super) fn installing(kubevirt: &KubeVirt, target: &Target, progress: &Progress, view: &View) -> KubeVirtStatus {
    let mut status = changed(kubevirt, view.now, |conditions| {
        match &progress.unfit {
            Some(problem) => conditions.set(SYNCHRONIZED, false, CUSTOMIZATION_FAILED, problem),
            None if progress.unused.is_empty() => conditions.remove(SYNCHRONIZED),
            None => conditions.set(SYNCHRONIZED, true, "PatchesUnused", &progress.unused.join("; ")),
        }
        match &progress.waiting {
            Some(_) if progress.updates => conditions.remove(CREATED),
            _ if progress.created => {
                conditions.set(CREATED, true, "AllResourcesCreated", "All resources were created.");
            }
            _ => conditions.remove(CREATED),
        }
        match (&progress.unfit, &progress.waiting) {
            (Some(problem), _) => conditions.three([progress.serves, false, true], CUSTOMIZATION_FAILED, problem),
            (None, None) => conditions.three([true, false, false], "AllComponentsReady", "All components are ready."),
            (None, Some(waiting)) if progress.updates => {
                let message = format!("Transitioning from the previous version to {}: {waiting}", target.version);
                conditions.three([true, true, true], "UpdateInProgress", &message);
            }
            (None, Some(waiting)) => {
                let message =
                    format!("Deploying version {} with registry {}: {waiting}", target.version, target.registry);
                conditions.three([progress.serves, true, false], "DeploymentInProgress", &message);
            }
        }
    });
    status.operator_version = Some(view.version.clone());
    status.target_kube_virt_registry = Some(target.registry.clone());
    status.target_kube_virt_version = Some(target.version.clone());
    status.target_deployment_config = Some(target.config.clone());
    status.target_deployment_id = Some(target.id.clone());
    status.default_architecture = Some("amd64".to_owned());
    let deployed = status.phase == Some(KubeVirtPhase::Deployed);
    if progress.waiting.is_none() && progress.unfit.is_none() {
        status.observed_kube_virt_registry = Some(target.registry.clone());
        status.observed_kube_virt_version = Some(target.version.clone());
        status.observed_deployment_config = Some(target.config.clone());
        status.observed_deployment_id = Some(target.id.clone());
        status.phase = Some(KubeVirtPhase::Deployed);
    } else if progress.updates || !deployed {
        status.phase = Some(if deployed { KubeVirtPhase::Deployed } else { KubeVirtPhase::Deploying });
    }
    status.observed_generation = kubevirt.metadata.generation;
    status
}

/// Something could not be done.
pub(super) fn failed(kubevirt: &KubeVirt, message: &str, now: Timestamp) -> KubeVirtStatus {
    let goes = kubevirt.metadata.deletion_timestamp.is_some();
    let reason = if goes { "DeletionFailed" } else { "DeploymentFailed" };
    changed(kubevirt, now, |conditions| {
        conditions.set(SYNCHRONIZED, false, reason, message);
        conditions.three([false, false, true], reason, message);
    })
}

/// On its way out.
pub(super) fn removing(kubevirt: &KubeVirt, waiting: &str, now: Timestamp) -> KubeVirtStatus {
    let mut status = changed(kubevirt, now, |conditions| {
        conditions.remove(CREATED);
        conditions.remove(SYNCHRONIZED);
        conditions.three([false, false, true], "DeletionInProgress", &format!("Deletion was triggered: {waiting}"));
    });
    status.phase = Some(KubeVirtPhase::Deleting);
    status
}

/// Gone.
pub(super) fn removed(kubevirt: &KubeVirt, now: Timestamp) -> KubeVirtStatus {
    let mut status = removing(kubevirt, "everything is removed", now);
    status.phase = Some(KubeVirtPhase::Deleted);
    status
}

/// What a `KubeVirt` object is told that does not count; nothing when it knows.
pub(super) fn refusal(surplus: &Arc<KubeVirt>, now: Timestamp) -> Option<Action> {
    let reason = "ExistingDeployment";
    let message = "There is one installation per cluster, in the namespace of virt-operator: remove this object.";
    let status = changed(surplus, now, |conditions| conditions.set(SYNCHRONIZED, false, reason, message));
    (surplus.status.as_ref() != Some(&status))
        .then(|| Action::Refuse(Box::new(KubeVirt { status: Some(status), ..KubeVirt::clone(surplus) })))
}
