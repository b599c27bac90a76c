//! Admission webhooks of others, called over HTTPS.
//!
//! ```text
//! configurations in the store → observe → hooks, sorted by configuration
//! write → hooks whose rules, selectors and conditions match
//!           mutating:   one after the other, each sees what those before it made; once more for those that ask for it
//!           validating: all at once, the first refusal counts
//! ```
//!
//! A webhook that cannot be asked fails the write or is passed over, as its failure policy says. One that answers
//! with a refusal fails the write in any case.

mod call;
mod hook;
mod matching;
mod review;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use ferrovirt_machinery::builtin::builtin_type_errors;
use futures::future::join_all;
use parking_lot::RwLock;
use serde_json::Value;

use self::call::{CallError, call};
use self::hook::Hook;
use self::matching::{Matcher, is_exempt};
use self::review::{Verdict, convert, refusal};
use super::{Review, warnings};
use crate::handlers::{decode, scale};
use crate::http::body::Decoded;
use crate::http::options::FieldValidation;
use crate::registry::Resource;
use crate::registry::custom::ScalePaths;
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Object, Revision, Store};

const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";

/// The configured webhooks.
#[derive(Default)]
pub struct Webhooks {
    mutating: Index,
    validating: Index,
}

/// Webhooks of one kind of configuration.
#[derive(Default)]
struct Index {
    configurations: RwLock<BTreeMap<Arc<str>, Configuration>>,
    /// All of them in the order of their configurations' names.
    hooks: RwLock<Arc<[Arc<Hook>]>>,
}

struct Configuration {
    revision: Revision,
    hooks: Vec<Arc<Hook>>,
}

impl Index {
    fn set(&self, object: &Object) {
        let mut configurations = self.configurations.write();
        if configurations.get(&object.key.name).is_some_and(|known| known.revision >= object.revision) {
            return;
        }
        let hooks = Hook::all(&object.body.value()).into_iter().map(Arc::new).collect();
        configurations.insert(object.key.name.clone(), Configuration { revision: object.revision, hooks });
        self.publish(&configurations);
    }

    fn remove(&self, name: &str, revision: Revision) {
        let mut configurations = self.configurations.write();
        if configurations.get(name).is_some_and(|known| known.revision < revision) {
            configurations.remove(name);
            self.publish(&configurations);
        }
    }

    fn publish(&self, configurations: &BTreeMap<Arc<str>, Configuration>) {
        *self.hooks.write() = configurations.values().flat_map(|known| known.hooks.iter().cloned()).collect();
    }

    fn load(&self, store: &Store, resource: &str) {
        if let Ok(page) = store.list(resource, None, None, None, None) {
            page.objects.iter().for_each(|object| self.set(object));
        }
    }
}

impl Webhooks {
    /// Reads the configurations that the store has, before the first request. What the server writes earlier than
    /// this, to have all that a cluster needs, asks no webhook: one that is down must not keep it from starting.
    pub fn load(&self, store: &Store) {
        self.mutating.load(store, MUTATING);
        self.validating.load(store, VALIDATING);
    }

    /// Keeps the index of configurations.
    pub fn observe(&self, event: &Event) {
        let index = match &*event.key.resource {
            MUTATING => &self.mutating,
            VALIDATING => &self.validating,
            _ => return,
        };
        match &event.object {
            Some(object) => index.set(object),
            None => index.remove(&event.key.name, event.revision),
        }
    }

    /// Calls mutating webhooks; returns the object that they made of it, or `None` when they left it alone.
    pub async fn mutate(&self, review: &Review<'_>) -> ApiResult<Option<Value>> {
        let hooks = self.mutating.hooks.read().clone();
        if hooks.is_empty() || is_exempt(review.resource) {
            return Ok(None);
        }
        let Some(scales) = Scales::of(review) else { return mutate(&hooks, review).await };
        let changed = mutate(&hooks, &scales.review(review)).await?;
        Ok(changed.map(|scale| scales.apply(review.object.clone(), &scale)))
    }

    /// Calls validating webhooks.
    pub async fn validate(&self, review: &Review<'_>) -> ApiResult<()> {
        let hooks = self.validating.hooks.read().clone();
        if hooks.is_empty() || is_exempt(review.resource) {
            return Ok(());
        }
        match Scales::of(review) {
            None => validate(&hooks, review).await,
            Some(scales) => validate(&hooks, &scales.review(review)).await,
        }
    }
}

/// A write through `scale` is shown to webhooks as the `Scale` that the client sent, not as what is stored.
struct Scales {
    paths: ScalePaths,
    object: Value,
    old_object: Value,
}

impl Scales {
    fn of(review: &Review<'_>) -> Option<Self> {
        if review.subresource != "scale" || review.object["kind"] == "Scale" {
            return None;
        }
        let paths = scale::paths(review.resource);
        let (object, old_object) = (scale::scale_of(review.object, &paths), scale::scale_of(review.old_object, &paths));
        Some(Self { paths, object, old_object })
    }

    fn review<'a>(&'a self, review: &Review<'a>) -> Review<'a> {
        Review { object: &self.object, old_object: &self.old_object, ..*review }
    }

    /// The replicas of a changed scale in the object that it stands for.
    fn apply(&self, mut object: Value, scale: &Value) -> Value {
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        scale::set(&mut object, &self.paths.spec, replicas.into());
        object
    }
}

