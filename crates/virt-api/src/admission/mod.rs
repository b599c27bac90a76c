//! Admission of our kinds: defaults, validation, who may write what.
//!
//! | file | what it judges |
//! |---|---|
//! | [`review`] | the pure interface: one write and what is known about the cluster in, an object and warnings or a refusal out |
//! | `machine` | virtual machines |
//! | `guest` | guests, and which node's agent writes about them |
//! | `hyperv` | Hyper-V's features, where no node has them |
//! | `migration`, `policy` | moves and their options |
//! | `installation` | the `KubeVirt` object |
//! | `users` | who is one of us |
//! | `lookup` | nothing: it reads the other objects that a judgement needs |
//!
//! This file is the embedded API server's plugin: it looks up what [`review::needs`] asks for and passes the answer on.

mod guest;
mod hyperv;
mod installation;
mod lookup;
mod machine;
mod migration;
mod policy;
pub mod review;
mod users;

use ferrovirt_api::defaults::Inputs;
use ferrovirt_api::kubevirt::Configuration;
use ferrovirt_api::vmi::Architecture;
use ferrovirt_apiserver::admission::{Operation as ServerOperation, Plugin, Review, warnings};
use ferrovirt_apiserver::status::{ApiError, ApiResult, Subject};
use futures::future::BoxFuture;
use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

pub(crate) use self::lookup::look_up;
use self::review::{Facts, Kind, Operation, Others, Refusal, Request, User};
use crate::cluster::{self, InProcess};

pub use users::HANDLER_GROUP;

/// The admission plugin for all kinds of ours.
#[derive(Debug, Default)]
pub struct VirtAdmission;

impl Plugin for VirtAdmission {
    fn mutate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<Option<Value>>> {
        Box::pin(async move {
            let Some(request) = request(review) else { return Ok(None) };
            let cluster = cluster::configuration(review.server);
            let Some(facts) = facts(review, &cluster, Others::default()) else { return Ok(None) };
            review::mutate(&request, &facts).map_err(|refusal| answer(&request, refusal))
        })
    }

    fn validate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, ApiResult<()>> {
        Box::pin(async move {
            let Some(request) = request(review) else { return Ok(()) };
            let cluster = cluster::configuration(review.server);
            let others = look_up(&InProcess { server: review.server }, review::needs(&request)).await?;
            let Some(facts) = facts(review, &cluster, others) else { return Ok(()) };
            let advice = review::validate(&request, &facts).map_err(|refusal| answer(&request, refusal))?;
            advice.into_iter().for_each(warnings::add);
            Ok(())
        })
    }
}

/// The write in the terms of [`review`]; `None` when it is none of ours.
fn request<'a>(review: &Review<'a>) -> Option<Request<'a>> {
    let operation = match review.operation {
        ServerOperation::Create => Operation::Create,
        ServerOperation::Update => Operation::Update,
        ServerOperation::Delete => Operation::Delete,
        ServerOperation::Connect => return None,
    };
    let (groups, extra) = (&review.user.groups, &review.user.extra);
    let user = User { name: &review.user.name, groups, extra, installation: cluster::NAMESPACE };
    Some(Request {
        kind: Kind::of(&review.resource.group, &review.resource.plural)?,
        subresource: review.subresource,
        operation,
        namespace: review.namespace,
        name: review.name,
        object: review.object,
        old_object: review.old_object,
        user,
    })
}

fn facts<'a>(review: &Review<'_>, cluster: &'a Configuration, others: Others) -> Option<Facts<'a>> {
    let environment = &review.server.environment;
    let inputs = Inputs {
        now: Time(environment.now()),
        uuid: environment.uid().parse::<uuid::Uuid>().ok()?.as_u128(),
        architecture: architecture(),
    };
    Some(Facts { cluster, inputs, others })
}

/// The architecture of this machine, which is the local cluster's.
pub(crate) fn architecture() -> Architecture {
    match std::env::consts::ARCH {
        "aarch64" => Architecture::Arm64,
        "s390x" => Architecture::S390x,
        _ => Architecture::Amd64,
    }
}

fn answer(request: &Request<'_>, refusal: Refusal) -> ApiError {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::UNPROCESSABLE_ENTITY);
    let causes = refusal.causes_json();
    let error = ApiError::new(code, refusal.reason, refusal.message);
    if causes.is_empty() {
        return error;
    }
    let subject = Subject { group: request.kind.group(), resource: request.kind.name() };
    error.with_subject(subject, request.name).with_causes(causes)
}
