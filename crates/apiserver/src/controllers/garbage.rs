//! Garbage collection: dependents follow their owners.
//!
//! The only state is an index from an owner's uid to the objects that name it. Whether an owner still exists is asked
//! of the store, which is never behind, so a slow index can delay a deletion but never cause a wrong one.
//!
//! | what happened | what follows |
//! |---|---|
//! | all owners of an object are gone (or are other objects of that name) | the object is deleted |
//! | some owners are gone | the dead references are removed |
//! | an owner waits in foreground deletion | its dependents are deleted, then its finalizer goes |
//! | an owner waits to orphan | its dependents lose the reference, then its finalizer goes |

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::Housekeeper;
use super::queue::Queue;
use crate::handlers::delete::{FOREGROUND, ORPHAN};
use crate::http::options::{DeleteOptions, Propagation};
use crate::internal::{Internal, Place};
use crate::registry::{Resource, split_api_version};
use crate::server::Server;
use crate::status::ApiResult;
use crate::store::{Event, Key, Object};

const RETRY: Duration = Duration::from_millis(500);

/// The index and the queue.
#[derive(Default)]
pub(super) struct Garbage {
    queue: Queue<Key>,
    /// Owner uid → dependents.
    dependents: Mutex<HashMap<String, BTreeSet<Key>>>,
}

/// The parts of an object that matter here; parsing stops at metadata.
#[derive(serde::Deserialize, Default)]
struct Head {
    #[serde(default)]
    metadata: Meta,
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Meta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    owner_references: Vec<Owner>,
    #[serde(default)]
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

#[derive(serde::Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    block_owner_deletion: bool,
}

impl Meta {
    fn of(object: &Object) -> Self {
        serde_json::from_slice::<Head>(&object.to_json()).map(|head| head.metadata).unwrap_or_default()
    }

    fn holds(&self, finalizer: &str) -> bool {
        self.deletion_timestamp.is_some() && self.finalizers.iter().any(|name| name == finalizer)
    }
}

impl Garbage {
    /// Keeps the index and notes what needs a look.
    pub(super) fn observe(&self, event: &Event) {
        let new = event.object.as_ref().map(|object| Meta::of(object));
        let old = event.previous.as_ref().map(|object| Meta::of(object));
        let mut dependents = self.dependents.lock();
        for owner in old.iter().flat_map(|old| &old.owner_references) {
            let kept = new.as_ref().is_some_and(|new| new.owner_references.iter().any(|other| other.uid == owner.uid));
            if !kept && let Some(set) = dependents.get_mut(&owner.uid) {
                set.remove(&event.key);
                if set.is_empty() {
                    dependents.remove(&owner.uid);
                }
            }
        }
        let Some(new) = new else {
            self.after_deletion(&dependents, old.unwrap_or_default(), event);
            return;
        };
        for owner in &new.owner_references {
            dependents.entry(owner.uid.clone()).or_default().insert(event.key.clone());
        }
        if !new.owner_references.is_empty() || new.holds(FOREGROUND) || new.holds(ORPHAN) {
            self.queue.add(event.key.clone());
        }
    }

    fn after_deletion(&self, dependents: &HashMap<String, BTreeSet<Key>>, gone: Meta, _event: &Event) {
        for key in dependents.get(&gone.uid).into_iter().flatten() {
            self.queue.add(key.clone());
        }
        // Its owners may have waited for it; they find themselves through the references.
        for owner in gone.owner_references {
            self.queue.add(Key::new(
                format!("owner:{}:{}", owner.api_version, owner.kind),
                _event.key.namespace.clone(),
                owner.name,
            ));
        }
    }

    fn dependents_of(&self, uid: &str) -> Vec<Key> {
        self.dependents.lock().get(uid).into_iter().flatten().cloned().collect()
    }
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    loop {
        let key = keeper.garbage.queue.next().await;
        if let Err(error) = reconcile(&keeper, &key).await
            && error.code() != http::StatusCode::NOT_FOUND
        {
            tracing::debug!(?key, %error, "garbage collection will look again");
            let keeper = keeper.clone();
            tokio::spawn(async move {
                tokio::time::sleep(RETRY).await;
                keeper.garbage.queue.add(key);
            });
        }
    }
}

async fn reconcile(keeper: &Arc<Housekeeper>, key: &Key) -> ApiResult<()> {
    let server = &keeper.server;
    let Some(key) = resolve(server, key) else { return Ok(()) };
    let Some(resource) = resource_of(server, &key) else { return Ok(()) };
    let Some(object) = server.store.current(&key) else { return Ok(()) };
    let meta = Meta::of(&object);
    let objects = server.internal_for(resource.clone(), "kube-controller-manager");
    let place = Place::new(&key.namespace, &key.name);
    if meta.holds(ORPHAN) {
        return orphan(keeper, &objects, &place, &meta).await;
    }
    if meta.holds(FOREGROUND) {
        return foreground(keeper, &objects, &place, &meta).await;
    }
    if meta.deletion_timestamp.is_none() && !meta.owner_references.is_empty() {
        return follow_owners(keeper, &objects, &place, &key, &meta).await;
    }
    Ok(())
}

