//! What a pod's spec must look like, in pods and in templates.

use std::collections::HashSet;

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::names;
use serde_json::Value;

use super::containers::{self, Volumes};
use super::volumes;
use crate::strategy::check::{Errors, list, text};

/// What is wrong with a pod's spec.
pub(in crate::strategy) fn pod_spec_errors(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let known = volumes::check(&spec["volumes"], &format!("{path}.volumes"), &mut errors);
    containers_of(spec, path, &known, &mut errors);
    if spec["hostNetwork"] == true {
        host_network(spec, path, &mut errors);
    }
    errors.one_of(format!("{path}.restartPolicy"), &spec["restartPolicy"], &["Always", "OnFailure", "Never"]);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(format!("{path}.dnsPolicy"), &spec["dnsPolicy"], &policies);
    errors.extend(names::validate_labels(&spec["nodeSelector"], &format!("{path}.nodeSelector")));
    gates(spec, path, &mut errors);
    for name in ["serviceAccountName", "nodeName"] {
        errors.subdomain(&format!("{path}.{name}"), &spec[name]);
    }
    if spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.invalid(format!("{path}.activeDeadlineSeconds"), &spec["activeDeadlineSeconds"], why);
    }
    for name in ["hostname", "subdomain"] {
        if !text(&spec[name]).is_empty() {
            errors.label_name(&format!("{path}.{name}"), &spec[name]);
        }
    }
    errors.extend(toleration_errors(&spec["tolerations"], &format!("{path}.tolerations")));
    for name in ["priorityClassName", "runtimeClassName"] {
        errors.subdomain(&format!("{path}.{name}"), &spec[name]);
    }
    let preemption = &spec["preemptionPolicy"];
    errors.one_of(format!("{path}.preemptionPolicy"), preemption, &["PreemptLowerPriority", "Never"]);
    errors.into_vec()
}

/// What is wrong with a template: its labels, annotations and spec.
pub(in crate::strategy) fn template_errors(template: &Value, path: &str) -> Vec<FieldError> {
    let metadata = &template["metadata"];
    let mut errors = names::validate_labels(&metadata["labels"], &format!("{path}.labels"));
    errors.extend(names::validate_annotations(&metadata["annotations"], &format!("{path}.annotations")));
    errors.extend(pod_spec_errors(&template["spec"], &format!("{path}.spec")));
    errors
}

fn containers_of(spec: &Value, path: &str, volumes: &Volumes<'_>, errors: &mut Errors) {
    let regular = list(&spec["containers"]);
    let at = format!("{path}.containers");
    if regular.is_empty() {
        errors.required(&at, "");
    }
    let mut seen = HashSet::new();
    for (index, container) in regular.iter().enumerate() {
        let at = format!("{at}[{index}]");
        containers::check(container, volumes, &at, errors);
        if !seen.insert(text(&container["name"])) {
            errors.duplicate(format!("{at}.name"), &container["name"]);
        }
        containers::check_life(container, &at, errors);
    }
    containers::host_port_conflicts(regular, &at, errors);
    for (index, container) in list(&spec["initContainers"]).iter().enumerate() {
        let at = format!("{path}.initContainers[{index}]");
        containers::check(container, volumes, &at, errors);
        if !seen.insert(text(&container["name"])) {
            errors.duplicate(format!("{at}.name"), &container["name"]);
        }
        if container["restartPolicy"] == "Always" {
            containers::check_life(container, &at, errors);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if !container[name].is_null() {
                    let why = "may not be set for init containers without restartPolicy=Always";
                    errors.forbidden(format!("{at}.{name}"), why);
                }
            }
        }
    }
}

/// In the host's network the ports of a container are the ports of the host.
fn host_network(spec: &Value, path: &str, errors: &mut Errors) {
    for name in ["containers", "initContainers"] {
        for (index, container) in list(&spec[name]).iter().enumerate() {
            for (number, port) in list(&container["ports"]).iter().enumerate() {
                if port["hostPort"] != port["containerPort"] {
                    let at = format!("{path}.{name}[{index}].ports[{number}].containerPort");
                    errors.invalid(at, &port["containerPort"], "must match `hostPort` when `hostNetwork` is true");
                }
            }
        }
    }
}

fn gates(spec: &Value, path: &str, errors: &mut Errors) {
    for (index, gate) in list(&spec["readinessGates"]).iter().enumerate() {
        for why in names::label_key(text(&gate["conditionType"])) {
            errors.invalid(format!("{path}.readinessGates[{index}].conditionType"), &gate["conditionType"], &why);
        }
    }
    let mut seen = HashSet::new();
    for (index, gate) in list(&spec["schedulingGates"]).iter().enumerate() {
        let at = format!("{path}.schedulingGates[{index}]");
        for why in names::label_key(text(&gate["name"])) {
            errors.invalid(&at, &gate["name"], &why);
        }
        if !seen.insert(text(&gate["name"])) {
            errors.duplicate(at, &gate["name"]);
        }
    }
}

/// What is wrong with tolerations.
pub(in crate::strategy) fn toleration_errors(tolerations: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    for (index, toleration) in list(tolerations).iter().enumerate() {
        let at = format!("{path}[{index}]");
        let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
        if key.is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid_text(format!("{at}.operator"), operator, why);
        } else if !key.is_empty() {
            names::label_key(key).iter().for_each(|why| errors.invalid(format!("{at}.key"), &toleration["key"], why));
        }
        if !toleration["tolerationSeconds"].is_null() && toleration["effect"] != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid_text(format!("{at}.effect"), text(&toleration["effect"]), why);
        }
        match operator {
            "" | "Equal" => {
                let wrong = names::label_value(text(&toleration["value"]));
                if !wrong.is_empty() {
                    errors.invalid(format!("{at}.operator"), &toleration["value"], &wrong.join(";"));
                }
            }
            "Exists" => {
                if !text(&toleration["value"]).is_empty() {
                    let why = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(format!("{at}.operator"), &toleration["value"], why);
                }
            }
            _ => errors.one_of(format!("{at}.operator"), &toleration["operator"], &["Equal", "Exists"]),
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        errors.one_of(format!("{at}.effect"), &toleration["effect"], &effects);
    }
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(spec: &Value) -> Vec<String> {
        pod_spec_errors(spec, "spec").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_unique_among_all_containers() {
        let spec = json!({
            "containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}],
            "initContainers": [{"name": "a", "image": "i"}],
        });
        let duplicate = |at: &str| format!("{at}.name: Duplicate value: \"a\"");
        assert_eq!(paths(&spec), [duplicate("spec.containers[1]"), duplicate("spec.initContainers[0]")]);
    }

    #[test]
    fn mounts_need_volumes() {
        let spec =
            json!({"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]});
        assert_eq!(paths(&spec), ["spec.containers[0].volumeMounts[0].name: Not found: \"v\""]);
    }

    #[test]
    fn requests_fit_limits() {
        let resources = json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "1Gi"}});
        let spec = json!({"containers": [{"name": "a", "image": "i", "resources": resources}]});
        let why = "Invalid value: \"2\": must be less than or equal to cpu limit of 1500m";
        assert_eq!(paths(&spec), [format!("spec.containers[0].resources.requests: {why}")]);
    }

    #[test]
    fn a_toleration_without_a_key_tolerates_everything() {
        let wrong = toleration_errors(&json!([{"operator": "Exists"}, {"effect": "Never", "key": "k"}]), "t");
        let wrong: Vec<_> = wrong.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(wrong, ["t[1].effect"]);
    }
}
