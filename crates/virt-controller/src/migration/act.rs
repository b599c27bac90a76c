//! Carrying out what was decided: one call to the API for each action, and one write of the move's status.

use std::sync::Arc;

use ferrovirt_api::migration::VirtualMachineInstanceMigrationStatus as Status;
use ferrovirt_api::names::{finalizers, labels, reasons};
use ferrovirt_api::vmi::VirtualMachineInstancePhase as GuestPhase;
use ferrovirt_api::{ToJson, VirtualMachineInstance, VirtualMachineInstanceMigration as Migration};
use ferrovirt_kubernetes::Pod;
use ferrovirt_pods::{LauncherPod, target_pod_name};
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Act, Failure, Note, ObjectKey};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::hand_off::HandOff;
use super::observe::record_of;
use super::{MigrationController, View, candidate};
use crate::caches::guest_key;
use crate::conditions::whole_seconds;
use crate::patch::difference;
use crate::vmi::confirm_fenced;

/// All that the controller can do, besides writing the move's status.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create the pod that the guest moves to.
    CreateTarget(Box<Pod>),
    /// Delete that pod, after making sure that the guest neither runs in it nor may come to.
    DeleteTarget(Arc<LauncherPod>),
    /// Tell the nodes to move the guest.
    HandOff(Box<HandOff>),
    /// Ask the nodes to stop.
    Abort(Arc<VirtualMachineInstance>),
    /// Write down that the move failed, in place of a node that cannot any more.
    FailMove {
        /// The guest, as it was observed.
        vmi: Arc<VirtualMachineInstance>,
        /// Why.
        reason: String,
    },
    /// Make sure that the guest's object does not speak of this move: what follows cannot be taken back.
    ConfirmNotHandedOff,
    /// Make sure that the node is out of service.
    ConfirmFenced(String),
    /// Make sure that there is no target pod.
    ConfirmNoTarget,
    /// Make sure that there is no guest that this move could be for.
    ConfirmNoGuest,
    /// Delete the move's object.
    DeleteMigration(Arc<Migration>),
    /// Let the move's object vanish.
    LetGo(Arc<Migration>),
    /// Tell people.
    Tell(Note),
    /// Tell people who look at the guest: the nodes, which do that otherwise, know nothing of it.
    TellGuest(Arc<VirtualMachineInstance>, Note),
}

impl Act<MigrationController> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::CreateTarget(_) => "create target pod",
            Self::DeleteTarget(_) => "delete target pod",
            Self::HandOff(_) => "hand off",
            Self::Abort(_) => "ask for an abort",
            Self::FailMove { .. } => "record the failure",
            Self::ConfirmNotHandedOff => "confirm that the move was not handed off",
            Self::ConfirmFenced(_) => "confirm that the node is out of service",
            Self::ConfirmNoTarget => "confirm that the target pod is gone",
            Self::ConfirmNoGuest => "confirm that the guest is gone",
            Self::DeleteMigration(_) => "delete migration",
            Self::LetGo(_) => "remove finalizer",
            Self::Tell(_) | Self::TellGuest(..) => "record event",
        }
    }

    async fn act(self, controller: &MigrationController, key: &ObjectKey) -> Result<(), Failure> {
        let pods: Api<LauncherPod> = Api::namespaced(controller.client.clone(), key.namespace());
        let migrations: Api<Migration> = Api::namespaced(controller.client.clone(), key.namespace());
        match self {
            Self::CreateTarget(pod) => controller.create_target(&pod, key).await,
            Self::DeleteTarget(pod) => {
                confirm_not_needed(controller, key, &pod).await?;
                let (guard, params) = (standard::Guard::SameObject, DeleteParams::default());
                let expected = &controller.expected_pods;
                let deleted = standard::delete_expected(&pods, &*pod, guard, params, key, expected).await;
                controller.tell_failure(key, reasons::FAILED_DELETE, deleted.map(drop)).await
            }
            Self::HandOff(record) => {
                let changes = hand_off_changes(&record)?;
                let written = controller.write_guest(key, &record.vmi, changes).await;
                controller.tell_failure(key, reasons::FAILED_HAND_OVER, written).await
            }
            Self::Abort(vmi) => {
                let changes = json!({"status": {"migrationState": {"abortRequested": true}}});
                controller.write_guest(key, &vmi, changes).await
            }
            Self::FailMove { vmi, reason } => {
                let end = whole_seconds(controller.clock.now());
                let state = json!({"failed": true, "failureReason": reason, "endTimestamp": end});
                controller.write_guest(key, &vmi, json!({"status": {"migrationState": state}})).await?;
                controller.tell_guest(&vmi, &failed(&reason)).await;
                Ok(())
            }
            Self::ConfirmNotHandedOff => {
                let Some((migration, guest)) = fresh(controller, key).await? else { return Ok(()) };
                let uid = migration.metadata.uid.as_deref().unwrap_or_default();
                let is_open = guest.is_some_and(|guest| candidate::is_open(&guest, uid));
                refuse(is_open, "confirm that the move was not handed off", "it was")
            }
            Self::ConfirmFenced(node) => confirm_fenced(&Api::all(controller.client.clone()), vec![node]).await,
            Self::ConfirmNoTarget => confirm_no_target(controller, key, &pods).await,
            Self::ConfirmNoGuest => {
                let Some((migration, guest)) = fresh(controller, key).await? else { return Ok(()) };
                let created = migration.metadata.creation_timestamp.as_ref().map(|time| time.0);
                let is_there =
                    guest.is_some_and(|guest| guest.metadata.creation_timestamp.as_ref().map(|time| time.0) <= created);
                refuse(is_there, "confirm that the guest is gone", "it is there")
            }
            Self::DeleteMigration(migration) => {
                let (guard, params) = (standard::Guard::SameObject, DeleteParams::default());
                let expected = &controller.expected_migrations;
                standard::delete_expected(&migrations, &*migration, guard, params, key, expected).await.map(drop)
            }
            Self::LetGo(migration) => {
                let held = migration.metadata.finalizers.iter().flatten();
                let rest: Vec<_> = held.filter(|finalizer| *finalizer != finalizers::MIGRATION).collect();
                let changes = json!({"metadata": {"finalizers": rest}});
                let written = standard::patch_unchanged(&migrations, &*migration, changes).await?;
                controller.expected_migrations.updated(key, &written);
                Ok(())
            }
            Self::Tell(note) => {
                controller.tell(key, &note).await;
                Ok(())
            }
            Self::TellGuest(vmi, note) => {
                controller.tell_guest(&vmi, &note).await;
                Ok(())
            }
        }
    }
}

