//! The actions that most controllers are made of, as functions over a kube [`Api`].
//!
//! They agree with the API server about what counts as success when something is done twice:
//! creating what this owner already has, and deleting what is gone, both worked.
//!
//! Of what was written the metadata comes back, not the object: whoever wrote it knows it, and caches will show it anyway.

use std::fmt::Debug;

use http::{HeaderValue, Request, header::ACCEPT};
use kube::{
    Api, Resource,
    api::{DeleteParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Category, Failure};
use crate::{expectations::Expectations, key::ObjectKey, queue::QueueKey};

/// How the API server is asked for the metadata of what it answers with.
const METADATA: HeaderValue = HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// The result of [`create`].
#[derive(Debug)]
pub enum Created<K> {
    /// This call made it.
    New(PartialObjectMeta<K>),
    /// It was there already and belongs to the same owner.
    Existing(PartialObjectMeta<K>),
}

impl<K> Created<K> {
    /// The object, whoever made it.
    pub fn into_inner(self) -> PartialObjectMeta<K> {
        match self {
            Self::New(object) | Self::Existing(object) => object,
        }
    }
}

/// Creates `object`. If its name is taken by an object with the same controlling owner, that one is the result; if the holder is
/// somebody else's, that is [`Category::NameTaken`]; if it is on its way out, [`Category::Terminating`].
pub async fn create<K>(api: &Api<K>, object: &K) -> Result<Created<K>, Failure>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let operation = operation("create", api, &name);
    let body = serde_json::to_vec(object).map_err(|error| Failure::new(Category::Internal, &operation, error))?;
    let request = kube::core::Request::new(api.resource_url()).create(&PostParams::default(), body);
    match answer_metadata(api, request).await {
        Ok(created) => Ok(Created::New(created)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            adopt_existing(api, object, &name, operation).await.map(Created::Existing)
        }
        Err(error) => Err(Failure::api(operation, error)),
    }
}

/// Looks at who has the name. The one read on this path, and only when the cache was behind.
async fn adopt_existing<K>(
    api: &Api<K>,
    wanted: &K,
    name: &str,
    operation: String,
) -> Result<PartialObjectMeta<K>, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let existing = match api.get_metadata_opt(name).await {
        Ok(Some(existing)) => existing,
        Ok(None) => return Err(Failure::new(Category::Conflict, operation, "it was there and vanished at once")),
        Err(error) => return Err(Failure::api(operation, error)),
    };
    let wanted_owner = owner_uid(wanted);
    if wanted_owner.is_none() || owner_uid(&existing) != wanted_owner {
        return Err(Failure::new(Category::NameTaken, operation, "the name belongs to an object of another owner"));
    }
    if existing.meta().deletion_timestamp.is_some() {
        return Err(Failure::new(Category::Terminating, operation, "its predecessor is still being deleted"));
    }
    Ok(existing)
}

/// The uid of the owner that controls `object`.
pub fn owner_uid<K: Resource>(object: &K) -> Option<&str> {
    let owners = object.meta().owner_references.as_deref()?;
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// [`create`], with the expectation that `cache` of `expectations` will show the object to `owner`.
///
/// What the cache holds may be less than the object that is created.
pub async fn create_expected<Q, K, V>(
    api: &Api<K>,
    object: &K,
    owner: &Q,
    expectations: &Expectations<Q, V>,
) -> Result<Created<K>, Failure>
where
    Q: QueueKey,
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    V: Resource + Send + Sync + 'static,
{
    let Some(child) = ObjectKey::of(object) else { return create(api, object).await };
    expectations.expect_creation(owner, child.clone());
    // Also when this future is dropped half-way: a creation that nobody waits for any more must not hold the owner.
    let mut unless_created = Forget { expectations, owner, child: Some(&child) };
    let created = create(api, object).await?;
    unless_created.child = None;
    let (Created::New(found) | Created::Existing(found)) = &created;
    expectations.created(owner, &child, found.meta().uid.as_deref().unwrap_or_default());
    Ok(created)
}

struct Forget<'a, Q: QueueKey, K: Resource + Send + Sync + 'static> {
    expectations: &'a Expectations<Q, K>,
    owner: &'a Q,
    child: Option<&'a ObjectKey>,
}

impl<Q: QueueKey, K: Resource + Send + Sync + 'static> Drop for Forget<'_, Q, K> {
    fn drop(&mut self) {
        if let Some(child) = self.child {
            self.expectations.failed(self.owner, child);
        }
    }
}

/// What must still hold of an object for it to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It is the object that was observed, not another one of the same name.
    SameObject,
    /// Also, nobody has changed it since it was observed.
    Unchanged,
}

