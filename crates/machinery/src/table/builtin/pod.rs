//! Pods: the status column sums up phase, conditions and every container.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, flag, int, is_deleting, list, name, row, text, text_or};
use crate::table::duration::since;

/// The row of a pod.
pub(super) fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, since(&Value::from(last.to_string()), now))
        }
        _ => summary.restarts.to_string(),
    };
    let ip = list(pod, "/status/podIPs").first().map_or("", |ip| text(ip, "/ip"));
    let ip = if ip.is_empty() { text(pod, "/status/podIP") } else { ip };
    row![
        name(pod),
        format!("{}/{}", summary.ready, summary.total),
        summary.reason,
        restarts,
        age(pod, now),
        if ip.is_empty() { "<none>" } else { ip },
        text_or(pod, "/spec/nodeName", "<none>"),
        text_or(pod, "/status/nominatedNodeName", "<none>"),
        readiness_gates(pod),
    ]
}

/// Pods that have ended are complete.
pub(in crate::table) fn conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let passed = gates.iter().filter(|gate| super::has_condition(pod, text(gate, "/conditionType"))).count();
    format!("{passed}/{}", gates.len())
}

/// What the containers say together.
struct Summary {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let sidecars = list(pod, "/spec/initContainers").iter().filter(|container| is_sidecar(container)).count();
        let mut summary = Self {
            ready: 0,
            total: list(pod, "/spec/containers").len() + sidecars,
            restarts: 0,
            last_restart: None,
            reason: text_or(pod, "/status/reason", text(pod, "/status/phase")).to_owned(),
        };
        let gated = |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
        if list(pod, "/status/conditions").iter().any(gated) {
            "SchedulingGated".clone_into(&mut summary.reason);
        }
        let sidecars = summary.add_init_containers(pod);
        if sidecars.is_some() || super::has_condition(pod, "Initialized") {
            let Restarts { count, last } = sidecars.unwrap_or_default();
            (summary.restarts, summary.last_restart) = (count, last);
            summary.add_containers(pod);
        }
        if is_deleting(pod) {
            if text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut summary.reason);
            } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    /// Init containers in order, up to the first that is not done. Returns the restarts of sidecars if all are done.
    fn add_init_containers(&mut self, pod: &Value) -> Option<Restarts> {
        let specs = list(pod, "/spec/initContainers");
        let mut sidecars = Restarts::default();
        let mut all = Restarts::default();
        for (index, status) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            all.add(status);
            (self.restarts, self.last_restart) = (all.count, all.last);
            let sidecar = specs.iter().any(|spec| spec["name"] == status["name"] && is_sidecar(spec));
            if sidecar {
                sidecars.add(status);
            }
            let terminated = status.pointer("/state/terminated");
            if terminated.is_some_and(|terminated| int(terminated, "/exitCode") == 0) {
                continue;
            }
            if sidecar && flag(status, "/started") {
                self.ready += usize::from(flag(status, "/ready"));
                continue;
            }
            let waiting = text(status, "/state/waiting/reason");
            self.reason = match terminated {
                Some(terminated) => format!("Init:{}", ended(terminated)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", specs.len()),
            };
            // A pod that is initialized anyway counts only the sidecars seen so far.
            return super::has_condition(pod, "Initialized").then_some(sidecars);
        }
        Some(sidecars)
    }

    fn add_containers(&mut self, pod: &Value) {
        let mut running = false;
        let mut failure = None;
        let mut restarts = Restarts { count: self.restarts, last: self.last_restart };
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            restarts.add(status);
            let waiting = text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(terminated) = status.pointer("/state/terminated").filter(|state| !state.is_null()) {
                self.reason = ended(terminated);
                if int(terminated, "/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if flag(status, "/ready") && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        (self.restarts, self.last_restart) = (restarts.count, restarts.last);
        if self.reason == "Completed" {
            if running && super::has_condition(pod, "Ready") {
                "Running".clone_into(&mut self.reason);
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += int(status, "/restartCount");
        let finished = text(status, "/lastState/terminated/finishedAt").parse().ok();
        self.last = self.last.max(finished);
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Why a container ended.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "/reason"), int(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", int(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(object: &Value) -> Vec<String> {
        let now = "2026-01-01T00:05:03Z".parse().expect("a time");
        pod(object, now).iter().map(super::super::plain).collect()
    }

    #[expect(clippy::needless_pass_by_value, reason = "values are made at the call")]
    fn with_status(status: Value) -> Value {
        json!({
            "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "nodeName": "n1",
                "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
            "status": status,
        })
    }

    #[test]
    fn running() {
        let mut object = with_status(json!({
            "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "x/y", "status": "True"}],
            "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}, "restartCount": 4},
                {"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}},
            ],
            "containerStatuses": [
                {"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 2,
                    "lastState": {"terminated": {"finishedAt": "2026-01-01T00:04:03Z"}}},
                {"name": "b", "ready": true, "state": {"running": {}}},
            ],
        }));
        object["spec"]["readinessGates"] = json!([{"conditionType": "x/y"}, {"conditionType": "x/z"}]);
        // Restarts of an init container that is done do not count, those of a sidecar do.
        assert_eq!(cells(&object), ["p", "3/3", "Running", "3 (60s ago)", "5m3s", "10.0.0.1", "n1", "<none>", "1/2"]);
        assert!(conditions(&object).is_empty());
    }

    #[test]
    fn reasons() {
        let status = |status: Value| cells(&with_status(status))[2].clone();
        assert_eq!(status(json!({"phase": "Pending"})), "Pending");
        assert_eq!(status(json!({"phase": "Failed", "reason": "Evicted"})), "Evicted");
        assert_eq!(
            status(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]})),
            "SchedulingGated"
        );
        let init = |state: Value| json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": state}]});
        assert_eq!(status(init(json!({"waiting": {"reason": "PodInitializing"}}))), "Init:0/2");
        assert_eq!(status(init(json!({"waiting": {"reason": "ErrImagePull"}}))), "Init:ErrImagePull");
        assert_eq!(status(init(json!({"terminated": {"exitCode": 3}}))), "Init:ExitCode:3");
        assert_eq!(status(init(json!({"terminated": {"exitCode": 1, "signal": 9}}))), "Init:Signal:9");
        let main = |state: Value| json!({"phase": "Running", "containerStatuses": [{"name": "a", "state": state}]});
        assert_eq!(status(main(json!({"waiting": {"reason": "CrashLoopBackOff"}}))), "CrashLoopBackOff");
        assert_eq!(status(main(json!({"terminated": {"exitCode": 2, "reason": "Error"}}))), "Error");
        let completed = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        assert_eq!(status(main(completed.clone())), "Completed");
        let half = |ready: bool| {
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                "containerStatuses": [{"state": completed}, {"ready": true, "state": {"running": {}}}]})
        };
        assert_eq!(status(half(true)), "Running");
        assert_eq!(status(half(false)), "NotReady");
    }

    #[test]
    fn deletion() {
        let mut object = with_status(json!({"phase": "Running"}));
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(cells(&object)[2], "Terminating");
        object["status"]["reason"] = json!("NodeLost");
        assert_eq!(cells(&object)[2], "Unknown");
        object["status"] = json!({"phase": "Succeeded"});
        assert_eq!(cells(&object)[2], "Succeeded");
        assert_eq!(conditions(&object)[0]["reason"], "Succeeded");
    }
}
