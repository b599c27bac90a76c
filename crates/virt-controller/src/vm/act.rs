//! Carrying out what was decided: one call to the API for each action, and one write of the machine's status.

use std::fmt::Debug;
use std::sync::Arc;

use ferrovirt_api::names::{finalizers, reasons};
use ferrovirt_api::vm::{DataVolume, VirtualMachineStatus};
use ferrovirt_api::{ToJson, VirtualMachine, VirtualMachineInstance};
use ferrovirt_kubernetes::ControllerRevision;
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Act, Failure, Note, ObjectKey};
use k8s_openapi::NamespaceResourceScope;
use kube::api::DeleteParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::VmController;
use super::observe::Machine;
use crate::patch::difference;

/// An object as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    uid: String,
    version: String,
}

impl Seen {
    /// Identity and version of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self { uid: meta.uid.clone().unwrap_or_default(), version: meta.resource_version.clone().unwrap_or_default() }
    }
}

/// All that the controller can do, besides writing the machine's status.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make sure that the machine is what the cache says: what follows cannot be taken back.
    ConfirmMachine(Seen),
    /// Make sure that the guest of this name is what the cache says, or that there is none.
    ConfirmGuest(Option<Seen>),
    /// Make sure that the machine that owns a guest is gone.
    ConfirmNoMachine {
        /// The owner's uid, if the guest has an owner.
        owner: Option<String>,
    },
    /// Change the machine itself: a merge patch.
    PatchMachine {
        /// The machine, as it was observed.
        vm: Arc<VirtualMachine>,
        /// What changes.
        changes: Value,
    },
    /// Keep what the machine is at this start.
    CreateRevision(Box<ControllerRevision>),
    /// Forget what the machine was at an earlier start.
    DeleteRevision(Arc<ControllerRevision>),
    /// Create the guest.
    CreateGuest(Box<VirtualMachineInstance>),
    /// Delete the guest, unless somebody has changed it.
    DeleteGuest(Arc<VirtualMachineInstance>),
    /// Change the guest: a merge patch.
    PatchGuest {
        /// The guest.
        vmi: Arc<VirtualMachineInstance>,
        /// What changes.
        changes: Value,
    },
    /// Take this controller's finalizer from the guest.
    Release(Arc<VirtualMachineInstance>),
    /// Create a data volume.
    CreateDataVolume(Box<DataVolume>),
    /// Tell people.
    Tell(Note),
}

impl Act<VmController> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::ConfirmMachine(_) => "confirm the machine",
            Self::ConfirmGuest(_) => "confirm the guest",
            Self::ConfirmNoMachine { .. } => "confirm that the machine is gone",
            Self::PatchMachine { .. } => "patch machine",
            Self::CreateRevision(_) => "create revision",
            Self::DeleteRevision(_) => "delete revision",
            Self::CreateGuest(_) => "create guest",
            Self::DeleteGuest(_) => "delete guest",
            Self::PatchGuest { .. } => "patch guest",
            Self::Release(_) => "release guest",
            Self::CreateDataVolume(_) => "create data volume",
            Self::Tell(_) => "record event",
        }
    }

    async fn act(self, controller: &VmController, key: &ObjectKey) -> Result<(), Failure> {
        match self {
            Self::ConfirmMachine(seen) => {
                confirm(&controller.api::<VirtualMachine>(key), key.name(), Some(&seen)).await
            }
            Self::ConfirmGuest(seen) => confirm(&controller.guests(key), key.name(), seen.as_ref()).await,
            Self::ConfirmNoMachine { owner } => {
                confirm_no_machine(&controller.api(key), key.name(), owner.as_deref()).await
            }
            Self::PatchMachine { vm, changes } => controller.patch_machine(key, &vm, changes).await,
            Self::CreateRevision(revision) => {
                let expected = &controller.expected_revisions;
                let created = standard::create_expected(&controller.api(key), &*revision, key, expected).await;
                controller.tell_failure(key, reasons::FAILED_CREATE, created.map(drop)).await
            }
            Self::DeleteRevision(revision) => {
                let (guard, params) = (standard::Guard::SameObject, DeleteParams::default());
                standard::delete(&controller.api(key), &*revision, guard, params).await.map(drop)
            }
            Self::CreateGuest(vmi) => {
                let created =
                    standard::create_expected(&controller.guests(key), &vmi, key, &controller.expected_vmis).await;
                controller.tell_failure(key, reasons::FAILED_CREATE, created.map(drop)).await
            }
            Self::DeleteGuest(vmi) => {
                let (guard, params) = (standard::Guard::Unchanged, DeleteParams::default());
                let (guests, expected) = (controller.guests(key), &controller.expected_vmis);
                let deleted = standard::delete_expected(&guests, &*vmi, guard, params, key, expected).await;
                controller.tell_failure(key, reasons::FAILED_DELETE, deleted.map(drop)).await
            }
            Self::PatchGuest { vmi, changes } => controller.patch_guest(key, &vmi, changes).await,
            Self::Release(vmi) => {
                let held = vmi.metadata.finalizers.iter().flatten();
                let rest: Vec<&String> = held.filter(|finalizer| *finalizer != finalizers::VM_CONTROLLER).collect();
                let released = controller.patch_guest(key, &vmi, json!({"metadata": {"finalizers": rest}})).await;
                gone_is_fine(released)
            }
            Self::CreateDataVolume(volume) => controller.create_data_volume(key, &volume).await,
            Self::Tell(note) => {
                controller.tell(key, &note).await;
                Ok(())
            }
        }
    }
}

