//! What an object costs a quota, which quotas it concerns, and what is too much. Pure functions over the objects.

use std::collections::{BTreeMap, BTreeSet};

use ferrovirt_api::values::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

/// Amounts by resource name.
pub(super) type Usage = BTreeMap<String, Quantity>;

const CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";
/// Kinds of the core group that quotas count under their plain name.
const COUNTED: &[&str] =
    &["configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets", "services"];
/// What every container must say when a quota limits it.
const DEMANDED: &[&str] = &["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

fn one() -> Quantity {
    Quantity::from_millis(1000)
}

fn quantity(value: &Value) -> Option<Quantity> {
    serde_json::from_value(value.clone()).ok()
}

fn amounts(value: &Value) -> Usage {
    let pairs = value.as_object().into_iter().flatten();
    pairs.filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?))).collect()
}

/// Adds amounts; a sum that no number can hold stays at what it was.
pub(super) fn add(to: &mut Usage, more: &Usage) {
    for (name, amount) in more {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.checked_add(amount).unwrap_or_else(|| sum.clone());
    }
}

fn at_least(to: &mut Usage, other: &Usage) {
    for (name, amount) in other {
        let have = to.entry(name.clone()).or_default();
        if *have < *amount {
            *have = amount.clone();
        }
    }
}

/// What a quota allows.
pub(super) fn hard(quota: &Value) -> Usage {
    amounts(&quota["spec"]["hard"])
}

/// The name under which any kind can be counted.
pub(super) fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// Group and plural of the kind whose objects cost a resource; `None` for names that nothing is known about.
pub(super) fn kind_of(name: &str) -> Option<(&str, &str)> {
    if let Some(counted) = name.strip_prefix("count/") {
        return Some(counted.split_once('.').map_or(("", counted), |(plural, group)| (group, plural)));
    }
    let claims = ["persistentvolumeclaims", "requests.storage"];
    if claims.contains(&name) || name.split_once(CLASS_SUFFIX).is_some_and(|(_, what)| claims.contains(&what)) {
        return Some(("", "persistentvolumeclaims"));
    }
    if matches!(name, "services.loadbalancers" | "services.nodeports") {
        return Some(("", "services"));
    }
    if COUNTED.contains(&name) {
        return Some(("", name));
    }
    let compute = ["pods", "cpu", "memory", "ephemeral-storage"];
    let is_pod = compute.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.")
        || name.starts_with("limits.");
    is_pod.then_some(("", "pods"))
}

/// What one object costs.
pub(super) fn usage_of(group: &str, plural: &str, object: &Value, now: Timestamp) -> Usage {
    let mut usage = Usage::from([(count_name(group, plural), one())]);
    if !group.is_empty() {
        return usage;
    }
    if COUNTED.contains(&plural) {
        usage.insert(plural.to_owned(), one());
    }
    match plural {
        "pods" if is_charged(object, now) => add(&mut usage, &pod_usage(&object["spec"])),
        "services" => service_usage(&object["spec"], &mut usage),
        "persistentvolumeclaims" => claim_usage(object, &mut usage),
        _ => {}
    }
    usage
}

/// Finished pods cost nothing, nor do those that should be gone.
fn is_charged(pod: &Value, now: Timestamp) -> bool {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return false;
    }
    let metadata = &pod["metadata"];
    let deleted = metadata["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64();
    let end = deleted.zip(grace).and_then(|(at, grace)| at.checked_add(SignedDuration::from_secs(grace)).ok());
    end.is_none_or(|end| now <= end)
}

