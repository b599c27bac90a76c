//! What to do next for an installation.

use std::collections::BTreeSet;
use std::time::Duration;

use ferrovirt_api::KubeVirt;
use ferrovirt_api::kubevirt::{CertConfig, KubeVirtStatus};
use ferrovirt_api::names::finalizers;
use ferrovirt_install::names;
use ferrovirt_reconcile::Plan;
use jiff::SignedDuration;
use serde_json::Value;

use super::act::Action;
use super::customize::{Customized, Wanted, customized};
use super::status::{self, Progress};
use super::{View, parameters, rollout, uninstall};
use crate::certificates::{self, Lifetimes, Situation};
use crate::present::{Id, covers, hash, stamped};

type Decision = Plan<Action, KubeVirtStatus>;

/// The longest time between two looks; drift is seen at once anyhow.
const LOOK: Duration = Duration::from_secs(300);

/// Objects that are made together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// The bundle of authorities, for whoever mounts it.
    Authority,
    Access,
    Webhooks,
    Definitions,
    Api,
    Aggregation,
    Controller,
    Handler,
}

/// One step on the way.
#[derive(Debug, Clone, Copy)]
enum Step {
    Apply(Group),
    /// Apply what is there already: it has to know who signs, whatever the rest waits for.
    Renew(Group),
    Certificates,
    /// Until the group's component is ready.
    Await(Group),
}

const INSTALL: &[Step] = &[
    Step::Apply(Group::Authority),
    Step::Certificates,
    Step::Renew(Group::Webhooks),
    Step::Renew(Group::Aggregation),
    Step::Apply(Group::Access),
    Step::Apply(Group::Webhooks),
    Step::Apply(Group::Definitions),
    Step::Apply(Group::Api),
    Step::Await(Group::Api),
    Step::Apply(Group::Aggregation),
    Step::Apply(Group::Controller),
    Step::Apply(Group::Handler),
    Step::Await(Group::Controller),
    Step::Await(Group::Handler),
];

const UPDATE: &[Step] = &[
    Step::Apply(Group::Authority),
    Step::Certificates,
    Step::Renew(Group::Webhooks),
    Step::Renew(Group::Aggregation),
    Step::Apply(Group::Access),
    Step::Apply(Group::Webhooks),
    Step::Apply(Group::Definitions),
    Step::Apply(Group::Handler),
    Step::Await(Group::Handler),
    Step::Apply(Group::Controller),
    Step::Await(Group::Controller),
    Step::Apply(Group::Api),
    Step::Await(Group::Api),
    Step::Apply(Group::Aggregation),
];

fn group(object: &Value) -> Group {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["kind"].as_str().unwrap_or_default() {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Group::Webhooks,
        "ConfigMap" if name == names::CA => Group::Authority,
        "CustomResourceDefinition" => Group::Definitions,
        "APIService" => Group::Aggregation,
        "Deployment" if name == names::API => Group::Api,
        "Deployment" => Group::Controller,
        "DaemonSet" => Group::Handler,
        _ => Group::Access,
    }
}

/// Judges.
pub(super) fn decide(view: &View) -> Decision {
    let refusals = || view.surplus.iter().flat_map(|surplus| status::refusal(surplus, view.now));
    let mut plan = Plan::nothing();
    let first = view.own("ConfigMap", names::FIRST_INSTALLATION);
    let Some(kubevirt) = &view.kubevirt else {
        if let Some(map) = first {
            let text = map["data"][names::FIRST_INSTALLATION_KEY].as_str().unwrap_or_default();
            plan.actions.push(Action::Begin(text.to_owned()));
        }
        plan.actions.extend(refusals());
        return plan;
    };
    // It has served its purpose, and must not bring back what somebody removes.
    plan.actions.extend(first.map(Action::delete));
    let decided = if is_deleted(kubevirt) { uninstall::decide(view, kubevirt) } else { install(view, kubevirt) };
    plan.actions.extend(decided.actions);
    // Last: what cannot be done ends a round, and nothing waits for what others have too many of.
    plan.actions.extend(refusals());
    Plan { actions: plan.actions, ..decided }
}

fn is_deleted(kubevirt: &KubeVirt) -> bool {
    kubevirt.metadata.deletion_timestamp.is_some()
}

