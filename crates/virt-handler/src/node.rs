//! What this node says about itself: labels that place guests, and a heartbeat.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrovirt_api::names::{annotations, labels};
use ferrovirt_domain::{Accelerator, NodeFacts};
use ferrovirt_kubernetes::{Node, Pod};
use ferrovirt_reconcile::Clock;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::host_model::{HostModel, host_model};
use crate::processors::{Processors, is_obsolete, processors};

/// Between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// The component whose pods have guests.
const LAUNCHER: &str = "virt-launcher";
/// Until the next attempt after a failed one.
const RETRY: Duration = Duration::from_secs(2);

/// Labels the node and keeps its heartbeat going until told to stop. `tell` hears whether the node's own processor model is known.
pub(crate) async fn run(
    client: Client,
    name: String,
    facts: NodeFacts,
    clock: Clock,
    tell: impl FnOnce(bool),
    stop: CancellationToken,
) {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut wanted = labels(&facts, &processors(facts.accelerator).await);
    // libvirt takes a while, and most guests need not wait for its answer.
    let mut asking = std::pin::pin!(host_model(facts.accelerator));
    let (mut tell, mut is_complete) = (Some(tell), false);
    let mut unwanted = Vec::new();
    // The answer to the first heartbeat says whether the node's owner wants its processor described.
    let mut is_described = false;
    loop {
        let shown = if is_described { wanted.clone() } else { placing() };
        let patch = patch(&shown, &unwanted, &clock.now().to_string());
        let pause = match nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(node) if is_described == is_skipped(&node) => {
                is_described = !is_described;
                unwanted.clear();
                if is_described { Duration::ZERO } else { HEARTBEAT }
            }
            Ok(node) if is_complete && is_described => {
                let left = without_selected(&client, &name, stale(node.metadata.labels.as_ref(), &wanted)).await;
                // What somebody puts back at once is not fought over.
                let pause = if left.is_empty() || left == unwanted { HEARTBEAT } else { Duration::ZERO };
                unwanted = left;
                pause
            }
            Ok(_) => HEARTBEAT,
            Err(error) => {
                tracing::debug!(%error, "cannot label the node {name}");
                RETRY
            }
        };
        tokio::select! {
            found = &mut asking, if tell.is_some() => {
                is_complete = found.is_some();
                wanted.extend(found.iter().flat_map(|found| host_model_labels(found, facts.accelerator)));
                tell.take().into_iter().for_each(|tell| tell(is_complete));
            }
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn patch(labels: &BTreeMap<String, String>, unwanted: &[String], now: &str) -> Value {
    let mut shown = json!(labels);
    for label in unwanted {
        shown[label] = Value::Null;
    }
    json!({"metadata": {"labels": shown, "annotations": {annotations::NODE_HEARTBEAT: format!("\"{now}\"")}}})
}

/// What an earlier QEMU or processor of this node had: guests must not be sent here for it.
fn stale(present: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> Vec<String> {
    const OURS: [&str; 7] = [
        labels::MACHINE_TYPE_PREFIX,
        labels::CPU_MODEL_PREFIX,
        labels::CPU_MODEL_MIGRATION_PREFIX,
        labels::CPU_FEATURE_PREFIX,
        labels::CPU_VENDOR_PREFIX,
        labels::HOST_MODEL_CPU_PREFIX,
        labels::HOST_MODEL_REQUIRED_FEATURES_PREFIX,
    ];
    let is_ours = |key: &str| key == labels::OBSOLETE_HOST_MODEL || OURS.iter().any(|prefix| key.starts_with(prefix));
    let present = present.into_iter().flat_map(BTreeMap::keys);
    present.filter(|key| is_ours(key) && !wanted.contains_key(*key)).cloned().collect()
}

/// Those labels that no guest's pod on this node selects it by: a kubelet that is started again turns away pods whose label is gone, and
/// their guests would end.
async fn without_selected(client: &Client, node: &str, stale: Vec<String>) -> Vec<String> {
    if stale.is_empty() {
        return stale;
    }
    let launchers =
        ListParams::default().fields(&format!("spec.nodeName={node}")).labels(&format!("{}={LAUNCHER}", labels::APP));
    match Api::<Pod>::all(client.clone()).list(&launchers).await {
        Ok(pods) => stale.into_iter().filter(|label| !pods.iter().any(|pod| selects(pod, label))).collect(),
        Err(error) => {
            tracing::debug!(%error, "cannot see which labels of {node} its guests need, so all stay");
            Vec::new()
        }
    }
}

fn selects(pod: &Pod, label: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()).is_some_and(|wanted| wanted.contains_key(label))
}

/// The node's own processor: guests that follow it may come from nodes with the same, and go there.
fn host_model_labels(host: &HostModel, accelerator: Accelerator) -> BTreeMap<String, String> {
    let mut keys = vec![
        format!("{}{}", labels::HOST_MODEL_CPU_PREFIX, host.model),
        format!("{}{}", labels::CPU_MODEL_MIGRATION_PREFIX, host.model),
    ];
    for feature in &host.features {
        keys.push(format!("{}{feature}", labels::HOST_MODEL_REQUIRED_FEATURES_PREFIX));
        // libvirt has names of its own for some.
        keys.push(format!("{}{feature}", labels::CPU_FEATURE_PREFIX));
    }
    // Emulated guests do not have it.
    if accelerator == Accelerator::Kvm && is_obsolete(&host.model) {
        keys.push(labels::OBSOLETE_HOST_MODEL.to_owned());
    }
    keys.into_iter().map(|key| (key, "true".to_owned())).collect()
}

/// Whoever owns the node describes it himself.
fn is_skipped(node: &Node) -> bool {
    node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotations::LABELLER_SKIP_NODE))
}

