//! What this node says about itself: labels that place guests, and a heartbeat.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrovirt_api::names::{annotations, labels};
use ferrovirt_domain::{Accelerator, NodeFacts};
use ferrovirt_reconcile::Clock;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::host_model::{HostModel, host_model};
use crate::processors::{Processors, is_obsolete, processors};

/// Between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(60);
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
    let nodes: Api<Node> = Api::all(client);
    let mut wanted = labels(&facts, &processors(facts.accelerator).await);
    // libvirt takes a while, and most guests need not wait for its answer.
    let mut asking = std::pin::pin!(host_model(facts.accelerator));
    let (mut tell, mut is_complete) = (Some(tell), false);
    let mut unwanted = Vec::new();
    loop {
        let patch = patch(&wanted, &unwanted, &clock.now().to_string());
        let pause = match nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(node) if is_complete => {
                let left = stale(node.metadata.labels.as_ref(), &wanted);
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

/// The labels that launcher pods select nodes by.
fn labels(facts: &NodeFacts, processors: &Processors) -> BTreeMap<String, String> {
    let yes = || "true".to_owned();
    let mut wanted = BTreeMap::from([(labels::NODE_SCHEDULABLE.to_owned(), yes())]);
    wanted.insert(format!("{}amd64", labels::VM_ARCH_PREFIX), yes());
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
}
