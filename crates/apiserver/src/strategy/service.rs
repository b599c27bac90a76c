//! Services: defaults, addresses, node ports and checks.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use ferrovirt_machinery::error::{FieldError, FieldErrorKind};
use ferrovirt_machinery::names;
use serde_json::{Value, json};

use super::Strategy;
use super::check::{Errors, list, text};
use super::defaults::{child, each, field, remove};
use crate::server::Server;
use crate::status::{ApiError, ApiResult};

/// Services.
pub struct Service;
/// The strategy of services.
pub static SERVICE: Service = Service;

/// Cluster addresses come from 10.96.0.0/16; the first is the API server's own.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 2]);
const LAST: u32 = u32::from_be_bytes([10, 96, 255, 254]);
/// Ports of nodes that services may have.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        field(spec, "type", "ClusterIP");
        field(spec, "sessionAffinity", "None");
        if spec["sessionAffinity"] == "ClientIP" {
            field(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10800);
        } else {
            remove(spec, "sessionAffinityConfig");
        }
        if is_exposed(spec) {
            field(spec, "externalTrafficPolicy", "Cluster");
        }
        if spec["type"] == "LoadBalancer" {
            field(spec, "allocateLoadBalancerNodePorts", true);
        }
        if spec["type"] != "ExternalName" {
            field(spec, "internalTrafficPolicy", "Cluster");
        }
        for port in each(spec, "ports") {
            field(port, "protocol", "TCP");
            let number = port["port"].clone();
            field(port, "targetPort", number);
        }
    }

    fn prepare_create(&self, server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] = json!({"loadBalancer": {}});
        if object["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        families(&mut object["spec"]);
        give_address(server, object)?;
        give_node_ports(server, &mut object["spec"]);
        Ok(())
    }

    fn prepare_update(&self, server: &Server, new: &mut Value, old: &Value) {
        if new["spec"]["type"] == "ExternalName" {
            for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
                remove(&mut new["spec"], name);
            }
            return;
        }
        let single = &new["spec"]["clusterIP"];
        if single.is_string()
            && single != &old["spec"]["clusterIP"]
            && new["spec"]["clusterIPs"] == old["spec"]["clusterIPs"]
        {
            new["spec"]["clusterIPs"] = json!([single]);
        }
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(value) = old["spec"].get(name).cloned() {
                field(&mut new["spec"], name, value);
            }
        }
        keep_node_ports(&mut new["spec"], &old["spec"]);
        if text(&new["spec"]["clusterIP"]).is_empty() {
            families(&mut new["spec"]);
            _ = give_address(server, new);
        }
        give_node_ports(server, &mut new["spec"]);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Errors::default();
        let headless = spec["clusterIP"] == "None";
        if list(&spec["ports"]).is_empty() && !headless && spec["type"] != "ExternalName" {
            errors.required("spec.ports", "");
        }
        match text(&spec["type"]) {
            "ExternalName" => external_name(spec, &mut errors),
            "LoadBalancer" | "NodePort" if headless => {
                let why = format!("may not be set to 'None' for {} services", text(&spec["type"]));
                errors.invalid("spec.clusterIPs[0]", &spec["clusterIP"], &why);
            }
            _ => {}
        }
        ports(list(&spec["ports"]), &mut errors);
        errors.extend(names::validate_labels(&spec["selector"], "spec.selector"));
        errors.one_of("spec.sessionAffinity", &spec["sessionAffinity"], &["ClientIP", "None"]);
        affinity_timeout(spec, &mut errors);
        let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        errors.one_of("spec.type", &spec["type"], &kinds);
        errors.one_of("spec.externalTrafficPolicy", &spec["externalTrafficPolicy"], &["Cluster", "Local"]);
        errors.one_of("spec.internalTrafficPolicy", &spec["internalTrafficPolicy"], &["Cluster", "Local"]);
        addresses(spec, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let (now, before) = (&new["spec"]["clusterIPs"], &old["spec"]["clusterIPs"]);
        let had_one = !text(&before[0]).is_empty();
        if had_one && now[0] != before[0] && new["spec"]["type"] != "ExternalName" {
            return vec![super::invalid("spec.clusterIPs[0]", now, "may not change once set")];
        }
        Vec::new()
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }
}