impl MigrationController {
    async fn create_target(&self, pod: &Pod, key: &ObjectKey) -> Result<(), Failure> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), key.namespace());
        let uid = pod.metadata.labels.as_ref().and_then(|all| all.get(labels::MIGRATION_JOB));
        let uid = uid.cloned().unwrap_or_default();
        // Before the call: nobody else may take the slot while it lasts.
        self.started.lock().insert(uid.clone());
        let created = standard::create_expected(&pods, pod, key, &self.expected_pods).await;
        if let Err(failure) = &created
            && !matches!(failure.category(), Category::Unavailable | Category::Internal)
        {
            // It surely was not made. In any other case the slot stays taken: this move will try again.
            self.started.lock().remove(&uid);
        }
        self.tell_failure(key, reasons::FAILED_CREATE, created.map(drop)).await
    }

    /// Merges into the guest's object, unless somebody wrote meanwhile.
    async fn write_guest(&self, key: &ObjectKey, vmi: &VirtualMachineInstance, changes: Value) -> Result<(), Failure> {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), key.namespace());
        let written = standard::patch_unchanged(&api, vmi, changes).await?;
        self.expected_vmis.updated(key, &written);
        Ok(())
    }

    /// A note that cannot be written stops nothing.
    async fn tell(&self, key: &ObjectKey, note: &Note) {
        if let Some(migration) = self.caches.migrations.get_key(key) {
            // The recorder has logged it.
            let _ = self.recorder.record(&reference(&*migration), note).await;
        }
    }

    async fn tell_guest(&self, vmi: &VirtualMachineInstance, note: &Note) {
        let _ = self.recorder.record(&reference(vmi), note).await;
    }

    /// Passes a result on; people hear of a failure that is not just a lagging cache.
    async fn tell_failure(&self, key: &ObjectKey, reason: &str, result: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &result
            && !failure.category().is_quiet()
        {
            self.tell(key, &Note::warning(reason, failure.message())).await;
        }
        result
    }
}

/// What people read at the guest about a move that failed: the word is the one that nodes use for the end of a move.
pub(super) fn failed(reason: &str) -> Note {
    Note::warning("Migrated", format!("The migration of the VirtualMachineInstance failed: {reason}"))
}

fn refuse(is_wrong: bool, operation: &str, why: &str) -> Result<(), Failure> {
    if is_wrong { Err(Failure::new(Category::Conflict, operation, why)) } else { Ok(()) }
}

/// The move as the cache has it, and its guest as it is now.
async fn fresh(
    controller: &MigrationController,
    key: &ObjectKey,
) -> Result<Option<(Arc<Migration>, Option<VirtualMachineInstance>)>, Failure> {
    let Some(migration) = controller.caches.migrations.get_key(key) else { return Ok(None) };
    let guest = guest_key(&migration);
    let api: Api<VirtualMachineInstance> = Api::namespaced(controller.client.clone(), guest.namespace());
    let found = api.get_opt(guest.name()).await;
    let found = found.map_err(|error| Failure::api(format!("read guest {guest}"), error))?;
    Ok(Some((migration, found)))
}