async fn mutate(hooks: &[Arc<Hook>], review: &Review<'_>) -> ApiResult<Option<Value>> {
    let mut mutation = Mutation { review, current: None, equivalents: OnceLock::new() };
    // Whoever asked for it is called a second time when somebody after them changed the object.
    let (mut called, mut again) = (Vec::new(), HashSet::new());
    for round in 0..2 {
        for (index, hook) in hooks.iter().enumerate() {
            if round > 0 && !again.contains(&index) {
                continue;
            }
            let Some(changed) = mutation.run(hook).await? else { continue };
            if changed {
                again.extend(called.drain(..));
            }
            if hook.reinvoked {
                called.push(index);
            }
        }
        if again.is_empty() {
            break;
        }
    }
    Ok(mutation.current)
}

async fn validate(hooks: &[Arc<Hook>], review: &Review<'_>) -> ApiResult<()> {
    let equivalents = OnceLock::new();
    let matcher = Matcher::new(review, &equivalents);
    let mut concerned = Vec::new();
    for hook in hooks {
        if let Some(resource) = matcher.invocation(hook)? {
            concerned.push((hook, resource));
        }
    }
    let calls = concerned.iter().map(|(hook, resource)| ask(hook, review, resource, false));
    let answers = join_all(calls).await;
    answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
}

/// Calls a webhook and applies its failure policy. `None` means that it could not be asked and that this is fine.
async fn ask(hook: &Hook, review: &Review<'_>, resource: &Arc<Resource>, mutating: bool) -> ApiResult<Option<Verdict>> {
    match call(hook, review, resource, mutating).await {
        Ok(verdict) => {
            verdict.warnings.iter().for_each(|warning| warnings::add(warning.clone()));
            if verdict.allowed { Ok(Some(verdict)) } else { Err(refusal(&hook.name, verdict.result.as_ref())) }
        }
        Err(CallError::Refused(error)) => Err(error),
        Err(CallError::Failed(why)) => failed(hook, &why).map(|()| None),
    }
}

fn failed(hook: &Hook, why: &str) -> ApiResult<()> {
    let message = format!("failed calling webhook \"{}\": {why}", hook.name);
    if hook.fails_open {
        tracing::warn!(error = message, "a webhook is passed over");
        return Ok(());
    }
    tracing::warn!(error = message, "a webhook fails the request");
    Err(ApiError::internal(message))
}

/// An object on its way through the mutating webhooks.
struct Mutation<'a> {
    review: &'a Review<'a>,
    /// The object as it is now, once somebody changed it.
    current: Option<Value>,
    equivalents: OnceLock<Vec<Arc<Resource>>>,
}

impl Mutation<'_> {
    /// Calls one webhook if it is concerned; tells whether it changed the object.
    async fn run(&mut self, hook: &Hook) -> ApiResult<Option<bool>> {
        let object = self.current.as_ref().unwrap_or(self.review.object);
        let review = Review { object, ..*self.review };
        let Some(resource) = Matcher::new(&review, &self.equivalents).invocation(hook)? else { return Ok(None) };
        let Some(verdict) = ask(hook, &review, &resource, true).await? else { return Ok(Some(false)) };
        let Some(patch) = verdict.patch else { return Ok(Some(false)) };
        let operations = match review::operations(&patch) {
            Ok(operations) => operations,
            Err(error) => {
                failed(hook, &format!("received undecodable patch in webhook response: {error}"))?;
                return Ok(Some(false));
            }
        };
        if operations.is_empty() {
            return Ok(Some(false));
        }
        if object.is_null() {
            let why = "attempted to modify the object, which is not supported for this operation";
            return Err(ApiError::internal(format!("admission webhook \"{}\" {why}", hook.name)));
        }
        if verdict.patch_type != "JSONPatch" {
            failed(hook, &format!("unsupported patch type \"{}\"", verdict.patch_type))?;
            return Ok(Some(false));
        }
        let shown = convert(object.clone(), review.resource, &resource);
        let patched = review::apply(shown, operations).map_err(ApiError::internal)?;
        let patched = convert(clean(patched, &review, &resource)?, &resource, review.resource);
        let changed = patched != *object;
        self.current = Some(patched);
        Ok(Some(changed))
    }
}

/// A patched object is decoded again, as if a client had sent it: unknown fields go, and defaults come.
fn clean(patched: Value, review: &Review<'_>, resource: &Arc<Resource>) -> ApiResult<Value> {
    let sub = resource.subresource(review.subresource);
    if sub.is_some_and(|sub| sub.kind != *resource.kind) {
        return Ok(patched);
    }
    let mut patched = patched;
    if let Value::Object(fields) = &mut patched {
        fields.insert("apiVersion".into(), resource.api_version().into());
        fields.insert("kind".into(), resource.kind.to_string().into());
    }
    let schema = resource.schema().filter(|_| resource.custom.is_none());
    if let Some(error) = schema.and_then(|schema| builtin_type_errors(&schema, &patched)) {
        return Err(ApiError::internal(error));
    }
    let decoded = Decoded { value: patched, duplicates: Vec::new() };
    let cleaned = decode::clean(resource, decoded, FieldValidation::Ignore);
    let mut object = cleaned.map_err(|error| ApiError::internal(error.message()))?.value;
    if let Some(custom) = &resource.custom {
        custom.schema.apply_defaults(&mut object);
    }
    resource.strategy.default(&mut object);
    Ok(object)
}
