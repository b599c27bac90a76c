//! Services and what is in front of and behind them.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, int, labels, list, name, plain, row, selector, shortened, text, text_or};
use crate::meta::annotation;

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let cluster_ip = list(object, "/spec/clusterIPs").first().and_then(Value::as_str);
    let cluster_ip = cluster_ip.unwrap_or_else(|| text_or(object, "/spec/clusterIP", "<none>"));
    row![
        name(object),
        text_or(object, "/spec/type", "ClusterIP"),
        cluster_ip,
        external_ip(object),
        ports(object),
        age(object, now),
        labels(object, "/spec/selector"),
    ]
}

fn external_ip(service: &Value) -> String {
    let external: Vec<String> = list(service, "/spec/externalIPs").iter().map(plain).collect();
    match text_or(service, "/spec/type", "ClusterIP") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let mut addresses = balancer_addresses(service);
            addresses.extend(external);
            if addresses.is_empty() { "<pending>".to_owned() } else { addresses.join(",") }
        }
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses or, failing that, host names of the load balancer, sorted, each once.
fn balancer_addresses(object: &Value) -> Vec<String> {
    let ingress = list(object, "/status/loadBalancer/ingress").iter();
    let addresses = ingress.map(|ingress| text_or(ingress, "/ip", text(ingress, "/hostname")).to_owned());
    let mut addresses: Vec<String> = addresses.filter(|address| !address.is_empty()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let protocol = text_or(port, "/protocol", "TCP");
            match int(port, "/nodePort") {
                node_port if node_port > 0 => format!("{}:{node_port}/{protocol}", int(port, "/port")),
                _ => format!("{}/{protocol}", int(port, "/port")),
            }
        })
        .collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut found = Vec::new();
    let subsets = list(object, "/subsets");
    for subset in subsets {
        let addresses = list(subset, "/addresses");
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            found.extend(addresses.iter().map(|address| text(address, "/ip").to_owned()));
        }
        for port in ports {
            found.extend(addresses.iter().map(|address| host_port(text(address, "/ip"), int(port, "/port"))));
        }
    }
    let found = match () {
        () if subsets.is_empty() => "<none>".to_owned(),
        () if found.is_empty() => String::new(),
        () => shortened(&found),
    };
    row![name(object), found, age(object, now)]
}

fn host_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let port_text = |port: &Value| match port["port"].as_i64() {
        Some(port) => port.to_string(),
        None => port["name"].as_str().unwrap_or("*").to_owned(),
    };
    let ports: Vec<String> = list(object, "/ports").iter().map(port_text).collect();
    let addresses = list(object, "/endpoints").iter().flat_map(|endpoint| list(endpoint, "/addresses"));
    let addresses: Vec<String> = addresses.map(plain).collect();
    row![name(object), text(object, "/addressType"), shortened(&ports), shortened(&addresses), age(object, now)]
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    row![
        name(object),
        text_or(object, "/spec/ingressClassName", "<none>"),
        hosts(list(object, "/spec/rules")),
        balancer_addresses(object).join(","),
        if list(object, "/spec/tls").is_empty() { "80" } else { "80, 443" },
        age(object, now),
    ]
}

/// Three hosts at most; the rest counts rules, not hosts.
fn hosts(rules: &[Value]) -> String {
    let mut hosts: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more = more || hosts.len() == 3;
        if !more && !text(rule, "/host").is_empty() {
            hosts.push(text(rule, "/host"));
        }
    }
    match (hosts.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (_, true) => format!("{} + {} more...", hosts.join(","), rules.len() - 3),
        (_, false) => hosts.join(","),
    }
}

pub(super) fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let default = annotation(object, "ingressclass.kubernetes.io/is-default-class") == Some("true");
    let parameters = object.pointer("/spec/parameters").filter(|parameters| !parameters.is_null());
    let parameters = parameters.map_or("<none>".to_owned(), |parameters| {
        let group = parameters["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}/{}", text(parameters, "/kind"), text(parameters, "/name"))
    });
    row![
        format!("{}{}", name(object), if default { " (default)" } else { "" }),
        text(object, "/spec/controller"),
        parameters,
        age(object, now),
    ]
}

