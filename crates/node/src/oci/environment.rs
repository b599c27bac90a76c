//! A container's environment and command line: the downward API, references between variables, keys of config maps and secrets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferrovirt_api::values::Quantity;
use ferrovirt_kubernetes::Pod;
use k8s_openapi::api::core::v1::{Container, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};

/// What a pod can be told about itself, besides what its object says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// The node's name.
    pub node: String,
    /// The node's addresses.
    pub host_addresses: Vec<IpAddr>,
    /// The pod's addresses.
    pub pod_addresses: Vec<IpAddr>,
    /// What a limit is when none is set: thousandths of a processor.
    pub allocatable_cpu_millis: i64,
    /// What a limit is when none is set: bytes.
    pub allocatable_memory: i64,
}

/// Data of config maps and secrets by `configmap/<name>` or `secret/<name>`.
pub type KeyedData = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// Why a variable has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// A config map or secret is not there or lacks the key.
    #[error("environment variable {variable}: {what} is missing")]
    Missing {
        /// The variable.
        variable: String,
        /// `key "a" of secret "b"`
        what: String,
    },
    /// A field that is not served.
    #[error("environment variable {variable}: this node knows no field {path}")]
    Field {
        /// The variable.
        variable: String,
        /// The path.
        path: String,
    },
}

/// Names of the config maps and secrets that a container's environment needs, as keys of [`KeyedData`].
pub fn wanted(container: &Container) -> Vec<String> {
    let mut names = Vec::new();
    for source in container.env_from.iter().flatten() {
        names.extend(source.config_map_ref.as_ref().map(|reference| format!("configmap/{}", reference.name)));
        names.extend(source.secret_ref.as_ref().map(|reference| format!("secret/{}", reference.name)));
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        names.extend(source.config_map_key_ref.as_ref().map(|reference| format!("configmap/{}", reference.name)));
        names.extend(source.secret_key_ref.as_ref().map(|reference| format!("secret/{}", reference.name)));
    }
    names.sort();
    names.dedup();
    names
}

