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
                    // Somebody else moves the guest, or it cannot move any more: the next look shows it.
                    Err(failure) if failure.category() == Category::Invalid => {
                        Err(Failure::new(Category::Conflict, "evacuate a guest", failure))
                    }
                    other => other.map(drop),
                }
            }
            Self::Tell { vmi, note, said } => {
                // The recorder has logged it.
                let _ = controller.recorder.record(&reference(&*vmi), &note).await;
                controller.told.lock().insert(said);
                Ok(())
            }
        }
    }
}
