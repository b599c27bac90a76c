//! Nodes with what runs on them, kept up to date change by change: a decision never goes over all pods.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ferrovirt_kubernetes::{Node, Pod};

use crate::model::{NodeInfo, PodInfo, Resources};

/// A node with its pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeState {
    pub(crate) info: NodeInfo,
    pub(crate) used: Resources,
    pub(crate) pods: HashMap<String, Arc<PodInfo>>,
}

/// What is where. Fed by watches, and by the scheduler's own bindings before watches show them.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Nodes that exist, and nodes that pods name although they do not exist (any more).
    nodes: BTreeMap<String, NodeState>,
    known: HashSet<String>,
    /// The node of each pod, by uid.
    places: HashMap<String, String>,
    /// Pods (by uid) that were bound here and that no watch has shown with their node yet.
    assumed: HashSet<String>,
    /// Pods with required anti-affinity, which speaks about others too.
    pub(crate) exclusive: HashMap<String, Arc<PodInfo>>,
    pub(crate) namespaces: HashMap<String, BTreeMap<String, String>>,
}

impl Cluster {
    /// Nodes that exist, by name.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.iter().filter(|(name, _)| self.known.contains(*name)).map(|(_, node)| node)
    }

    /// A node that exists.
    pub(crate) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name).filter(|_| self.known.contains(name))
    }

    /// Takes in a node; answers whether a pod might be judged differently now.
    pub fn set_node(&mut self, node: &Node) -> bool {
        let info = NodeInfo::of(node);
        let new = self.known.insert(info.name.clone());
        let state = self.nodes.entry(info.name.clone()).or_default();
        let changed = new || state.info != info;
        state.info = info;
        changed
    }

    /// Forgets a node. Pods that name it stay known, in case it comes back.
    pub fn remove_node(&mut self, name: &str) {
        self.known.remove(name);
        if self.nodes.get(name).is_some_and(|node| node.pods.is_empty()) {
            self.nodes.remove(name);
        }
    }

    /// Takes in the labels of a namespace.
    pub fn set_namespace(&mut self, name: &str, labels: Option<&BTreeMap<String, String>>) {
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels.clone()),
            None => self.namespaces.remove(name),
        };
    }

    /// Takes in a pod; answers whether other pods might be judged differently now.
    pub fn set_pod(&mut self, pod: &Pod) -> bool {
        let info = PodInfo::of(pod);
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return self.remove_pod(&info.uid);
        }
        if info.node.is_none() {
            // What was just bound may appear unbound for a while: the binding is what counts.
            return !self.assumed.contains(&info.uid) && self.remove_pod(&info.uid);
        }
        self.assumed.remove(&info.uid);
        self.place(info)
    }

    /// Counts a pod on a node before any watch shows it there.
    pub fn assume(&mut self, pod: &PodInfo, node: &str) {
        self.assumed.insert(pod.uid.clone());
        self.place(PodInfo { node: Some(node.to_owned()), ..pod.clone() });
    }

    /// Forgets a pod; answers whether it was on a node.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        self.assumed.remove(uid);
        self.exclusive.remove(uid);
        let Some(place) = self.places.remove(uid) else { return false };
        let Some(node) = self.nodes.get_mut(&place) else { return false };
        if let Some(pod) = node.pods.remove(uid) {
            node.used.subtract(&pod.requests);
        }
        if node.pods.is_empty() && !self.known.contains(&place) {
            self.nodes.remove(&place);
        }
        true
    }

    fn place(&mut self, info: PodInfo) -> bool {
        let Some(name) = info.node.clone() else { return false };
        let present = self.places.get(&info.uid).and_then(|place| self.nodes.get(place)?.pods.get(&info.uid));
        if present.is_some_and(|present| **present == info) {
            return false;
        }
        let assumed = self.assumed.contains(&info.uid);
        self.remove_pod(&info.uid);
        if assumed {
            self.assumed.insert(info.uid.clone());
        }
        let uid = info.uid.clone();
        let info = Arc::new(info);
        let node = self.nodes.entry(name.clone()).or_default();
        node.used.add(&info.requests);
        node.pods.insert(uid.clone(), info.clone());
        self.places.insert(uid.clone(), name);
        let affinity = info.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        if affinity.is_some_and(|anti| anti.required_during_scheduling_ignored_during_execution.is_some()) {
            self.exclusive.insert(uid, info);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: Option<&str>, memory: &str) -> Pod {
        let value = json!({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {
            "nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}],
        }});
        serde_json::from_value(value).unwrap()
    }

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    fn used(cluster: &Cluster) -> i64 {
        cluster.node("n").map_or(0, |node| node.used.get("memory"))
    }

    #[test]
    fn totals_follow_pods_as_they_come_change_and_go() {
        let mut cluster = Cluster::default();
        assert!(cluster.set_pod(&pod("early", Some("n"), "1")), "a pod may be seen before its node");
        assert!(cluster.set_node(&node("n")));
        assert!(!cluster.set_node(&node("n")), "a heartbeat changes nothing");
        assert!(cluster.set_pod(&pod("a", Some("n"), "10")));
        assert!(!cluster.set_pod(&pod("a", Some("n"), "10")));
        assert_eq!(used(&cluster), 11);
        assert!(cluster.set_pod(&pod("a", Some("n"), "5")));
        assert_eq!(used(&cluster), 6);
        let mut finished = pod("a", Some("n"), "5");
        finished.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
        assert!(cluster.set_pod(&finished));
        assert!(!cluster.set_pod(&finished));
        assert_eq!(used(&cluster), 1);
        assert!(cluster.remove_pod("early"));
        assert_eq!(used(&cluster), 0);
    }

    #[test]
    fn a_binding_counts_before_it_is_seen() {
        let mut cluster = Cluster::default();
        cluster.set_node(&node("n"));
        cluster.assume(&PodInfo::of(&pod("a", None, "10")), "n");
        assert_eq!(used(&cluster), 10);
        assert!(!cluster.set_pod(&pod("a", None, "10")), "an old state does not undo it");
        assert_eq!(used(&cluster), 10);
        cluster.set_pod(&pod("a", Some("n"), "10"));
        assert_eq!(used(&cluster), 10);
        assert!(cluster.remove_pod("a"));
        assert_eq!(used(&cluster), 0);
    }
}
