//! Claims and volumes: who gets which, and how long both stay.
//!
//! ```text
//! volume: Pending → Available → Bound → Released → (reclaimed)        claim: Pending → Bound → (Lost)
//! ```
//!
//! Making volumes is the business of a [`Provisioner`]; without one for its class, a claim waits for a volume that
//! somebody else makes. The decisions are in [`matching`].

mod matching;

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use serde_json::{Value, json};

use self::matching::{Around, ClaimVerdict, PROVISIONED_BY, VolumeVerdict};
use super::Housekeeper;
use super::queue::{self, Queue};
use super::record::{Note, record};
use crate::handlers::write::format_time;
use crate::http::options::DeleteOptions;
use crate::internal::{Internal, Place};
use crate::status::ApiResult;
use crate::store::Event;

const MANAGER: &str = "kube-controller-manager";
const COMPONENT: &str = "persistentvolume-controller";
const CLAIM_IN_USE: &str = "kubernetes.io/pvc-protection";
const VOLUME_IN_USE: &str = "kubernetes.io/pv-protection";

/// Makes volumes for claims, and takes them away: the place of the node runtime's storage.
pub trait Provisioner: Send + Sync {
    /// The `provisioner` of the storage classes that it serves.
    fn name(&self) -> &str;

    /// Makes room for a claim. Returns the part of the volume's `spec` that says where it is (`hostPath`,
    /// `nodeAffinity`, …). Asked again for the same claim, it returns the same.
    fn provision<'a>(&'a self, claim: &'a Value, class: &'a Value) -> BoxFuture<'a, ApiResult<Value>>;

    /// Removes the data of a released volume.
    fn remove<'a>(&'a self, volume: &'a Value) -> BoxFuture<'a, ApiResult<()>>;
}

/// What may need a look.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Item {
    Claim(Place),
    Volume(String),
    /// Every claim that waits: there is a new volume or a new class.
    WaitingClaims,
}

/// The queue and those who make volumes.
#[derive(Default)]
pub(super) struct Volumes {
    queue: Queue<Item>,
    provisioners: RwLock<Vec<Arc<dyn Provisioner>>>,
}

impl Volumes {
    /// Lets a provisioner work from now on.
    pub(super) fn add_provisioner(&self, provisioner: Arc<dyn Provisioner>) {
        self.provisioners.write().push(provisioner);
        self.queue.add(Item::WaitingClaims);
    }

    fn provisioner(&self, name: &str) -> Option<Arc<dyn Provisioner>> {
        self.provisioners.read().iter().find(|provisioner| provisioner.name() == name).cloned()
    }

    /// Notes what needs a look.
    pub(super) fn observe(&self, event: &Event) {
        let namespace = &*event.key.namespace;
        let states = || [&event.object, &event.previous].into_iter().flatten().map(|object| object.body.value());
        match &*event.key.resource {
            "/persistentvolumeclaims" => {
                self.queue.add(Item::Claim(Place::new(namespace, &event.key.name)));
                for claim in states() {
                    if let Some(volume) = claim["spec"]["volumeName"].as_str() {
                        self.queue.add(Item::Volume(volume.to_owned()));
                    }
                }
            }
            "/persistentvolumes" => {
                self.queue.add(Item::Volume(event.key.name.to_string()));
                states().for_each(|volume| self.add_claim_of(&volume));
            }
            "storage.k8s.io/storageclasses" => self.queue.add(Item::WaitingClaims),
            // What a pod uses never changes, so only its first and last moments and its node matter; all are rare
            // beside the changes of its status.
            "/pods" if event.object.is_none() || event.previous.is_none() || node_is_new(event) => {
                for name in states().flat_map(|pod| matching::claims_of(&pod)) {
                    self.queue.add(Item::Claim(Place::new(namespace, &name)));
                }
            }
            _ => {}
        }
    }

    fn add_claim_of(&self, volume: &Value) {
        let owner = &volume["spec"]["claimRef"];
        if let (Some(namespace), Some(name)) = (owner["namespace"].as_str(), owner["name"].as_str()) {
            self.queue.add(Item::Claim(Place::new(namespace, name)));
        }
    }
}

fn node_is_new(event: &Event) -> bool {
    let node = |object: &Option<Arc<crate::store::Object>>| {
        object.as_ref().map(|object| object.body.value()["spec"]["nodeName"].clone())
    };
    node(&event.object) != node(&event.previous)
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    queue::work(keeper, "volumes", |keeper| &keeper.volumes.queue, |keeper, item| Box::pin(reconcile(keeper, item)))
        .await;
}

async fn reconcile(keeper: &Arc<Housekeeper>, item: &Item) -> ApiResult<()> {
    let binder = Binder {
        keeper,
        claims: keeper.server.internal("", "v1", "persistentvolumeclaims", MANAGER)?,
        volumes: keeper.server.internal("", "v1", "persistentvolumes", MANAGER)?,
        pods: keeper.server.internal("", "v1", "pods", MANAGER)?,
    };
    match item {
        Item::Claim(place) => binder.claim(place).await,
        Item::Volume(name) => binder.volume(name).await,
        Item::WaitingClaims => {
            for claim in binder.claims.list(None) {
                if claim["status"]["phase"] == "Pending" {
                    keeper.volumes.queue.add(Item::Claim(place_of(&claim)));
                }
            }
            Ok(())
        }
    }
}

