//! Kinds that hold a pod template: deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs.

use ferrovirt_machinery::error::FieldError;
use serde_json::{Value, json};

use super::defaults::{child, existing, field, remove};
use super::{Strategy, immutable, pod, required};
use crate::server::Server;
use crate::status::ApiResult;

/// A kind with a pod template.
pub struct Workload {
    template: &'static [&'static str],
    defaults: fn(&mut Value),
    /// The selector must match the template and cannot change.
    selector: bool,
    status: fn() -> Value,
    selectable: &'static [&'static str],
}

/// The strategy of deployments.
pub static DEPLOYMENT: Workload = Workload { defaults: deployment, ..workload() };
/// The strategy of replica sets.
pub static REPLICA_SET: Workload =
    Workload { defaults: replicas, status: || json!({"replicas": 0}), selectable: &["status.replicas"], ..workload() };
/// The strategy of replication controllers.
pub static REPLICATION_CONTROLLER: Workload = Workload {
    defaults: replicas,
    status: || json!({"replicas": 0}),
    selector: false,
    selectable: &["status.replicas"],
    ..workload()
};
/// The strategy of stateful sets.
pub static STATEFUL_SET: Workload =
    Workload { defaults: stateful_set, status: || json!({"replicas": 0, "availableReplicas": 0}), ..workload() };
/// The strategy of daemon sets.
pub static DAEMON_SET: Workload = Workload {
    defaults: daemon_set,
    status: || json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}),
    ..workload()
};
/// The strategy of pod templates.
pub static POD_TEMPLATE: Workload = Workload { template: &["template"], selector: false, ..workload() };
/// The strategy of jobs.
pub static JOB: Workload =
    Workload { defaults: job, selector: false, selectable: &["status.successful"], ..workload() };
/// The strategy of cron jobs.
pub static CRON_JOB: Workload = Workload {
    template: &["spec", "jobTemplate", "spec", "template"],
    defaults: cron_job,
    selector: false,
    ..workload()
};

const fn workload() -> Workload {
    Workload {
        template: &["spec", "template"],
        defaults: |_| {},
        selector: true,
        status: || json!({}),
        selectable: &[],
    }
}

impl Strategy for Workload {
    fn default(&self, object: &mut Value) {
        let mut place = &mut *object;
        for part in self.template {
            if !place.get(*part).is_some_and(Value::is_object) {
                return (self.defaults)(object);
            }
            place = &mut place[*part];
        }
        field(child(place, "metadata"), "creationTimestamp", Value::Null);
        remove(child(place, "metadata"), "creationTimestamp");
        if let Some(spec) = existing(place, "spec") {
            pod::pod_spec(spec);
        }
        (self.defaults)(object);
    }

    fn prepare_create(&self, server: &Server, object: &mut Value) -> ApiResult<()> {
        if self.template.first() == Some(&"spec") {
            object["status"] = (self.status)();
        }
        if object["kind"] == "Job" {
            own_pods(object, server);
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let template = self.template.iter().try_fold(object, |value, part| value.get(*part));
        let path = self.template.join(".");
        if self.selector {
            let selector = &object["spec"]["selector"];
            if selector.is_null() {
                errors.push(required("spec.selector", ""));
            } else if let Some(template) = template {
                errors.extend(selector_errors(selector, template));
            }
        }
        if object["spec"]["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
            let replicas = &object["spec"]["replicas"];
            errors.push(super::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
        }
        if let Some(template) = template {
            errors.extend(pod::pod_spec_errors(&template["spec"], &format!("{path}.spec")));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let (new_selector, old_selector) = (&new["spec"]["selector"], &old["spec"]["selector"]);
        if self.selector && new_selector != old_selector {
            return vec![immutable("spec.selector", new_selector)];
        }
        Vec::new()
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        self.selectable
    }
}

fn selector_errors(selector: &Value, template: &Value) -> Vec<FieldError> {
    let empty = ["matchLabels", "matchExpressions"].iter().all(|part| match &selector[*part] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    });
    if empty {
        return vec![super::invalid("spec.selector", selector, "empty selector is invalid for deployment")];
    }
    let labels = template["metadata"]["labels"].clone();
    let parsed = ferrovirt_machinery::selector::LabelSelector::from_object(selector);
    match parsed {
        Ok(parsed) if !parsed.matches(|key| labels[key].as_str()) => vec![super::invalid(
            "spec.template.metadata.labels",
            &if labels.is_null() { json!(null) } else { labels },
            "`selector` does not match template `labels`",
        )],
        _ => Vec::new(),
    }
}

fn replicas(object: &mut Value) {
    field(child(object, "spec"), "replicas", 1);
}

fn deployment(object: &mut Value) {
    let spec = child(object, "spec");
    field(spec, "replicas", 1);
    field(spec, "revisionHistoryLimit", 10);
    field(spec, "progressDeadlineSeconds", 600);
    let strategy = child(spec, "strategy");
    field(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        field(rolling, "maxUnavailable", "25%");
        field(rolling, "maxSurge", "25%");
    }
}

fn stateful_set(object: &mut Value) {
    let spec = child(object, "spec");
    field(spec, "replicas", 1);
    field(spec, "revisionHistoryLimit", 10);
    field(spec, "podManagementPolicy", "OrderedReady");
    let strategy = child(spec, "updateStrategy");
    field(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        field(child(strategy, "rollingUpdate"), "partition", 0);
    }
    let policy = child(spec, "persistentVolumeClaimRetentionPolicy");
    field(policy, "whenDeleted", "Retain");
    field(policy, "whenScaled", "Retain");
}

fn daemon_set(object: &mut Value) {
    let spec = child(object, "spec");
    field(spec, "revisionHistoryLimit", 10);
    let strategy = child(spec, "updateStrategy");
    field(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        field(rolling, "maxUnavailable", 1);
        field(rolling, "maxSurge", 0);
    }
}

fn job(object: &mut Value) {
    job_spec(child(object, "spec"));
}

fn job_spec(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        field(spec, "completions", 1);
    }
    field(spec, "parallelism", 1);
    field(spec, "backoffLimit", 6);
    field(spec, "completionMode", "NonIndexed");
    field(spec, "suspend", false);
    field(spec, "podReplacementPolicy", "TerminatingOrFailed");
    field(spec, "manualSelector", Value::Null);
    remove(spec, "manualSelector_");
    if spec["manualSelector"].is_null() {
        remove(spec, "manualSelector");
    }
}

fn cron_job(object: &mut Value) {
    let spec = child(object, "spec");
    field(spec, "concurrencyPolicy", "Allow");
    field(spec, "suspend", false);
    field(spec, "successfulJobsHistoryLimit", 3);
    field(spec, "failedJobsHistoryLimit", 1);
}

/// A job's pods are told apart by the job's uid.
fn own_pods(object: &mut Value, _server: &Server) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
        "controller-uid": uid, "job-name": name,
    });
    let template = child(child(&mut object["spec"], "template"), "metadata");
    let theirs = child(template, "labels");
    for (key, value) in labels.as_object().into_iter().flatten() {
        theirs[key] = value.clone();
    }
    object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
}
