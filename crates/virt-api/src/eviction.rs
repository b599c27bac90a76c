//! Evictions of launcher pods: a guest moves instead of ending, when it should.
//!
//! Whoever drains a node asks for its pods one by one. For a guest that shall move, the answer is 429, "try again later", and the
//! guest is marked to leave the node; controllers do the rest, and the pod that is asked for again is soon gone. [`decide`] is pure.

use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::meta::{Condition, ConditionStatus, find_condition};
use ferrovirt_api::names::{annotations, conditions, labels};
use ferrovirt_api::vmi::{EvictionStrategy, VirtualMachineInstancePhase as Phase};
use ferrovirt_api::{VirtualMachineInstance, decode};
use ferrovirt_apiserver::admission::{Operation, Plugin, Review};
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::cluster::{Cluster, InProcess, Kind, Object};

/// Value of the pod label of launchers.
const LAUNCHER: &str = "virt-launcher";
/// Value of the pod label of pods that hold volumes which are plugged into a running guest.
const HOTPLUG: &str = "hotplug-disk";
/// How the descheduler signs its evictions.
const REQUESTED_BY: (&str, &str) = ("requested-by", "sigs.k8s.io/descheduler");

/// An eviction that is refused for now.
#[derive(Debug, Clone, PartialEq)]
pub struct Denial {
    /// What the caller is told. The descheduler looks for some of these words.
    pub message: String,
    /// The patch that marks the guest to leave its node.
    pub mark: Option<Vec<Value>>,
}

impl Denial {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), mark: None }
    }
}

/// Whether the guest has ended, or something keeps its pod from starting: there is nothing that could move, now or later. One that is just
/// about to start moves in a moment.
fn is_idle(vmi: &VirtualMachineInstance) -> bool {
    let Some(status) = &vmi.status else { return false };
    let troubled = find_condition(&status.conditions, conditions::SYNCHRONIZED);
    let is_troubled = troubled.is_some_and(|troubled| troubled.status == ConditionStatus::False);
    let phase = status.phase.unwrap_or(Phase::Pending);
    phase.is_final() || (phase == Phase::Scheduling && is_troubled)
}