/// Reachable from outside of the cluster.
fn is_exposed(spec: &Value) -> bool {
    matches!(text(&spec["type"]), "NodePort" | "LoadBalancer")
}

/// Whoever fills in the endpoints of a headless service without selector may use both families; all others get what
/// the cluster has.
fn families(spec: &mut Value) {
    let free = spec["clusterIP"] == "None" && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    let (policy, both) =
        if free { ("RequireDualStack", json!(["IPv4", "IPv6"])) } else { ("SingleStack", json!(["IPv4"])) };
    field(spec, "ipFamilyPolicy", policy);
    field(spec, "ipFamilies", both);
}

fn give_address(server: &Server, object: &mut Value) -> ApiResult<()> {
    let taken = taken_addresses(server);
    let asked = text(&object["spec"]["clusterIP"]).to_owned();
    if asked.is_empty() {
        let free = (FIRST..=LAST).find(|address| !taken.contains(address)).map(Ipv4Addr::from);
        let free = free.ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
        object["spec"]["clusterIP"] = free.to_string().into();
    } else if let Ok(address) = asked.parse::<Ipv4Addr>() {
        let within = (FIRST - 1..=LAST).contains(&u32::from(address));
        let why = if !within {
            "the provided network does not match the current range"
        } else if taken.contains(&u32::from(address)) {
            "provided IP is already allocated"
        } else {
            ""
        };
        if !why.is_empty() {
            let message = format!("Invalid value: [\"{asked}\"]: failed to allocate IP {asked}: {why}");
            let error = FieldError::new(FieldErrorKind::Invalid, "spec.clusterIPs", message);
            return Err(ApiError::invalid("", "Service", text(&object["metadata"]["name"]), &[error]));
        }
    }
    let address = object["spec"]["clusterIP"].clone();
    field(&mut object["spec"], "clusterIPs", json!([address]));
    Ok(())
}

/// The addresses that services have.
fn taken_addresses(server: &Server) -> HashSet<u32> {
    let Ok(page) = server.store.list("/services", None, None, None, None) else { return HashSet::new() };
    let addresses = page.objects.iter().filter_map(|service| {
        service.body.value()["spec"]["clusterIP"].as_str().and_then(|address| address.parse::<Ipv4Addr>().ok())
    });
    addresses.map(u32::from).collect()
}

fn give_node_ports(server: &Server, spec: &mut Value) {
    let wanted = is_exposed(spec) && spec["allocateLoadBalancerNodePorts"] != false;
    let missing = list(&spec["ports"]).iter().any(|port| port["nodePort"].as_i64().unwrap_or(0) == 0);
    if !wanted || !missing {
        return;
    }
    let Ok(page) = server.store.list("/services", None, None, None, None) else { return };
    let ports_of =
        |spec: &Value| list(&spec["ports"]).iter().filter_map(|port| port["nodePort"].as_i64()).collect::<Vec<_>>();
    let mut taken: HashSet<i64> =
        page.objects.iter().flat_map(|service| ports_of(&service.body.value()["spec"])).collect();
    taken.extend(ports_of(spec));
    for port in each(spec, "ports") {
        if port["nodePort"].as_i64().unwrap_or(0) == 0
            && let Some(free) = NODE_PORTS.into_iter().find(|number| !taken.contains(number))
        {
            taken.insert(free);
            port["nodePort"] = free.into();
        }
    }
}

