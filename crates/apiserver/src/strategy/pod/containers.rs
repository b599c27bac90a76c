//! What a container must look like: ports, environment, mounts, resources, probes and hooks.

use std::collections::{HashMap, HashSet};

use ferrovirt_machinery::names;
use serde_json::Value;

use super::volumes::{backsteps, relative_path};
use crate::strategy::check::{Errors, fields, list, port_name, quantity, text};

/// The valid volumes of a pod, by name.
pub(super) type Volumes<'v> = HashMap<&'v str, &'v Value>;

/// Checks that hold for containers of every sort.
pub(super) fn check(container: &Value, volumes: &Volumes<'_>, at: &str, errors: &mut Errors) {
    errors.label_name(&format!("{at}.name"), &container["name"]);
    if text(&container["image"]).is_empty() {
        errors.required(format!("{at}.image"), "");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    errors.one_of(format!("{at}.terminationMessagePolicy"), &container["terminationMessagePolicy"], &policies);
    ports(&container["ports"], &format!("{at}.ports"), errors);
    environment(container, at, errors);
    mounts(container, volumes, at, errors);
    devices(container, volumes, at, errors);
    let policies = ["Always", "IfNotPresent", "Never"];
    errors.one_of(format!("{at}.imagePullPolicy"), &container["imagePullPolicy"], &policies);
    resources(&container["resources"], &format!("{at}.resources"), errors);
}

/// Checks of what only long-running containers have.
pub(super) fn check_life(container: &Value, at: &str, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        if container["lifecycle"][hook].is_object() {
            handler(&container["lifecycle"][hook], &format!("{at}.lifecycle.{hook}"), errors);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[name];
        if !probe.is_object() {
            continue;
        }
        let at = format!("{at}.{name}");
        handler(probe, &at, errors);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.not_negative(format!("{at}.{field}"), &probe[field]);
        }
        if probe["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds <= 0) {
            let seconds = &probe["terminationGracePeriodSeconds"];
            errors.invalid(format!("{at}.terminationGracePeriodSeconds"), seconds, "must be greater than 0");
        }
        if name != "readinessProbe" && probe["successThreshold"] != 1 && !probe["successThreshold"].is_null() {
            errors.invalid(format!("{at}.successThreshold"), &probe["successThreshold"], "must be 1");
        }
    }
}

/// Two ports of a host cannot be the same.
pub(super) fn host_port_conflicts(containers: &[Value], at: &str, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (number, port) in list(&container["ports"]).iter().enumerate() {
            let Some(host_port) = port["hostPort"].as_i64().filter(|port| *port != 0) else { continue };
            let shown = format!("{}/{}/{host_port}", text(&port["protocol"]), text(&port["hostIP"]));
            if !seen.insert(shown.clone()) {
                errors.duplicate(format!("{at}[{index}].ports[{number}].hostPort"), &shown.into());
            }
        }
    }
}

