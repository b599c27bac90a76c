//! Controllers of pods.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age, containers, has_condition, int, is_deleting, labels, list, name, plain, row, selector, text, text_or,
};
use crate::meta::group_version;
use crate::selector::LabelSelector;
use crate::table::duration::{human_duration, since};

/// A missing number of replicas means one.
fn desired(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template/spec/containers");
    let selector = LabelSelector::from_object(object.pointer("/spec/selector").unwrap_or(&Value::Null));
    row![
        name(object),
        format!("{}/{}", int(object, "/status/readyReplicas"), desired(object)),
        int(object, "/status/updatedReplicas"),
        int(object, "/status/availableReplicas"),
        age(object, now),
        names,
        images,
        selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string()),
    ]
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, selector(object, "/spec/selector"))
}

pub(super) fn replication_controller(object: &Value, now: Timestamp) -> Vec<Value> {
    replicas(object, now, labels(object, "/spec/selector"))
}

fn replicas(object: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template/spec/containers");
    row![
        name(object),
        desired(object),
        int(object, "/status/replicas"),
        int(object, "/status/readyReplicas"),
        age(object, now),
        names,
        images,
        selector,
    ]
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template/spec/containers");
    let ready = format!("{}/{}", int(object, "/status/readyReplicas"), desired(object));
    row![name(object), ready, age(object, now), names, images]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template/spec/containers");
    row![
        name(object),
        int(object, "/status/desiredNumberScheduled"),
        int(object, "/status/currentNumberScheduled"),
        int(object, "/status/numberReady"),
        int(object, "/status/updatedNumberScheduled"),
        int(object, "/status/numberAvailable"),
        labels(object, "/spec/template/spec/nodeSelector"),
        age(object, now),
        names,
        images,
        selector(object, "/spec/selector"),
    ]
}

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owners = list(object, "/metadata/ownerReferences");
    let controller = owners.iter().find(|owner| owner["controller"] == true).map_or("<none>".to_owned(), |owner| {
        let group = group_version(text(owner, "/apiVersion")).map_or("", |(group, _)| group);
        let dot = if group.is_empty() { "" } else { "." };
        format!("{}/{}", format!("{}{dot}{group}", text(owner, "/kind")).to_lowercase(), text(owner, "/name"))
    });
    row![name(object), controller, int(object, "/revision"), age(object, now)]
}

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/template/spec/containers");
    let succeeded = int(object, "/status/succeeded");
    let completions = match (object.pointer("/spec/completions"), int(object, "/spec/parallelism")) {
        (Some(wanted), _) if wanted.is_i64() => format!("{succeeded}/{wanted}"),
        (_, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    };
    row![
        name(object),
        job_status(object),
        completions,
        job_duration(object, now),
        age(object, now),
        names,
        images,
        selector(object, "/spec/selector"),
    ]
}

fn job_status(job: &Value) -> &'static str {
    match () {
        () if has_condition(job, "Complete") => "Complete",
        () if has_condition(job, "Failed") => "Failed",
        () if is_deleting(job) => "Terminating",
        () if has_condition(job, "Suspended") => "Suspended",
        () if has_condition(job, "FailureTarget") => "FailureTarget",
        () if has_condition(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let time = |pointer: &str| text(job, pointer).parse::<Timestamp>().ok();
    match time("/status/startTime") {
        Some(start) => human_duration(time("/status/completionTime").unwrap_or(now).duration_since(start)),
        None => String::new(),
    }
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "/spec/jobTemplate/spec/template/spec/containers");
    let suspend = match object.pointer("/spec/suspend").and_then(Value::as_bool) {
        None => "<unset>",
        Some(true) => "True",
        Some(false) => "False",
    };
    let last = object.pointer("/status/lastScheduleTime").filter(|last| !last.is_null());
    row![
        name(object),
        text(object, "/spec/schedule"),
        text_or(object, "/spec/timeZone", "<none>"),
        suspend,
        list(object, "/status/active").len(),
        last.map_or("<none>".to_owned(), |last| since(last, now)),
        age(object, now),
        names,
        images,
        selector(object, "/spec/jobTemplate/spec/selector"),
    ]
}

pub(super) fn disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound =
        |pointer: &str| object.pointer(pointer).filter(|bound| !bound.is_null()).map_or("N/A".to_owned(), plain);
    row![
        name(object),
        bound("/spec/minAvailable"),
        bound("/spec/maxUnavailable"),
        int(object, "/status/disruptionsAllowed"),
        age(object, now),
    ]
}

pub(super) fn scale(object: &Value, now: Timestamp) -> Vec<Value> {
    row![name(object), int(object, "/spec/replicas"), int(object, "/status/replicas"), age(object, now)]
}

pub(super) fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let target = |field: &str| text(object, &format!("/spec/scaleTargetRef/{field}"));
    let minimum = object.pointer("/spec/minReplicas").and_then(Value::as_i64);
    row![
        name(object),
        format!("{}/{}", target("kind"), target("name")),
        autoscaler_targets(object),
        minimum.map_or("<unset>".to_owned(), |minimum| minimum.to_string()),
        int(object, "/spec/maxReplicas"),
        int(object, "/status/currentReplicas"),
        age(object, now),
    ]
}

