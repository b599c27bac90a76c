//! The disruption-budget controller: earlier versions guarded guests with disruption budgets, which would block every drain now. Those
//! that a guest still owns are deleted. There is nothing to decide but that, so this is one file.

use std::sync::Arc;

use ferrovirt_kubernetes::PodDisruptionBudget;
use ferrovirt_reconcile::controller::standard;
use ferrovirt_reconcile::{Act, Controller, Failure, ObjectKey, Plan, Queue, Runner};
use kube::api::DeleteParams;
use kube::{Api, Client};

use crate::caches::Caches;

/// What the controller works with.
pub struct DisruptionController {
    client: Client,
    caches: Caches,
}

/// The controller on its queue. Nothing happens before it runs.
pub(crate) fn runner(client: Client, caches: Caches) -> Runner<DisruptionController> {
    let queue = Queue::default();
    caches.budgets.feed(&queue, ObjectKey::of);
    Runner::new(DisruptionController { client, caches }, queue)
}

/// Delete a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete(Arc<PodDisruptionBudget>);

impl Act<DisruptionController> for Delete {
    fn name(&self) -> &'static str {
        "delete disruption budget"
    }

    async fn act(self, controller: &DisruptionController, key: &ObjectKey) -> Result<(), Failure> {
        let api: Api<PodDisruptionBudget> = Api::namespaced(controller.client.clone(), key.namespace());
        let (guard, params) = (standard::Guard::SameObject, DeleteParams::default());
        standard::delete(&api, &*self.0, guard, params).await.map(drop)
    }
}

impl Controller for DisruptionController {
    const NAME: &'static str = "disruption-budget";
    type Key = ObjectKey;
    type View = Arc<PodDisruptionBudget>;
    type Action = Delete;
    type Status = ();

    fn observe(&self, key: &ObjectKey) -> Option<Self::View> {
        self.caches.budgets.get_key(key)
    }

    fn decide(budget: &Self::View) -> Plan<Delete, ()> {
        let owners = budget.metadata.owner_references.iter().flatten();
        let mut controlling = owners.filter(|owner| owner.controller == Some(true));
        let is_guests = controlling
            .any(|owner| owner.kind == "VirtualMachineInstance" && owner.api_version.starts_with("kubevirt.io/"));
        match is_guests && budget.metadata.deletion_timestamp.is_none() {
            true => Plan::nothing().then(Delete(budget.clone())),
            false => Plan::nothing(),
        }
    }

    fn observed_status(_: &Self::View) -> Option<&()> {
        Some(&())
    }

    async fn write_status(&self, _: &Self::View, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_budgets_of_guests_go() {
        let acts = |kind: &str, version: &str, is_controller: bool| {
            let owner =
                json!({"apiVersion": version, "kind": kind, "name": "a", "uid": "u", "controller": is_controller});
            let budget = json!({"metadata": {"name": "b", "ownerReferences": [owner]}});
            !DisruptionController::decide(&Arc::new(serde_json::from_value(budget).unwrap())).is_idle()
        };
        assert!(acts("VirtualMachineInstance", "kubevirt.io/v1", true));
        assert!(!acts("VirtualMachineInstance", "kubevirt.io/v1", false));
        assert!(!acts("VirtualMachineInstance", "example.com/v1", true));
        assert!(!acts("Deployment", "apps/v1", true));
    }
}
