//! Disruption budgets: how many pods of a group may be evicted now.
//!
//! The status is computed afresh from the pods whenever one of them, its controller or the budget changes. An eviction
//! takes its share at once and notes the pod in `disruptedPods`; a pod in that list counts as gone until it is, or
//! until it was not deleted within [`PATIENCE`].

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrovirt_machinery::selector::LabelSelector;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::Housekeeper;
use super::crds::set_condition;
use super::queue::{self, Queue};
use super::record::{Note, record};
use crate::handlers::write::format_time;
use crate::internal::Place;
use crate::registry::split_api_version;
use crate::server::Server;
use crate::status::ApiResult;
use crate::store::{Event, Store};

const MANAGER: &str = "kube-controller-manager";
const COMPONENT: &str = "controllermanager";
const BUDGETS: &str = "policy/poddisruptionbudgets";
/// How long an eviction may take before its pod counts again.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// The budgets that need a look.
#[derive(Default)]
pub(super) struct Disruption {
    queue: Queue<Place>,
}

impl Disruption {
    /// Notes the budgets that a change may concern.
    pub(super) fn observe(&self, store: &Store, event: &Event) {
        let namespace = &*event.key.namespace;
        match &*event.key.resource {
            BUDGETS => self.queue.add(Place::new(namespace, &event.key.name)),
            "/pods" | "/replicationcontrollers" | "apps/deployments" | "apps/replicasets" | "apps/statefulsets"
                if store.count(BUDGETS, Some(namespace)) > 0 =>
            {
                let Ok(page) = store.list(BUDGETS, Some(namespace), None, None, None) else { return };
                for budget in page.objects {
                    self.queue.add(Place::new(namespace, budget.name()));
                }
            }
            _ => {}
        }
    }
}

pub(super) async fn run(keeper: Arc<Housekeeper>) {
    queue::work(
        keeper,
        "disruption",
        |keeper| &keeper.disruption.queue,
        |keeper, place| Box::pin(reconcile(keeper, place)),
    )
    .await;
}

async fn reconcile(keeper: &Arc<Housekeeper>, place: &Place) -> ApiResult<()> {
    let server = &keeper.server;
    let budgets = server.internal("policy", "v1", "poddisruptionbudgets", MANAGER)?;
    let Some(budget) = budgets.get(&place.namespace, &place.name) else { return Ok(()) };
    let pods = matching_pods(server, &budget, &place.namespace)?;
    let scale = needs_scale(&budget["spec"]).then(|| expected_scale(server, &place.namespace, &pods));
    let now = server.environment.now();
    let judged = judge(&budget, &pods, scale.as_ref(), now);
    if judged.status != budget["status"] {
        // Computed again from what is stored then, as an eviction may come in between.
        let write = |budget: &mut Value| budget["status"] = judge(budget, &pods, scale.as_ref(), now).status;
        budgets.change(place, "status", write).await?;
        if let Some(note) = &judged.note {
            record(server, COMPONENT, &budget, note).await;
        }
    }
    if let Some(recheck) = judged.recheck {
        let wait = recheck.duration_since(now).unsigned_abs() + std::time::Duration::from_secs(1);
        queue::add_later(keeper, |keeper| &keeper.disruption.queue, place.clone(), wait);
    }
    Ok(())
}

fn matching_pods(server: &Arc<Server>, budget: &Value, namespace: &str) -> ApiResult<Vec<Value>> {
    let pods = server.internal("", "v1", "pods", MANAGER)?;
    let Ok(selector) = LabelSelector::from_object(&budget["spec"]["selector"]) else { return Ok(Vec::new()) };
    Ok(pods.list(Some(namespace)).into_iter().filter(|pod| selector.matches_object(pod)).collect())
}

/// A share of the pods, or a number that may be missing, can only be told from how many there should be.
fn needs_scale(spec: &Value) -> bool {
    !spec["maxUnavailable"].is_null() || spec["minAvailable"].is_string()
}

fn controller_of(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// How many pods the controllers of these pods want in sum. Pods without a controller add nothing.
fn expected_scale(server: &Arc<Server>, namespace: &str, pods: &[Value]) -> Result<i64, String> {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller_of(pod) else { continue };
        let (uid, replicas) = scale_of(server, namespace, owner)?.ok_or_else(|| {
            format!("found no controllers for pod {:?}", pod["metadata"]["name"].as_str().unwrap_or_default())
        })?;
        scales.insert(uid, replicas);
    }
    Ok(scales.values().sum())
}

