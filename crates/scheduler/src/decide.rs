//! The decision: filters say where a pod can go, scores where it goes. Pure.
//!
//! Filters run in the order of kube-scheduler's, and the first that refuses a node names the reason, so that messages are the same.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{PodAffinityTerm, Toleration};

use crate::{
    claims::{Standing, conflict},
    cluster::{Cluster, NodeState},
    matching::{selects, selects_node, term_matches, tolerates},
};

pub use crate::{claims::ClaimView, model::PodInfo};

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Best score of one kind.
const FULL: i64 = 100;

/// What becomes of a pod.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes there.
    Bind(String),
    /// It will go there once volumes were made for these claims, which have to be told about the node.
    Prepare {
        /// The node.
        node: String,
        /// Claims that do not know it yet.
        claims: Vec<String>,
    },
    /// It goes nowhere for now.
    Unschedulable(Unschedulable),
}

/// Why no node is good.
#[derive(Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// How many nodes there are.
    pub nodes: usize,
    /// Why a look at nodes was useless.
    pub general: Option<String>,
    /// How many nodes were refused for which reason.
    pub reasons: BTreeMap<String, usize>,
    /// How many of them would be good if other pods were not there.
    pub crowded: usize,
}

impl fmt::Display for Unschedulable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return formatter.write_str("no nodes available to schedule pods");
        }
        let total = self.nodes;
        let mut reasons: Vec<_> = self.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        let reasons = self.general.clone().unwrap_or_else(|| reasons.join(", "));
        write!(formatter, "0/{total} nodes are available: {reasons}. preemption: 0/{total} nodes are available: ")?;
        let crowded =
            (self.crowded > 0).then(|| format!("{} No preemption victims found for incoming pod", self.crowded));
        let hopeless = total - self.crowded;
        let hopeless = (hopeless > 0).then(|| format!("{hopeless} Preemption is not helpful for scheduling"));
        write!(formatter, "{}.", crowded.into_iter().chain(hopeless).collect::<Vec<_>>().join(", "))
    }
}

/// Why a node is refused.
struct Refusal {
    reasons: Vec<String>,
    /// Whether it would be good if other pods were not there.
    crowded: bool,
}

impl Refusal {
    fn hopeless(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], crowded: false }
    }

    fn crowded(reasons: Vec<String>) -> Self {
        Self { reasons, crowded: true }
    }
}