/// Whether the pod of a guest may be evicted.
pub fn decide(
    pod: &Value,
    vmi: &VirtualMachineInstance,
    configuration: &Configuration,
    eviction: &Value,
) -> Result<(), Denial> {
    if is_idle(vmi) {
        return Ok(());
    }
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let status = vmi.status.as_ref();
    let migratable = status.and_then(|status| find_condition(&status.conditions, conditions::LIVE_MIGRATABLE));
    let movable = migratable.is_some_and(Condition::is_true);
    match vmi.spec.eviction_strategy.or(configuration.eviction_strategy) {
        None | Some(EvictionStrategy::None) => return Ok(()),
        Some(EvictionStrategy::LiveMigrateIfPossible) if !movable => return Ok(()),
        Some(EvictionStrategy::LiveMigrate) if !movable => {
            let reason = migratable.and_then(|migratable| {
                let (reason, message) = (migratable.reason.as_deref()?, migratable.message.as_deref()?);
                Some(format!(": {reason}: {message}"))
            });
            let why = format!("VMI {name} is configured with an eviction strategy but is not live-migratable");
            return Err(Denial::new(why + &reason.unwrap_or_default()));
        }
        Some(EvictionStrategy::LiveMigrate | EvictionStrategy::LiveMigrateIfPossible | EvictionStrategy::External) => {}
    }
    let message = format!("Eviction triggered evacuation of VMI \"{namespace}/{name}\"");
    let marked = status.and_then(|status| status.evacuation_node_name.as_deref()).unwrap_or_default();
    if !marked.is_empty() {
        return Err(Denial::new(format!("Evacuation in progress: {message}")));
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if status.and_then(|status| status.node_name.as_deref()).unwrap_or_default() != node {
        return Err(Denial::new("Eviction request for target Pod"));
    }
    Err(Denial { message, mark: Some(mark(vmi, node, eviction)) })
}

/// The patch that marks a guest to leave a node.
fn mark(vmi: &VirtualMachineInstance, node: &str, eviction: &Value) -> Vec<Value> {
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let mut operations = vec![
        // Whoever moved the guest meanwhile has made the mark pointless.
        json!({"op": "test", "path": "/status/nodeName", "value": node}),
        add("/status/evacuationNodeName", node.into()),
    ];
    if eviction["metadata"]["annotations"][REQUESTED_BY.0] == REQUESTED_BY.1 {
        let source = "descheduler";
        operations.push(match &vmi.metadata.annotations {
            None => add("/metadata/annotations", json!({annotations::EVICTION_SOURCE: source})),
            Some(_) => {
                let key = annotations::EVICTION_SOURCE.replace('~', "~0").replace('/', "~1");
                add(&format!("/metadata/annotations/{key}"), source.into())
            }
        });
    }
    operations
}

/// Whether nothing must be done: the request says so, or the deletion that is asked for.
fn is_dry_run(asked: bool, eviction: &Value) -> bool {
    asked || eviction["deleteOptions"]["dryRun"][0] == "All"
}

fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn role(pod: &Value) -> Option<&str> {
    pod["metadata"]["labels"][labels::APP].as_str()
}

/// Judges the eviction of any pod, and marks its guest.
pub(crate) async fn admit(
    cluster: &dyn Cluster,
    namespace: &str,
    name: &str,
    eviction: &Value,
    dry_run: bool,
) -> Result<(), Denial> {
    // Not knowing whose pod it is, nobody may end it.
    let found = cluster.get(Object { kind: Kind::Pod, namespace, name }).await;
    let found = found.map_err(|error| Denial::new(format!("kubevirt failed getting the pod: {error}")))?;
    // The eviction itself will say that it is missing.
    let Some(pod) = found else { return Ok(()) };
    match role(&pod) {
        Some(HOTPLUG) => admit_hotplug(cluster, namespace, &pod).await,
        Some(LAUNCHER) if !is_over(&pod) => {
            let Some(guest) = pod["metadata"]["annotations"][annotations::DOMAIN].as_str() else { return Ok(()) };
            admit_launcher(cluster, &pod, Object { kind: Kind::Guest, namespace, name: guest }, eviction, dry_run).await
        }
        _ => Ok(()),
    }
}

async fn admit_launcher(
    cluster: &dyn Cluster,
    pod: &Value,
    guest: Object<'_>,
    eviction: &Value,
    dry_run: bool,
) -> Result<(), Denial> {
    let unknown = |why: &dyn std::fmt::Display| Denial::new(format!("kubevirt failed getting the vmi: {why}"));
    let found = cluster.get(guest).await.map_err(|error| unknown(&error))?;
    let missing = format!("virtualmachineinstances.kubevirt.io \"{}\" not found", guest.name);
    let vmi = found.ok_or_else(|| unknown(&missing))?;
    let vmi: VirtualMachineInstance = decode(&vmi).map_err(|error| unknown(&error))?;
    let Err(denial) = decide(pod, &vmi, &cluster.configuration(), eviction) else { return Ok(()) };
    if let Some(operations) = &denial.mark {
        let marked = cluster.patch(guest, "", operations, is_dry_run(dry_run, eviction)).await;
        marked.map_err(|error| Denial::new(format!("kubevirt failed marking the vmi for eviction: {error}")))?;
    }
    Err(denial)
}

/// A volume stays with its guest.
async fn admit_hotplug(cluster: &dyn Cluster, namespace: &str, pod: &Value) -> Result<(), Denial> {
    let Some([owner]) = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice) else { return Ok(()) };
    let owner = owner["name"].as_str().unwrap_or_default();
    let launcher = cluster.get(Object { kind: Kind::Pod, namespace, name: owner }).await;
    let launcher = launcher.map_err(|error| Denial::new(format!("failed getting owner for hotplug pod: {error}")))?;
    let Some(launcher) = launcher.filter(|pod| role(pod) == Some(LAUNCHER) && !is_over(pod)) else { return Ok(()) };
    let Some(guest) = launcher["metadata"]["annotations"][annotations::DOMAIN].as_str() else { return Ok(()) };
    let vmi = cluster.get(Object { kind: Kind::Guest, namespace, name: guest }).await;
    let vmi = vmi.map_err(|error| Denial::new(format!("kubevirt failed getting the vmi: {error}")))?;
    if vmi.is_none() {
        return Ok(());
    }
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let why = format!("cannot evict hotplug pod: {name} associated with running vmi: {guest} in namespace {namespace}");
    Err(Denial::new(why))
}

/// The admission plugin of the embedded API server for evictions.
#[derive(Debug, Default)]
pub struct EvictionAdmission;

