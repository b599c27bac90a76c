//! Admission webhooks: an `AdmissionReview` in, its answer out. The judgement is [`review`](crate::admission::review)'s and
//! [`eviction`](crate::eviction)'s; this is their wire format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrovirt_api::defaults::Inputs;
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::admission::review::{self, Facts, Kind, Operation, Others, Refusal, User};
use crate::admission::{architecture, look_up};
use crate::cluster::Cluster;
use crate::eviction;

/// What a webhook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Fills in defaults.
    Mutate,
    /// Refuses what is wrong.
    Validate,
}

/// What a webhook is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Objects of one kind of ours.
    Of(Kind),
    /// The status of several of them.
    Statuses,
    /// Evictions of pods.
    Eviction,
}

/// One webhook, as it is registered and served.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    /// First word of its name in the webhook configuration.
    pub name: &'static str,
    /// Where it is served.
    pub path: &'static str,
    /// What it does.
    pub step: Step,
    /// What it is about.
    pub subject: Subject,
    /// The operations that it is asked about.
    pub operations: &'static [&'static str],
}

const fn hook(
    name: &'static str,
    path: &'static str,
    step: Step,
    subject: Subject,
    operations: &'static [&'static str],
) -> Hook {
    Hook { name, path, step, subject, operations }
}

const BOTH: &[&str] = &["CREATE", "UPDATE"];
const CREATE: &[&str] = &["CREATE"];
const UPDATE: &[&str] = &["UPDATE"];
const DELETE: &[&str] = &["DELETE"];

/// Every webhook.
#[rustfmt::skip]
pub const HOOKS: &[Hook] = &[
    hook("virtualmachines-mutator", "/virtualmachines-mutate", Step::Mutate, Subject::Of(Kind::Machine), BOTH),
    hook("virtualmachineinstances-mutator", "/virtualmachineinstances-mutate", Step::Mutate, Subject::Of(Kind::Guest), BOTH),
    hook("migrations-mutator", "/migration-mutate-create", Step::Mutate, Subject::Of(Kind::Migration), CREATE),
    hook("virt-launcher-eviction-interceptor", "/pod-eviction-validate", Step::Validate, Subject::Eviction, CREATE),
    hook("virtualmachine-validator", "/virtualmachines-validate", Step::Validate, Subject::Of(Kind::Machine), BOTH),
    hook("virtualmachineinstances-create-validator", "/virtualmachineinstances-validate-create", Step::Validate, Subject::Of(Kind::Guest), CREATE),
    hook("virtualmachineinstances-update-validator", "/virtualmachineinstances-validate-update", Step::Validate, Subject::Of(Kind::Guest), UPDATE),
    hook("migration-create-validator", "/migration-validate-create", Step::Validate, Subject::Of(Kind::Migration), CREATE),
    hook("migration-update-validator", "/migration-validate-update", Step::Validate, Subject::Of(Kind::Migration), UPDATE),
    hook("kubevirt-crd-status-validator", "/status-validate", Step::Validate, Subject::Statuses, BOTH),
    hook("migration-policy-validator", "/migration-policy-validate-create", Step::Validate, Subject::Of(Kind::MigrationPolicy), BOTH),
    hook("kubevirt-create-validator", "/kubevirt-validate-create", Step::Validate, Subject::Of(Kind::Installation), CREATE),
    hook("kubevirt-update-validator", "/kubevirt-validate-update", Step::Validate, Subject::Of(Kind::Installation), UPDATE),
    hook("kubevirt-validator", "/kubevirt-validate-delete", Step::Validate, Subject::Of(Kind::Installation), DELETE),
];

/// The kinds whose status is a resource of its own.
pub const WITH_STATUS: [Kind; 2] = [Kind::Machine, Kind::Migration];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: String,
    kind: String,
    request: Asked,
}

/// An `AdmissionRequest`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    uid: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    dry_run: Option<bool>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    group: String,
    resource: String,
}

/// What a webhook says.
#[derive(Debug, Default)]
struct Said {
    patch: Vec<Value>,
    warnings: Vec<String>,
}

/// Answers one call. What cannot be read is an error of HTTP; what is refused is an answer.
pub(super) async fn answer(cluster: &dyn Cluster, hook: &Hook, body: &[u8]) -> ApiResult<Value> {
    let unreadable = |error| ApiError::bad_request(format!("this is no AdmissionReview: {error}"));
    let envelope: Envelope = serde_json::from_slice(body).map_err(unreadable)?;
    if envelope.kind != "AdmissionReview" || envelope.api_version != "admission.k8s.io/v1" {
        let told = format!("{} {}", envelope.api_version, envelope.kind);
        return Err(ApiError::bad_request(format!(
            "{told} is not understood: use admission.k8s.io/v1 AdmissionReview"
        )));
    }
    let asked = envelope.request;
    let said = match hook.subject {
        Subject::Eviction => evict(cluster, &asked).await,
        Subject::Of(_) | Subject::Statuses => judge(cluster, hook, &asked).await,
    };
    Ok(respond(&asked.uid, said))
}