impl VmController {
    fn api<K>(&self, key: &ObjectKey) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), key.namespace())
    }

    fn guests(&self, key: &ObjectKey) -> Api<VirtualMachineInstance> {
        self.api(key)
    }

    /// A note that cannot be written stops nothing.
    async fn tell(&self, key: &ObjectKey, note: &Note) {
        if let Some(vm) = self.caches.vms.get_key(key) {
            // The recorder has logged it.
            let _ = self.recorder.record(&reference(&*vm), note).await;
        }
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

    async fn patch_machine(&self, key: &ObjectKey, vm: &VirtualMachine, changes: Value) -> Result<(), Failure> {
        let written = standard::patch_unchanged(&self.api(key), vm, changes).await;
        gone_is_fine(written.map(|written| self.expected_vms.updated(key, &written)))
    }

    async fn patch_guest(&self, key: &ObjectKey, vmi: &VirtualMachineInstance, changes: Value) -> Result<(), Failure> {
        let written = standard::patch_unchanged(&self.guests(key), vmi, changes).await?;
        self.expected_vmis.updated(key, &written);
        Ok(())
    }

    async fn create_data_volume(&self, key: &ObjectKey, volume: &DataVolume) -> Result<(), Failure> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let created = standard::create_expected(&self.api(key), volume, key, &self.expected_data_volumes).await;
        if created.is_ok() {
            self.tell(key, &Note::normal("SuccessfulDataVolumeCreate", format!("Created DataVolume {name}"))).await;
        }
        self.tell_failure(key, "FailedDataVolumeCreate", created.map(drop)).await
    }
}

fn gone_is_fine(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(failure) if failure.category() == Category::NotFound => Ok(()),
        result => result,
    }
}

/// Compares what was observed with what is stored. One read, and only before what cannot be taken back.
async fn confirm<K>(api: &Api<K>, name: &str, seen: Option<&Seen>) -> Result<(), Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let operation = format!("confirm {}/{name}", api.resource_url());
    match api.get_metadata_opt(name).await {
        Ok(found) if found.as_ref().map(Seen::of).as_ref() == seen => Ok(()),
        Ok(_) => Err(Failure::new(Category::Conflict, operation, "the cache is behind")),
        Err(error) => Err(Failure::api(operation, error)),
    }
}

async fn confirm_no_machine(api: &Api<VirtualMachine>, name: &str, owner: Option<&str>) -> Result<(), Failure> {
    let operation = format!("confirm that {}/{name} is gone", api.resource_url());
    match api.get_metadata_opt(name).await {
        Ok(Some(found)) if owner.is_none_or(|owner| found.metadata.uid.as_deref() == Some(owner)) => {
            Err(Failure::new(Category::Conflict, operation, "the cache is behind"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::api(operation, error)),
    }
}

/// Writes what changed in the status. The API server refuses it when somebody else has written since the machine was observed.
pub(super) async fn write(
    controller: &VmController,
    machine: &Machine,
    status: &VirtualMachineStatus,
) -> Result<(), Failure> {
    let Some(key) = ObjectKey::of(&*machine.vm) else { return Ok(()) };
    let Some(changes) = difference(&render(&machine.status)?, &render(status)?) else { return Ok(()) };
    let written = standard::patch_status_unchanged(&controller.api(&key), &*machine.vm, changes).await?;
    controller.expected_vms.updated(&key, &written);
    Ok(())
}

fn render(status: &VirtualMachineStatus) -> Result<Value, Failure> {
    (status.to_json()).map_err(|error| Failure::new(Category::Internal, "write a machine's status as JSON", error))
}