/// A key made from an owner reference becomes the key of that owner.
fn resolve(server: &Server, key: &Key) -> Option<Key> {
    let Some(reference) = key.resource.strip_prefix("owner:") else { return Some(key.clone()) };
    let (api_version, kind) = reference.split_once(':')?;
    let (group, version) = split_api_version(api_version);
    let snapshot = server.registry.snapshot();
    Some(snapshot.by_kind(group, version, kind)?.key(&key.namespace, &key.name))
}

fn resource_of(server: &Server, key: &Key) -> Option<Arc<Resource>> {
    let snapshot = server.registry.snapshot();
    snapshot.preferred().into_iter().find(|resource| resource.storage == key.resource).cloned()
}

/// What an owner reference leads to.
enum Standing {
    Solid,
    Dangling,
    WaitingForDependents,
}

fn standing(server: &Server, namespace: &str, owner: &Owner) -> Standing {
    let (group, version) = split_api_version(&owner.api_version);
    let snapshot = server.registry.snapshot();
    // A kind that nobody serves: keep the object, as its owner may come back with its CRD.
    let Some(resource) = snapshot.by_kind(group, version, &owner.kind) else { return Standing::Solid };
    if resource.namespaced && namespace.is_empty() {
        return Standing::Solid;
    }
    let Some(object) = server.store.current(&resource.key(namespace, &owner.name)) else { return Standing::Dangling };
    let meta = Meta::of(&object);
    if meta.uid != owner.uid {
        Standing::Dangling
    } else if meta.holds(FOREGROUND) {
        Standing::WaitingForDependents
    } else {
        Standing::Solid
    }
}

async fn follow_owners(
    keeper: &Arc<Housekeeper>,
    objects: &Internal<'_>,
    place: &Place,
    key: &Key,
    meta: &Meta,
) -> ApiResult<()> {
    let (mut solid, mut dangling, mut waiting) = (0, Vec::new(), Vec::new());
    for owner in &meta.owner_references {
        match standing(&keeper.server, &key.namespace, owner) {
            Standing::Solid => solid += 1,
            Standing::Dangling => dangling.push(owner.uid.clone()),
            Standing::WaitingForDependents => waiting.push(owner.uid.clone()),
        }
    }
    if solid > 0 {
        dangling.append(&mut waiting);
        if !dangling.is_empty() {
            forget_owners(objects, place, &dangling).await?;
        }
        return Ok(());
    }
    let has_dependents = !keeper.garbage.dependents_of(&meta.uid).is_empty();
    let propagation = if !waiting.is_empty() && has_dependents {
        Propagation::Foreground
    } else if meta.finalizers.iter().any(|name| name == ORPHAN) {
        Propagation::Orphan
    } else if meta.finalizers.iter().any(|name| name == FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let options =
        DeleteOptions { uid: Some(meta.uid.clone()), propagation: Some(propagation), ..DeleteOptions::default() };
    objects.delete(place, &options).await?;
    Ok(())
}

async fn forget_owners(objects: &Internal<'_>, place: &Place, uids: &[String]) -> ApiResult<()> {
    objects
        .change(place, "", |object| {
            if let Some(list) = object["metadata"]["ownerReferences"].as_array_mut() {
                list.retain(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()));
            }
        })
        .await?;
    Ok(())
}

async fn orphan(keeper: &Arc<Housekeeper>, objects: &Internal<'_>, place: &Place, meta: &Meta) -> ApiResult<()> {
    for dependent in keeper.garbage.dependents_of(&meta.uid) {
        let Some(resource) = resource_of(&keeper.server, &dependent) else { continue };
        let others = keeper.server.internal_for(resource, "kube-controller-manager");
        let at = Place::new(&dependent.namespace, &dependent.name);
        match forget_owners(&others, &at, std::slice::from_ref(&meta.uid)).await {
            Err(error) if error.code() != http::StatusCode::NOT_FOUND => return Err(error),
            _ => {}
        }
    }
    drop_finalizer(objects, place, ORPHAN).await
}

async fn foreground(keeper: &Arc<Housekeeper>, objects: &Internal<'_>, place: &Place, meta: &Meta) -> ApiResult<()> {
    let mut blocked = false;
    for dependent in keeper.garbage.dependents_of(&meta.uid) {
        let Some(object) = keeper.server.store.current(&dependent) else { continue };
        let theirs = Meta::of(&object);
        blocked |= theirs.owner_references.iter().any(|owner| owner.uid == meta.uid && owner.block_owner_deletion);
        if theirs.deletion_timestamp.is_none() {
            keeper.garbage.queue.add(dependent);
        }
    }
    if blocked { Ok(()) } else { drop_finalizer(objects, place, FOREGROUND).await }
}

async fn drop_finalizer(objects: &Internal<'_>, place: &Place, finalizer: &str) -> ApiResult<()> {
    objects
        .change(place, "", |object| {
            if let Some(Value::Array(list)) = object["metadata"].get_mut("finalizers") {
                list.retain(|name| name != finalizer);
            }
        })
        .await?;
    Ok(())
}