/// Uid and wanted replicas of a controller; those of the deployment for its replica sets.
fn scale_of(server: &Arc<Server>, namespace: &str, owner: &Value) -> Result<Option<(String, i64)>, String> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let (group, version) = split_api_version(text("apiVersion"));
    let snapshot = server.registry.snapshot();
    let Some(resource) = snapshot.by_kind(group, version, text("kind")) else {
        return Err(format!("no matches for kind \"{}\" in version \"{}\"", text("kind"), text("apiVersion")));
    };
    if resource.subresource("scale").is_none() {
        let name = if group.is_empty() { resource.plural.to_string() } else { format!("{}.{group}", resource.plural) };
        return Err(format!("{name} does not implement the scale subresource"));
    }
    let Some(object) = server.internal_for(resource.clone(), MANAGER).get(namespace, text("name")) else {
        return Ok(None);
    };
    if object["metadata"]["uid"] != owner["uid"] {
        return Ok(None);
    }
    if let Some(above) = controller_of(&object).filter(|above| above["kind"] == "Deployment") {
        return scale_of(server, namespace, above);
    }
    let pointer = resource.custom.as_ref().and_then(|custom| Some(custom.scale.as_ref()?.spec.as_str()));
    let replicas = object.pointer(pointer.unwrap_or("/spec/replicas")).and_then(Value::as_i64).unwrap_or(0);
    Ok(Some((text("uid").to_owned(), replicas)))
}

/// What a budget says now.
#[derive(Debug)]
struct Judged {
    status: Value,
    /// When an eviction that did not happen stops counting.
    recheck: Option<Timestamp>,
    note: Option<Note>,
}

fn judge(budget: &Value, pods: &[Value], scale: Option<&Result<i64, String>>, now: Timestamp) -> Judged {
    let when = format_time(now);
    let counted = match scale {
        Some(Err(why)) => Err(why.clone()),
        Some(Ok(scale)) => share(&budget["spec"], *scale).map(|desired| (*scale, desired)),
        None => {
            let all = i64::try_from(pods.len()).unwrap_or(i64::MAX);
            Ok((all, budget["spec"]["minAvailable"].as_i64().unwrap_or(0)))
        }
    };
    let (expected, desired) = match counted {
        Ok(counted) => counted,
        Err(why) => return failed(budget, &why, &when),
    };
    let (disrupted, recheck) = still_disrupted(&budget["status"]["disruptedPods"], pods, now);
    let healthy = pods.iter().filter(|pod| is_healthy(pod, &disrupted)).count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut status = json!({
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected, "disruptionsAllowed": allowed,
        "observedGeneration": budget["metadata"]["generation"], "conditions": budget["status"]["conditions"],
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = disrupted.into();
    }
    let (state, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = json!({
        "type": "DisruptionAllowed", "status": state, "reason": reason, "message": "",
        "observedGeneration": budget["metadata"]["generation"],
    });
    set_condition(&mut status, condition, &when);
    let note = pods.is_empty().then(|| Note::normal("NoPods", "No matching pods found"));
    Judged { status, recheck, note }
}

/// A budget that cannot be computed allows nothing, and says why.
fn failed(budget: &Value, why: &str, when: &str) -> Judged {
    let mut status = budget["status"].clone();
    status["disruptionsAllowed"] = 0.into();
    let mut condition = json!({"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": why});
    if let Some(observed) = budget["status"]["observedGeneration"].as_i64().filter(|observed| *observed > 0) {
        condition["observedGeneration"] = observed.into();
    }
    set_condition(&mut status, condition, when);
    let message = format!("Failed to calculate the number of expected pods: {why}");
    Judged { status, recheck: None, note: Some(Note::warning("CalculateExpectedPodCountFailed", message)) }
}

/// How many of `expected` pods must be healthy.
fn share(spec: &Value, expected: i64) -> Result<i64, String> {
    if !spec["maxUnavailable"].is_null() {
        return Ok((expected - amount(&spec["maxUnavailable"], expected)?).max(0));
    }
    amount(&spec["minAvailable"], expected)
}

/// A number, or a share of `whole` that is rounded up.
fn amount(value: &Value, whole: i64) -> Result<i64, String> {
    match value {
        Value::Number(number) => Ok(number.as_i64().unwrap_or(0)),
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok());
            let percent = percent.filter(|percent| *percent >= 0);
            let percent = percent.ok_or("invalid value for IntOrString: invalid type: string is not a percentage")?;
            Ok(whole.saturating_mul(percent).saturating_add(99) / 100)
        }
        _ => Ok(0),
    }
}

/// The evictions that are still under way, and when the first of them has taken too long.
fn still_disrupted(noted: &Value, pods: &[Value], now: Timestamp) -> (Map<String, Value>, Option<Timestamp>) {
    let mut kept = Map::new();
    let mut recheck: Option<Timestamp> = None;
    for (name, since) in noted.as_object().into_iter().flatten() {
        let waiting = pods
            .iter()
            .any(|pod| pod["metadata"]["name"] == name.as_str() && !pod["metadata"]["deletionTimestamp"].is_string());
        let since_time = since.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let end = since_time.and_then(|since| since.checked_add(PATIENCE).ok());
        if let Some(end) = end.filter(|end| waiting && *end >= now) {
            kept.insert(name.clone(), since.clone());
            recheck = Some(recheck.map_or(end, |other| other.min(end)));
        }
    }
    (kept, recheck)
}

