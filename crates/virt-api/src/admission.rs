//! Admission of guests: defaults when one is created, causes when one is wrong, and a status that only components write.

use ferrovirt_api::defaults::{Inputs, default_vmi};
use ferrovirt_api::names::{groups, labels};
use ferrovirt_api::validation::{self, Cause, Reason};
use ferrovirt_api::vmi::Architecture;
use ferrovirt_api::{VirtualMachineInstance, decode};
use ferrovirt_apiserver::admission::{Operation, Plugin, Review};
use ferrovirt_apiserver::auth::UserInfo;
use ferrovirt_apiserver::auth::user::USER_APISERVER;
use ferrovirt_apiserver::status::{ApiError, ApiResult, Subject};
use futures::future::BoxFuture;
use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::cluster;

/// Service accounts of the namespace that the components are installed in.
const COMPONENTS: &str = "system:serviceaccount:kubevirt:";
/// Labels through which components find what is theirs.
const RESERVED_LABELS: [&str; 6] = [
    labels::CREATED_BY,
    labels::MIGRATION_JOB,
    labels::NODE_NAME,
    labels::MIGRATION_TARGET_NODE_NAME,
    labels::NODE_SCHEDULABLE,
    labels::INSTALL_STRATEGY,
];

/// The admission plugin for `VirtualMachineInstance`s.
#[derive(Debug, Default)]
pub struct GuestAdmission;

impl Plugin for GuestAdmission {
    fn mutate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
        Box::pin(async move {
            Ok(match review.operation {
                _ if !is_guest(review) => None,
                Operation::Create => with_defaults(review),
                Operation::Update if !is_component(review.user) => with_old_status(review),
                _ => None,
            })
        })
    }

    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            let causes = match review.operation {
                _ if !is_guest(review) => return Ok(()),
                Operation::Create => new_guest(review)?,
                Operation::Update if !is_component(review.user) => changed_guest(review),
                _ => return Ok(()),
            };
            if causes.is_empty() { Ok(()) } else { Err(refusal(review.name, &causes)) }
        })
    }
}

fn is_guest(review: &Review<'_>) -> bool {
    let resource = review.resource;
    &*resource.group == groups::KUBEVIRT
        && &*resource.plural == "virtualmachineinstances"
        && review.subresource.is_empty()
}

/// Whether the writer is one of us: only they write a guest's status.
fn is_component(user: &UserInfo) -> bool {
    user.name.starts_with(COMPONENTS) || user.name == USER_APISERVER
}

/// The guest with its defaults. One that cannot be read is left to the schema, whose refusal is more precise.
fn with_defaults(review: &Review<'_>) -> Option<Value> {
    let mut vmi: VirtualMachineInstance = serde_json::from_value(review.object.clone()).ok()?;
    let environment = &review.server.environment;
    let inputs = Inputs {
        now: Time(environment.now()),
        uuid: environment.uid().parse::<uuid::Uuid>().ok()?.as_u128(),
        architecture: architecture(),
    };
    default_vmi(&mut vmi, &cluster::configuration(review.server), &inputs);
    let mut object = serde_json::to_value(vmi).ok()?;
    // The author's version of the API stays.
    object["apiVersion"] = review.object["apiVersion"].clone();
    Some(object)
}

/// The architecture of this machine, which is the local cluster's.
fn architecture() -> Architecture {
    match std::env::consts::ARCH {
        "aarch64" => Architecture::Arm64,
        "s390x" => Architecture::S390x,
        _ => Architecture::Amd64,
    }
}

/// What a user writes into the status is dropped without a word, as on any Kubernetes object with a status of its own.
fn with_old_status(review: &Review<'_>) -> Option<Value> {
    let old = &review.old_object["status"];
    if review.object["status"] == *old {
        return None;
    }
    let mut object = review.object.clone();
    let fields = object.as_object_mut()?;
    if old.is_null() {
        fields.remove("status")
    } else {
        fields.insert("status".to_owned(), old.clone())
    };
    Some(object)
}

fn new_guest(review: &Review<'_>) -> ApiResult<Vec<Cause>> {
    let vmi: VirtualMachineInstance = decode(review.object).map_err(|error| {
        let why = error.to_string();
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", why)
    })?;
    let mut causes = validation::check_vmi(&vmi, &cluster::configuration(review.server));
    if !is_component(review.user) {
        causes.extend(reserved_labels(&Value::Null, review.object));
    }
    Ok(causes)
}

fn changed_guest(review: &Review<'_>) -> Vec<Cause> {
    let mut causes = reserved_labels(review.old_object, review.object);
    if review.object["spec"] != review.old_object["spec"] {
        let message =
            "update of VMI object is restricted: change the VirtualMachine, or delete this and create another";
        causes.push(Cause { reason: Reason::NotSupported, field: "spec".to_owned(), message: message.to_owned() });
    }
    causes
}

fn reserved_labels(old: &Value, new: &Value) -> Vec<Cause> {
    let label = |object: &Value, name: &str| object["metadata"]["labels"][name].clone();
    let changed = RESERVED_LABELS.into_iter().filter(|name| label(old, name) != label(new, name));
    let cause = |name: &str| Cause {
        reason: Reason::NotSupported,
        field: format!("metadata.labels.{name}"),
        message: format!("metadata.labels.{name} is set by the system: leave it as it is"),
    };
    changed.map(cause).collect()
}

fn refusal(name: &str, causes: &[Cause]) -> ApiError {
    let listed = causes
        .iter()
        .map(|cause| json!({"reason": cause.reason.as_str(), "message": cause.message, "field": cause.field}))
        .collect();
    let message = format!("VirtualMachineInstance.kubevirt.io \"{name}\" is invalid: {}", validation::summary(causes));
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
        .with_subject(Subject { group: groups::KUBEVIRT, resource: "VirtualMachineInstance" }, name)
        .with_causes(listed)
}
