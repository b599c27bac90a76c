//! `hosts`, `hostname` and `resolv.conf` of a pod. Content without IO, then written once.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use ferrovirt_kubernetes::Pod;

use crate::oci::container::hostname;
use crate::sources::PodNetwork;

/// Writes the three files, in place: containers have them mounted.
pub(super) fn write(directory: &Path, pod: &Pod, network: &PodNetwork) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("hosts"), hosts(pod, &network.addresses))?;
    fs::write(directory.join("hostname"), hostname(pod) + "\n")?;
    fs::write(directory.join("resolv.conf"), resolv_conf(pod, network))
}

fn hosts(pod: &Pod, addresses: &[IpAddr]) -> String {
    let spec = pod.spec.clone().unwrap_or_default();
    let name = hostname(pod);
    let mut text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned();
    let full = spec.subdomain.filter(|subdomain| !subdomain.is_empty()).map(|subdomain| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        format!("{name}.{subdomain}.{namespace}.svc.cluster.local\t")
    });
    for address in addresses {
        text += &format!("{address}\t{}{name}\n", full.as_deref().unwrap_or_default());
    }
    for alias in spec.host_aliases.iter().flatten() {
        text += &format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    text
}

fn resolv_conf(pod: &Pod, network: &PodNetwork) -> String {
    let spec = pod.spec.clone().unwrap_or_default();
    let own = spec.dns_config.unwrap_or_default();
    let (mut servers, mut searches) = match spec.dns_policy.as_deref() {
        Some("None") => (Vec::new(), Vec::new()),
        _ => (network.dns_servers.iter().map(ToString::to_string).collect(), network.dns_searches.clone()),
    };
    servers.extend(own.nameservers.into_iter().flatten());
    searches.extend(own.searches.into_iter().flatten());
    let options: Vec<String> = own
        .options
        .into_iter()
        .flatten()
        .filter_map(|option| {
            Some(
                option
                    .value
                    .map_or(option.name.clone()?, |value| format!("{}:{value}", option.name.unwrap_or_default())),
            )
        })
        .collect();
    let mut text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    if !searches.is_empty() {
        text += &format!("search {}\n", searches.join(" "));
    }
    if !options.is_empty() {
        text += &format!("options {}\n", options.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_servers_of_the_pod_are_written() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "containers": [], "subdomain": "fleet", "dnsPolicy": "None",
                "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["db"]}],
                "dnsConfig": {"nameservers": ["192.0.2.53"], "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]},
            },
        }))
        .unwrap();
        let network = PodNetwork {
            namespace: "/n".into(),
            addresses: vec!["10.0.0.2".parse().unwrap()],
            dns_servers: vec!["10.0.0.1".parse().unwrap()],
            dns_searches: Vec::new(),
        };
        assert!(
            hosts(&pod, &network.addresses)
                .ends_with("10.0.0.2\tweb.fleet.shop.svc.cluster.local\tweb\n10.0.0.9\tdb\n")
        );
        assert_eq!(resolv_conf(&pod, &network), "nameserver 192.0.2.53\noptions ndots:2 edns0\n");
    }
}
