//! What the claims of a pod say about where it can go.

use std::sync::Arc;

use ferrovirt_kubernetes::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use k8s_openapi::api::core::v1::NodeSelector;

use crate::{matching::selects_node, model::NodeInfo};

/// Where a claim that waits for its first consumer is to be made.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A claim of a pod with what belongs to it.
#[derive(Clone, Debug)]
pub struct ClaimView {
    /// Its name.
    pub name: String,
    /// The claim, if it exists.
    pub claim: Option<Arc<PersistentVolumeClaim>>,
    /// The volume that it is bound to, if that exists.
    pub volume: Option<Arc<PersistentVolume>>,
    /// Its class, if that exists.
    pub class: Option<Arc<StorageClass>>,
}

/// What follows from a claim.
#[derive(Debug)]
pub(crate) enum Standing<'a> {
    /// No node is good.
    Impossible(String),
    /// Its volume is there; it may be on some nodes only.
    Bound(Option<&'a NodeSelector>),
    /// Its volume is gone.
    Lost,
    /// Its volume is made where the pod goes; `Some` when that was decided before.
    Follows(Option<&'a str>),
}

impl ClaimView {
    pub(crate) fn standing(&self) -> Standing<'_> {
        let Some(claim) = &self.claim else {
            return Standing::Impossible(format!("persistentvolumeclaim {:?} not found", self.name));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Standing::Impossible(format!("persistentvolumeclaim {:?} is being deleted", self.name));
        }
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Lost") {
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
            let reason =
                format!("persistentvolumeclaim {:?} bound to non-existent persistentvolume {volume:?}", self.name);
            return Standing::Impossible(reason);
        }
        if phase == Some("Bound") {
            let Some(volume) = &self.volume else { return Standing::Lost };
            let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
            return Standing::Bound(affinity.and_then(|affinity| affinity.required.as_ref()));
        }
        let waits = self.class.as_ref().and_then(|class| class.volume_binding_mode.as_deref());
        if waits != Some("WaitForFirstConsumer") {
            return Standing::Impossible("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        Standing::Follows(
            claim.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE)).map(String::as_str),
        )
    }
}

/// Why a node is not good for the claims, in the words of kube-scheduler.
pub(crate) fn conflict(standings: &[Standing<'_>], node: &NodeInfo) -> Option<&'static str> {
    standings.iter().find_map(|standing| match standing {
        Standing::Impossible(_) => None,
        Standing::Lost => Some("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
        Standing::Bound(Some(selector)) if !selects_node(selector, &node.labels, &node.name) => {
            Some("node(s) didn't match PersistentVolume's node affinity")
        }
        Standing::Follows(Some(selected)) if *selected != node.name => {
            Some("node(s) didn't find available persistent volumes to bind")
        }
        Standing::Bound(_) | Standing::Follows(_) => None,
    })
}
