//! Pods and nodes as a decision sees them: parsed once when they change, small to keep.

use std::collections::BTreeMap;

use ferrovirt_api::values::Quantity;
use ferrovirt_kubernetes::{Node, Pod};
use k8s_openapi::{
    api::core::v1::{Affinity, Container, ResourceRequirements, Taint, Toleration},
    apimachinery::pkg::api::resource::Quantity as Written,
};

/// The taint of a node that is not ready, and of one that does not answer.
const NOT_READY: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Amounts by name: cpu in thousandths, everything else in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources(pub(crate) BTreeMap<String, i64>);

impl Resources {
    pub(crate) fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn parse(amounts: Option<&BTreeMap<String, Written>>) -> Self {
        let parsed = amounts.into_iter().flatten().filter_map(|(name, amount)| {
            let amount: Quantity = amount.0.parse().ok()?;
            Some((name.clone(), if name == "cpu" { amount.milli_value() } else { amount.value() }))
        });
        Self(parsed.collect())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, operation: impl Fn(i64, i64) -> i64) {
        for (name, amount) in &other.0 {
            let entry = self.0.entry(name.clone()).or_default();
            *entry = operation(*entry, *amount);
        }
    }
}

/// What of a pod matters to a decision about it or another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodInfo {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Where it runs, if it does.
    pub(crate) node: Option<String>,
    pub(crate) requests: Resources,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) affinity: Option<Box<Affinity>>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) claims: Vec<String>,
}

impl PodInfo {
    /// Takes from a pod what matters.
    pub fn of(pod: &Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let volumes = spec.volumes.iter().flatten();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let claims = volumes.filter_map(|volume| {
            let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
            claim.or_else(|| volume.ephemeral.is_some().then(|| format!("{name}-{}", volume.name)))
        });
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            claims: claims.collect(),
            requests: requests(&spec),
            node: spec.node_name.filter(|node| !node.is_empty()),
            node_selector: spec.node_selector.unwrap_or_default(),
            affinity: spec.affinity.map(Box::new),
            tolerations: spec.tolerations.unwrap_or_default(),
            name,
        }
    }
}

/// All that a pod asks for: containers and lasting init containers together, or the largest of the others, and its overhead.
fn requests(spec: &k8s_openapi::api::core::v1::PodSpec) -> Resources {
    let mut lasting = Resources::default();
    let mut peak = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let request = container_requests(container);
        if container.restart_policy.as_deref() == Some("Always") {
            lasting.add(&request);
            peak.raise_to(&lasting);
        } else {
            let mut together = lasting.clone();
            together.add(&request);
            peak.raise_to(&together);
        }
    }
    for container in &spec.containers {
        lasting.add(&container_requests(container));
    }
    peak.raise_to(&lasting);
    // What is said for the whole pod wins over its containers.
    for (name, amount) in requested(spec.resources.as_ref()).0 {
        peak.0.insert(name, amount);
    }
    peak.add(&Resources::parse(spec.overhead.as_ref()));
    peak
}

fn container_requests(container: &Container) -> Resources {
    requested(container.resources.as_ref())
}

/// Requests; a limit stands for a request that is missing, as the API server's defaults have it.
fn requested(resources: Option<&ResourceRequirements>) -> Resources {
    let mut amounts = Resources::parse(resources.and_then(|resources| resources.limits.as_ref()));
    amounts.0.extend(Resources::parse(resources.and_then(|resources| resources.requests.as_ref())).0);
    amounts
}

/// What of a node matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeInfo {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) unschedulable: bool,
    pub(crate) taints: Vec<Taint>,
    pub(crate) allocatable: Resources,
}

impl NodeInfo {
    pub(crate) fn of(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let mut taints = spec.taints.unwrap_or_default();
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let marked = taints.iter().any(|taint| NOT_READY.contains(&taint.key.as_str()));
        // A cluster without a controller that puts taints on dead nodes must not send pods there.
        let missing = match ready.map(|condition| condition.status.as_str()) {
            Some("True") => None,
            Some("Unknown") => Some(NOT_READY[1]),
            _ => Some(NOT_READY[0]),
        };
        if let Some(key) = missing.filter(|_| !marked) {
            taints.push(Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() });
        }
        let name = node.metadata.name.clone().unwrap_or_default();
        let mut labels = node.metadata.labels.clone().unwrap_or_default();
        labels.entry("kubernetes.io/hostname".to_owned()).or_insert_with(|| name.clone());
        Self {
            name,
            labels,
            unschedulable: spec.unschedulable.unwrap_or_default(),
            taints,
            allocatable: Resources::parse(status.allocatable.as_ref()),
        }
    }
}