pub(super) fn network_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    // Every policy has a pod selector; one that was left out is the empty one.
    let pods = match object.pointer("/spec/podSelector") {
        Some(found) if !found.is_null() => selector(object, "/spec/podSelector"),
        _ => "<none>".to_owned(),
    };
    row![name(object), pods, age(object, now)]
}

pub(super) fn service_cidr(object: &Value, now: Timestamp) -> Vec<Value> {
    let ranges: Vec<String> = list(object, "/spec/cidrs").iter().map(plain).collect();
    row![name(object), ranges.join(","), age(object, now)]
}

pub(super) fn ip_address(object: &Value, now: Timestamp) -> Vec<Value> {
    let part = |field: &str| text(object, &format!("/spec/parentRef/{field}"));
    if object.pointer("/spec/parentRef").is_none_or(Value::is_null) {
        return row![name(object), "<none>", age(object, now)];
    }
    let resource = match part("group") {
        "" => part("resource").to_owned(),
        group => format!("{}.{group}", part("resource")),
    };
    let parts = [resource.to_lowercase(), part("namespace").to_owned(), part("name").to_owned()];
    let parent: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    row![name(object), parent.join("/"), age(object, now)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(row: fn(&Value, Timestamp) -> Vec<Value>, object: &Value) -> Vec<String> {
        let now = "2026-01-01T00:05:03Z".parse().expect("a time");
        row(object, now).iter().map(plain).collect()
    }

    #[test]
    fn services() {
        let object = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.1"],
            "externalIPs": ["1.2.3.4"], "selector": {"app": "x"},
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "9.9.9.9"}]}}});
        assert_eq!(
            cells(service, &object),
            ["s", "LoadBalancer", "10.96.0.1", "9.9.9.9,b,1.2.3.4", "80:30080/TCP,53/UDP", "<unknown>", "app=x"]
        );
        let external = |spec: Value| cells(service, &json!({"spec": spec}))[3].clone();
        assert_eq!(external(json!({"type": "LoadBalancer"})), "<pending>");
        assert_eq!(external(json!({"type": "ExternalName", "externalName": "x.y"})), "x.y");
        assert_eq!(external(json!({"type": "ClusterIP"})), "<none>");
        assert_eq!(external(json!({"type": "Other"})), "<unknown>");
    }

    #[test]
    fn addresses_behind_them() {
        let ips: Vec<Value> = ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|ip| json!({"ip": ip})).to_vec();
        let object = json!({"subsets": [{"addresses": ips, "ports": [{"port": 80}, {"port": 81}]}]});
        assert_eq!(cells(endpoints, &object)[1], "10.0.0.1:80,10.0.0.2:80,[fd00::1]:80 + 3 more...");
        assert_eq!(cells(endpoints, &json!({}))[1], "<none>");
        let slice = json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "x"}, {}],
            "endpoints": [{"addresses": ["a", "b"]}, {"addresses": ["c", "d"]}]});
        assert_eq!(cells(endpoint_slice, &slice)[1..4], ["IPv4", "80,x,*", "a,b,c + 1 more..."]);
        assert_eq!(cells(endpoint_slice, &json!({}))[2..4], ["<unset>", "<unset>"]);
    }

    #[test]
    fn ways_in() {
        let rules: Vec<Value> = ["a", "b", "c", "d", "e"].map(|host| json!({"host": host})).to_vec();
        let object = json!({"spec": {"rules": rules, "tls": [{}]}});
        assert_eq!(cells(ingress, &object)[1..5], ["<none>", "a,b,c + 2 more...", "", "80, 443"]);
        assert_eq!(cells(ingress, &json!({}))[2..5], ["*", "", "80"]);
        let class = json!({"metadata": {"name": "c", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "x/y", "parameters": {"apiGroup": "g", "kind": "K", "name": "n"}}});
        assert_eq!(cells(ingress_class, &class)[..3], ["c (default)", "x/y", "K.g/n"]);
        let policy = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}});
        assert_eq!(cells(network_policy, &policy)[1], "a=b");
        let parent = json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}});
        assert_eq!(cells(ip_address, &parent)[1], "services/n/s");
    }
}