fn ports(ports: &Value, path: &str, errors: &mut Errors) {
    let mut names = HashSet::new();
    for (index, port) in list(ports).iter().enumerate() {
        let at = format!("{path}[{index}]");
        let name = text(&port["name"]);
        if !name.is_empty() {
            let wrong = port_name(name);
            wrong.iter().for_each(|why| errors.invalid(format!("{at}.name"), &port["name"], why));
            if wrong.is_empty() && !names.insert(name) {
                errors.duplicate(format!("{at}.name"), &port["name"]);
            }
        }
        match port["containerPort"].as_i64() {
            None | Some(0) => errors.required(format!("{at}.containerPort"), ""),
            Some(_) => errors.port_number(format!("{at}.containerPort"), &port["containerPort"]),
        }
        if port["hostPort"].as_i64().is_some_and(|port| port != 0) {
            errors.port_number(format!("{at}.hostPort"), &port["hostPort"]);
        }
        errors.one_of(format!("{at}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

fn environment(container: &Value, at: &str, errors: &mut Errors) {
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        let at = format!("{at}.env[{index}]");
        variable_name(&variable["name"], &format!("{at}.name"), errors);
        if variable["valueFrom"].is_object() {
            value_source(variable, &format!("{at}.valueFrom"), errors);
        }
    }
    for (index, source) in list(&container["envFrom"]).iter().enumerate() {
        let at = format!("{at}.envFrom[{index}]");
        let mut sources = 0;
        for kind in ["configMapRef", "secretRef"] {
            if !source[kind].is_object() {
                continue;
            }
            sources += 1;
            if text(&source[kind]["name"]).is_empty() {
                errors.required(format!("{at}.{kind}.name"), "");
            }
        }
        match sources {
            0 => errors.invalid_text(at, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid_text(at, "", "may not have more than one field specified at a time"),
        }
    }
}

fn variable_name(name: &Value, at: &str, errors: &mut Errors) {
    const WHY: &str =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    match text(name) {
        "" => errors.required(at, ""),
        given if given.chars().any(|c| !(' '..='~').contains(&c) || c == '=') => errors.invalid(at, name, WHY),
        _ => {}
    }
}

fn value_source(variable: &Value, at: &str, errors: &mut Errors) {
    let from = &variable["valueFrom"];
    let mut sources = 0;
    for (kind, needed) in [
        ("fieldRef", &["apiVersion", "fieldPath"][..]),
        ("resourceFieldRef", &["resource"][..]),
        ("configMapKeyRef", &["name", "key"][..]),
        ("secretKeyRef", &["name", "key"][..]),
        ("fileKeyRef", &["key", "volumeName", "path"][..]),
    ] {
        if !from[kind].is_object() {
            continue;
        }
        sources += 1;
        let path = text(&from[kind]["fieldPath"]);
        if kind == "fieldRef" && !path.is_empty() && !is_pod_field(path) {
            let why = format!("error converting fieldPath: field label not supported: {path}");
            errors.invalid_text(format!("{at}.fieldRef.fieldPath"), path, &why);
        }
        for field in needed {
            if text(&from[kind][*field]).is_empty() {
                errors.required(format!("{at}.{kind}.{field}"), "");
            }
        }
    }
    if sources == 0 {
        const WHY: &str =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid_text(at, "", WHY);
    } else if !text(&variable["value"]).is_empty() {
        errors.invalid_text(at, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid_text(at, "", "may not have more than one field specified at a time");
    }
}

/// Fields of a pod that its containers may ask for.
fn is_pod_field(path: &str) -> bool {
    const FIELDS: &[&str] = &[
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let keyed = ["metadata.annotations[", "metadata.labels["].iter().any(|prefix| path.starts_with(prefix));
    FIELDS.contains(&path) || (keyed && path.ends_with(']'))
}

fn mounts(container: &Value, volumes: &Volumes<'_>, at: &str, errors: &mut Errors) {
    let mut paths = HashSet::new();
    let list_at = format!("{at}.volumeMounts");
    for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
        let at = format!("{list_at}[{index}]");
        let (name, path) = (text(&mount["name"]), text(&mount["mountPath"]));
        if name.is_empty() {
            errors.required(format!("{at}.name"), "");
        }
        if !volumes.contains_key(name) {
            errors.not_found(format!("{at}.name"), &name.into());
        }
        if path.is_empty() {
            errors.required(format!("{at}.mountPath"), "");
        }
        if !paths.insert(path) {
            errors.invalid_text(format!("{at}.mountPath"), path, "must be unique");
        }
        for device in list(&container["volumeDevices"]) {
            if device["name"] == mount["name"] {
                errors.invalid_text(format!("{at}.name"), name, "must not already exist in volumeDevices");
            }
            if device["devicePath"] == mount["mountPath"] {
                let why = "must not already exist as a path in volumeDevices";
                errors.invalid_text(format!("{at}.mountPath"), path, why);
            }
        }
        for field in ["subPath", "subPathExpr"] {
            relative_path(text(&mount[field]), &format!("{list_at}.{field}"), errors);
        }
        let modes = ["Bidirectional", "HostToContainer", "None"];
        errors.one_of(format!("{list_at}.mountPropagation"), &mount["mountPropagation"], &modes);
        if mount["mountPropagation"] == "Bidirectional" && container["securityContext"]["privileged"] != true {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(format!("{list_at}.mountPropagation"), why);
        }
    }
}

fn devices(container: &Value, volumes: &Volumes<'_>, at: &str, errors: &mut Errors) {
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (index, device) in list(&container["volumeDevices"]).iter().enumerate() {
        let at = format!("{at}.volumeDevices[{index}]");
        let (name, path) = (text(&device["name"]), text(&device["devicePath"]));
        if name.is_empty() {
            errors.required(format!("{at}.name"), "");
        } else if !names.insert(name) {
            errors.invalid_text(format!("{at}.name"), name, "must be unique");
        }
        match volumes.get(name) {
            Some(volume) if volume["persistentVolumeClaim"].is_null() && volume["ephemeral"].is_null() => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid_text(format!("{at}.name"), name, why);
            }
            Some(_) => {}
            None => errors.not_found(format!("{at}.name"), &name.into()),
        }
        if path.is_empty() {
            errors.required(format!("{at}.devicePath"), "");
        }
        if paths.contains(path) {
            errors.invalid_text(format!("{at}.devicePath"), path, "must be unique");
        }
        if backsteps(path) {
            errors.invalid_text(format!("{at}.devicePath"), path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path);
        }
    }
}

fn resources(resources: &Value, path: &str, errors: &mut Errors) {
    resource_list(&resources["limits"], &format!("{path}.limits"), errors);
    let requests_at = format!("{path}.requests");
    for (name, amount) in fields(&resources["requests"]) {
        resource_amount(name, amount, &format!("{requests_at}[{name}]"), errors);
        let limit = &resources["limits"][name.as_str()];
        let fixed = name.contains('/') || name.starts_with("hugepages-");
        if fixed && limit.is_null() {
            errors.required(format!("{path}.limits"), "Limit must be set for non overcommitable resources");
        }
        let (Some(asked), Some(allowed)) = (quantity(amount), quantity(limit)) else { continue };
        if fixed && asked != allowed {
            let why = format!("must be equal to {name} limit of {allowed}");
            errors.invalid_text(&requests_at, &asked.to_string(), &why);
        } else if asked > allowed {
            let why = format!("must be less than or equal to {name} limit of {allowed}");
            errors.invalid_text(&requests_at, &asked.to_string(), &why);
        }
    }
}

/// Names and amounts of resources that a container may have.
pub(in crate::strategy) fn resource_list(resources: &Value, path: &str, errors: &mut Errors) {
    for (name, amount) in fields(resources) {
        resource_amount(name, amount, &format!("{path}[{name}]"), errors);
    }
}

fn resource_amount(name: &str, amount: &Value, at: &str, errors: &mut Errors) {
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    let wrong = names::label_key(name);
    wrong.iter().for_each(|why| errors.invalid_text(at, name, why));
    if wrong.is_empty() && !name.contains('/') && !standard {
        if !matches!(name, "storage" | "pods" | "services" | "secrets" | "configmaps") {
            errors.invalid_text(at, name, "must be a standard resource type or fully qualified");
        }
        errors.invalid_text(at, name, "must be a standard resource for containers");
    }
    errors.not_negative_quantity(at, amount);
    let whole = name.contains('/') && !name.contains("kubernetes.io/");
    if whole && quantity(amount).is_some_and(|amount| amount.milli_value() % 1000 != 0) {
        errors.invalid(at, amount, "must be an integer");
    }
}

fn handler(handler: &Value, at: &str, errors: &mut Errors) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &handler[kind];
        if !action.is_object() {
            continue;
        }
        let at = format!("{at}.{kind}");
        if found {
            errors.forbidden(at, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match kind {
            "exec" if list(&action["command"]).is_empty() => errors.required(format!("{at}.command"), ""),
            "httpGet" => {
                errors.port(&format!("{at}.port"), &action["port"]);
                errors.one_of(format!("{at}.scheme"), &action["scheme"], &["HTTP", "HTTPS"]);
            }
            "tcpSocket" => errors.port(&format!("{at}.port"), &action["port"]),
            "grpc" => errors.port_number(format!("{at}.port"), &action["port"]),
            _ => {}
        }
    }
    if !found {
        errors.required(at, "must specify a handler type");
    }
}