fn place_of(object: &Value) -> Place {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    Place::new(text("namespace"), text("name"))
}

fn is_held(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().any(|name| name == finalizer)
}

/// One step of the binder.
struct Binder<'a> {
    keeper: &'a Arc<Housekeeper>,
    claims: Internal<'a>,
    volumes: Internal<'a>,
    pods: Internal<'a>,
}

impl Binder<'_> {
    async fn tell(&self, subject: &Value, note: &Note) {
        record(&self.keeper.server, COMPONENT, subject, note).await;
    }

    async fn claim(&self, place: &Place) -> ApiResult<()> {
        let Some(claim) = self.claims.get(&place.namespace, &place.name) else { return Ok(()) };
        let deleting = claim["metadata"]["deletionTimestamp"].is_string();
        if deleting && is_held(&claim, CLAIM_IN_USE) {
            let pods = self.pods.list(Some(&place.namespace));
            if !pods.iter().any(|pod| matching::holds(pod, &place.name)) {
                return let_finalizer_go(&self.claims, place, CLAIM_IN_USE).await;
            }
        }
        let volumes = self.volumes.list(None);
        let class = self.class(matching::class_of(&claim))?;
        let waits = class.as_ref().is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
        let has_consumer =
            waits && self.pods.list(Some(&place.namespace)).iter().any(|pod| matching::consumes(pod, &place.name));
        let around = Around { volumes: &volumes, class: class.as_ref(), has_consumer };
        match matching::judge_claim(&claim, &around) {
            ClaimVerdict::Bind(volume) => self.bind(place, &claim, volume).await,
            ClaimVerdict::Lost(note) => {
                if claim["status"]["phase"] != "Lost" {
                    self.claims.change(place, "status", |claim| claim["status"] = json!({"phase": "Lost"})).await?;
                    self.tell(&claim, &note).await;
                }
                Ok(())
            }
            _ if deleting => Ok(()),
            ClaimVerdict::Wait(note) => {
                if let Some(note) = note {
                    self.tell(&claim, &note).await;
                }
                Ok(())
            }
            ClaimVerdict::Provision { provisioner } => self.provision(place, &claim, provisioner, class.as_ref()).await,
        }
    }

    fn class(&self, name: &str) -> ApiResult<Option<Value>> {
        if name.is_empty() {
            return Ok(None);
        }
        Ok(self.keeper.server.internal("storage.k8s.io", "v1", "storageclasses", MANAGER)?.get("", name))
    }

    /// First the volume, which decides who has it, then the claim.
    async fn bind(&self, place: &Place, claim: &Value, volume: &Value) -> ApiResult<()> {
        let at = place_of(volume);
        let take = |volume: &mut Value| {
            if volume["spec"]["claimRef"].is_null() || matching::belongs_to(volume, claim) {
                matching::take_volume(volume, claim);
            }
        };
        let mut wanted = volume.clone();
        take(&mut wanted);
        let mut taken = volume.clone();
        if wanted != taken {
            taken = self.volumes.change(&at, "", take).await?;
        }
        if !matching::belongs_to(&taken, claim) {
            // Somebody else was faster.
            self.keeper.volumes.queue.add(Item::Claim(place.clone()));
            return Ok(());
        }
        self.set_phase(&taken, "Bound").await?;
        let mut wanted = claim.clone();
        matching::take_claim(&mut wanted, &taken);
        if wanted != *claim {
            wanted = self.claims.change(place, "", |claim| matching::take_claim(claim, &taken)).await?;
        }
        let before = wanted["status"].clone();
        matching::show_bound(&mut wanted, &taken);
        if wanted["status"] != before {
            self.claims.change(place, "status", |claim| matching::show_bound(claim, &taken)).await?;
        }
        Ok(())
    }

    async fn set_phase(&self, volume: &Value, phase: &str) -> ApiResult<()> {
        if volume["status"]["phase"] == phase {
            return Ok(());
        }
        let now = format_time(self.keeper.server.environment.now());
        let set = |volume: &mut Value| {
            if volume["status"]["phase"] != phase {
                volume["status"] = json!({"phase": phase, "lastPhaseTransitionTime": now});
            }
        };
        self.volumes.change(&place_of(volume), "status", set).await?;
        Ok(())
    }

    async fn provision(&self, place: &Place, claim: &Value, name: &str, class: Option<&Value>) -> ApiResult<()> {
        const ASKED: [&str; 2] =
            ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
        if claim["metadata"]["annotations"][ASKED[1]] != name {
            let ask = |claim: &mut Value| {
                for annotation in ASKED {
                    claim["metadata"]["annotations"][annotation] = name.into();
                }
            };
            self.claims.change(place, "", ask).await?;
        }
        let (Some(provisioner), Some(class)) = (self.keeper.volumes.provisioner(name), class) else {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{name}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            );
            self.tell(claim, &Note::normal("ExternalProvisioning", message)).await;
            return Ok(());
        };
        let made = match provisioner.provision(claim, class).await {
            Ok(made) => made,
            Err(error) => {
                let message =
                    format!("failed to provision volume with StorageClass \"{}\": {error}", matching::class_of(claim));
                self.tell(claim, &Note::warning("ProvisioningFailed", message)).await;
                return Err(error);
            }
        };
        let volume = provisioned_volume(claim, class, name, &made);
        let message =
            format!("Successfully provisioned volume {}", volume["metadata"]["name"].as_str().unwrap_or_default());
        self.volumes.ensure(volume).await?;
        self.tell(claim, &Note::normal("ProvisioningSucceeded", message)).await;
        Ok(())
    }

    async fn volume(&self, name: &str) -> ApiResult<()> {
        let Some(volume) = self.volumes.get("", name) else { return Ok(()) };
        let owner = &volume["spec"]["claimRef"];
        let claim = match (owner["namespace"].as_str(), owner["name"].as_str()) {
            (Some(namespace), Some(name)) => self.claims.get(namespace, name),
            _ => None,
        };
        let mut phase = volume["status"]["phase"].as_str().unwrap_or_default();
        match matching::judge_volume(&volume, claim.as_ref()) {
            VolumeVerdict::Available => {
                self.set_phase(&volume, "Available").await?;
                phase = "Available";
                self.keeper.volumes.queue.add(Item::WaitingClaims);
            }
            VolumeVerdict::Bound => {
                self.set_phase(&volume, "Bound").await?;
                phase = "Bound";
            }
            VolumeVerdict::Unbind => {
                self.volumes.change(&place_of(&volume), "", matching::let_go).await?;
            }
            VolumeVerdict::AskClaim => self.keeper.volumes.add_claim_of(&volume),
            VolumeVerdict::Released => {
                if phase != "Failed" {
                    self.set_phase(&volume, "Released").await?;
                    phase = "Released";
                }
                self.reclaim(&volume).await?;
            }
        }
        let deleting = volume["metadata"]["deletionTimestamp"].is_string();
        if deleting && phase != "Bound" && is_held(&volume, VOLUME_IN_USE) {
            return let_finalizer_go(&self.volumes, &Place::new("", name), VOLUME_IN_USE).await;
        }
        Ok(())
    }

    /// `Delete` removes what a provisioner of ours made; anything else stays until somebody removes it.
    async fn reclaim(&self, volume: &Value) -> ApiResult<()> {
        if volume["spec"]["persistentVolumeReclaimPolicy"] != "Delete" {
            return Ok(());
        }
        let maker = volume["metadata"]["annotations"][PROVISIONED_BY].as_str().unwrap_or_default();
        let Some(provisioner) = self.keeper.volumes.provisioner(maker) else { return Ok(()) };
        if let Err(error) = provisioner.remove(volume).await {
            self.tell(volume, &Note::warning("VolumeFailedDelete", error.to_string())).await;
            return Err(error);
        }
        if !volume["metadata"]["deletionTimestamp"].is_string() {
            self.volumes.delete(&place_of(volume), &DeleteOptions::default()).await?;
        }
        Ok(())
    }
}