/// Compute resources under the names that quotas use.
fn compute_usage(requests: &Usage, limits: &Usage) -> Usage {
    let mut usage = Usage::from([("pods".to_owned(), one())]);
    for (name, amount) in requests {
        let native = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if native {
            usage.insert(name.clone(), amount.clone());
        }
        if native || name.contains('/') {
            usage.insert(format!("requests.{name}"), amount.clone());
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

fn pod_usage(spec: &Value) -> Usage {
    compute_usage(&pod_amounts(spec, "requests"), &pod_amounts(spec, "limits"))
}

/// What the containers need together: all that run at the same time, or more if starting them takes more.
fn pod_amounts(spec: &Value, which: &str) -> Usage {
    let of = |container: &Value| amounts(&container["resources"][which]);
    let list = |name: &str| spec[name].as_array().map_or(&[][..], Vec::as_slice);
    let mut running = Usage::new();
    for container in list("containers") {
        add(&mut running, &of(container));
    }
    let (mut sidecars, mut starting) = (Usage::new(), Usage::new());
    for container in list("initContainers") {
        if container["restartPolicy"] == "Always" {
            add(&mut running, &of(container));
            add(&mut sidecars, &of(container));
            at_least(&mut starting, &sidecars);
        } else {
            let mut together = sidecars.clone();
            add(&mut together, &of(container));
            at_least(&mut starting, &together);
        }
    }
    at_least(&mut running, &starting);
    running.extend(of(spec));
    let overhead = amounts(&spec["overhead"]);
    for (name, amount) in overhead {
        if which == "requests" || running.contains_key(&name) {
            add(&mut running, &Usage::from([(name, amount)]));
        }
    }
    running
}

fn service_usage(spec: &Value, usage: &mut Usage) {
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let numbered = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let (balancers, node_ports) = match spec["type"].as_str() {
        Some("NodePort") => (0, ports.len()),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => (1, numbered),
        Some("LoadBalancer") => (1, ports.len()),
        _ => (0, 0),
    };
    let whole = |number: usize| Quantity::from_millis(i64::try_from(number).unwrap_or(i64::MAX / 1000) * 1000);
    usage.insert("services.loadbalancers".to_owned(), whole(balancers));
    usage.insert("services.nodeports".to_owned(), whole(node_ports));
}

fn claim_usage(claim: &Value, usage: &mut Usage) {
    let class = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"]
        .as_str()
        .or(claim["spec"]["storageClassName"].as_str())
        .unwrap_or_default();
    let mut costs = vec![("persistentvolumeclaims", one())];
    if let Some(storage) = quantity(&claim["spec"]["resources"]["requests"]["storage"]) {
        costs.push(("requests.storage", storage));
    }
    for (name, amount) in costs {
        if !class.is_empty() {
            usage.insert(format!("{class}{CLASS_SUFFIX}{name}"), amount.clone());
        }
        usage.insert(name.to_owned(), amount);
    }
}

/// The object is in every scope that the quota is restricted to. Only pods have scopes.
pub(super) fn in_scope(quota: &Value, plural: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let named = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let chosen = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let mut wanted = named.map(|name| (name, "Exists", &Value::Null)).chain(chosen.map(|expression| {
        let text = |field: &str| expression[field].as_str().unwrap_or_default();
        (text("scopeName"), text("operator"), &expression["values"])
    }));
    wanted.all(|(scope, operator, values)| plural == "pods" && pod_in_scope(object, scope, operator, values))
}

fn pod_in_scope(pod: &Value, scope: &str, operator: &str, values: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = || spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => ends(),
        "NotTerminating" => !ends(),
        "BestEffort" => is_best_effort(spec),
        "NotBestEffort" => !is_best_effort(spec),
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().filter(|class| !class.is_empty());
            let listed = class.is_some_and(|class| values.as_array().into_iter().flatten().any(|value| value == class));
            match operator {
                "In" => listed,
                "NotIn" => !listed,
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            }
        }
        "CrossNamespacePodAffinity" => reaches_other_namespaces(&spec["affinity"]),
        _ => false,
    }
}

fn is_best_effort(spec: &Value) -> bool {
    let containers =
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let says = |resources: &Value| {
        ["requests", "limits"].iter().any(|which| {
            ["cpu", "memory"]
                .iter()
                .any(|name| quantity(&resources[*which][*name]).is_some_and(|amount| !amount.is_zero()))
        })
    };
    !says(&spec["resources"]) && !containers.into_iter().any(|container| says(&container["resources"]))
}

fn reaches_other_namespaces(affinity: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let required = list(&affinity[*kind]["requiredDuringSchedulingIgnoredDuringExecution"]);
        let preferred = list(&affinity[*kind]["preferredDuringSchedulingIgnoredDuringExecution"]);
        let terms = required.into_iter().chain(preferred.into_iter().map(|term| term["podAffinityTerm"].clone()));
        terms.into_iter().any(|term| !list(&term["namespaces"]).is_empty() || !term["namespaceSelector"].is_null())
    })
}

/// What a pod's containers must say because a quota limits it, and do not.
pub(super) fn unsaid(pod: &Value, limited: &BTreeSet<&str>) -> Option<String> {
    let spec = &pod["spec"];
    if spec["resources"].as_object().is_some_and(|resources| !resources.is_empty()) {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten())
    {
        let resources = &container["resources"];
        let said = compute_usage(&amounts(&resources["requests"]), &amounts(&resources["limits"]));
        for name in DEMANDED.iter().filter(|name| limited.contains(**name) && !said.contains_key(**name)) {
            missing.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
        }
    }
    let list: Vec<String> = missing
        .iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(",")))
        .collect();
    (!list.is_empty()).then(|| format!("must specify {}", list.join("; ")))
}

/// What a change adds: never less than nothing, and only what is more than nothing.
pub(super) fn growth(new: Usage, old: Option<&Usage>) -> Usage {
    let less = |name: &str, amount: Quantity| match old.and_then(|old| old.get(name)) {
        Some(before) => amount.checked_sub(before).unwrap_or(amount),
        None => amount,
    };
    let grown = new.into_iter().map(|(name, amount)| (name.clone(), less(&name, amount)));
    grown.filter(|(_, amount)| amount.nanos() > 0).collect()
}

/// Why a quota does not allow the growth.
pub(super) fn excess(name: &str, hard: &Usage, used: &Usage, growth: &Usage) -> Option<String> {
    let too_much = |resource: &&String| {
        let (Some(limit), Some(more)) = (hard.get(*resource), growth.get(*resource)) else { return false };
        let sum = used.get(*resource).map_or(Some(more.clone()), |used| used.checked_add(more));
        sum.is_none_or(|sum| sum > *limit)
    };
    let exceeded: Vec<&String> = growth.keys().filter(too_much).collect();
    if exceeded.is_empty() {
        return None;
    }
    let show = |amounts: &Usage| {
        let shown = exceeded.iter().map(|name| {
            let amount = amounts.get(*name).map_or_else(|| "0".to_owned(), ToString::to_string);
            format!("{name}={amount}")
        });
        shown.collect::<Vec<_>>().join(",")
    };
    Some(format!("exceeded quota: {name}, requested: {}, used: {}, limited: {}", show(growth), show(used), show(hard)))
}

/// As `status` shows amounts.
pub(super) fn to_json(usage: &Usage) -> Value {
    Value::Object(usage.iter().map(|(name, amount)| (name.clone(), amount.to_string().into())).collect::<Map<_, _>>())
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