/// A port that an update does not mention keeps its number, as long as the service is exposed.
fn keep_node_ports(new: &mut Value, old: &Value) {
    if !is_exposed(new) {
        if is_exposed(old) {
            each(new, "ports").for_each(|port| remove(port, "nodePort"));
            for name in ["externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort"] {
                remove(new, name);
            }
        }
        return;
    }
    for port in each(new, "ports") {
        let same = |before: &&Value| before["port"] == port["port"] && before["protocol"] == port["protocol"];
        if let Some(number) = list(&old["ports"]).iter().find(same).and_then(|before| before.get("nodePort")) {
            let number = number.clone();
            field(port, "nodePort", number);
        }
    }
}

fn external_name(spec: &Value, errors: &mut Errors) {
    if !list(&spec["clusterIPs"]).is_empty() || spec["clusterIP"].is_string() {
        errors.forbidden("spec.clusterIPs", "may not be set for ExternalName services");
    }
    let name = text(&spec["externalName"]).trim_end_matches('.');
    if name.is_empty() {
        errors.required("spec.externalName", "");
    } else {
        names::dns_subdomain(name).iter().for_each(|why| errors.invalid_text("spec.externalName", name, why));
    }
}

fn ports(ports: &[Value], errors: &mut Errors) {
    let (mut by_name, mut by_number) = (HashSet::new(), HashSet::new());
    for (index, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{index}]");
        let name = text(&port["name"]);
        if ports.len() > 1 && name.is_empty() {
            errors.required(format!("{at}.name"), "");
        } else if !name.is_empty() {
            errors.label_name(&format!("{at}.name"), &port["name"]);
            if !by_name.insert(name) {
                errors.duplicate(format!("{at}.name"), &port["name"]);
            }
        }
        errors.port_number(format!("{at}.port"), &port["port"]);
        errors.one_of(format!("{at}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        errors.port(&format!("{at}.targetPort"), &port["targetPort"]);
        if !by_number.insert((text(&port["protocol"]), port["port"].as_i64())) {
            errors.duplicate(at, &json!({"protocol": port["protocol"], "port": port["port"]}));
        }
    }
}

fn affinity_timeout(spec: &Value, errors: &mut Errors) {
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if seconds.as_i64().is_some_and(|seconds| !(1..=86400).contains(&seconds)) {
        let why = "must be greater than 0 and less than 86400";
        errors.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, why);
    }
}

fn addresses(spec: &Value, errors: &mut Errors) {
    if spec["type"] == "ExternalName" {
        return;
    }
    let given = list(&spec["clusterIPs"]);
    if !text(&spec["clusterIP"]).is_empty() && given.first() != Some(&spec["clusterIP"]) {
        errors.invalid("spec.clusterIPs", &spec["clusterIPs"], "first value must match `clusterIP`");
    }
    for (index, family) in list(&spec["ipFamilies"]).iter().enumerate() {
        errors.one_of(format!("spec.ipFamilies[{index}]"), family, &["IPv4", "IPv6"]);
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    errors.one_of("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], &policies);
    for (index, address) in given.iter().enumerate() {
        if index == 0 && address == "None" {
            if given.len() > 1 {
                let why = "'None' must be the first and only value";
                errors.invalid("spec.clusterIPs", &spec["clusterIPs"], why);
            }
        } else if text(address).parse::<IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.invalid(format!("spec.clusterIPs[{index}]"), address, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headless_services_without_selector_may_use_both_families() {
        let mut spec = json!({"clusterIP": "None"});
        families(&mut spec);
        assert_eq!(spec["ipFamilyPolicy"], "RequireDualStack");
        let mut spec = json!({"clusterIP": "None", "selector": {"a": "b"}});
        families(&mut spec);
        assert_eq!(spec["ipFamilies"], json!(["IPv4"]));
    }

    #[test]
    fn ports_keep_their_node_ports() {
        let old = json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]});
        let mut new =
            json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}]});
        keep_node_ports(&mut new, &old);
        assert_eq!(new["ports"][0]["nodePort"], 30001);
        assert!(new["ports"][1]["nodePort"].is_null());
        new["type"] = "ClusterIP".into();
        keep_node_ports(&mut new, &old);
        assert!(new["ports"][0]["nodePort"].is_null());
    }
}
