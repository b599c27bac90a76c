//! Launcher pods that were seen to end, for as long as their guest is known: when their objects go, nobody has to be asked about them.
//!
//! It is a memory and no record: a process that starts knows nothing, and asks the nodes about what it did not see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_pods::LauncherPod;
use ferrovirt_reconcile::Cache;
use ferrovirt_reconcile::controller::standard::owner_uid;
use parking_lot::Mutex;

/// Uids of ended pods by the uid of their guest. Clones share their state.
#[derive(Clone, Default)]
pub struct Ended(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Ended {
    /// Remembers what these caches show from now on. Whoever is woken by a change of them must be told later than this.
    pub(crate) fn of_caches(pods: &Cache<LauncherPod>, vmis: &Cache<VirtualMachineInstance>) -> Self {
        let ended = Self::default();
        let (noting, guests) = (ended.clone(), vmis.clone());
        pods.on_change(move |change| {
            change.sides().filter(|pod| pod.was_seen_to_end()).for_each(|pod| noting.note(pod));
            if let (None, Some(old)) = (&change.new, &change.old) {
                noting.forget_unless_known(old, &guests);
            }
        });
        let forgetting = ended.clone();
        vmis.on_change(move |change| {
            let uid = |vmi: &Arc<VirtualMachineInstance>| vmi.metadata.uid.clone();
            let (old, new) = (change.old.as_ref().and_then(uid), change.new.as_ref().and_then(uid));
            if let Some(old) = old.filter(|old| new.as_ref() != Some(old)) {
                forgetting.0.lock().remove(&old);
            }
        });
        ended
    }

    /// The ended pods of a guest.
    pub fn of(&self, guest: &str) -> BTreeSet<String> {
        self.0.lock().get(guest).cloned().unwrap_or_default()
    }

    fn note(&self, pod: &LauncherPod) {
        if let (Some(guest), Some(uid)) = (owner_uid(pod), &pod.metadata.uid) {
            self.0.lock().entry(guest.to_owned()).or_default().insert(uid.clone());
        }
    }

    /// A pod without a guest's object is nobody's business.
    fn forget_unless_known(&self, pod: &LauncherPod, guests: &Cache<VirtualMachineInstance>) {
        let Some(guest) = owner_uid(pod) else { return };
        let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.uid == guest);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let known = owner.and_then(|owner| guests.get(namespace, &owner.name));
        if known.is_none_or(|known| known.metadata.uid.as_deref() != Some(guest)) {
            self.0.lock().remove(guest);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_ended_pod_is_remembered_as_long_as_its_guest_is_known() {
        let (pods, vmis) =
            (Cache::<LauncherPod>::builder().build(), Cache::<VirtualMachineInstance>::builder().build());
        let ended = Ended::of_caches(&pods, &vmis);
        let pod = |state: Value| -> LauncherPod {
            let owner = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "uid": "v", "controller": true,
            });
            let status = json!({"phase": "Running", "containerStatuses": [
                {"name": "compute", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state},
            ]});
            let metadata = json!({"name": "p", "namespace": "shop", "uid": "u", "ownerReferences": [owner]});
            serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
        };
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "v"}, "spec": {"domain": {"devices": {}}},
        }))
        .unwrap();
        vmis.handle(Event::Apply(vmi.clone()));
        pods.handle(Event::Apply(pod(json!({"running": {}}))));
        assert!(ended.of("v").is_empty());
        let over = pod(json!({"terminated": {"exitCode": 0}}));
        pods.handle(Event::Apply(over.clone()));
        assert_eq!(ended.of("v"), ["u".to_owned()].into());
        pods.handle(Event::Delete(over.clone()));
        assert_eq!(ended.of("v"), ["u".to_owned()].into());
        vmis.handle(Event::Delete(vmi));
        assert!(ended.of("v").is_empty());
        pods.handle(Event::Apply(over.clone()));
        pods.handle(Event::Delete(over));
        assert!(ended.of("v").is_empty(), "its guest is gone");
    }
}
