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

use crate::processors::{Processors, processors};

/// Between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Until the next attempt after a failed one.
const RETRY: Duration = Duration::from_secs(2);

/// Labels the node and keeps its heartbeat going until told to stop.
pub(crate) async fn run(client: Client, name: String, facts: NodeFacts, clock: Clock, stop: CancellationToken) {
    let nodes: Api<Node> = Api::all(client);
    let wanted = labels(&facts, &processors(facts.accelerator).await);
    loop {
        let patch = patch(&wanted, &clock.now().to_string());
        let pause = match nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => HEARTBEAT,
            Err(error) => {
                tracing::debug!(%error, "cannot label the node {name}");
                RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}

fn patch(labels: &BTreeMap<String, String>, now: &str) -> Value {
    json!({"metadata": {"labels": labels, "annotations": {annotations::NODE_HEARTBEAT: format!("\"{now}\"")}}})
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
