//! A move as the guest's object tells it.

use std::net::IpAddr;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::MigrationState;
use ferrovirt_handover::{Record, SourceStage, TargetStage};
use ferrovirt_launcher_rpc::migration::{MigrationReport, Stage};

/// The newest move of a guest that was handed off to the nodes.
pub(crate) struct Move<'a> {
    /// UID of the migration.
    pub(crate) id: &'a str,
    /// All that the object says.
    pub(crate) state: &'a MigrationState,
    /// What decisions depend on.
    pub(crate) record: Record,
}

impl<'a> Move<'a> {
    /// The newest move.
    pub(crate) fn of(vmi: &'a VirtualMachineInstance) -> Option<Self> {
        let status = vmi.status.as_ref()?;
        let state = status.migration_state.as_ref()?;
        let id = state.migration_uid.as_deref().filter(|id| !id.is_empty())?;
        let has_ended = status.phase.is_some_and(ferrovirt_api::vmi::VirtualMachineInstancePhase::is_final);
        let record = Record {
            has_address: address(state).is_some(),
            abort: state.abort_requested || vmi.metadata.deletion_timestamp.is_some() || has_ended,
            failed: state.failed,
            source_may_resume: state.failed && state.source_may_resume,
            is_targets: state.target_node.is_some() && status.node_name == state.target_node,
        };
        Some(Self { id, state, record })
    }

    /// The newest move, if it is one away from this node.
    pub(crate) fn from_node(vmi: &'a VirtualMachineInstance, node: &str) -> Option<Self> {
        Self::of(vmi).filter(|moving| moving.state.source_node.as_deref() == Some(node))
    }

    /// The newest move, if it is one to this node.
    pub(crate) fn to_node(vmi: &'a VirtualMachineInstance, node: &str) -> Option<Self> {
        Self::of(vmi).filter(|moving| moving.state.target_node.as_deref() == Some(node))
    }
}

/// Where the target's node listens.
pub(crate) fn address(state: &MigrationState) -> Option<(IpAddr, u16)> {
    let address = state.target_node_address.as_deref()?.parse().ok()?;
    let port = state.target_direct_migration_node_ports.keys().next()?.parse().ok()?;
    Some((address, port))
}

/// Where a launcher is in this move, as the guest's source.
pub(crate) fn source_stage<'a>(report: Option<&'a MigrationReport>, id: &str) -> Option<&'a SourceStage> {
    match &report.filter(|report| report.id == id)?.stage {
        Stage::Source(stage) => Some(stage),
        Stage::Target(_) => None,
    }
}

/// Where a launcher is in this move, as the guest's target.
pub(crate) fn target_stage<'a>(report: Option<&'a MigrationReport>, id: &str) -> Option<&'a TargetStage> {
    match &report.filter(|report| report.id == id)?.stage {
        Stage::Target(stage) => Some(stage),
        Stage::Source(_) => None,
    }
}

/// The name of the guest's launcher pod on a node, where its newest move tells.
pub(crate) fn pod_on<'a>(vmi: &'a VirtualMachineInstance, node: &str) -> Option<&'a str> {
    let state = Move::of(vmi)?.state;
    let side = |at: &Option<String>, pod: &'a Option<String>| pod.as_deref().filter(|_| at.as_deref() == Some(node));
    side(&state.source_node, &state.source_pod).or_else(|| side(&state.target_node, &state.target_pod))
}