/// The variables of a container in order: the image's, those from whole objects, the container's own.
pub fn variables(
    pod: &Pod,
    container: &Container,
    image: &[String],
    facts: &PodFacts,
    data: &KeyedData,
) -> Result<Vec<String>, EnvironmentError> {
    let mut set: Vec<(String, String)> =
        image.iter().filter_map(|text| text.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let put = |set: &mut Vec<(String, String)>, name: &str, value: String| {
        set.retain(|(present, _)| present != name);
        set.push((name.to_owned(), value));
    };
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let (key, optional) = match (&source.config_map_ref, &source.secret_ref) {
            (Some(map), _) => (format!("configmap/{}", map.name), map.optional),
            (None, Some(secret)) => (format!("secret/{}", secret.name), secret.optional),
            (None, None) => continue,
        };
        match data.get(&key) {
            Some(values) => {
                for (name, value) in values {
                    put(&mut set, &format!("{prefix}{name}"), String::from_utf8_lossy(value).into_owned());
                }
            }
            None if optional == Some(true) => {}
            None => return Err(EnvironmentError::Missing { variable: format!("{prefix}*"), what: key }),
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => value_from(pod, container, &variable.name, source, facts, data)?,
            (Some(text), None) => Some(expand(text, &set)),
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            put(&mut set, &variable.name, value);
        }
    }
    Ok(set.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

fn value_from(
    pod: &Pod,
    container: &Container,
    variable: &str,
    source: &EnvVarSource,
    facts: &PodFacts,
    data: &KeyedData,
) -> Result<Option<String>, EnvironmentError> {
    let field = |path: &str| EnvironmentError::Field { variable: variable.to_owned(), path: path.to_owned() };
    if let Some(ObjectFieldSelector { field_path, .. }) = &source.field_ref {
        return pod_field(pod, facts, field_path).map(Some).ok_or_else(|| field(field_path));
    }
    if let Some(selector) = &source.resource_field_ref {
        return resource_field(container, facts, selector).map(Some).ok_or_else(|| field(&selector.resource));
    }
    let (object, kind, key, optional) = match (&source.config_map_key_ref, &source.secret_key_ref) {
        (Some(map), _) => (format!("configmap/{}", map.name), "config map", &map.key, map.optional),
        (None, Some(secret)) => (format!("secret/{}", secret.name), "secret", &secret.key, secret.optional),
        (None, None) => return Ok(None),
    };
    match data.get(&object).and_then(|values| values.get(key)) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None => {
            let name = object.split('/').nth(1).unwrap_or_default();
            let what = format!("key {key:?} of {kind} {name:?}");
            Err(EnvironmentError::Missing { variable: variable.to_owned(), what })
        }
    }
}

/// A field of the pod as the downward API names it.
pub fn pod_field(pod: &Pod, facts: &PodFacts, path: &str) -> Option<String> {
    let addresses = |list: &[IpAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let first = |list: &[IpAddr]| list.first().map(ToString::to_string).unwrap_or_default();
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    Some(match path {
        "metadata.name" => text(pod.metadata.name.as_ref()),
        "metadata.namespace" => text(pod.metadata.namespace.as_ref()),
        "metadata.uid" => text(pod.metadata.uid.as_ref()),
        "metadata.labels" => listing(pod.metadata.labels.as_ref()),
        "metadata.annotations" => listing(pod.metadata.annotations.as_ref()),
        "spec.nodeName" => facts.node.clone(),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" => first(&facts.host_addresses),
        "status.hostIPs" => addresses(&facts.host_addresses),
        "status.podIP" => first(&facts.pod_addresses),
        "status.podIPs" => addresses(&facts.pod_addresses),
        _ => {
            let (map, key) = path.strip_suffix("']")?.split_once("['")?;
            let map = match map {
                "metadata.labels" => pod.metadata.labels.as_ref(),
                "metadata.annotations" => pod.metadata.annotations.as_ref(),
                _ => return None,
            };
            text(map.and_then(|map| map.get(key)))
        }
    })
}

/// `key="value"` per line, as the downward API writes a map.
fn listing(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
}

/// An amount of the container's resources, divided and rounded up as the downward API does.
pub fn resource_field(container: &Container, facts: &PodFacts, selector: &ResourceFieldSelector) -> Option<String> {
    let (list, name) = selector.resource.split_once('.')?;
    let resources = container.resources.clone().unwrap_or_default();
    let amounts = match list {
        "limits" => resources.limits,
        "requests" => resources.requests,
        _ => return None,
    };
    let written = amounts.as_ref().and_then(|amounts| amounts.get(name));
    let amount = match (written, list, name) {
        (Some(written), ..) => Quantity::try_from(written).ok()?.milli_value(),
        (None, "limits", "cpu") => facts.allocatable_cpu_millis,
        (None, "limits", "memory") => facts.allocatable_memory.checked_mul(1000)?,
        _ => 0,
    };
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::try_from(divisor).ok());
    let divisor = divisor.map(|divisor| divisor.milli_value()).filter(|&divisor| divisor > 0).unwrap_or(1000);
    Some((amount / divisor + i64::from(amount % divisor != 0)).to_string())
}

/// Replaces `$(NAME)`; an unknown name stays, and `$$` is a dollar sign.
pub fn expand(text: &str, variables: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            match variables.iter().find(|(present, _)| present == name) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}

/// Program and arguments: the pod's words go before the image's.
pub fn arguments(
    container: &Container,
    entrypoint: &[String],
    command: &[String],
    environment: &[String],
) -> Vec<String> {
    let variables: Vec<(String, String)> = environment
        .iter()
        .filter_map(|text| text.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let own = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|text| expand(text, &variables)).collect()
    };
    let (program, arguments) = (own(&container.command), own(&container.args));
    match (program.is_empty(), arguments.is_empty()) {
        (true, true) => [entrypoint, command].concat(),
        (true, false) => [entrypoint, &arguments].concat(),
        (false, _) => [program, arguments].concat(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables_of(env: &serde_json::Value) -> Result<Vec<String>, EnvironmentError> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "1"}}, "spec": {"containers": []},
        }))
        .unwrap();
        let container: Container = serde_json::from_value(json!({
            "name": "c", "env": env, "resources": {"limits": {"memory": "2Mi"}},
        }))
        .unwrap();
        let facts = PodFacts { pod_addresses: vec!["10.0.0.2".parse().unwrap()], ..PodFacts::default() };
        let data = KeyedData::from([("secret/s".to_owned(), BTreeMap::from([("k".to_owned(), b"v".to_vec())]))]);
        variables(&pod, &container, &["PATH=/bin".to_owned(), "A=image".to_owned()], &facts, &data)
    }

    #[test]
    fn later_variables_see_earlier_ones_and_replace_the_images() {
        let made = variables_of(&json!([
            {"name": "A", "value": "own"}, {"name": "B", "value": "$(A)-$(NONE)-$$(A)"},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "O", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k", "optional": true}}},
        ]));
        assert_eq!(
            made.unwrap(),
            ["PATH=/bin", "A=own", "B=own-$(NONE)-$(A)", "N=p", "L=1", "IP=10.0.0.2", "M=2", "S=v"]
        );
    }

    #[test]
    fn a_missing_key_names_variable_and_object() {
        let error = variables_of(&json!([{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no"}}}]));
        assert_eq!(error.unwrap_err().to_string(), "environment variable S: key \"no\" of secret \"s\" is missing");
        let error = variables_of(&json!([{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "spec.odd"}}}]));
        assert_eq!(error.unwrap_err().to_string(), "environment variable F: this node knows no field spec.odd");
    }

    #[test]
    fn a_command_replaces_the_images_program_and_its_arguments() {
        let of = |command: &[&str], args: &[&str]| {
            let text = |list: &[&str]| Some(list.iter().map(|&t| t.to_owned()).collect::<Vec<_>>());
            let container = Container { command: text(command), args: text(args), ..Container::default() };
            arguments(&container, &["e".to_owned()], &["c".to_owned()], &["X=1".to_owned()])
        };
        assert_eq!(of(&[], &[]), ["e", "c"]);
        assert_eq!(of(&[], &["$(X)"]), ["e", "1"]);
        assert_eq!(of(&["p"], &[]), ["p"]);
        assert_eq!(of(&["p"], &["a"]), ["p", "a"]);
    }
}
