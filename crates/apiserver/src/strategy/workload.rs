//! Kinds that hold a pod template: deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs.

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::selector::{LabelSelector, validate_label_selector};
use serde_json::{Value, json};

use super::check::{Errors, fields, list, text};
use super::defaults::{child, existing, field, remove};
use super::{Strategy, batch, pod};
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
    defaults: replication_controller,
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
    Workload { defaults: batch::job, selector: false, selectable: &["status.successful"], ..workload() };
/// The strategy of cron jobs.
pub static CRON_JOB: Workload = Workload {
    template: &["spec", "jobTemplate", "spec", "template"],
    defaults: batch::cron_job,
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
        remove(child(place, "metadata"), "creationTimestamp");
        if let Some(spec) = existing(place, "spec") {
            pod::pod_spec(spec);
        }
        (self.defaults)(object);
    }

    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        if self.template.first() == Some(&"spec") {
            object["status"] = (self.status)();
        }
        match text(&object["kind"]) {
            "Job" => batch::own_pods(object),
            "DaemonSet" => object["metadata"]["annotations"][TEMPLATE_GENERATION] = "1".into(),
            _ => {}
        }
        Ok(())
    }

    fn prepare_update(&self, _server: &Server, new: &mut Value, old: &Value) {
        if new["kind"] == "DaemonSet" {
            let before = &old["metadata"]["annotations"][TEMPLATE_GENERATION];
            let changed = new["spec"]["template"] != old["spec"]["template"];
            let number =
                before.as_str().and_then(|number| number.parse::<i64>().ok()).unwrap_or(0) + i64::from(changed);
            child(&mut new["metadata"], "annotations")[TEMPLATE_GENERATION] = number.to_string().into();
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Errors::default();
        for name in ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
            errors.not_negative(format!("spec.{name}"), &spec[name]);
        }
        if self.selector {
            selector_errors(object, &mut errors);
        }
        let template = self.template.iter().fold(object, |value, part| &value[*part]);
        let path = self.template.join(".");
        errors.extend(pod::template_errors(template, &path));
        match text(&object["kind"]) {
            "Job" => batch::job_errors(spec, "spec", &mut errors),
            "CronJob" => batch::cron_job_errors(spec, &mut errors),
            "PodTemplate" => {}
            kind => always_restarts(&template["spec"], &path, kind, &mut errors),
        }
        strategy_errors(object, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        if self.selector && new["kind"] != "StatefulSet" {
            errors.unchanged("spec.selector", &new["spec"]["selector"], &old["spec"]["selector"]);
        }
        match text(&new["kind"]) {
            "StatefulSet" => stateful_set_update(&new["spec"], &old["spec"], &mut errors),
            "Job" => batch::job_update(&new["spec"], &old["spec"], &mut errors),
            _ => {}
        }
        errors.into_vec()
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        self.selectable
    }
}

/// A selector must be there, say something, and choose the template.
fn selector_errors(object: &Value, errors: &mut Errors) {
    const MISMATCH: &str = "`selector` does not match template `labels`";
    let selector = &object["spec"]["selector"];
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    if selector.is_null() {
        errors.required("spec.selector", "");
        errors.invalid("spec.template.metadata.labels", labels, MISMATCH);
        return;
    }
    errors.extend(validate_label_selector(selector, "spec.selector"));
    let empty = list(&selector["matchExpressions"]).is_empty() && fields(&selector["matchLabels"]).next().is_none();
    if empty {
        let kind = match text(&object["kind"]) {
            "StatefulSet" => "statefulset",
            "DaemonSet" => "daemonset",
            _ => "deployment",
        };
        let shown = json!({"matchLabels": selector["matchLabels"], "matchExpressions": selector["matchExpressions"]});
        let shown = if shown == json!({"matchLabels": null, "matchExpressions": null}) { json!({}) } else { shown };
        errors.invalid("spec.selector", &shown, &format!("empty selector is invalid for {kind}"));
    }
    if let Ok(parsed) = LabelSelector::from_object(selector)
        && !empty
        && !parsed.matches(|key| labels[key].as_str())
    {
        errors.invalid("spec.template.metadata.labels", labels, MISMATCH);
    }
}