fn provisioned_volume(claim: &Value, class: &Value, provisioner: &str, made: &Value) -> Value {
    let mut volume = json!({
        "metadata": {
            "name": format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap_or_default()),
            "annotations": {PROVISIONED_BY: provisioner},
        },
        "spec": made,
    });
    let spec = &mut volume["spec"];
    spec["capacity"] = json!({"storage": claim["spec"]["resources"]["requests"]["storage"]});
    spec["accessModes"] = claim["spec"]["accessModes"].clone();
    spec["volumeMode"] = claim["spec"]["volumeMode"].clone();
    spec["storageClassName"] = matching::class_of(claim).into();
    spec["persistentVolumeReclaimPolicy"] = class["reclaimPolicy"].as_str().unwrap_or("Delete").into();
    matching::take_volume(&mut volume, claim);
    if let Value::Object(annotations) = &mut volume["metadata"]["annotations"] {
        annotations.remove(matching::BOUND_BY_CONTROLLER);
    }
    volume
}

async fn let_finalizer_go(objects: &Internal<'_>, place: &Place, finalizer: &str) -> ApiResult<()> {
    let remove = |object: &mut Value| {
        if let Some(Value::Array(list)) = object["metadata"].get_mut("finalizers") {
            list.retain(|name| name != finalizer);
        }
    };
    objects.change(place, "", remove).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provisioned_volume_is_reserved_for_its_claim() {
        let claim = json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "local",
                     "resources": {"requests": {"storage": "1Gi"}}},
        });
        let volume =
            provisioned_volume(&claim, &json!({"reclaimPolicy": "Retain"}), "p", &json!({"hostPath": {"path": "/x"}}));
        assert_eq!(volume["metadata"], json!({"name": "pvc-u", "annotations": {PROVISIONED_BY: "p"}}));
        assert!(matching::belongs_to(&volume, &claim));
        assert_eq!(volume["spec"]["hostPath"]["path"], "/x");
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
    }
}