/// The labels without which no guest comes here.
fn placing() -> BTreeMap<String, String> {
    let keys = [labels::NODE_SCHEDULABLE.to_owned(), format!("{}amd64", labels::VM_ARCH_PREFIX)];
    keys.into_iter().map(|key| (key, "true".to_owned())).collect()
}

/// The labels that launcher pods select nodes by.
fn labels(facts: &NodeFacts, processors: &Processors) -> BTreeMap<String, String> {
    let yes = || "true".to_owned();
    let mut wanted = placing();
    for machine in &facts.machines {
        wanted.insert(format!("{}{machine}", labels::MACHINE_TYPE_PREFIX), yes());
    }
    for model in &processors.models {
        wanted.insert(format!("{}{model}", labels::CPU_MODEL_PREFIX), yes());
        wanted.insert(format!("{}{model}", labels::CPU_MODEL_MIGRATION_PREFIX), yes());
    }
    for feature in &processors.features {
        wanted.insert(format!("{}{feature}", labels::CPU_FEATURE_PREFIX), yes());
    }
    if !processors.vendor.is_empty() {
        wanted.insert(format!("{}{}", labels::CPU_VENDOR_PREFIX, processors.vendor), yes());
    }
    if facts.accelerator == Accelerator::Kvm
        && std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").is_ok_and(|text| text.trim() == "-1")
    {
        wanted.insert(labels::REALTIME.to_owned(), yes());
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(model: &str) -> HostModel {
        HostModel { model: model.to_owned(), features: ["ss".to_owned()].into() }
    }

    #[test]
    fn the_own_processor_can_be_asked_for_by_guests_that_follow_it() {
        let shown = host_model_labels(&host("Skylake-Client-IBRS"), Accelerator::Kvm);
        let keys: Vec<&str> = shown.keys().map(String::as_str).collect();
        let wanted = [
            "cpu-feature.node.kubevirt.io/ss",
            "cpu-model-migration.node.kubevirt.io/Skylake-Client-IBRS",
            "host-model-cpu.node.kubevirt.io/Skylake-Client-IBRS",
            "host-model-required-features.node.kubevirt.io/ss",
        ];
        assert_eq!(keys, wanted);
        assert!(shown.values().all(|value| value == "true"));
    }

    #[test]
    fn an_obsolete_processor_is_followed_by_nobody_unless_it_is_not_used() {
        let obsolete = "node-labeller.kubevirt.io/obsolete-host-model";
        assert!(host_model_labels(&host("qemu64"), Accelerator::Kvm).contains_key(obsolete));
        assert!(!host_model_labels(&host("qemu64"), Accelerator::Tcg).contains_key(obsolete));
    }

    #[test]
    fn models_that_run_here_can_move_here() {
        let processors = Processors { models: ["Nehalem".to_owned()].into(), ..Processors::default() };
        let shown = labels(&NodeFacts::default(), &processors);
        assert!(shown.contains_key("cpu-model.node.kubevirt.io/Nehalem"));
        assert!(shown.contains_key("cpu-model-migration.node.kubevirt.io/Nehalem"));
    }

    #[test]
    fn what_the_node_had_before_goes_and_nobody_elses_labels_do() {
        let map =
            |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), "true".to_owned())).collect::<BTreeMap<_, _>>();
        let present = map(&["host-model-cpu.node.kubevirt.io/EPYC", "host-model-cpu.node.kubevirt.io/Haswell", "zone"]);
        let wanted = map(&["host-model-cpu.node.kubevirt.io/EPYC"]);
        let stale = stale(Some(&present), &wanted);
        assert_eq!(stale, ["host-model-cpu.node.kubevirt.io/Haswell"]);
        assert_eq!(
            patch(&wanted, &stale, "now")["metadata"]["labels"]["host-model-cpu.node.kubevirt.io/Haswell"],
            Value::Null
        );
    }

    /// An API server that answers everything with one code and text.
    fn answering(code: u16, answer: &Value) -> Client {
        let answer = answer.to_string().into_bytes();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let answer = http::Response::builder().status(code).body(kube::client::Body::from(answer.clone()));
            async move { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn labels_that_pods_select_the_node_by_stay() {
        let (old, older) = ("machine-type.node.kubevirt.io/pc-q35-6.2", "machine-type.node.kubevirt.io/pc-q35-5.2");
        let stale = || vec![old.to_owned(), older.to_owned()];
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [], "nodeSelector": {(old): "true"}}});
        let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]});
        assert_eq!(without_selected(&answering(200, &pods), "n1", stale()).await, [older]);
        let refused = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403});
        assert!(without_selected(&answering(403, &refused), "n1", stale()).await.is_empty());
    }

    #[test]
    fn whoever_owns_a_node_may_describe_it_himself() {
        let node = |annotations: Value| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n1", "annotations": annotations}})).unwrap()
        };
        assert!(is_skipped(&node(json!({"node-labeller.kubevirt.io/skip-node": ""}))));
        assert!(!is_skipped(&node(json!({"other": "true"}))));
        let facts = NodeFacts { machines: vec!["q35".to_owned()], ..NodeFacts::default() };
        let all = labels(&facts, &Processors::default());
        assert!(placing().iter().all(|(key, value)| all.get(key) == Some(value)) && placing().len() < all.len());
    }
}
