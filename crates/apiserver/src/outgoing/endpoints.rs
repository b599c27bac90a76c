//! From a service to an address where it answers, by what the store says about its endpoints.
//!
//! The API server is no pod and nothing translates cluster addresses for it, so a service is reached at one of its
//! endpoints directly.

use serde_json::Value;

use crate::store::{Key, Store};

/// The label with which an EndpointSlice names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Where to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// An IP address or a DNS name.
    pub host: String,
    /// A TCP port.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a service cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// There is no such service.
    #[error("service \"{0}\" not found")]
    NotFound(String),
    /// It has no such port.
    #[error("no service port {port} found for service \"{service}\"")]
    NoPort {
        /// The service.
        service: String,
        /// The wanted port.
        port: u16,
    },
    /// Nothing that is ready stands behind it.
    #[error("no endpoints available for service \"{0}\"")]
    NoEndpoints(String),
}

/// What the store knows about one service.
pub struct Backends {
    /// The service.
    pub service: Value,
    /// Its EndpointSlices.
    pub slices: Vec<Value>,
    /// Its Endpoints, the older form, when there is one.
    pub endpoints: Option<Value>,
}

impl Backends {
    /// Reads the service and its endpoints; `None` when there is no such service.
    pub fn read(store: &Store, namespace: &str, name: &str) -> Option<Self> {
        let service = store.get(&Key::new("/services", namespace, name))?.body.value();
        let slices = store.list("discovery.k8s.io/endpointslices", Some(namespace), None, None, None);
        let slices = slices.map(|page| page.objects).unwrap_or_default();
        let slices = slices.iter().filter(|slice| slice.label(SERVICE_NAME) == Some(name));
        let endpoints = store.get(&Key::new("/endpoints", namespace, name));
        Some(Self {
            service,
            slices: slices.map(|slice| slice.body.value()).collect(),
            endpoints: endpoints.map(|endpoints| endpoints.body.value()),
        })
    }

    /// The name of the service's port of that number; an only port may have none.
    pub fn port_name(&self, port: u16) -> Option<&str> {
        let mut ports = self.service["spec"]["ports"].as_array()?.iter();
        let found = ports.find(|entry| entry["port"].as_u64() == Some(port.into()))?;
        Some(found["name"].as_str().unwrap_or_default())
    }

    /// Every address that is ready to answer for a port, those of the service's first address family in front.
    pub fn ready(&self, port_name: &str) -> Vec<Address> {
        let family = self.service["spec"]["ipFamilies"][0].as_str().unwrap_or("IPv4");
        let (preferred, others): (Vec<&Value>, Vec<&Value>) =
            self.slices.iter().partition(|slice| slice["addressType"] == family);
        let mut found: Vec<Address> =
            preferred.into_iter().chain(others).flat_map(|slice| ready_in_slice(slice, port_name)).collect();
        if found.is_empty()
            && let Some(endpoints) = &self.endpoints
        {
            let subsets = endpoints["subsets"].as_array().into_iter().flatten();
            found = subsets.flat_map(|subset| ready_in_subset(subset, port_name)).collect();
        }
        found
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn port_number(ports: &Value, name: &str) -> Option<u16> {
    let port = list(ports, "ports").find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    port["port"].as_u64().and_then(|port| u16::try_from(port).ok())
}

fn ready_in_slice(slice: &Value, port_name: &str) -> Vec<Address> {
    let Some(port) = port_number(slice, port_name) else { return Vec::new() };
    let ready = list(slice, "endpoints").filter(|endpoint| endpoint["conditions"]["ready"] != false);
    let hosts = ready.filter_map(|endpoint| endpoint["addresses"][0].as_str());
    hosts.map(|host| Address { host: host.to_owned(), port }).collect()
}

fn ready_in_subset(subset: &Value, port_name: &str) -> Vec<Address> {
    let Some(port) = port_number(subset, port_name) else { return Vec::new() };
    let hosts = list(subset, "addresses").filter_map(|address| address["ip"].as_str());
    hosts.map(|host| Address { host: host.to_owned(), port }).collect()
}

/// One address at which a service answers; a different one from call to call.
pub fn resolve(store: &Store, namespace: &str, name: &str, port: u16) -> Result<Address, ResolveError> {
    let backends = Backends::read(store, namespace, name).ok_or_else(|| ResolveError::NotFound(name.to_owned()))?;
    if backends.service["spec"]["type"] == "ExternalName" {
        let host = backends.service["spec"]["externalName"].as_str().unwrap_or_default();
        return Ok(Address { host: host.to_owned(), port });
    }
    let port_name = backends.port_name(port).ok_or_else(|| ResolveError::NoPort { service: name.to_owned(), port })?;
    let mut ready = backends.ready(port_name);
    if ready.is_empty() {
        return Err(ResolveError::NoEndpoints(name.to_owned()));
    }
    Ok(ready.swap_remove(rand::random_range(0..ready.len())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backends(slices: Vec<Value>, endpoints: Option<Value>) -> Backends {
        let service = json!({"spec": {"ipFamilies": ["IPv4"], "ports": [{"name": "web", "port": 443}, {"port": 80}]}});
        Backends { service, slices, endpoints }
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn ready_addresses_of_the_named_port_in_order_of_family() {
        let v6 = json!({
            "addressType": "IPv6", "ports": [{"name": "web", "port": 8443}], "endpoints": [{"addresses": ["fd00::1"]}],
        });
        let v4 = json!({
            "addressType": "IPv4", "ports": [{"name": "web", "port": 9443}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
            ],
        });
        let backends = backends(vec![v6, v4], None);
        assert_eq!(backends.ready("web"), [address("10.0.0.2", 9443), address("fd00::1", 8443)]);
        assert!(backends.ready("").is_empty());
    }

    #[test]
    fn endpoints_serve_where_there_are_no_slices() {
        let endpoints = json!({"subsets": [{
            "addresses": [{"ip": "10.0.0.3"}], "notReadyAddresses": [{"ip": "10.0.0.4"}],
            "ports": [{"name": "web", "port": 1}],
        }]});
        assert_eq!(backends(Vec::new(), Some(endpoints)).ready("web"), [address("10.0.0.3", 1)]);
    }

    #[test]
    fn ports_are_found_by_number() {
        let backends = backends(Vec::new(), None);
        assert_eq!(
            (backends.port_name(443), backends.port_name(80), backends.port_name(1)),
            (Some("web"), Some(""), None)
        );
    }

    #[test]
    fn what_cannot_be_reached_says_why() {
        let store = Store::memory();
        let error = resolve(&store, "a", "hook", 443).unwrap_err();
        assert_eq!(error.to_string(), "service \"hook\" not found");
        let port = ResolveError::NoPort { service: "hook".into(), port: 7 };
        assert_eq!(port.to_string(), "no service port 7 found for service \"hook\"");
    }

    #[test]
    fn addresses_print_with_brackets_where_needed() {
        assert_eq!(address("fd00::1", 1).to_string(), "[fd00::1]:1");
        assert_eq!(address("10.0.0.1", 1).to_string(), "10.0.0.1:1");
    }
}
