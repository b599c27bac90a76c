//! Guests that move here: the controller of those whose object names this node as the target and another as the owner.
//!
//! ```text
//!   hand-off ─► prepare ─► announce the address ─► the launcher has started it: take over, the guest is ours
//!                  │                └─► the launcher never runs it: failed, and the source may go on
//!                  └─► called off: the launcher discards it
//! ```
//!
//! The take-over is one write of the whole object on the version that was judged: its node, and all that changes with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::names::{annotations, labels};
use ferrovirt_api::vmi::{MigrationAbortStatus, MigrationState, VirtualMachineInstancePhase};
use ferrovirt_handover::{TargetOrder, TargetSeen, TargetStage, at_target};
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::DomainReport;
use ferrovirt_launcher_rpc::migration::{CancelRequest, TargetRequest};
use ferrovirt_reconcile::controller::Category;
use ferrovirt_reconcile::{Act, Controller, Failure, ObjectKey, Plan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::record::{Move, target_stage};
use super::{news, progress};
use crate::vmi::{Guests, World, give, image_missing, launcher_failed, report, wiring_failed};
use crate::{container_disks, devices};

/// A target that cannot be prepared for so long will not be: the move fails, and the guest stays where it is.
const PATIENCE: Duration = Duration::from_secs(180);

/// The controller.
pub(crate) struct Arriving(pub(crate) Guests);

/// All that a decision depends on.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) vmi: Arc<VirtualMachineInstance>,
    /// The target's pod.
    pub(crate) pod: Option<Arc<Pod>>,
    /// What its launcher last said.
    pub(crate) report: Option<DomainReport>,
    /// It can be spoken to now.
    pub(crate) reachable: bool,
    /// This node.
    pub(crate) node: String,
    /// Where it listens.
    pub(crate) address: (IpAddr, u16),
    pub(crate) now: Timestamp,
}

/// All that can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Links, disks and libvirt are made ready.
    Prepare,
    /// The launcher is told that it never runs the guest.
    Discard(String),
}

/// The judgement.
pub(crate) fn decide(view: &View) -> Plan<Action, VirtualMachineInstance> {
    let Some(moving) = Move::to_node(&view.vmi, &view.node) else { return Plan::nothing() };
    match at_target(&moving.record, &seen(view, &moving)) {
        TargetOrder::Nothing => Plan::nothing(),
        // Another pod of that name may have been here before.
        TargetOrder::Prepare if !view.pod.as_deref().is_some_and(|pod| World::is_recorded(&view.vmi, pod)) => {
            Plan::nothing()
        }
        TargetOrder::Prepare => Plan::nothing().then(Action::Prepare),
        TargetOrder::Discard => Plan::nothing().then(Action::Discard(wish(moving.state))),
        TargetOrder::Announce => Plan::nothing().report(edited(view, |state| announce(state, view.address))),
        TargetOrder::TakeOver => Plan::nothing().report(taken_over(view)),
        TargetOrder::Fail { reason, source_may_resume } => {
            Plan::nothing().report(edited(view, |state| fail(state, &reason, source_may_resume, view.now)))
        }
    }
}

/// What is known about the launcher.
fn seen<'a>(view: &'a View, moving: &Move<'_>) -> TargetSeen<'a> {
    let stage = target_stage(view.report.as_ref().and_then(|report| report.migration.as_ref()), moving.id);
    // What was said for ever holds whether it can be repeated or not.
    if let Some(stage @ (TargetStage::Started | TargetStage::Never(_))) = stage {
        return TargetSeen::At(stage);
    }
    if let Some(words) = view.pod.as_deref().and_then(report::last_words) {
        return match target_stage(words.migration.as_ref(), moving.id) {
            Some(TargetStage::Waiting | TargetStage::Receiving | TargetStage::Never(_)) => TargetSeen::EndedUnstarted,
            Some(TargetStage::Starting | TargetStage::Started) => TargetSeen::EndedUnknown,
            // Nobody calls a target without an address.
            None if !moving.record.has_address => TargetSeen::EndedUnstarted,
            None => TargetSeen::EndedUnknown,
        };
    }
    match (view.reachable && view.report.is_some(), stage) {
        (false, _) => TargetSeen::Silence,
        (true, None) => TargetSeen::Idle,
        (true, Some(stage)) => TargetSeen::At(stage),
    }
}

