//! Tests of quota arithmetic.

use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn show(usage: &Usage) -> Vec<String> {
    usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
}

fn container(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

#[test]
fn a_pod_costs_what_its_containers_request_together() {
    let pod = json!({"spec": {"containers": [container("a", "250m", "64Mi"), container("b", "750m", "64Mi")]}});
    let want = ["count/pods=1", "cpu=1", "memory=128Mi", "pods=1", "requests.cpu=1", "requests.memory=128Mi"];
    assert_eq!(show(&usage_of("", "pods", &pod, now())), want);
}

#[test]
fn starting_and_side_cars_count_as_they_run() {
    let mut side = container("side", "100m", "1Mi");
    side["restartPolicy"] = "Always".into();
    let pod = json!({"spec": {
        "initContainers": [side, container("big", "2", "1Mi")], "containers": [container("a", "500m", "10Mi")],
        "overhead": {"cpu": "50m"},
    }});
    let usage = usage_of("", "pods", &pod, now());
    assert_eq!(usage["requests.cpu"].to_string(), "2150m");
    assert_eq!(usage["requests.memory"].to_string(), "11Mi");
}

#[test]
fn finished_pods_are_only_objects() {
    let mut pod = json!({"spec": {"containers": [container("a", "1", "1Mi")]}, "status": {"phase": "Succeeded"}});
    assert_eq!(show(&usage_of("", "pods", &pod, now())), ["count/pods=1"]);
    pod["status"]["phase"] = "Running".into();
    pod["metadata"] = json!({"deletionTimestamp": "2025-12-31T23:00:00Z", "deletionGracePeriodSeconds": 30});
    assert_eq!(show(&usage_of("", "pods", &pod, now())), ["count/pods=1"]);
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:10Z".into();
    assert_eq!(usage_of("", "pods", &pod, now())["pods"], one());
}

#[test]
fn other_kinds_cost_what_they_are() {
    let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
    let want = ["count/services=1", "services=1", "services.loadbalancers=1", "services.nodeports=2"];
    assert_eq!(show(&usage_of("", "services", &service, now())), want);
    let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}});
    let want = [
        "count/persistentvolumeclaims=1",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1",
        "gold.storageclass.storage.k8s.io/requests.storage=1Gi",
        "persistentvolumeclaims=1",
        "requests.storage=1Gi",
    ];
    assert_eq!(show(&usage_of("", "persistentvolumeclaims", &claim, now())), want);
    assert_eq!(
        show(&usage_of("kubevirt.io", "virtualmachines", &json!({}), now())),
        ["count/virtualmachines.kubevirt.io=1"]
    );
}

#[test]
fn names_lead_to_the_kinds_that_they_count() {
    assert_eq!(kind_of("count/virtualmachines.kubevirt.io"), Some(("kubevirt.io", "virtualmachines")));
    assert_eq!(kind_of("count/pods"), Some(("", "pods")));
    assert_eq!(kind_of("requests.memory"), Some(("", "pods")));
    assert_eq!(kind_of("requests.example.com/gpu"), Some(("", "pods")));
    assert_eq!(kind_of("gold.storageclass.storage.k8s.io/requests.storage"), Some(("", "persistentvolumeclaims")));
    assert_eq!(kind_of("requests.storage"), Some(("", "persistentvolumeclaims")));
    assert_eq!(kind_of("services.nodeports"), Some(("", "services")));
    assert_eq!(kind_of("secrets"), Some(("", "secrets")));
    assert_eq!(kind_of("whatever"), None);
}

#[test]
fn scopes_choose_pods() {
    let scoped = |scope: &str| json!({"spec": {"scopes": [scope]}});
    let best_effort = json!({"spec": {"containers": [{"name": "a", "resources": {}}], "activeDeadlineSeconds": 5}});
    let burstable = json!({"spec": {"containers": [container("a", "1", "1Mi")], "priorityClassName": "high"}});
    for (scope, pod, want) in [
        ("BestEffort", &best_effort, true),
        ("BestEffort", &burstable, false),
        ("NotBestEffort", &burstable, true),
        ("Terminating", &best_effort, true),
        ("NotTerminating", &best_effort, false),
        ("PriorityClass", &burstable, true),
    ] {
        assert_eq!(in_scope(&scoped(scope), "pods", pod), want, "{scope}");
    }
    assert!(!in_scope(&scoped("BestEffort"), "secrets", &json!({})), "only pods have scopes");
    let selector = |operator: &str| {
        json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]},
        ]}}})
    };
    assert!(in_scope(&selector("In"), "pods", &burstable) && !in_scope(&selector("In"), "pods", &best_effort));
    assert!(in_scope(&selector("NotIn"), "pods", &best_effort) && !in_scope(&selector("NotIn"), "pods", &burstable));
    assert!(in_scope(&json!({"spec": {}}), "pods", &burstable));
}

#[test]
fn limited_resources_must_be_said() {
    let pod = json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}, container("c", "1", "1Mi")]}});
    let limited = BTreeSet::from(["memory", "cpu", "pods"]);
    assert_eq!(unsaid(&pod, &limited).as_deref(), Some("must specify cpu for: a,b; memory for: a,b"));
    assert_eq!(unsaid(&pod, &BTreeSet::from(["pods"])), None);
}

#[test]
fn too_much_is_told_with_numbers() {
    let usage = |pairs: &[(&str, &str)]| -> Usage {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
    };
    let hard = usage(&[("pods", "1"), ("requests.cpu", "1")]);
    let used = usage(&[("pods", "1"), ("requests.cpu", "100m")]);
    let more = usage(&[("pods", "1"), ("requests.cpu", "250m"), ("memory", "5Gi")]);
    let want = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!(excess("q", &hard, &used, &more).as_deref(), Some(want));
    assert_eq!(excess("q", &hard, &Usage::new(), &more), None);
}

#[test]
fn an_update_costs_only_what_it_adds() {
    let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{"port": 1}]}});
    let old = usage_of("", "services", &service("ClusterIP"), now());
    let new = usage_of("", "services", &service("NodePort"), now());
    assert_eq!(show(&growth(new.clone(), Some(&old))), ["services.nodeports=1"]);
    assert!(growth(old, Some(&new)).is_empty());
}