/// The result of [`delete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The API server took the request.
    Requested,
    /// There was nothing left to delete.
    AlreadyGone,
}

/// Deletes the `observed` object, guarded so that a stale view never deletes something else.
pub async fn delete<K>(api: &Api<K>, observed: &K, guard: Guard, params: DeleteParams) -> Result<Deleted, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let meta = observed.meta();
    let name = meta.name.clone().unwrap_or_default();
    let resource_version = if guard == Guard::Unchanged { meta.resource_version.clone() } else { None };
    let preconditions = Some(Preconditions { uid: meta.uid.clone(), resource_version });
    match api.delete(&name, &DeleteParams { preconditions, ..params }).await {
        Ok(_) => Ok(Deleted::Requested),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Deleted::AlreadyGone),
        Err(error) => Err(Failure::api(operation("delete", api, &name), error)),
    }
}

/// [`delete`], with the expectation that `cache` of `expectations` will show it to `owner`.
pub async fn delete_expected<Q, K>(
    api: &Api<K>,
    observed: &K,
    guard: Guard,
    params: DeleteParams,
    owner: &Q,
    expectations: &Expectations<Q, K>,
) -> Result<Deleted, Failure>
where
    Q: QueueKey,
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (Some(child), Some(uid)) = (ObjectKey::of(observed), observed.meta().uid.as_deref()) else {
        return delete(api, observed, guard, params).await;
    };
    expectations.expect_deletion(owner, child.clone(), uid);
    let mut unless_deleted = Forget { expectations, owner, child: Some(&child) };
    let deleted = delete(api, observed, guard, params).await?;
    unless_deleted.child = None;
    Ok(deleted)
}

/// Merges `changes` into the `observed` object, provided that nobody has changed it since; otherwise [`Category::Conflict`].
pub async fn patch_unchanged<K>(api: &Api<K>, observed: &K, changes: Value) -> Result<PartialObjectMeta<K>, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let name = observed.meta().name.clone().unwrap_or_default();
    let patch = Patch::Merge(guarded(observed, changes));
    let request = kube::core::Request::new(api.resource_url()).patch(&name, &PatchParams::default(), &patch);
    let result = answer_metadata(api, request).await;
    result.map_err(|error| Failure::api(operation("patch", api, &name), error))
}

/// Merges `status` into the status of the `observed` object, provided that nobody has changed it since.
pub async fn patch_status_unchanged<K>(
    api: &Api<K>,
    observed: &K,
    status: impl Serialize,
) -> Result<PartialObjectMeta<K>, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let name = observed.meta().name.clone().unwrap_or_default();
    let patch = Patch::Merge(guarded(observed, json!({ "status": to_value(&status, "write the status")? })));
    let request = kube::core::Request::new(api.resource_url());
    let request = request.patch_subresource("status", &name, &PatchParams::default(), &patch);
    let result = answer_metadata(api, request).await;
    result.map_err(|error| Failure::api(operation("write the status of", api, &name), error))
}

/// Sends a request whose answer is an object, and asks for no more than its metadata.
async fn answer_metadata<K>(
    api: &Api<K>,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> kube::Result<PartialObjectMeta<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.headers_mut().insert(ACCEPT, METADATA);
    api.clone().into_client().request(request).await
}

/// Replaces the status of an object by that in `object`, provided that nobody has changed it since.
///
/// Unlike a merge this also takes fields away that the new status does not have.
pub async fn replace_status<K>(api: &Api<K>, object: &K) -> Result<K, Failure>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let result = api.replace_status(&name, &PostParams::default(), object).await;
    result.map_err(|error| Failure::api(operation("write the status of", api, &name), error))
}

/// Server-side apply: makes the fields in `object` so, as `manager`, taking them over from others if need be.
pub async fn apply<K>(api: &Api<K>, manager: &str, name: &str, object: &impl Serialize) -> Result<K, Failure>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let object = to_value(object, "apply")?;
    let result = api.patch(name, &PatchParams::apply(manager).force(), &Patch::Apply(&object)).await;
    result.map_err(|error| Failure::api(operation("apply", api, name), error))
}

/// Adds identity and version of what was observed, which the API server then insists on.
fn guarded<K: Resource>(observed: &K, mut changes: Value) -> Value {
    let meta = observed.meta();
    changes["metadata"]["uid"] = json!(meta.uid);
    changes["metadata"]["resourceVersion"] = json!(meta.resource_version);
    changes
}

fn to_value(object: &impl Serialize, operation: &str) -> Result<Value, Failure> {
    serde_json::to_value(object).map_err(|error| Failure::new(Category::Internal, operation, error))
}

fn operation<K: Resource>(verb: &str, api: &Api<K>, name: &str) -> String {
    format!("{verb} {}/{name}", api.resource_url())
}
