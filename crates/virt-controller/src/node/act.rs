//! Carrying out what was decided.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::ConditionStatus;
use ferrovirt_api::names::{annotations, conditions as kinds, labels, reasons};
use ferrovirt_api::vmi::{PhaseTransitionTimestamp, VirtualMachineInstancePhase as Phase};
use ferrovirt_kubernetes::Node;
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Act, Failure, Note, ObjectKey};
use kube::Api;
use serde_json::{Value, json};

use super::{NodeController, SILENCE, is_fenced};
use crate::conditions::{self, whole_seconds};

/// All that the controller can do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A node's virt-handler is not heard of any more.
    Silent {
        /// The node, as it was observed.
        node: Arc<Node>,
        /// For how long.
        silent: Duration,
        /// Send no more guests there.
        close: bool,
        /// Tell people.
        tell: bool,
    },
    /// A guest ended with its node.
    Fail(Arc<VirtualMachineInstance>),
    /// The end of a move is asked for, so that its target says where the guest is.
    AbortMove(Arc<VirtualMachineInstance>),
}

impl Act<NodeController> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Silent { .. } => "note silence",
            Self::Fail(_) => "fail guest",
            Self::AbortMove(_) => "ask for the end of a move",
        }
    }

    async fn act(self, controller: &NodeController, key: &ObjectKey) -> Result<(), Failure> {
        match self {
            Self::Silent { node, silent, close, tell } => note_silence(controller, &node, silent, close, tell).await,
            Self::Fail(vmi) => fail(controller, key, &vmi).await,
            Self::AbortMove(vmi) => {
                let changes = json!({"status": {"migrationState": {"abortRequested": true}}});
                write(controller, &vmi, changes).await
            }
        }
    }
}

async fn note_silence(
    controller: &NodeController,
    node: &Node,
    silent: Duration,
    close: bool,
    tell: bool,
) -> Result<(), Failure> {
    let api: Api<Node> = Api::all(controller.client.clone());
    let heartbeat = node.metadata.annotations.as_ref().and_then(|all| all.get(annotations::NODE_HEARTBEAT));
    let mut changes = json!({"metadata": {"annotations": {SILENCE: heartbeat}}});
    if close {
        changes["metadata"]["labels"] = json!({labels::NODE_SCHEDULABLE: "false"});
    }
    // On the condition that nobody wrote meanwhile: a heartbeat may be on its way.
    standard::patch_unchanged(&api, node, changes).await?;
    if !tell {
        return Ok(());
    }
    let message = format!(
        "virt-handler has not been heard of for {} s. Guests of the node are left alone: should it be dead, fence it and set the taint {}:NoExecute",
        silent.as_secs(),
        super::OUT_OF_SERVICE
    );
    let note = Note::warning(reasons::NODE_UNRESPONSIVE, message);
    // The recorder has logged it.
    let _ = controller.recorder.record(&reference(node), &note).await;
    Ok(())
}

async fn fail(controller: &NodeController, node: &ObjectKey, vmi: &VirtualMachineInstance) -> Result<(), Failure> {
    let operation = "fail the guest of a fenced node";
    let api: Api<Node> = Api::all(controller.client.clone());
    let found = api.get_opt(node.name()).await.map_err(|error| Failure::api(operation, error))?;
    if !found.is_some_and(|found| is_fenced(&found)) {
        return Err(Failure::new(Category::Conflict, operation, "the node is in service again"));
    }
    write(controller, vmi, changes(controller, node.name(), vmi)).await?;
    let message = format!("node {} is out of service, and the guest ended with it", node.name());
    let _ = controller.recorder.record(&reference(vmi), &Note::warning(reasons::NODE_UNRESPONSIVE, message)).await;
    Ok(())
}

fn changes(controller: &NodeController, node: &str, vmi: &VirtualMachineInstance) -> Value {
    let now = whole_seconds(controller.clock.now());
    let mut status = vmi.status.clone().unwrap_or_default();
    let message = format!("node {node} is out of service");
    let reason = reasons::NODE_UNRESPONSIVE;
    conditions::set(&mut status.conditions, &now, kinds::READY, ConditionStatus::False, reason, &message);
    let stamp = PhaseTransitionTimestamp { phase: Some(Phase::Failed), phase_transition_timestamp: Some(now) };
    status.phase_transition_timestamps.push(stamp);
    json!({"status": {
        "phase": Phase::Failed, "reason": reason, "conditions": status.conditions,
        "phaseTransitionTimestamps": status.phase_transition_timestamps,
    }})
}

async fn write(controller: &NodeController, vmi: &VirtualMachineInstance, changes: Value) -> Result<(), Failure> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<VirtualMachineInstance> = Api::namespaced(controller.client.clone(), namespace);
    standard::patch_unchanged(&api, vmi, changes).await.map(drop)
}
