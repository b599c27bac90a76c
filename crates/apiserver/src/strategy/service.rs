//! Services: defaults and addresses.

use std::net::Ipv4Addr;

use ferrovirt_machinery::error::FieldError;
use serde_json::{Value, json};

use super::defaults::{child, each, field};
use super::{Strategy, required};
use crate::server::Server;
use crate::status::{ApiError, ApiResult};

/// Services.
pub struct Service;
/// The strategy of services.
pub static SERVICE: Service = Service;

/// Cluster addresses come from 10.96.0.0/16; the first is the API server's own.
const FIRST: u32 = u32::from_be_bytes([10, 96, 0, 2]);
const LAST: u32 = u32::from_be_bytes([10, 96, 255, 254]);

impl Strategy for Service {
    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        field(spec, "type", "ClusterIP");
        field(spec, "sessionAffinity", "None");
        if spec["sessionAffinity"] == "ClientIP" {
            field(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10800);
        }
        let kind = spec["type"].as_str().unwrap_or_default().to_owned();
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            field(spec, "externalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            field(spec, "allocateLoadBalancerNodePorts", true);
        }
        if kind != "ExternalName" {
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
        let spec = &mut object["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(());
        }
        field(spec, "ipFamilies", json!(["IPv4"]));
        field(spec, "ipFamilyPolicy", "SingleStack");
        if spec["clusterIP"].as_str().is_none_or(str::is_empty) {
            let address = free_address(server)
                .ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
            spec["clusterIP"] = address.to_string().into();
        }
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
        Ok(())
    }

    fn prepare_update(&self, _server: &Server, new: &mut Value, old: &Value) {
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(value) = old["spec"].get(name).cloned() {
                field(&mut new["spec"], name, value);
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        let headless = spec["clusterIP"] == "None";
        let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        if ports.is_empty() && !headless && spec["type"] != "ExternalName" {
            errors.push(required("spec.ports", ""));
        }
        for (index, port) in ports.iter().enumerate() {
            let number = port["port"].as_i64().unwrap_or(0);
            if !(1..=65535).contains(&number) {
                errors.push(super::invalid(
                    format!("spec.ports[{index}].port"),
                    &json!(number),
                    "must be between 1 and 65535, inclusive",
                ));
            }
            if ports.len() > 1 && port["name"].as_str().is_none_or(str::is_empty) {
                errors.push(required(format!("spec.ports[{index}].name"), ""));
            }
        }
        let kind = &spec["type"];
        const KINDS: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
        if kind.as_str().is_some_and(|kind| !KINDS.contains(&kind)) {
            errors.push(super::unsupported("spec.type", kind, KINDS));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let (now, before) = (&new["spec"]["clusterIP"], &old["spec"]["clusterIP"]);
        if before.as_str().is_some_and(|address| !address.is_empty())
            && now != before
            && new["spec"]["type"] != "ExternalName"
        {
            let value = json!([now]);
            return vec![super::invalid("spec.clusterIPs[0]", &value, "may not change once set")];
        }
        Vec::new()
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }
}

/// An address that no service has.
fn free_address(server: &Server) -> Option<Ipv4Addr> {
    let page = server.store.list("/services", None, None, None, None).ok()?;
    let taken: std::collections::HashSet<u32> = page
        .objects
        .iter()
        .filter_map(|service| service.body.value()["spec"]["clusterIP"].as_str()?.parse::<Ipv4Addr>().ok())
        .map(u32::from)
        .collect();
    (FIRST..=LAST).find(|address| !taken.contains(address)).map(Ipv4Addr::from)
}
