//! Carrying out what was decided.

use std::sync::Arc;

use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_reconcile::controller::{Category, standard};
use ferrovirt_reconcile::events::reference;
use ferrovirt_reconcile::{Act, Failure, Note, ObjectKey};
use kube::Api;

use super::EvacuationController;

/// All that the controller can do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Move a guest.
    Create(Box<VirtualMachineInstanceMigration>),
    /// Tell people something about a guest.
    Tell {
        /// The guest.
        vmi: Arc<VirtualMachineInstance>,
        /// What.
        note: Note,
        /// What is remembered of it.
        said: String,
    },
}

impl Act<EvacuationController> for Action {
    fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create migration",
            Self::Tell { .. } => "record event",
        }
    }

    async fn act(self, controller: &EvacuationController, node: &ObjectKey) -> Result<(), Failure> {
        match self {
            Self::Create(migration) => {
                let namespace = migration.metadata.namespace.as_deref().unwrap_or_default();
                let api = Api::namespaced(controller.client.clone(), namespace);
                let expected = &controller.expected_migrations;
                match standard::create_expected(&api, &*migration, node, expected).await {
                    // Somebody else moves the guest, or it cannot move any more, or may not: a quota is full, a webhook says no. The
                    // others of its node leave all the same, and it is looked at again later.
                    Err(failure) if matches!(failure.category(), Category::Invalid | Category::Forbidden) => {
                        tell_refused(controller, &migration, &failure).await;
                        Ok(())
                    }
                    other => other.map(drop),
                }
            }
            Self::Tell { vmi, note, said } => {
                tell(controller, &vmi, &note, said).await;
                Ok(())
            }
        }
    }
}

async fn tell(controller: &EvacuationController, vmi: &VirtualMachineInstance, note: &Note, said: String) {
    // The recorder has logged it.
    let _ = controller.recorder.record(&reference(vmi), note).await;
    controller.told.lock().insert(said);
}

/// Says once why the API server does not take a migration.
async fn tell_refused(
    controller: &EvacuationController,
    migration: &VirtualMachineInstanceMigration,
    failure: &Failure,
) {
    let namespace = migration.metadata.namespace.as_deref().unwrap_or_default();
    let key = ObjectKey::new(namespace, &migration.spec.vmi_name);
    let Some(vmi) = controller.caches.vmis.get_key(&key) else { return };
    let why = format!("its migration to another node is refused: {}", failure.message());
    // The server's words may be others each time.
    let said = format!("{}: refused", vmi.metadata.uid.as_deref().unwrap_or_default());
    if !controller.told.lock().contains(&said) {
        tell(controller, &vmi, &Note::warning("EvacuationBlocked", why), said).await;
    }
}
