//! Limits of a container, and the devices it asks for as resources.

use std::collections::BTreeMap;

use ferrovirt_api::values::Quantity;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WrittenQuantity;

use super::spec::{Cpu, DeviceRule, Memory, Pids, Resources};

/// Prefix of resources that are devices.
pub const DEVICE_PREFIX: &str = "devices.kubevirt.io/";
/// Devices by the resource that asks for them.
pub const DEVICES: &[(&str, &str)] = &[
    ("kvm", "/dev/kvm"),
    ("tun", "/dev/net/tun"),
    ("vhost-net", "/dev/vhost-net"),
    ("vhost-vsock", "/dev/vhost-vsock"),
];

/// The scheduler's period, as Kubernetes sets it.
const PERIOD_MICROSECONDS: u64 = 100_000;
/// Processes and threads of one container. QEMU with many disks has some hundred; a fork bomb must not take the machine along.
const MOST_PROCESSES: i64 = 8192;

/// A resource as a number of its smallest unit that Kubernetes knows.
fn milli(list: Option<&BTreeMap<String, WrittenQuantity>>, name: &str) -> Option<i64> {
    Quantity::try_from(list?.get(name)?).ok().map(|quantity| quantity.milli_value())
}

fn whole(list: Option<&BTreeMap<String, WrittenQuantity>>, name: &str) -> Option<i64> {
    Quantity::try_from(list?.get(name)?).ok().map(|quantity| quantity.value())
}

/// Limits of a container without its devices.
pub fn limits(requirements: Option<&ResourceRequirements>) -> Resources {
    let limits = requirements.and_then(|requirements| requirements.limits.as_ref());
    let requests = requirements.and_then(|requirements| requirements.requests.as_ref());
    let cpu_limit = milli(limits, "cpu").filter(|&limit| limit > 0);
    let cpu_request = milli(requests, "cpu").or(cpu_limit).unwrap_or(0);
    let cpu = Cpu {
        shares: Some(u64::try_from(cpu_request * 1024 / 1000).unwrap_or(0).max(2)),
        quota: cpu_limit.map(|limit| (limit * 100).max(1000)),
        period: cpu_limit.map(|_| PERIOD_MICROSECONDS),
    };
    let memory = whole(limits, "memory").filter(|&limit| limit > 0).map(|limit| Memory { limit });
    Resources { devices: default_rules(), cpu: Some(cpu), memory, pids: Some(Pids { limit: MOST_PROCESSES }) }
}

/// Nothing but the devices that every container has.
fn default_rules() -> Vec<DeviceRule> {
    let rule = |allow, kind: Option<&str>, major, minor, access: &str| DeviceRule {
        allow,
        kind: kind.map(str::to_owned),
        major,
        minor,
        access: access.to_owned(),
    };
    let mut rules = vec![rule(false, None, None, None, "rwm")];
    // null, zero, full, random, urandom, tty, console, ptmx, pseudo terminals
    for (major, minor) in [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)] {
        rules.push(rule(true, Some("c"), Some(major), Some(minor), "rwm"));
    }
    rules.push(rule(true, Some("c"), Some(136), None, "rwm"));
    rules
}

/// Paths of the devices that a container asks for; an unknown one is an error with its name.
pub fn wanted_devices(requirements: Option<&ResourceRequirements>) -> Result<Vec<&'static str>, String> {
    let limits = requirements.and_then(|requirements| requirements.limits.as_ref());
    let mut paths = Vec::new();
    for name in limits.into_iter().flatten().filter(|(_, amount)| amount.0 != "0").map(|(name, _)| name) {
        let Some(device) = name.strip_prefix(DEVICE_PREFIX) else { continue };
        let known = DEVICES.iter().find(|(known, _)| *known == device);
        let (_, path) = known.ok_or_else(|| format!("resource {name} is no device that this node knows"))?;
        paths.push(*path);
    }
    Ok(paths)
}

/// `BestEffort`, `Burstable` or `Guaranteed`.
pub fn quality(spec: &PodSpec) -> &'static str {
    let containers = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let amount = |list: Option<&BTreeMap<String, WrittenQuantity>>, name| milli(list, name).filter(|&n| n > 0);
    let mut any = false;
    let mut guaranteed = true;
    for container in containers() {
        let requirements = container.resources.as_ref();
        let limits = requirements.and_then(|requirements| requirements.limits.as_ref());
        let requests = requirements.and_then(|requirements| requirements.requests.as_ref());
        for name in ["cpu", "memory"] {
            let (limit, request) = (amount(limits, name), amount(requests, name));
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn requirements(value: serde_json::Value) -> ResourceRequirements {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn limits_become_control_group_values() {
        let given = requirements(json!({"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "250m"}}));
        let limits = limits(Some(&given));
        let cpu = limits.cpu.unwrap();
        assert_eq!((cpu.shares, cpu.quota, cpu.period), (Some(256), Some(150_000), Some(100_000)));
        assert_eq!(limits.memory.unwrap().limit, 64 << 20);
        assert!(!limits.devices[0].allow);
    }

    #[test]
    fn nothing_asked_is_the_smallest_share_without_a_limit() {
        let limits = limits(None);
        assert_eq!(limits.cpu.unwrap(), Cpu { shares: Some(2), quota: None, period: None });
        assert_eq!(limits.memory, None);
    }

    #[test]
    fn devices_are_asked_for_by_resource() {
        let given = requirements(json!({"limits": {"devices.kubevirt.io/kvm": "1", "devices.kubevirt.io/tun": "0"}}));
        assert_eq!(wanted_devices(Some(&given)).unwrap(), ["/dev/kvm"]);
        let odd = requirements(json!({"limits": {"devices.kubevirt.io/gpu": "1"}}));
        assert_eq!(
            wanted_devices(Some(&odd)).unwrap_err(),
            "resource devices.kubevirt.io/gpu is no device that this node knows"
        );
    }

    #[test]
    fn quality_follows_requests_and_limits() {
        let spec = |resources| -> PodSpec {
            serde_json::from_value(json!({"containers": [{"name": "a", "resources": resources}]})).unwrap()
        };
        assert_eq!(quality(&spec(json!({}))), "BestEffort");
        assert_eq!(quality(&spec(json!({"requests": {"cpu": "1"}}))), "Burstable");
        assert_eq!(quality(&spec(json!({"limits": {"cpu": "1", "memory": "1"}}))), "Guaranteed");
    }
}
