//! Quotas: how much of what a namespace may hold is used, shown in the status and kept to by admission.
//!
//! Admission counts what is in the store plus the objects that it let through a moment ago and that are not stored yet,
//! so that many creations at once do not pass together. The arithmetic is in [`usage`].

mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::usage::Usage;
use super::Housekeeper;
use super::queue::{self, Queue};
use crate::admission::{Operation, Plugin, Review};
use crate::internal::Place;
use crate::server::Server;
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Key, Store};

const MANAGER: &str = "kube-controller-manager";
const QUOTAS: &str = "/resourcequotas";
/// How long an admitted object may take to be stored before it stops counting.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(5);

/// The quotas whose status may be old.
#[derive(Default)]
pub(super) struct Quotas {
    queue: Queue<Place>,
}

impl Quotas {
    /// Notes the quotas that a change may concern.
    pub(super) fn observe(&self, store: &Store, event: &Event) {
        let namespace = &*event.key.namespace;
        if &*event.key.resource == QUOTAS {
            self.queue.add(Place::new(namespace, &event.key.name));
        }
        if namespace.is_empty() || store.count(QUOTAS, Some(namespace)) == 0 {
            return;
        }
        let changes_in_place = matches!(&*event.key.resource, "/pods" | "/services" | "/persistentvolumeclaims");
        if changes_in_place || event.object.is_none() || event.previous.is_none() {
            for quota in of_namespace(store, namespace) {
                self.queue.add(Place::new(namespace, &quota.name));
            }
        }
    }
}

fn of_namespace(store: &Store, namespace: &str) -> Vec<Key> {
    let page = store.list(QUOTAS, Some(namespace), None, None, None);
    page.map(|page| page.objects.iter().map(|object| object.key.clone()).collect()).unwrap_or_default()
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    queue::work(keeper, "quotas", |keeper| &keeper.quotas.queue, |keeper, place| Box::pin(reconcile(keeper, place)))
        .await;
}

async fn reconcile(keeper: &Arc<Housekeeper>, place: &Place) -> ApiResult<()> {
    let quotas = keeper.server.internal("", "v1", "resourcequotas", MANAGER)?;
    let Some(quota) = quotas.get(&place.namespace, &place.name) else { return Ok(()) };
    let hard = quota["spec"]["hard"].clone();
    let used = used(&keeper.server, &quota, &place.namespace);
    let status = json!({"hard": if hard.is_null() { json!({}) } else { hard }, "used": usage::to_json(&used)});
    if quota["status"] != status {
        quotas.change(place, "status", |quota| quota["status"] = status.clone()).await?;
    }
    Ok(())
}

/// What a namespace uses of everything that a quota limits.
fn used(server: &Arc<Server>, quota: &Value, namespace: &str) -> Usage {
    let hard = usage::hard(quota);
    let mut kinds: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for name in hard.keys() {
        if let Some(kind) = usage::kind_of(name) {
            kinds.entry(kind).or_default().insert(name);
        }
    }
    let now = server.environment.now();
    let mut total = Usage::new();
    for ((group, plural), names) in kinds {
        let snapshot = server.registry.snapshot();
        let Some(resource) = snapshot.preferred().into_iter().find(|r| &*r.group == group && &*r.plural == plural)
        else {
            continue;
        };
        let mut sum: Usage =
            names.iter().map(|name| ((*name).to_owned(), ferrovirt_api::values::Quantity::default())).collect();
        for object in server.internal_for(resource.clone(), MANAGER).list(Some(namespace)) {
            if usage::in_scope(quota, plural, &object) {
                usage::add(&mut sum, &usage::usage_of(group, plural, &object, now));
            }
        }
        sum.retain(|name, _| names.contains(name.as_str()));
        usage::add(&mut total, &sum);
    }
    total
}

/// An object that was let through and is not stored yet.
struct Admitted {
    key: Key,
    object: Value,
    at: Timestamp,
}

/// Refuses what would exceed a quota.
#[derive(Default)]
pub(super) struct WithinQuota {
    admitted: Mutex<Vec<Admitted>>,
}

impl Plugin for WithinQuota {
    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move { self.check(review) })
    }
}

impl WithinQuota {
    fn check(&self, review: &Review<'_>) -> ApiResult<()> {
        let store = &review.server.store;
        let plural = &*review.resource.plural;
        let is_event = plural == "events";
        if review.namespace.is_empty()
            || is_event
            || !can_cost(review)
            || store.count(QUOTAS, Some(review.namespace)) == 0
        {
            return Ok(());
        }
        let now = review.server.environment.now();
        let group = &*review.resource.group;
        let old = match review.operation {
            Operation::Update => Some(usage::usage_of(group, plural, review.old_object, now)),
            _ => None,
        };
        let growth = usage::growth(usage::usage_of(group, plural, review.object, now), old.as_ref());
        // Held while counting, so that two creations cannot both take the last place.
        let mut admitted = self.admitted.lock();
        admitted.retain(|other| {
            store.current(&other.key).is_none() && now <= other.at.checked_add(ON_ITS_WAY).unwrap_or(now)
        });
        for key in of_namespace(store, review.namespace) {
            if let Some(quota) = store.current(&key) {
                check_quota(review, &quota.body.value(), &growth, &admitted, now)?;
            }
        }
        if review.operation == Operation::Create && !review.dry_run && !growth.is_empty() {
            let key = review.resource.key(review.namespace, review.name);
            admitted.push(Admitted { key, object: review.object.clone(), at: now });
        }
        Ok(())
    }
}

/// Creations cost, and those changes that can make an object dearer.
fn can_cost(review: &Review<'_>) -> bool {
    let resource = (&*review.resource.group, &*review.resource.plural);
    match review.operation {
        Operation::Create => review.subresource.is_empty(),
        Operation::Update => match resource {
            ("", "services" | "persistentvolumeclaims") => review.subresource.is_empty(),
            ("", "pods") => review.subresource == "resize",
            _ => false,
        },
        Operation::Delete | Operation::Connect => false,
    }
}

fn check_quota(
    review: &Review<'_>,
    quota: &Value,
    growth: &Usage,
    admitted: &[Admitted],
    now: Timestamp,
) -> ApiResult<()> {
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    let (group, plural) = (&*review.resource.group, &*review.resource.plural);
    let hard = usage::hard(quota);
    let limited: BTreeSet<&str> =
        hard.keys().map(String::as_str).filter(|name| usage::kind_of(name) == Some((group, plural))).collect();
    if limited.is_empty() || !usage::in_scope(quota, plural, review.object) {
        return Ok(());
    }
    let refuse = |why: &str| Err(ApiError::forbidden(review.resource.subject(), review.name, why));
    if plural == "pods"
        && let Some(why) = usage::unsaid(review.object, &limited)
    {
        return refuse(&format!("failed quota: {name}: {why}"));
    }
    if !growth.keys().any(|name| limited.contains(name.as_str())) {
        return Ok(());
    }
    let mut used = used(review.server, quota, review.namespace);
    for other in admitted.iter().filter(|other| other.key.resource == review.resource.storage) {
        if *other.key.namespace == *review.namespace && usage::in_scope(quota, plural, &other.object) {
            usage::add(&mut used, &usage::usage_of(group, plural, &other.object, now));
        }
    }
    match usage::excess(name, &hard, &used, growth) {
        Some(why) => refuse(&why),
        None => Ok(()),
    }
}