/// Decides where a pod goes.
pub fn decide(pod: &PodInfo, cluster: &Cluster, claims: &[ClaimView]) -> Verdict {
    let nodes = cluster.nodes().count();
    let mut unschedulable = Unschedulable { nodes, general: None, reasons: BTreeMap::new(), crowded: 0 };
    let standings: Vec<_> = claims.iter().map(ClaimView::standing).collect();
    let impossible = standings.iter().find_map(|standing| match standing {
        Standing::Impossible(reason) => Some(reason.clone()),
        _ => None,
    });
    if impossible.is_some() {
        unschedulable.general = impossible;
        return Verdict::Unschedulable(unschedulable);
    }
    let neighbours = Neighbours::of(pod, cluster);
    let mut candidates = Vec::new();
    for node in cluster.nodes() {
        match filter(pod, node, &standings, &neighbours) {
            Ok(()) => candidates.push(node),
            Err(refusal) => {
                unschedulable.crowded += usize::from(refusal.crowded);
                for reason in refusal.reasons {
                    *unschedulable.reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
    let Some(node) = best(pod, cluster, &candidates) else { return Verdict::Unschedulable(unschedulable) };
    let node = node.info.name.clone();
    if !standings.iter().any(|standing| matches!(standing, Standing::Follows(_))) {
        return Verdict::Bind(node);
    }
    let untold = standings.iter().zip(claims).filter(|(standing, _)| matches!(standing, Standing::Follows(None)));
    Verdict::Prepare { node, claims: untold.map(|(_, claim)| claim.name.clone()).collect() }
}

fn filter(pod: &PodInfo, node: &NodeState, standings: &[Standing<'_>], neighbours: &Neighbours) -> Result<(), Refusal> {
    let info = &node.info;
    if info.unschedulable && !tolerates_unschedulable(&pod.tolerations) {
        return Err(Refusal::hopeless("node(s) were unschedulable"));
    }
    let binding = |effect: &str| effect == "NoSchedule" || effect == "NoExecute";
    let mut taints = info.taints.iter().filter(|taint| binding(&taint.effect));
    if let Some(taint) = taints.find(|taint| !tolerates(&pod.tolerations, taint)) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Err(Refusal::hopeless(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key)));
    }
    if !matches_node(pod, node) {
        return Err(Refusal::hopeless("node(s) didn't match Pod's node affinity/selector"));
    }
    let missing = insufficient(pod, node);
    if !missing.reasons.is_empty() {
        return Err(missing);
    }
    if let Some(reason) = conflict(standings, info) {
        return Err(Refusal::hopeless(reason));
    }
    neighbours.judge(node)
}

fn tolerates_unschedulable(tolerations: &[Toleration]) -> bool {
    let taint = k8s_openapi::api::core::v1::Taint {
        key: UNSCHEDULABLE_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Default::default()
    };
    tolerates(tolerations, &taint)
}

fn matches_node(pod: &PodInfo, node: &NodeState) -> bool {
    let labels = &node.info.labels;
    let selected = pod.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| selects_node(required, labels, &node.info.name))
}

/// What the node has too little of. More than the node has at all is nothing that other pods could make room for.
fn insufficient(pod: &PodInfo, node: &NodeState) -> Refusal {
    let mut refusal = Refusal::crowded(Vec::new());
    let capacity = node.info.allocatable.get("pods");
    if i64::try_from(node.pods.len()).unwrap_or(i64::MAX) >= capacity {
        refusal.reasons.push("Too many pods".to_owned());
    }
    for (name, wanted) in pod.requests.0.iter().filter(|(_, wanted)| **wanted > 0) {
        let allocatable = node.info.allocatable.get(name);
        if *wanted > allocatable - node.used.get(name) {
            refusal.reasons.push(format!("Insufficient {name}"));
            refusal.crowded &= *wanted <= allocatable;
        }
    }
    refusal
}

/// Required affinity and anti-affinity between pods: per topology key, the values where things are.
struct Neighbours {
    /// For each term of the pod: its key, where pods are that it names, and whether a lack of them is fine.
    affinity: Vec<(String, Vec<String>, bool)>,
    anti_affinity: Vec<(String, Vec<String>)>,
    /// Where pods are that do not want this one near.
    unwelcome: Vec<(String, String)>,
}

impl Neighbours {
    fn of(pod: &PodInfo, cluster: &Cluster) -> Self {
        let affinity = pod.affinity.as_deref();
        let wanted = affinity.and_then(|affinity| {
            affinity.pod_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
        });
        let shunned = affinity.and_then(|affinity| {
            affinity.pod_anti_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
        });
        let terms = |terms: Option<&Vec<PodAffinityTerm>>| terms.cloned().unwrap_or_default();
        // Company is a pod that all terms name.
        let wanted = terms(wanted);
        let affinity = wanted.iter().map(|term| {
            let places = places_of(&wanted, &term.topology_key, pod, cluster);
            // The first of a group that wants to be together has nobody to be with.
            let first = places.is_empty() && wanted.iter().all(|term| term_selects(term, pod, pod, cluster));
            (term.topology_key.clone(), places, first)
        });
        let anti_affinity = terms(shunned).into_iter().map(|term| {
            let places = places_of(std::slice::from_ref(&term), &term.topology_key, pod, cluster);
            (term.topology_key, places)
        });
        Self {
            affinity: affinity.collect(),
            anti_affinity: anti_affinity.collect(),
            unwelcome: unwelcome(pod, cluster),
        }
    }

    fn judge(&self, node: &NodeState) -> Result<(), Refusal> {
        let at = |key: &str| node.info.labels.get(key);
        let near = self
            .affinity
            .iter()
            .all(|(key, places, first)| at(key).is_some_and(|place| *first || places.contains(place)));
        if !near {
            return Err(Refusal::hopeless("node(s) didn't match pod affinity rules"));
        }
        let crowd = self.anti_affinity.iter().any(|(key, places)| at(key).is_some_and(|place| places.contains(place)));
        if crowd {
            return Err(Refusal::crowded(vec!["node(s) didn't match pod anti-affinity rules".to_owned()]));
        }
        if self.unwelcome.iter().any(|(key, place)| at(key) == Some(place)) {
            return Err(Refusal::crowded(vec!["node(s) didn't satisfy existing pods anti-affinity rules".to_owned()]));
        }
        Ok(())
    }
}

/// Where pods with anti-affinity to this one are.
fn unwelcome(pod: &PodInfo, cluster: &Cluster) -> Vec<(String, String)> {
    let mut places = Vec::new();
    for other in cluster.exclusive.values().filter(|other| other.uid != pod.uid) {
        let anti = other.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_ref());
        let Some(node) = other.node.as_deref().and_then(|node| cluster.node(node)) else { continue };
        for term in required.into_iter().flatten().filter(|term| term_selects(term, other, pod, cluster)) {
            let place = node.info.labels.get(&term.topology_key);
            places.extend(place.map(|place| (term.topology_key.clone(), place.clone())));
        }
    }
    places
}

/// The values of the topology key where pods are that all terms name.
fn places_of(terms: &[PodAffinityTerm], key: &str, pod: &PodInfo, cluster: &Cluster) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for node in cluster.nodes() {
        let Some(place) = node.info.labels.get(key) else { continue };
        let all = |other: &PodInfo| terms.iter().all(|term| term_selects(term, pod, other, cluster));
        let named = node.pods.values().any(|other| other.uid != pod.uid && all(other));
        if named && !places.contains(place) {
            places.push(place.clone());
        }
    }
    places
}