fn wish(state: &MigrationState) -> String {
    let failed = state.failure_reason.clone().filter(|_| state.failed);
    failed.unwrap_or_else(|| "the move was called off".to_owned())
}

/// The object with another record.
fn edited(view: &View, change: impl FnOnce(&mut MigrationState)) -> VirtualMachineInstance {
    let mut vmi = VirtualMachineInstance::clone(&view.vmi);
    if let Some(state) = vmi.status.as_mut().and_then(|status| status.migration_state.as_mut()) {
        change(state);
    }
    vmi
}

fn announce(state: &mut MigrationState, (address, port): (IpAddr, u16)) {
    // One port carries every channel: each connection says which it is for.
    let ports = std::collections::BTreeMap::from([(port.to_string(), 0)]);
    state.target_node_address = Some(address.to_string());
    state.target_direct_migration_node_ports = ports.clone();
    let target = state.target_state.get_or_insert_default();
    target.node_address = Some(address.to_string());
    target.direct_migration_node_ports = ports;
}

fn fail(state: &mut MigrationState, reason: &str, source_may_resume: bool, now: Timestamp) {
    state.failed = true;
    progress::show_doubt(state, None);
    state.failure_reason = Some(reason.to_owned());
    state.source_may_resume = source_may_resume;
    state.end_timestamp = Some(Time(now));
    if state.abort_requested {
        state.abort_status = Some(MigrationAbortStatus::Succeeded);
    }
}

/// The object of a guest that runs here.
fn taken_over(view: &View) -> VirtualMachineInstance {
    let mut vmi = VirtualMachineInstance::clone(&view.vmi);
    let is_over =
        vmi.status.as_ref().and_then(|status| status.phase).is_some_and(VirtualMachineInstancePhase::is_final);
    if let Some(report) = view.report.as_ref().filter(|_| !is_over) {
        vmi.status = Some(report::alive(&vmi, view.pod.as_deref(), report, None, view.now));
    }
    let labels = vmi.metadata.labels.get_or_insert_default();
    labels.insert(labels::NODE_NAME.to_owned(), view.node.clone());
    labels.remove(labels::OUTDATED_LAUNCHER_IMAGE);
    if let Some(annotations) = &mut vmi.metadata.annotations {
        annotations.remove(annotations::EVICTION_SOURCE);
    }
    let status = vmi.status.get_or_insert_default();
    status.node_name = Some(view.node.clone());
    status.evacuation_node_name = None;
    status.migrated_volumes.clear();
    status.launcher_container_image_version =
        view.pod.as_deref().and_then(image).or(status.launcher_container_image_version.take());
    if let Some(state) = &mut status.migration_state {
        if let Some(heard) = view.report.as_ref().and_then(|report| report.migration.as_ref()) {
            progress::show_last(state, heard);
        }
        complete(state, view.now);
        progress::conclude(state, view.report.as_ref().and_then(|report| report.migration.as_ref()));
    }
    vmi
}

/// It has moved, whatever was written meanwhile.
fn complete(state: &mut MigrationState, now: Timestamp) {
    let now = Time(now);
    progress::show_doubt(state, None);
    (state.completed, state.failed, state.source_may_resume, state.failure_reason) = (true, false, false, None);
    state.end_timestamp = Some(now.clone());
    state.target_node_domain_detected = true;
    state.target_node_domain_ready_timestamp = Some(now.clone());
    let target = state.target_state.get_or_insert_default();
    target.domain_detected = true;
    target.domain_ready_timestamp = Some(now);
    if state.abort_requested {
        state.abort_status = Some(MigrationAbortStatus::Failed);
    }
}

/// The launcher's image.
fn image(pod: &Pod) -> Option<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.into_iter().find(|container| container.name == "compute")?.image.clone()
}

impl Controller for Arriving {
    const NAME: &'static str = "virt-handler-arriving";
    type Key = ObjectKey;
    type View = View;
    type Action = Action;
    type Status = VirtualMachineInstance;

