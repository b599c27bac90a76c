//! Launchers whose guest left while they were in doubt: the object names another node, so it is not among this node's any more, and
//! nobody else would tell them that they may end.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_handover::{SourceStage, Verdict};
use ferrovirt_launcher_rpc::migration::{Stage, VerdictRequest};
use ferrovirt_reconcile::{Act, Controller, Failure, ObjectKey, Plan};
use kube::Api;

use crate::launcher::Launcher;
use crate::vmi::Guests;

/// Between two looks at the object, which no watch of this node shows any more.
const PAUSE: Duration = Duration::from_secs(2);

/// The controller.
pub(crate) struct Departed(pub(crate) Guests);

/// A launcher in doubt about a guest that is not among this node's.
pub(crate) struct View {
    launcher: Arc<dyn Launcher>,
    guest: String,
    id: String,
}

/// Looks at the object, and tells the launcher if it names another node.
pub(crate) struct Ask(View);

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ask({})", self.0.id)
    }
}

impl Controller for Departed {
    const NAME: &'static str = "virt-handler-departed";
    type Key = ObjectKey;
    type View = View;
    type Action = Ask;
    type Status = ();

    fn observe(&self, key: &ObjectKey) -> Option<View> {
        let guests = &self.0;
        if guests.vmis.get_key(key).is_some() {
            return None;
        }
        guests.progressed.lock().remove(key);
        guests.pods.by(&guests.pods_by_guest, key).into_iter().find_map(|pod| {
            let followed = guests.followers.get(pod.metadata.uid.as_deref()?);
            let migration = followed.report?.migration?;
            let is_in_doubt = migration.stage == Stage::Source(SourceStage::Doubtful);
            let guest = crate::vmi::owner(&pod)?;
            Some(View { launcher: followed.launcher?, guest, id: migration.id }).filter(|_| is_in_doubt)
        })
    }

    fn decide(view: &View) -> Plan<Ask, ()> {
        let View { launcher, guest, id } = view;
        let ask = Ask(View { launcher: launcher.clone(), guest: guest.clone(), id: id.clone() });
        Plan::nothing().then(ask).look_again_after(PAUSE)
    }

    fn observed_status(_: &View) -> Option<&()> {
        None
    }

    async fn write_status(&self, _: &View, (): ()) -> Result<(), Failure> {
        Ok(())
    }
}

impl Act<Departed> for Ask {
    fn name(&self) -> &'static str {
        "ask"
    }

    async fn act(self, departed: &Departed, key: &ObjectKey) -> Result<(), Failure> {
        let Self(View { launcher, guest, id }) = self;
        let api: Api<VirtualMachineInstance> = Api::namespaced(departed.0.client.clone(), key.namespace());
        let vmi = api.get_opt(key.name()).await.map_err(|error| Failure::api("look where the guest is", error))?;
        if !vmi.is_some_and(|vmi| is_elsewhere(&vmi, &guest, &departed.0.node)) {
            return Ok(());
        }
        let told = launcher.tell_verdict(VerdictRequest { id, verdict: Verdict::Started }).await;
        told.map_err(|error| crate::vmi::launcher_failed("tell the launcher that its guest has moved", error))
    }
}

/// The object's node changes only when the guest runs there: whoever is in doubt about it here can stop waiting.
fn is_elsewhere(vmi: &VirtualMachineInstance, guest: &str, node: &str) -> bool {
    let at = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
    vmi.metadata.uid.as_deref() == Some(guest) && at.is_some_and(|at| at != node)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_same_guest_on_another_node_has_moved() {
        let guest = |uid: &str, node: serde_json::Value| {
            let vmi =
                json!({"metadata": {"uid": uid}, "spec": {"domain": {"devices": {}}}, "status": {"nodeName": node}});
            serde_json::from_value::<VirtualMachineInstance>(vmi).unwrap()
        };
        assert!(is_elsewhere(&guest("1", json!("node2")), "1", "node1"));
        assert!(!is_elsewhere(&guest("1", json!("node1")), "1", "node1"));
        assert!(!is_elsewhere(&guest("2", json!("node2")), "1", "node1"));
        assert!(!is_elsewhere(&guest("1", json!(null)), "1", "node1"));
    }
}
