//! The record that hands a guest's move to the two nodes: one write of the guest's object, refused if anybody wrote meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::{MigrationSourceState, MigrationState, MigrationTargetState};
use ferrovirt_pods::LauncherPod;

use super::{View, policy};
use crate::vmi::hand_over::active_pods;
use crate::vmi::unaccounted::Account;

/// What the guest's object gets to say.
#[derive(Clone, Debug, PartialEq)]
pub struct HandOff {
    /// The guest, as it was observed.
    pub vmi: Arc<VirtualMachineInstance>,
    /// The account of the move, in place of any older one.
    pub state: MigrationState,
    /// The pods of the guest.
    pub active_pods: BTreeMap<String, String>,
}

/// The hand-off of a guest in `source` to `target` on `node`.
pub(super) fn record(
    view: &View,
    vmi: &Arc<VirtualMachineInstance>,
    source: &LauncherPod,
    target: &LauncherPod,
    node: &str,
) -> HandOff {
    let none = BTreeMap::new();
    let labels = vmi.metadata.labels.as_ref().unwrap_or(&none);
    let configuration = view.cluster.configuration().migrations;
    let (policy, options) = policy::resolve(configuration.as_ref(), &view.policies, &view.namespace_labels, labels);
    let uid = Some(view.uid().to_owned());
    let source_node = vmi.status.as_ref().and_then(|status| status.node_name.clone());
    let (guest, namespace) = (vmi.metadata.name.clone(), vmi.metadata.namespace.clone());
    let selectors = target.node_selector.clone();
    let state = MigrationState {
        migration_uid: uid.clone(),
        source_node: source_node.clone(),
        source_pod: source.metadata.name.clone(),
        target_node: Some(node.to_owned()),
        target_pod: target.metadata.name.clone(),
        migration_policy_name: policy,
        migration_configuration: Some(options),
        source_state: Some(MigrationSourceState {
            node: source_node,
            pod: source.metadata.name.clone(),
            migration_uid: uid.clone(),
            domain_name: guest.clone(),
            domain_namespace: namespace.clone(),
            virtual_machine_instance_uid: vmi.metadata.uid.clone(),
            selinux_context: vmi.status.as_ref().and_then(|status| status.selinux_context.clone()),
            node_selectors: selectors,
            ..MigrationSourceState::default()
        }),
        target_state: Some(MigrationTargetState {
            node: Some(node.to_owned()),
            pod: target.metadata.name.clone(),
            migration_uid: uid,
            domain_name: guest,
            domain_namespace: namespace,
            virtual_machine_instance_uid: vmi.metadata.uid.clone(),
            ..MigrationTargetState::default()
        }),
        ..MigrationState::default()
    };
    let is_involved =
        |pod: &&Arc<LauncherPod>| pod.metadata.uid == source.metadata.uid || pod.metadata.uid == target.metadata.uid;
    let pods: Vec<_> = view.pods.iter().filter(is_involved).cloned().collect();
    // Pods of earlier moves stay in the ledger until they are accounted for.
    let mut ledger = vmi.status.as_ref().map(|status| status.active_pods.clone()).unwrap_or_default();
    let account = Account::of(vmi, &ledger, &view.pods, &view.known);
    ledger.retain(|pod, _| !account.settled.contains(pod));
    ledger.extend(active_pods(&pods));
    HandOff { vmi: vmi.clone(), state, active_pods: ledger }
}
