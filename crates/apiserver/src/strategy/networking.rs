//! Ingresses, their classes, endpoint slices, endpoints and runtime classes: defaults and checks.

use ferrovirt_machinery::error::FieldError;
use ferrovirt_machinery::names;
use serde_json::{Value, json};

use super::Strategy;
use super::check::{Errors, list, text};
use super::defaults::{each, field};
use crate::server::Server;
use crate::status::ApiResult;

/// Ingresses.
pub struct Ingress;
/// The strategy of ingresses.
pub static INGRESS: Ingress = Ingress;

impl Strategy for Ingress {
    fn prepare_create(&self, _server: &Server, object: &mut Value) -> ApiResult<()> {
        object["status"] = json!({"loadBalancer": {}});
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors = Errors::default();
        if list(&spec["rules"]).is_empty() && spec["defaultBackend"].is_null() {
            errors.invalid("spec", &spec["rules"], "either `defaultBackend` or `rules` must be specified");
        }
        if spec["defaultBackend"].is_object() {
            backend(&spec["defaultBackend"], "spec.defaultBackend", &mut errors);
        }
        for (index, rule) in list(&spec["rules"]).iter().enumerate() {
            let at = format!("spec.rules[{index}]");
            host(&rule["host"], &format!("{at}.host"), &mut errors);
            if rule["http"].is_object() {
                paths(&rule["http"]["paths"], &format!("{at}.http.paths"), &mut errors);
            }
        }
        errors.subdomain("spec.ingressClassName", &spec["ingressClassName"]);
        errors.into_vec()
    }
}

fn host(host: &Value, at: &str, errors: &mut Errors) {
    let name = text(host);
    if name.is_empty() {
        return;
    }
    if name.parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(at, host, "must be a DNS name, not an IP address");
    }
    let plain = name.strip_prefix("*.").unwrap_or(name);
    names::dns_subdomain(plain).iter().for_each(|why| errors.invalid(at, host, why));
}

fn paths(paths: &Value, at: &str, errors: &mut Errors) {
    if list(paths).is_empty() {
        errors.required(at, "");
    }
    for (index, path) in list(paths).iter().enumerate() {
        let at = format!("{at}[{index}]");
        let given = text(&path["path"]);
        match text(&path["pathType"]) {
            "" => errors.required(format!("{at}.pathType"), "pathType must be specified"),
            "Exact" | "Prefix" => {
                if !given.starts_with('/') {
                    errors.invalid_text(format!("{at}.path"), given, "must be an absolute path");
                }
            }
            "ImplementationSpecific" => {
                if !given.is_empty() && !given.starts_with('/') {
                    errors.invalid_text(format!("{at}.path"), given, "must be an absolute path");
                }
            }
            _ => {
                let known = ["Exact", "ImplementationSpecific", "Prefix"];
                errors.one_of(format!("{at}.pathType"), &path["pathType"], &known);
            }
        }
        backend(&path["backend"], &format!("{at}.backend"), errors);
    }
}

fn backend(backend: &Value, at: &str, errors: &mut Errors) {
    match (backend["service"].is_object(), backend["resource"].is_object()) {
        (true, true) => {
            errors.invalid(at, &json!(""), "cannot set both resource and service backends");
            return;
        }
        (false, false) => {
            errors.required(at, "resource or service backend is required");
            return;
        }
        (false, true) => return,
        (true, false) => {}
    }
    let service = &backend["service"];
    match text(&service["name"]) {
        "" => errors.required(format!("{at}.service.name"), ""),
        name => {
            let wrong = names::dns_1035_label(name);
            wrong.iter().for_each(|why| errors.invalid(format!("{at}.service.name"), &service["name"], why));
        }
    }
    let (name, number) = (text(&service["port"]["name"]), service["port"]["number"].as_i64().unwrap_or(0));
    if !name.is_empty() && number != 0 {
        errors.invalid_text(at, "", "cannot set both port name & port number");
    } else if name.is_empty() && number == 0 {
        errors.required(at, "port name or number is required");
    } else if number != 0 {
        errors.port_number(format!("{at}.service.port.number"), &json!(number));
    } else {
        errors.port(&format!("{at}.service.port.name"), &service["port"]["name"]);
    }
}

/// Classes of ingresses.
pub struct IngressClass;
/// The strategy of ingress classes.
pub static INGRESS_CLASS: IngressClass = IngressClass;

impl Strategy for IngressClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let controller = &object["spec"]["controller"];
        let prefixed = text(controller)
            .split_once('/')
            .is_some_and(|(domain, path)| names::dns_subdomain(domain).is_empty() && !path.is_empty());
        if text(controller).is_empty() {
            errors.required("spec.controller", "");
        } else if !prefixed {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.invalid("spec.controller", controller, why);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        errors.unchanged("spec.controller", &new["spec"]["controller"], &old["spec"]["controller"]);
        errors.into_vec()
    }
}

/// Endpoint slices.
pub struct EndpointSlice;
/// The strategy of endpoint slices.
pub static ENDPOINT_SLICE: EndpointSlice = EndpointSlice;

impl Strategy for EndpointSlice {
    fn default(&self, object: &mut Value) {
        for port in each(object, "ports") {
            field(port, "name", "");
            field(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        match text(&object["addressType"]) {
            "" => errors.required("addressType", ""),
            _ => errors.one_of("addressType", &object["addressType"], &["FQDN", "IPv4", "IPv6"]),
        }
        for (index, endpoint) in list(&object["endpoints"]).iter().enumerate() {
            let at = format!("endpoints[{index}].addresses");
            if list(&endpoint["addresses"]).is_empty() {
                errors.required(&at, "must contain at least 1 address");
            }
            for (number, address) in list(&endpoint["addresses"]).iter().enumerate() {
                let fits = match text(&object["addressType"]) {
                    "IPv4" => text(address).parse::<std::net::Ipv4Addr>().is_ok(),
                    "IPv6" => text(address).parse::<std::net::Ipv6Addr>().is_ok(),
                    _ => true,
                };
                if !fits {
                    let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                    errors.invalid(format!("{at}[{number}]"), address, why);
                }
            }
        }
        for (index, port) in list(&object["ports"]).iter().enumerate() {
            errors.one_of(format!("ports[{index}].protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        errors.unchanged("addressType", &new["addressType"], &old["addressType"]);
        errors.into_vec()
    }
}

/// Endpoints, the older form of endpoint slices.
pub struct Endpoints;
/// The strategy of endpoints.
pub static ENDPOINTS: Endpoints = Endpoints;

impl Strategy for Endpoints {
    fn default(&self, object: &mut Value) {
        for subset in each(object, "subsets") {
            each(subset, "ports").for_each(|port| field(port, "protocol", "TCP"));
        }
    }
}

/// Runtime classes.
pub struct RuntimeClass;
/// The strategy of runtime classes.
pub static RUNTIME_CLASS: RuntimeClass = RuntimeClass;

impl Strategy for RuntimeClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        let wrong = names::dns_label(text(&object["handler"]));
        wrong.iter().for_each(|why| errors.invalid("handler", &object["handler"], why));
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::default();
        errors.unchanged("handler", &new["handler"], &old["handler"]);
        errors.into_vec()
    }
}
