//! Everything that a judgement is made from.

use jiff::Timestamp;
use serde_json::Value;

use super::object::{last_seen, list, text};

/// A claim or data volume that a machine names.
#[derive(Debug, Clone)]
pub(super) struct Named {
    /// Its name.
    pub(super) name: String,
    /// The volume of the guest that uses it.
    pub(super) volume: String,
    /// The object, if it is there.
    pub(super) object: Option<Value>,
}

/// A guest that moves, somewhere in the cluster.
#[derive(Debug, Clone)]
pub(super) struct Moving {
    /// UID of the migration.
    pub(super) uid: String,
    /// `namespace/name` of the guest.
    pub(super) guest: String,
    /// The node that it leaves.
    pub(super) node: String,
}

/// The objects around one machine at one time.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) now: Timestamp,
    pub(super) vm: Option<Value>,
    pub(super) vmi: Option<Value>,
    /// Launcher pods of the guest, the newest first.
    pub(super) pods: Vec<Value>,
    /// Moves of the guest, the newest first.
    pub(super) migrations: Vec<Value>,
    /// All guests that hold a slot for a move, if this one waits for its turn.
    pub(super) moving: Vec<Moving>,
    /// `spec.configuration.migrations` of the installation, if this guest waits for its turn.
    pub(super) settings: Option<Value>,
    /// The node that the guest moves to.
    pub(super) target_node: Option<Value>,
    /// The guest's node, if it has one and it can be read.
    pub(super) node: Option<Value>,
    /// Disruption budgets of the namespace, if the guest's node is being emptied.
    pub(super) budgets: Vec<Value>,
    /// The guest's node is gone from the cluster.
    pub(super) is_node_missing: bool,
    pub(super) claims: Vec<Named>,
    pub(super) data_volumes: Vec<Named>,
    /// Events about any of these.
    pub(super) events: Vec<Value>,
    /// What could not be read, and why.
    pub(super) unseen: Vec<String>,
}

impl Snapshot {
    /// Seconds since a time.
    pub(super) fn seconds_since(&self, time: Timestamp) -> i64 {
        self.now.as_second() - time.as_second()
    }

    /// The pod that counts: the one on the guest's node, since a guest that moves has another one; else the newest that is not leaving.
    pub(super) fn pod(&self) -> Option<&Value> {
        let node = self.vmi.as_ref().and_then(|vmi| text(vmi, "/status/nodeName"));
        let mut staying = self.pods.iter().filter(|pod| !super::object::is_leaving(pod));
        let here = staying.clone().find(|pod| node.is_some() && text(pod, "/spec/nodeName") == node);
        here.or_else(|| staying.next()).or_else(|| self.pods.first())
    }

    /// The newest warning about an object, of the given reasons or of any.
    pub(super) fn warning(&self, kind: &str, name: &str, reasons: &[&str]) -> Option<&Value> {
        let matches = |event: &&Value| {
            let about = &event["involvedObject"];
            let reason = text(event, "/reason").unwrap_or_default();
            event["type"] == "Warning"
                && about["kind"] == kind
                && about["name"] == name
                && (reasons.is_empty() || reasons.contains(&reason))
        };
        self.events.iter().filter(matches).max_by_key(|event| last_seen(event))
    }

    /// The words of the newest warning.
    pub(super) fn warning_words(&self, kind: &str, name: &str, reasons: &[&str]) -> Option<String> {
        self.warning(kind, name, reasons).and_then(|event| text(event, "/message")).map(str::to_owned)
    }

    /// The guest's spec: of the instance that lives, or of the template it would be made from.
    pub(super) fn spec(&self) -> Option<&Value> {
        let template = || self.vm.as_ref().and_then(|vm| vm.pointer("/spec/template/spec"));
        self.vmi.as_ref().and_then(|vmi| vmi.get("spec")).or_else(template)
    }

    /// The claims and data volumes that the guest's volumes name, without the objects.
    pub(super) fn named_sources(&self) -> (Vec<Named>, Vec<Named>) {
        let (mut claims, mut data_volumes) = (Vec::new(), Vec::new());
        for volume in self.spec().into_iter().flat_map(|spec| list(spec, "/volumes")) {
            let own = text(volume, "/name").unwrap_or_default();
            let named = |name: &str| Named { name: name.to_owned(), volume: own.to_owned(), object: None };
            let claim = ["/persistentVolumeClaim/claimName", "/ephemeral/persistentVolumeClaim/claimName"]
                .iter()
                .find_map(|pointer| text(volume, pointer));
            if let Some(claim) = claim {
                claims.push(named(claim));
            } else if let Some(data_volume) = text(volume, "/dataVolume/name") {
                data_volumes.push(named(data_volume));
                // A data volume fills the claim of its name.
                claims.push(named(data_volume));
            }
        }
        (claims, data_volumes)
    }
}