/// Whether a term of `owner` names the other pod.
fn term_selects(term: &PodAffinityTerm, owner: &PodInfo, other: &PodInfo, cluster: &Cluster) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    let by_label = term.namespace_selector.as_ref().is_some_and(|selector| {
        let empty = BTreeMap::new();
        selects(Some(selector), cluster.namespaces.get(&other.namespace).unwrap_or(&empty))
    });
    let own = named.is_empty() && term.namespace_selector.is_none() && owner.namespace == other.namespace;
    (own || named.contains(&other.namespace) || by_label) && selects(term.label_selector.as_ref(), &other.labels)
}

/// The candidate with the best score; among equals the one with fewer pods, then the first by name.
fn best<'a>(pod: &PodInfo, cluster: &Cluster, candidates: &[&'a NodeState]) -> Option<&'a NodeState> {
    if let [only] = candidates {
        return Some(only);
    }
    let wishes: Vec<_> = candidates.iter().map(|node| node_preference(pod, node)).collect();
    let company: Vec<_> = pod_preference(pod, cluster, candidates);
    let dislikes: Vec<_> = candidates.iter().map(|node| -disliked_taints(pod, node)).collect();
    let scores = normalized(&wishes).into_iter().zip(normalized(&company)).zip(normalized(&dislikes));
    let scored = scores
        .zip(candidates)
        .map(|(((wish, company), dislike), node)| (2 * wish + 2 * company + 3 * dislike + free(pod, node), *node));
    let best = scored.min_by(|(one, first), (two, second)| {
        let by_score = two.cmp(one);
        by_score.then(first.pods.len().cmp(&second.pods.len())).then(first.info.name.cmp(&second.info.name))
    });
    best.map(|(_, node)| node)
}

/// Stretches scores to the whole range, so that kinds of scores can be weighed against each other.
fn normalized(scores: &[i64]) -> Vec<i64> {
    let (low, high) = (scores.iter().min().copied().unwrap_or(0), scores.iter().max().copied().unwrap_or(0));
    scores.iter().map(|score| if high == low { 0 } else { (score - low) * FULL / (high - low) }).collect()
}

fn node_preference(pod: &PodInfo, node: &NodeState) -> i64 {
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let matching =
        terms.into_iter().flatten().filter(|term| term_matches(&term.preference, &node.info.labels, &node.info.name));
    matching.map(|term| i64::from(term.weight)).sum()
}

fn pod_preference(pod: &PodInfo, cluster: &Cluster, candidates: &[&NodeState]) -> Vec<i64> {
    let affinity = pod.affinity.as_deref();
    let liked = affinity.and_then(|affinity| {
        affinity.pod_affinity.as_ref()?.preferred_during_scheduling_ignored_during_execution.as_ref()
    });
    let shunned = affinity.and_then(|affinity| {
        affinity.pod_anti_affinity.as_ref()?.preferred_during_scheduling_ignored_during_execution.as_ref()
    });
    let mut scores = vec![0; candidates.len()];
    let signed =
        liked.into_iter().flatten().map(|term| (1, term)).chain(shunned.into_iter().flatten().map(|term| (-1, term)));
    for (sign, term) in signed {
        let key = &term.pod_affinity_term.topology_key;
        let places = places_of(std::slice::from_ref(&term.pod_affinity_term), key, pod, cluster);
        for (score, node) in scores.iter_mut().zip(candidates) {
            let place = node.info.labels.get(key);
            if place.is_some_and(|place| places.contains(place)) {
                *score += sign * i64::from(term.weight);
            }
        }
    }
    scores
}

fn disliked_taints(pod: &PodInfo, node: &NodeState) -> i64 {
    let taints = node.info.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    i64::try_from(taints.filter(|taint| !tolerates(&pod.tolerations, taint)).count()).unwrap_or(i64::MAX)
}

/// How much of cpu and memory would be left.
fn free(pod: &PodInfo, node: &NodeState) -> i64 {
    let part = |name: &str| {
        let total = node.info.allocatable.get(name);
        let left = total - node.used.get(name) - pod.requests.get(name);
        if total <= 0 { 0 } else { left.clamp(0, total).saturating_mul(FULL) / total }
    };
    i64::midpoint(part("cpu"), part("memory"))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
