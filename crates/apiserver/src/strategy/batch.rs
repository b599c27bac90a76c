//! Jobs and cron jobs: defaults and checks beyond those of every kind with a template.

use serde_json::{Value, json};

use super::check::{Errors, text};
use super::defaults::{child, field, remove};

/// Fills in a job.
pub(super) fn job(object: &mut Value) {
    job_spec(child(object, "spec"));
}

fn job_spec(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        field(spec, "completions", 1);
    }
    field(spec, "parallelism", 1);
    let per_index = !spec["backoffLimitPerIndex"].is_null();
    field(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    field(spec, "manualSelector", false);
    field(spec, "completionMode", "NonIndexed");
    field(spec, "suspend", false);
    let policy = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    field(spec, "podReplacementPolicy", policy);
}

/// Fills in a cron job.
pub(super) fn cron_job(object: &mut Value) {
    let spec = child(object, "spec");
    field(spec, "concurrencyPolicy", "Allow");
    field(spec, "suspend", false);
    field(spec, "successfulJobsHistoryLimit", 3);
    field(spec, "failedJobsHistoryLimit", 1);
}

/// A job's pods are told apart by the job's uid.
pub(super) fn own_pods(object: &mut Value) {
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
    if object["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty) {
        object["metadata"]["labels"] = object["spec"]["template"]["metadata"]["labels"].clone();
    }
}

/// What is wrong with a job.
pub(super) fn job_errors(spec: &Value, at: &str, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "maxFailedIndexes",
    ] {
        errors.not_negative(format!("{at}.{name}"), &spec[name]);
    }
    errors.one_of(format!("{at}.completionMode"), &spec["completionMode"], &["NonIndexed", "Indexed"]);
    if spec["completionMode"] == "Indexed" && spec["completions"].is_null() {
        let why = "when completion mode is Indexed";
        errors.required(format!("{at}.completions"), why);
    }
    restart_policy(&spec["template"], &format!("{at}.template"), errors);
}

fn restart_policy(template: &Value, at: &str, errors: &mut Errors) {
    if !matches!(text(&template["spec"]["restartPolicy"]), "OnFailure" | "Never") {
        errors.required(format!("{at}.spec.restartPolicy"), "valid values: \"OnFailure\", \"Never\"");
    }
}

/// What is wrong with a cron job.
pub(super) fn cron_job_errors(spec: &Value, errors: &mut Errors) {
    if text(&spec["schedule"]).is_empty() {
        errors.required("spec.schedule", "");
    } else {
        let schedule = text(&spec["schedule"]);
        let words = schedule.split_whitespace().count();
        if !schedule.starts_with('@') && words != 5 {
            let why = format!("expected exactly 5 fields, found {words}: [{schedule}]");
            errors.invalid("spec.schedule", &spec["schedule"], &why);
        }
    }
    errors.not_negative("spec.startingDeadlineSeconds", &spec["startingDeadlineSeconds"]);
    errors.one_of("spec.concurrencyPolicy", &spec["concurrencyPolicy"], &["Allow", "Forbid", "Replace"]);
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.not_negative(format!("spec.{name}"), &spec[name]);
    }
    let job = &spec["jobTemplate"]["spec"];
    if job["manualSelector"] == true {
        errors.one_of("spec.jobTemplate.spec.manualSelector", &"true".into(), &["nil", "false"]);
    }
    restart_policy(&job["template"], "spec.jobTemplate.spec.template", errors);
}

/// What of a job may not change.
pub(super) fn job_update(new: &Value, old: &Value, errors: &mut Errors) {
    for name in ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        errors.unchanged(&format!("spec.{name}"), &new[name], &old[name]);
    }
    if new["completionMode"] != "Indexed" {
        errors.unchanged("spec.completions", &new["completions"], &old["completions"]);
    }
    // A job that was never started may still be moved to other nodes.
    let mutable = if old["suspend"] == true {
        &["nodeSelector", "affinity", "tolerations", "schedulingGates"][..]
    } else {
        &[][..]
    };
    let fixed = |template: &Value| {
        let mut template = template.clone();
        mutable.iter().for_each(|name| remove(&mut template["spec"], name));
        if !mutable.is_empty() {
            remove(&mut template["metadata"], "labels");
            remove(&mut template["metadata"], "annotations");
        }
        template
    };
    let (now, before) = (fixed(&new["template"]), fixed(&old["template"]));
    if now != before {
        errors.invalid("spec.template", &new["template"], "field is immutable");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_end() {
        let mut errors = Errors::default();
        job_errors(&json!({"template": {"spec": {"restartPolicy": "Always"}}}), "spec", &mut errors);
        let shown: Vec<_> = errors.into_vec().iter().map(ToString::to_string).collect();
        let why = "Required value: valid values: \"OnFailure\", \"Never\"";
        assert_eq!(shown, [format!("spec.template.spec.restartPolicy: {why}")]);
    }

    #[test]
    fn templates_of_started_jobs_are_fixed() {
        let old = json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}, "suspend": false});
        let mut new = old.clone();
        new["template"]["spec"]["nodeSelector"] = json!({"a": "c"});
        let mut errors = Errors::default();
        job_update(&new, &old, &mut errors);
        assert!(!errors.is_empty());
        let suspended = json!({"template": old["template"], "suspend": true});
        let mut errors = Errors::default();
        job_update(&new, &suspended, &mut errors);
        assert!(errors.is_empty());
    }
}