fn respond(uid: &str, said: Result<Said, Value>) -> Value {
    let mut response = json!({"uid": uid, "allowed": said.is_ok()});
    match said {
        Ok(said) => {
            if !said.patch.is_empty() {
                response["patchType"] = "JSONPatch".into();
                response["patch"] = STANDARD.encode(Value::Array(said.patch).to_string()).into();
            }
            if !said.warnings.is_empty() {
                response["warnings"] = said.warnings.into();
            }
        }
        Err(status) => response["status"] = status,
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

async fn evict(cluster: &dyn Cluster, asked: &Asked) -> Result<Said, Value> {
    if (asked.resource.resource.as_str(), asked.sub_resource.as_str()) != ("pods", "eviction") {
        return Ok(Said::default());
    }
    let dry_run = asked.dry_run == Some(true);
    let admitted = eviction::admit(cluster, &asked.namespace, &asked.name, &asked.object, dry_run).await;
    admitted.map(|()| Said::default()).map_err(|denial| json!({"message": denial.message, "code": 429}))
}

async fn judge(cluster: &dyn Cluster, hook: &Hook, asked: &Asked) -> Result<Said, Value> {
    let request = request(cluster.installation(), hook, asked).map_err(|error| error.to_status())?;
    let others = match hook.step {
        Step::Mutate => Others::default(),
        Step::Validate => look_up(cluster, review::needs(&request)).await.map_err(|error| error.to_status())?,
    };
    let inputs =
        Inputs { now: Time(Timestamp::now()), uuid: uuid::Uuid::new_v4().as_u128(), architecture: architecture() };
    let configuration = cluster.configuration();
    let facts = Facts { cluster: &configuration, inputs, others };
    let refused = |refusal: Refusal| refusal.status(&request);
    match hook.step {
        Step::Mutate => {
            let object = review::mutate(&request, &facts).map_err(refused)?;
            let patch = object.map(|object| difference(&asked.object, &object)).unwrap_or_default();
            Ok(Said { patch, warnings: Vec::new() })
        }
        Step::Validate => {
            let warnings = review::validate(&request, &facts).map_err(refused)?;
            Ok(Said { patch: Vec::new(), warnings })
        }
    }
}

/// The write in the terms of [`review`]. A webhook that is registered for something else is a mistake that must be seen.
fn request<'a>(installation: &'a str, hook: &Hook, asked: &'a Asked) -> ApiResult<review::Request<'a>> {
    let told = (asked.resource.group.as_str(), asked.resource.resource.as_str());
    let kind = Kind::of(told.0, told.1).filter(|kind| match hook.subject {
        Subject::Of(wanted) => *kind == wanted,
        Subject::Statuses => WITH_STATUS.contains(kind),
        Subject::Eviction => false,
    });
    let wrong = |what: &str| ApiError::bad_request(format!("{} does not judge {what}", hook.path));
    let kind = kind.ok_or_else(|| wrong(&format!("{}.{}", told.1, told.0)))?;
    let operation = match asked.operation.as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        other => return Err(wrong(other)),
    };
    let user = &asked.user_info;
    Ok(review::Request {
        kind,
        subresource: &asked.sub_resource,
        operation,
        namespace: &asked.namespace,
        name: &asked.name,
        object: &asked.object,
        old_object: &asked.old_object,
        user: User { name: &user.name, groups: &user.groups, extra: &user.extra, installation },
    })
}

/// The JSON patch from one object to another, by their top-level members.
fn difference(old: &Value, new: &Value) -> Vec<Value> {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let path = |name: &str| format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
    let set = changed.map(|(name, value)| json!({"op": "add", "path": path(name), "value": value}));
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    set.chain(gone.map(|name| json!({"op": "remove", "path": path(name)}))).collect()
}

/// The webhook at a path.
pub(super) fn at(path: &str) -> Option<&'static Hook> {
    HOOKS.iter().find(|hook| hook.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_leads_from_one_to_the_other() {
        let old = json!({"kind": "A", "spec": {"a": 1}, "gone": true, "a/b": 1});
        let new = json!({"kind": "A", "spec": {"a": 2}, "status": {}, "a/b": 2});
        let patch = Value::Array(difference(&old, &new));
        assert_eq!(ferrovirt_machinery::patch::json::apply(old.clone(), &patch).unwrap(), new);
        assert_eq!(patch.as_array().unwrap().len(), 4, "what is the same is left alone: {patch}");
        assert!(difference(&new, &new).is_empty());
    }

    #[test]
    fn paths_and_names_are_unique() {
        for (index, hook) in HOOKS.iter().enumerate() {
            for other in &HOOKS[index + 1..] {
                assert_ne!(hook.path, other.path);
                assert_ne!(hook.name, other.name);
            }
        }
    }

    #[test]
    fn a_webhook_judges_what_it_is_for() {
        let asked = |resource: &str, operation: &str| -> Asked {
            serde_json::from_value(json!({
                "uid": "u", "resource": {"group": "kubevirt.io", "version": "v1", "resource": resource}, "operation": operation,
            }))
            .unwrap()
        };
        let judged = |path: &str, resource: &str, operation: &str| {
            request("kubevirt", at(path).unwrap(), &asked(resource, operation)).map(|request| request.kind).ok()
        };
        assert_eq!(judged("/virtualmachines-validate", "virtualmachines", "CREATE"), Some(Kind::Machine));
        assert_eq!(judged("/virtualmachines-validate", "virtualmachineinstances", "CREATE"), None);
        assert_eq!(judged("/virtualmachines-validate", "virtualmachines", "CONNECT"), None);
        assert_eq!(judged("/status-validate", "virtualmachineinstancemigrations", "UPDATE"), Some(Kind::Migration));
        assert_eq!(judged("/status-validate", "virtualmachineinstances", "UPDATE"), None);
    }
}