/// Two metrics at most, each with its current value and its target.
fn autoscaler_targets(object: &Value) -> String {
    if let Some(target) = object.pointer("/spec/targetCPUUtilizationPercentage").and_then(Value::as_i64) {
        let current = object.pointer("/status/currentCPUUtilizationPercentage").and_then(Value::as_i64);
        return format!("cpu: {}/{target}%", current.map_or("<unknown>".to_owned(), |current| format!("{current}%")));
    }
    let statuses = list(object, "/status/currentMetrics");
    let metrics = list(object, "/spec/metrics");
    let texts: Vec<String> =
        metrics.iter().enumerate().map(|(index, metric)| metric_text(metric, statuses.get(index))).collect();
    match texts.as_slice() {
        [] => "<none>".to_owned(),
        [one, two, rest @ ..] if !rest.is_empty() => format!("{one}, {two} + {} more...", rest.len()),
        texts => texts.join(", "),
    }
}

fn metric_text(metric: &Value, status: Option<&Value>) -> String {
    let (source, named) = match text(metric, "/type") {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "External" => ("external", false),
        _ => return "<unknown type>".to_owned(),
    };
    let target = &metric[source]["target"];
    let current = |field: &str| {
        let current = status.and_then(|status| status.get(source)?.get("current")?.get(field));
        current.filter(|current| !current.is_null())
    };
    let unknown = || "<unknown>".to_owned();
    let prefix = if named { format!("{}: ", text(&metric[source], "/name")) } else { String::new() };
    if !target["averageValue"].is_null() {
        let suffix = if matches!(source, "object" | "external") { " (avg)" } else { "" };
        let now = current("averageValue").map_or_else(unknown, plain);
        format!("{prefix}{now}/{}{suffix}", plain(&target["averageValue"]))
    } else if named {
        let percent = |value: &Value| format!("{}%", plain(value));
        let now = current("averageUtilization").map_or_else(unknown, percent);
        let wanted = Some(&target["averageUtilization"]).filter(|wanted| !wanted.is_null());
        format!("{prefix}{now}/{}", wanted.map_or("<auto>".to_owned(), percent))
    } else {
        format!("{}/{}", current("value").map_or_else(unknown, plain), plain(&target["value"]))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(row: fn(&Value, Timestamp) -> Vec<Value>, object: &Value) -> Vec<String> {
        let now = "2026-01-01T00:05:03Z".parse().expect("a time");
        row(object, now).iter().map(plain).collect()
    }

    fn workload() -> Value {
        json!({"metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "w"}},
                "template": {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}}},
            "status": {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}})
    }

    #[test]
    fn replicated() {
        assert_eq!(cells(deployment, &workload()), ["w", "1/3", "2", "1", "5m3s", "a,b", "x,y", "app=w"]);
        assert_eq!(cells(replica_set, &workload()), ["w", "3", "2", "1", "5m3s", "a,b", "x,y", "app=w"]);
        assert_eq!(cells(stateful_set, &workload()), ["w", "1/3", "5m3s", "a,b", "x,y"]);
        assert_eq!(cells(deployment, &json!({}))[1], "0/1");
        assert_eq!(
            cells(daemon_set, &workload()),
            ["w", "0", "0", "0", "0", "0", "<none>", "5m3s", "a,b", "x,y", "app=w"]
        );
    }

    #[test]
    fn jobs() {
        let mut object = workload();
        object["status"] = json!({"succeeded": 1, "startTime": "2026-01-01T00:05:00Z"});
        assert_eq!(cells(job, &object)[..4], ["w", "Running", "1/1", "3s"]);
        object["spec"]["parallelism"] = json!(4);
        assert_eq!(cells(job, &object)[2], "1/1 of 4");
        object["spec"]["completions"] = json!(2);
        object["status"]["completionTime"] = json!("2026-01-01T00:05:02Z");
        object["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
        assert_eq!(cells(job, &object)[..4], ["w", "Complete", "1/2", "2s"]);
        let cron = json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "suspend": false},
            "status": {"active": [{}], "lastScheduleTime": "2026-01-01T00:05:00Z"}});
        assert_eq!(
            cells(cron_job, &cron),
            ["c", "* * * * *", "<none>", "False", "1", "3s", "<unknown>", "", "", "<none>"]
        );
    }

    #[test]
    fn revisions_and_budgets() {
        let revision = json!({"metadata": {"name": "r", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": true}]}, "revision": 4});
        assert_eq!(cells(controller_revision, &revision), ["r", "statefulset.apps/s", "4", "<unknown>"]);
        let budget =
            json!({"metadata": {"name": "b"}, "spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}});
        assert_eq!(cells(disruption_budget, &budget), ["b", "50%", "N/A", "1", "<unknown>"]);
    }

    #[test]
    fn autoscalers() {
        let object = json!({"metadata": {"name": "h"}, "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 5,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
                {"type": "Pods", "pods": {"target": {"averageValue": "1k"}}},
                {"type": "External", "external": {"target": {"value": "3"}}},
            ]},
            "status": {"currentReplicas": 2, "currentMetrics": [{"resource": {"current": {"averageUtilization": 12}}}]}});
        assert_eq!(
            cells(autoscaler, &object),
            ["h", "Deployment/d", "cpu: 12%/80%, <unknown>/1k + 1 more...", "1", "5", "2", "<unknown>"]
        );
        let old = json!({"spec": {"targetCPUUtilizationPercentage": 50}});
        assert_eq!(cells(autoscaler, &old)[2], "cpu: <unknown>/50%");
    }
}