impl Plugin for EvictionAdmission {
    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            let resource = (&*review.resource.group, &*review.resource.plural, review.subresource);
            if resource != ("", "pods", "eviction") || review.operation != Operation::Create {
                return Ok(());
            }
            let cluster = InProcess { server: review.server };
            let admitted = admit(&cluster, review.namespace, review.name, review.object, review.dry_run).await;
            admitted.map_err(|denial| ApiError::too_many_requests(denial.message, 0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(strategy: Option<&str>, movable: bool, status: &Value) -> VirtualMachineInstance {
        let mut whole = json!({"nodeName": "n1", "phase": "Running"});
        if movable {
            whole["conditions"] = json!([{"type": "LiveMigratable", "status": "True"}]);
        }
        for (key, value) in status.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let spec = json!({"domain": {"devices": {}}, "evictionStrategy": strategy});
        let metadata = json!({"name": "g", "namespace": "d"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": whole})).unwrap()
    }

    fn told(vmi: &VirtualMachineInstance, cluster: Option<&str>) -> Result<(), (String, bool)> {
        let configuration: Configuration = serde_json::from_value(json!({"evictionStrategy": cluster})).unwrap();
        let pod = json!({"spec": {"nodeName": "n1"}});
        decide(&pod, vmi, &configuration, &json!({})).map_err(|denial| (denial.message, denial.mark.is_some()))
    }

    #[test]
    fn each_strategy_has_its_answer() {
        let marked = Err(("Eviction triggered evacuation of VMI \"d/g\"".to_owned(), true));
        let stuck = Err(("VMI g is configured with an eviction strategy but is not live-migratable".to_owned(), false));
        // Strategy, and the answer for a guest that can move and for one that cannot.
        for (strategy, movable, unmovable) in [
            (None, Ok(()), Ok(())),
            (Some("None"), Ok(()), Ok(())),
            (Some("LiveMigrate"), marked.clone(), stuck),
            (Some("LiveMigrateIfPossible"), marked.clone(), Ok(())),
            (Some("External"), marked.clone(), marked),
        ] {
            assert_eq!(told(&guest(strategy, true, &json!({})), None), movable, "{strategy:?}");
            assert_eq!(told(&guest(strategy, false, &json!({})), None), unmovable, "{strategy:?}");
            assert_eq!(told(&guest(None, true, &json!({})), strategy), movable, "the cluster's {strategy:?}");
        }
        assert_eq!(told(&guest(Some("None"), true, &json!({})), Some("LiveMigrate")), Ok(()), "the guest's own counts");
    }

    /// A drain would never end: the guest can neither run nor move.
    #[test]
    fn a_guest_that_can_neither_run_nor_move_keeps_nobody() {
        let troubled = json!([{"type": "Synchronized", "status": "False", "reason": "ErrImagePull"}]);
        for strategy in ["LiveMigrate", "External"] {
            let answer = |status: Value| told(&guest(Some(strategy), false, &status), None);
            for phase in ["Succeeded", "Failed"] {
                assert_eq!(answer(json!({"phase": phase})), Ok(()), "{phase}");
            }
            assert_eq!(answer(json!({"phase": "Scheduling", "conditions": troubled})), Ok(()));
            for starting in [json!(null), json!("Pending"), json!("Scheduling"), json!("Scheduled")] {
                assert!(answer(json!({"phase": starting})).is_err(), "{starting}");
            }
            assert!(answer(json!({"phase": "Running", "conditions": troubled})).is_err());
        }
    }

    #[test]
    fn what_keeps_a_guest_is_said() {
        let stuck = json!([{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "disk a"}]);
        let (message, _) = told(&guest(Some("LiveMigrate"), false, &json!({"conditions": stuck})), None).unwrap_err();
        assert!(message.ends_with("not live-migratable: DisksNotLiveMigratable: disk a"), "{message}");
    }

    #[test]
    fn a_guest_is_marked_once_and_only_by_the_pod_that_it_runs_in() {
        let message = "Evacuation in progress: Eviction triggered evacuation of VMI \"d/g\"".to_owned();
        let leaving = guest(Some("LiveMigrate"), true, &json!({"evacuationNodeName": "n1"}));
        assert_eq!(told(&leaving, None), Err((message, false)));
        let elsewhere = guest(Some("LiveMigrate"), true, &json!({"nodeName": "n2"}));
        assert_eq!(told(&elsewhere, None), Err(("Eviction request for target Pod".to_owned(), false)));
    }

    #[test]
    fn the_descheduler_is_remembered() {
        let eviction = json!({"metadata": {"annotations": {"requested-by": "sigs.k8s.io/descheduler"}}});
        let mut vmi = guest(Some("External"), false, &json!({}));
        let last = |vmi: &VirtualMachineInstance| mark(vmi, "n1", &eviction).pop().unwrap();
        let new = json!({"kubevirt.io/eviction-source": "descheduler"});
        assert_eq!(last(&vmi), json!({"op": "add", "path": "/metadata/annotations", "value": new}));
        vmi.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        let path = "/metadata/annotations/kubevirt.io~1eviction-source";
        assert_eq!(last(&vmi), json!({"op": "add", "path": path, "value": "descheduler"}));
        assert_eq!(mark(&vmi, "n1", &json!({})).len(), 2);
    }

    #[test]
    fn both_ways_to_ask_for_a_dry_run_count() {
        assert!(is_dry_run(true, &json!({})));
        assert!(is_dry_run(false, &json!({"deleteOptions": {"dryRun": ["All"]}})));
        assert!(!is_dry_run(false, &json!({"deleteOptions": {}})));
    }
}