fn install(view: &View, kubevirt: &KubeVirt) -> Decision {
    let mut plan: Decision = Plan::nothing();
    let held = kubevirt.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == finalizers::KUBEVIRT);
    if !held {
        plan.actions.push(Action::Hold);
    }
    let mut parameters = parameters(view, kubevirt);
    let lifetimes = lifetimes(kubevirt);
    let certificates = judge_certificates(view, lifetimes);
    parameters.ca_bundle.clone_from(&certificates.bundle);
    let mut wanted = ferrovirt_install::components(&parameters);
    if !certificates.bundle.is_empty() {
        wanted.push(ferrovirt_install::ca_bundle(&parameters));
    }
    let Customized { objects: wanted, unused } = customized(wanted, kubevirt, &view.flags);
    let wanted: Vec<Wanted> =
        wanted.into_iter().map(|it| Wanted { object: stamped(it.object), unfit: it.unfit }).collect();
    let target = status::Target::of(view, &parameters);
    let old = kubevirt.status.as_ref();
    let updates = old.and_then(|old| old.observed_deployment_id.as_ref()).is_some_and(|id| *id != target.id);
    let mut waiting = None;
    let due = |which: Group| {
        let of_group = wanted.iter().filter(move |it| group(&it.object) == which && it.unfit.is_none());
        of_group.map(|it| &it.object).filter(|it| drifted(view, it))
    };
    let is_planned = |plan: &Decision, object: &Value| plan.actions.contains(&Action::apply(object));
    for step in if updates { UPDATE } else { INSTALL } {
        waiting = match step {
            Step::Renew(which) => {
                let present = due(*which).filter(|it| view.present.contains_key(&Id::of(it)));
                plan.actions.extend(present.map(Action::apply));
                None
            }
            Step::Apply(which) => {
                let missing: Vec<_> = due(*which).filter(|it| !is_planned(&plan, it)).map(Action::apply).collect();
                plan.actions.extend(missing);
                None
            }
            Step::Certificates => {
                plan.actions.extend(certificates.step.clone().map(|step| certify(view, step, lifetimes)));
                (!certificates.ready).then(|| "certificates are being made".to_owned())
            }
            Step::Await(which) => {
                let component = wanted.iter().find(|it| group(&it.object) == *which);
                component.and_then(|component| waits_for(view, component))
            }
        };
        if waiting.is_some() {
            break;
        }
    }
    let kept: BTreeSet<Id> = wanted.iter().map(|it| Id::of(&it.object)).collect();
    let unfit = wanted.iter().find_map(|it| it.unfit.clone());
    if waiting.is_none() && unfit.is_none() {
        plan.actions.extend(leftovers(view, &kept));
    }
    let components = wanted.iter().map(|it| &it.object);
    let components = components.filter(|it| matches!(group(it), Group::Api | Group::Controller | Group::Handler));
    let serves = components.map(Id::of).all(|id| view.present.get(&id).is_some_and(rollout::serves));
    let created = kept.iter().all(|id| view.present.contains_key(id));
    let progress = Progress { waiting, updates, created, serves, unfit, unused };
    plan = plan.report(status::installing(kubevirt, &target, &progress, view));
    let look = certificates.due.map_or(LOOK, |due| due.duration_since(view.now).try_into().unwrap_or_default());
    plan.look_again_after(look.clamp(Duration::from_secs(1), LOOK))
}

fn judge_certificates(view: &View, lifetimes: Lifetimes) -> certificates::Decision {
    let published = view.own("ConfigMap", names::CA).and_then(|map| map["data"][names::CA_BUNDLE_KEY].as_str());
    certificates::decide(&Situation {
        authority: view.own("Secret", names::CA),
        published: published.unwrap_or_default(),
        api: view.own("Secret", names::API_CERTIFICATE),
        names: &names::api_certificate_names(&view.namespace),
        lifetimes,
        now: view.now,
    })
}

fn certify(view: &View, step: certificates::Step, lifetimes: Lifetimes) -> Action {
    let present = |name| view.own("Secret", name).cloned().map(Box::new);
    Action::Certificate { step, authority: present(names::CA), api: present(names::API_CERTIFICATE), lifetimes }
}

fn waits_for(view: &View, component: &Wanted) -> Option<String> {
    let id = Id::of(&component.object);
    match (view.present.get(&id), &component.unfit) {
        (Some(there), Some(_)) => rollout::waits_for(there),
        (Some(there), None) if !drifted(view, &component.object) => rollout::waits_for(there),
        (None, Some(problem)) => Some(problem.clone()),
        _ => Some(format!("{id} is being written")),
    }
}

fn drifted(view: &View, wanted: &Value) -> bool {
    view.present.get(&Id::of(wanted)).is_none_or(|present| !covers(present, wanted))
}

/// What earlier versions made and this one does not, webhooks first. Kinds stay: users' objects would go with them.
fn leftovers(view: &View, kept: &BTreeSet<Id>) -> Vec<Action> {
    let secrets = [names::CA, names::API_CERTIFICATE].map(|name| Id::new("Secret", &view.namespace, name));
    let first = Id::new("ConfigMap", &view.namespace, names::FIRST_INSTALLATION);
    let unwanted = view.present.iter().filter(|(id, object)| {
        !kept.contains(id)
            && !secrets.contains(id)
            && **id != first
            && id.kind != "CustomResourceDefinition"
            && object["metadata"]["deletionTimestamp"].is_null()
    });
    let mut unwanted: Vec<_> = unwanted.collect();
    unwanted.sort_by_key(|(id, _)| !id.kind.ends_with("WebhookConfiguration"));
    unwanted.into_iter().map(|(_, object)| Action::delete(object)).collect()
}

/// How long certificates live, as the object says.
pub(crate) fn lifetimes(kubevirt: &KubeVirt) -> Lifetimes {
    let default = Lifetimes::default();
    let strategy = kubevirt.spec.certificate_rotate_strategy.as_ref().and_then(|it| it.self_signed.as_ref());
    let life = |config: Option<&CertConfig>, default: SignedDuration| {
        let nanos = |duration: &ferrovirt_api::values::Duration| SignedDuration::from_nanos(duration.nanos());
        let duration = config.and_then(|it| it.duration.as_ref()).map_or(default, nanos);
        let renewal = config.and_then(|it| it.renew_before.as_ref()).map_or(duration / 5, nanos);
        (duration, renewal)
    };
    let (authority, authority_renewal) = life(strategy.and_then(|it| it.ca.as_ref()), default.authority);
    let (leaf, leaf_renewal) = life(strategy.and_then(|it| it.server.as_ref()), default.leaf);
    Lifetimes { authority, authority_renewal, leaf, leaf_renewal }
}

/// A short name for what is installed.
pub(super) fn deployment_id(config: &str) -> String {
    hash(config)[..40].to_owned()
}