    fn hold(&self, key: &ObjectKey) -> Option<Duration> {
        self.0.arrivals_written.hold(key)
    }

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let guests = &self.0;
        let vmi = guests.arriving.get_key(key)?;
        let pod = guests.pod_of(&vmi);
        let followed = pod.as_ref().and_then(|pod| Some(guests.followers.get(pod.metadata.uid.as_deref()?)));
        let followed = followed.unwrap_or_default();
        Some(View {
            report: followed.report.filter(|report| report.uid.is_none() || report.uid == vmi.metadata.uid),
            reachable: followed.launcher.is_some(),
            vmi,
            pod,
            node: guests.node.clone(),
            address: guests.peers.address(),
            now: guests.clock.now(),
        })
    }

    fn decide(view: &View) -> Plan<Action, VirtualMachineInstance> {
        decide(view)
    }

    fn observed_status(view: &View) -> Option<&VirtualMachineInstance> {
        Some(&view.vmi)
    }

    fn status_after(view: &View, failure: &Failure) -> Option<VirtualMachineInstance> {
        gives_up(view, failure.category() == Category::Hopeless).then(|| {
            let reason = format!("node {} cannot receive the guest: {}", view.node, failure.message());
            edited(view, |state| fail(state, &reason, true, view.now))
        })
    }

    async fn write_status(&self, view: &View, vmi: VirtualMachineInstance) -> Result<(), Failure> {
        let news = news::news(view.vmi.status.as_ref(), vmi.status.as_ref());
        let written = self.0.write(vmi).await?;
        if let Some(key) = ObjectKey::of(&written) {
            self.0.arrivals_written.updated(&key, &written);
        }
        if let Some(note) = news {
            self.0.tell(&written, &note).await;
        }
        Ok(())
    }
}

/// Whether what could not be done ends the move. Only without an address is it sure that nobody was told to run the guest.
fn gives_up(view: &View, hopeless: bool) -> bool {
    let Some(moving) = Move::to_node(&view.vmi, &view.node) else { return false };
    let begin = view.pod.as_ref().and_then(|pod| pod.status.as_ref()?.start_time.as_ref().map(|time| time.0));
    let waited = begin.and_then(|begin| Duration::try_from(view.now.duration_since(begin)).ok());
    let is_open = !moving.record.has_address && !moving.record.failed && !moving.record.is_targets;
    is_open && (hopeless || waited.is_some_and(|waited| waited > PATIENCE))
}

impl Act<Arriving> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Discard(_) => "discard",
        }
    }

    async fn act(self, arriving: &Arriving, key: &ObjectKey) -> Result<(), Failure> {
        let guests = &arriving.0;
        let gone = || Failure::new(Category::NotFound, "receive the guest", "the object or its pod is gone");
        let vmi = guests.arriving.get_key(key).ok_or_else(gone)?;
        let pod = guests.pod_of(&vmi).ok_or_else(gone)?;
        let launcher =
            guests.followers.get(pod.metadata.uid.as_deref().unwrap_or_default()).launcher.ok_or_else(gone)?;
        let id = Move::to_node(&vmi, &guests.node).ok_or_else(gone)?.id.to_owned();
        if let Self::Discard(reason) = self {
            let told = launcher.cancel_move(CancelRequest { id, reason }).await;
            return told.map_err(|error| launcher_failed("discard the guest", error));
        }
        if !World::is_recorded(&vmi, &pod) {
            return Err(gone());
        }
        let links = guests.wiring.links(&vmi, &pod, &*launcher).await.map_err(wiring_failed)?;
        let claims = crate::claims::of(&vmi);
        give(&vmi, &pod, &claims, launcher.process()).await?;
        container_disks::mount(&vmi, &pod, &*launcher).await.map_err(image_missing)?;
        let facts = devices::facts(&guests.facts, &pod, claims);
        let disks = ferrovirt_domain::target_disk_tasks(&vmi, &facts, &links);
        let disks = disks.map_err(|error| Failure::new(Category::Hopeless, "receive the guest", error))?;
        let request = TargetRequest {
            id,
            uid: vmi.metadata.uid.clone().unwrap_or_default(),
            name: format!("{}_{}", key.namespace(), key.name()),
            disks,
            dhcp: links.into_iter().filter_map(|link| link.dhcp).collect(),
        };
        launcher.prepare_target(request).await.map_err(|error| launcher_failed("receive the guest", error))
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