fn is_healthy(pod: &Value, disrupted: &Map<String, Value>) -> bool {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    !pod["metadata"]["deletionTimestamp"].is_string() && !disrupted.contains_key(name) && is_ready(pod)
}

/// The pod's `Ready` condition is true.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn pods(ready: usize, unready: usize) -> Vec<Value> {
        let pod = |index: usize| {
            let state = if index < ready { "True" } else { "False" };
            json!({"metadata": {"name": format!("p{index}")}, "status": {"conditions": [{"type": "Ready", "status": state}]}})
        };
        (0..ready + unready).map(pod).collect()
    }

    fn budget(spec: &Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": {}})
    }

    fn numbers(judged: &Judged) -> [i64; 4] {
        ["expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed"]
            .map(|field| judged.status[field].as_i64().unwrap())
    }

    #[test]
    fn a_number_of_available_pods_is_counted_over_the_pods() {
        let judged = judge(&budget(&json!({"minAvailable": 2})), &pods(3, 1), None, now());
        assert_eq!(numbers(&judged), [4, 3, 2, 1]);
        assert_eq!(judged.status["observedGeneration"], 3);
        let condition = json!({
            "type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
            "observedGeneration": 3, "lastTransitionTime": NOW,
        });
        assert_eq!(judged.status["conditions"], json!([condition]));
        let judged = judge(&budget(&json!({"minAvailable": 3})), &pods(3, 0), None, now());
        assert_eq!(numbers(&judged), [3, 3, 3, 0]);
        assert_eq!(judged.status["conditions"][0]["reason"], "InsufficientPods");
    }

    #[test]
    fn shares_are_of_what_the_controllers_want_and_round_up() {
        let scaled = |spec: Value, ready: usize, scale: i64| {
            numbers(&judge(&budget(&spec), &pods(ready, 0), Some(&Ok(scale)), now()))
        };
        assert_eq!(scaled(json!({"minAvailable": "50%"}), 5, 7), [7, 5, 4, 1]);
        assert_eq!(scaled(json!({"maxUnavailable": 1}), 3, 3), [3, 3, 2, 1]);
        assert_eq!(scaled(json!({"maxUnavailable": "30%"}), 3, 3), [3, 3, 2, 1]);
        assert_eq!(scaled(json!({"maxUnavailable": "100%"}), 1, 3), [3, 1, 0, 1]);
        assert_eq!(scaled(json!({"maxUnavailable": 1}), 2, 0), [0, 2, 0, 0], "pods without a controller");
        assert!(needs_scale(&json!({"maxUnavailable": 1})) && !needs_scale(&json!({"minAvailable": 1})));
    }

    #[test]
    fn no_pods_allow_nothing() {
        let judged = judge(&budget(&json!({"minAvailable": 0})), &[], None, now());
        assert_eq!(numbers(&judged), [0, 0, 0, 0]);
        assert_eq!(judged.note.unwrap().reason, "NoPods");
    }

    #[test]
    fn an_evicted_pod_counts_as_gone_for_two_minutes() {
        let mut spent = budget(&json!({"minAvailable": 1}));
        spent["status"]["disruptedPods"] =
            json!({"p0": "2026-01-01T00:09:00Z", "p1": "2026-01-01T00:07:00Z", "gone": NOW});
        let judged = judge(&spent, &pods(3, 0), None, now());
        assert_eq!(judged.status["disruptedPods"], json!({"p0": "2026-01-01T00:09:00Z"}));
        assert_eq!(numbers(&judged), [3, 2, 1, 1]);
        assert_eq!(judged.recheck, Some("2026-01-01T00:11:00Z".parse().unwrap()));
    }

    #[test]
    fn pods_that_are_being_deleted_are_not_healthy() {
        let mut going = pods(2, 0);
        going[0]["metadata"]["deletionTimestamp"] = NOW.into();
        assert_eq!(numbers(&judge(&budget(&json!({"minAvailable": 1})), &going, None, now())), [2, 1, 1, 0]);
    }

    #[test]
    fn an_unknown_controller_allows_nothing_and_is_named() {
        let why = Err("found no controllers for pod \"p0\"".to_owned());
        let mut old = budget(&json!({"maxUnavailable": 1}));
        old["status"]["disruptionsAllowed"] = 2.into();
        let judged = judge(&old, &pods(1, 0), Some(&why), now());
        assert_eq!(judged.status["disruptionsAllowed"], 0);
        assert_eq!(judged.status["conditions"][0]["reason"], "SyncFailed");
        let bad = judge(&budget(&json!({"maxUnavailable": "many"})), &pods(1, 0), Some(&Ok(1)), now());
        assert_eq!(bad.status["conditions"][0]["reason"], "SyncFailed");
    }
}
