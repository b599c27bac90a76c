//! Which nodes a guest may run on, besides what its own rules say.

use std::collections::BTreeMap;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::labels;
use ferrovirt_api::vmi::{Cpu, CpuFeaturePolicy};
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};

use crate::LauncherConfig;

const ARCHITECTURE: &str = "kubernetes.io/arch";
/// CPU "models" that are no labels: they follow the host.
const FOLLOWS_HOST: [&str; 2] = ["host-model", "host-passthrough"];

/// Labels that the node must have.
pub(crate) fn node_selector(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> BTreeMap<String, String> {
    let domain = &vmi.spec.domain;
    let mut selector = BTreeMap::new();
    let mut require = |key: String| selector.insert(key, "true".to_owned());
    require(labels::NODE_SCHEDULABLE.to_owned());
    if let Some(machine) = domain.machine.as_ref().and_then(|machine| machine.r#type.as_deref()) {
        require(format!("{}{machine}", labels::MACHINE_TYPE_PREFIX));
    }
    if let Some(model) = cpu_model(vmi, config).filter(|model| !FOLLOWS_HOST.contains(model)) {
        require(format!("{}{model}", labels::CPU_MODEL_PREFIX));
    }
    for feature in features(domain.cpu.as_ref(), CpuFeaturePolicy::Require) {
        require(format!("{}{feature}", labels::CPU_FEATURE_PREFIX));
    }
    if domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement) {
        require(labels::CPU_MANAGER.to_owned());
    }
    if domain.cpu.as_ref().is_some_and(|cpu| cpu.realtime.is_some()) {
        require(labels::REALTIME.to_owned());
    }
    if let Some(architecture) = vmi.spec.architecture {
        selector.insert(ARCHITECTURE.to_owned(), architecture.as_str().to_owned());
    }
    selector.extend(config.developer().map(|developer| developer.node_selectors.clone()).unwrap_or_default());
    // The user's last: whoever knows better may say so.
    selector.extend(vmi.spec.node_selector.clone());
    selector
}

/// Taints of a node that nobody hears from. Kubernetes evicts pods from it after five minutes, unless they say something else.
const SILENT_NODE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// What the guest tolerates. A silent node may run its guests all the same, and nothing starts elsewhere before somebody vouches for its
/// death: an eviction would only power off a healthy guest as soon as its node is heard from again. What the guest itself says counts.
pub(crate) fn tolerations(vmi: &VirtualMachineInstance) -> Vec<Toleration> {
    let own = &vmi.spec.tolerations;
    let is_named = |taint: &&str| {
        own.iter().any(|one| {
            let is_key = one.key.as_deref().is_none_or(|key| key.is_empty() || key == *taint);
            is_key && one.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == NO_EXECUTE)
        })
    };
    let patient = SILENT_NODE.into_iter().filter(|taint| !is_named(taint)).map(|taint| Toleration {
        key: Some(taint.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(NO_EXECUTE.to_owned()),
        ..Toleration::default()
    });
    own.iter().cloned().chain(patient).collect()
}

const NO_EXECUTE: &str = "NoExecute";

/// The CPU model that the guest gets; following the host is the default.
fn cpu_model<'a>(vmi: &'a VirtualMachineInstance, config: &'a LauncherConfig) -> Option<&'a str> {
    let model = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref());
    model.or(config.cluster.cpu_model.as_deref()).filter(|model| !model.is_empty())
}

/// Whether the guest's processor is that of the host it started on.
pub(crate) fn follows_host_model(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> bool {
    cpu_model(vmi, config).is_none_or(|model| model == FOLLOWS_HOST[0])
}

fn features(cpu: Option<&Cpu>, policy: CpuFeaturePolicy) -> impl Iterator<Item = &str> {
    let features = cpu.into_iter().flat_map(|cpu| &cpu.features);
    let matching = features.filter(move |feature| feature.policy.unwrap_or(CpuFeaturePolicy::Require) == policy);
    matching.map(|feature| feature.name.as_str())
}

/// The guest's rules, with the labels that a node must not have added to each alternative.
pub(crate) fn affinity(vmi: &VirtualMachineInstance, config: &LauncherConfig) -> Option<Affinity> {
    let mut avoided: Vec<String> = features(vmi.spec.domain.cpu.as_ref(), CpuFeaturePolicy::Forbid)
        .map(|feature| format!("{}{feature}", labels::CPU_FEATURE_PREFIX))
        .collect();
    if follows_host_model(vmi, config) {
        avoided.push(labels::OBSOLETE_HOST_MODEL.to_owned());
    }
    let affinity = vmi.spec.affinity.clone();
    if avoided.is_empty() { affinity } else { Some(avoiding(affinity.unwrap_or_default(), &avoided)) }
}

fn avoiding(mut affinity: Affinity, labels: &[String]) -> Affinity {
    let node = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    let required = node.required_during_scheduling_ignored_during_execution.get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        let absent = labels.iter().map(|key| NodeSelectorRequirement {
            key: key.clone(),
            operator: "DoesNotExist".to_owned(),
            values: None,
        });
        term.match_expressions.get_or_insert_with(Vec::new).extend(absent);
    }
    affinity
}