/// Controllers that replace pods need pods that run for ever.
fn always_restarts(spec: &Value, path: &str, kind: &str, errors: &mut Errors) {
    errors.one_of(format!("{path}.spec.restartPolicy"), &spec["restartPolicy"], &["Always"]);
    if !spec["activeDeadlineSeconds"].is_null() {
        let kind = if kind == "Deployment" { "ReplicaSet" } else { kind };
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(format!("{path}.spec.activeDeadlineSeconds"), &why);
    }
}

fn strategy_errors(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    match text(&object["kind"]) {
        "Deployment" => {
            let strategy = &spec["strategy"];
            if !matches!(text(&strategy["type"]), "Recreate" | "RollingUpdate") {
                let shown = json!({"Type": strategy["type"], "RollingUpdate": strategy["rollingUpdate"]});
                errors.extend([super::unsupported("spec.strategy", &shown, &["Recreate", "RollingUpdate"])]);
            }
            if strategy["type"] == "Recreate" && !strategy["rollingUpdate"].is_null() {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.forbidden("spec.strategy.rollingUpdate", why);
            }
            rolling(&strategy["rollingUpdate"], "spec.strategy.rollingUpdate", errors);
            let deadline = spec["progressDeadlineSeconds"].as_i64();
            if deadline.is_some_and(|seconds| seconds <= spec["minReadySeconds"].as_i64().unwrap_or(0)) {
                let at = "spec.progressDeadlineSeconds";
                errors.invalid(at, &spec["progressDeadlineSeconds"], "must be greater than minReadySeconds");
            }
        }
        "DaemonSet" => {
            errors.one_of("spec.updateStrategy.type", &spec["updateStrategy"]["type"], &["RollingUpdate", "OnDelete"]);
            rolling(&spec["updateStrategy"]["rollingUpdate"], "spec.updateStrategy.rollingUpdate", errors);
        }
        "StatefulSet" => {
            let policies = ["OrderedReady", "Parallel"];
            let policy = &spec["podManagementPolicy"];
            if !policies.contains(&text(policy)) {
                errors.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'");
            }
        }
        _ => {}
    }
}

fn rolling(rolling: &Value, at: &str, errors: &mut Errors) {
    if !rolling.is_object() {
        return;
    }
    for name in ["maxUnavailable", "maxSurge"] {
        super::policy::amount_or_percent(&rolling[name], &format!("{at}.{name}"), errors);
    }
    let nothing = |value: &Value| *value == 0 || *value == "0%" || value.is_null();
    if nothing(&rolling["maxUnavailable"]) && nothing(&rolling["maxSurge"]) {
        let shown = &rolling["maxUnavailable"];
        errors.invalid(format!("{at}.maxUnavailable"), shown, "may not be 0 when `maxSurge` is 0");
    }
}

fn stateful_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    const WHY: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    const MUTABLE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        MUTABLE.iter().for_each(|name| remove(&mut spec, name));
        spec
    };
    if fixed(new) != fixed(old) {
        errors.forbidden("spec", WHY);
    }
}

/// The generation of a daemon set's template, which its clients of old look for.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn replicas(object: &mut Value) {
    field(child(object, "spec"), "replicas", 1);
}

/// The oldest controller is labelled like its pods and selects them by all their labels.
fn replication_controller(object: &mut Value) {
    replicas(object);
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        field(&mut object["spec"], "selector", labels.clone());
        field(&mut object["metadata"], "labels", labels);
    }
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
    for claim in super::defaults::each(spec, "volumeClaimTemplates") {
        field(claim, "apiVersion", "v1");
        field(claim, "kind", "PersistentVolumeClaim");
        field(child(claim, "spec"), "volumeMode", "Filesystem");
        field(child(claim, "status"), "phase", "Pending");
    }
}

fn daemon_set(object: &mut Value) {
    field(child(&mut object["metadata"], "annotations"), TEMPLATE_GENERATION, "0");
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