/// The guest is not the target's, and the move that could make it so is over or never began.
async fn confirm_not_needed(
    controller: &MigrationController,
    key: &ObjectKey,
    pod: &LauncherPod,
) -> Result<(), Failure> {
    let Some((migration, Some(guest))) = fresh(controller, key).await? else { return Ok(()) };
    if standard::owner_uid(pod) != guest.metadata.uid.as_deref() {
        return Ok(());
    }
    let status = guest.status.as_ref();
    let on = pod.node_name.as_deref();
    let uid = migration.metadata.uid.as_deref().unwrap_or_default();
    // A move that the guest's object does not speak of has not brought it anywhere, and its pod may be on any node.
    let is_current =
        on.is_some() && status.and_then(|status| status.node_name.as_deref()) == on && record_of(&guest, uid).is_some();
    let is_final = status.and_then(|status| status.phase).is_some_and(GuestPhase::is_final);
    let is_open = candidate::is_open(&guest, uid);
    let operation = "confirm that the target pod is not needed";
    refuse(is_current, operation, "the guest runs in it")?;
    refuse(is_open && !is_final, operation, "the nodes have not said yet that the move is over")
}

async fn confirm_no_target(
    controller: &MigrationController,
    key: &ObjectKey,
    pods: &Api<LauncherPod>,
) -> Result<(), Failure> {
    let Some((migration, Some(guest))) = fresh(controller, key).await? else { return Ok(()) };
    let name = target_pod_name(&guest, &migration);
    let operation = format!("confirm that pod {name} is gone");
    let found = pods.get_metadata_opt(&name).await.map_err(|error| Failure::api(operation.clone(), error))?;
    let is_there = found.is_some_and(|found| standard::owner_uid(&found) == guest.metadata.uid.as_deref());
    refuse(is_there, &operation, "it is still there")
}

/// The merge patch that replaces the guest's account of an older move by that of this one.
fn hand_off_changes(record: &HandOff) -> Result<Value, Failure> {
    let status = record.vmi.status.clone().unwrap_or_default();
    let old = json!({"state": status.migration_state.as_deref().map(to_json).transpose()?, "pods": status.active_pods});
    let new = json!({"state": to_json(&record.state)?, "pods": record.active_pods});
    let difference = difference(&old, &new).unwrap_or_default();
    let mut changes = json!({
        "metadata": {"labels": {labels::MIGRATION_TARGET_NODE_NAME: record.state.target_node}},
        "status": {"migrationState": difference["state"]},
    });
    if !difference["pods"].is_null() {
        changes["status"]["activePods"] = difference["pods"].clone();
    }
    Ok(changes)
}

fn to_json(value: &impl ToJson) -> Result<Value, Failure> {
    let rendered = value.to_json();
    rendered.map_err(|error| Failure::new(Category::Internal, "write a move's record as JSON", error))
}

/// Writes what changed in the status. The API server refuses it when somebody else has written since the move was observed.
pub(super) async fn write(controller: &MigrationController, view: &View, status: &Status) -> Result<(), Failure> {
    let Some(key) = ObjectKey::of(&*view.migration) else { return Ok(()) };
    let Some(changes) = difference(&to_json(&view.status)?, &to_json(status)?) else { return Ok(()) };
    let api: Api<Migration> = Api::namespaced(controller.client.clone(), key.namespace());
    let written = standard::patch_status_unchanged(&api, &*view.migration, changes).await?;
    controller.expected_migrations.updated(&key, &written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use ferrovirt_api::vmi::MigrationState;

    use super::*;

    #[test]
    fn a_new_record_leaves_nothing_of_the_old_one() {
        let vmi = json!({"metadata": {"name": "web"}, "spec": {"domain": {"devices": {}}}, "status": {
            "activePods": {"old": "n0", "source": "n1"},
            "migrationState": {"migrationUid": "before", "failed": true, "sourceMayResume": true, "targetNode": "n2", "targetNodeAddress": "a"},
        }});
        let state =
            MigrationState { migration_uid: Some("now".into()), target_node: Some("n3".into()), ..Default::default() };
        let active_pods = [("source".to_owned(), "n1".to_owned()), ("target".to_owned(), "n3".to_owned())].into();
        let record = HandOff { vmi: Arc::new(serde_json::from_value(vmi).unwrap()), state, active_pods };
        let expected = json!({
            "metadata": {"labels": {"kubevirt.io/migrationTargetNodeName": "n3"}},
            "status": {
                "activePods": {"old": null, "target": "n3"},
                "migrationState": {
                    "migrationUid": "now", "failed": null, "sourceMayResume": null, "targetNode": "n3", "targetNodeAddress": null,
                },
            },
        });
        assert_eq!(hand_off_changes(&record).unwrap(), expected);
    }
}
