//! `virtctl expose`: a service for a machine's ports.

use anyhow::{Context, bail};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::session::Session;

/// Arguments of `expose`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Kind: vm, vmi or vmirs.
    #[arg(value_name = "TYPE")]
    kind: String,
    /// Name of the machine.
    #[arg(value_name = "NAME")]
    target: String,
    /// Name of the service.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Port of the service. Default: the ports that the machine's interfaces name.
    #[arg(long)]
    port: Option<u16>,
    /// Port of the guest, by number or name. Default: the service's.
    #[arg(long, value_name = "PORT")]
    target_port: Option<String>,
    /// Name of the port.
    #[arg(long, value_name = "NAME")]
    port_name: Option<String>,
    /// TCP, UDP or SCTP.
    #[arg(long, default_value = "TCP", value_parser = ["TCP", "UDP", "SCTP"], ignore_case = true)]
    protocol: String,
    /// ClusterIP, NodePort or LoadBalancer.
    #[arg(long = "type", value_name = "TYPE", default_value = "ClusterIP", value_parser = ["ClusterIP", "NodePort", "LoadBalancer"], ignore_case = true)]
    service_type: String,
    /// Address of the service in the cluster, or None for one without.
    #[arg(long = "cluster-ip", value_name = "ADDRESS")]
    cluster_ip: Option<String>,
    /// Address outside of the cluster that leads to the service too.
    #[arg(long = "external-ip", value_name = "ADDRESS")]
    external_ip: Option<String>,
    /// IPv4, IPv6, or both separated by a comma.
    #[arg(long, value_name = "FAMILIES", value_delimiter = ',')]
    ip_family: Vec<String>,
    /// SingleStack, PreferDualStack or RequireDualStack.
    #[arg(long, value_name = "POLICY", value_parser = ["SingleStack", "PreferDualStack", "RequireDualStack"], ignore_case = true)]
    ip_family_policy: Option<String>,
}

/// `virtctl expose`
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let (resource, kind) = match args.kind.to_lowercase().as_str() {
        "vm" | "vms" | "virtualmachine" | "virtualmachines" => ("virtualmachines", "VirtualMachine"),
        "vmi" | "vmis" | "virtualmachineinstance" | "virtualmachineinstances" => {
            ("virtualmachineinstances", "VirtualMachineInstance")
        }
        "vmirs" | "virtualmachineinstancereplicaset" | "virtualmachineinstancereplicasets" => {
            ("virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet")
        }
        other => bail!("unsupported resource type: {other}: use vm, vmi or vmirs"),
    };
    let session = cluster.session().await?;
    let path = format!("{}/{}", Session::collection(&session.namespace, resource), args.target);
    let object = session.get(&path).await.with_context(|| format!("error fetching {kind}"))?;
    let service = args.service(kind, &object)?;
    let services = format!("/api/v1/namespaces/{}/services", session.namespace);
    session.send(Method::POST, &services, &service).await.context("service creation failed")?;
    println!("Service {} successfully created for {} {}", args.name, args.kind.to_lowercase(), args.target);
    Ok(())
}

impl Args {
    fn service(&self, kind: &str, object: &Value) -> anyhow::Result<Value> {
        let mut spec = json!({
            "type": self.service_type, "selector": selector(kind, object)?, "ports": self.ports(kind, object)?,
        });
        if let Some(address) = &self.cluster_ip {
            spec["clusterIP"] = json!(address);
        }
        if let Some(address) = &self.external_ip {
            spec["externalIPs"] = json!([address]);
        }
        if !self.ip_family.is_empty() {
            let family = |name: &String| match name.to_lowercase().as_str() {
                "ipv4" => Ok("IPv4"),
                "ipv6" => Ok("IPv6"),
                _ => bail!("unknown IPFamily/s: {name}: use IPv4, IPv6 or both"),
            };
            spec["ipFamilies"] = json!(self.ip_family.iter().map(family).collect::<anyhow::Result<Vec<_>>>()?);
        }
        if let Some(policy) = &self.ip_family_policy {
            spec["ipFamilyPolicy"] = json!(policy);
        }
        Ok(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": self.name}, "spec": spec}))
    }

    fn ports(&self, kind: &str, object: &Value) -> anyhow::Result<Vec<Value>> {
        if let Some(port) = self.port {
            let target = self
                .target_port
                .as_ref()
                .map(|target| target.parse::<u16>().map_or_else(|_| json!(target), |number| json!(number)));
            let mut entry =
                json!({"port": port, "protocol": self.protocol, "targetPort": target.unwrap_or(json!(port))});
            if let Some(name) = &self.port_name {
                entry["name"] = json!(name);
            }
            return Ok(vec![entry]);
        }
        let pointer = if kind == "VirtualMachineInstance" { "/spec/domain" } else { "/spec/template/spec/domain" };
        let interfaces = object.pointer(&format!("{pointer}/devices/interfaces")).and_then(Value::as_array);
        let ports =
            interfaces.into_iter().flatten().flat_map(|interface| interface["ports"].as_array().into_iter().flatten());
        let entry = |(index, port): (usize, &Value)| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            let name = port["name"].as_str().map_or_else(|| format!("port-{}", index + 1), str::to_owned);
            json!({"name": name, "port": port["port"], "protocol": protocol, "targetPort": port["port"]})
        };
        let ports: Vec<Value> = ports.enumerate().map(entry).collect();
        if ports.is_empty() {
            bail!("couldn't find port via --port flag or introspection: give --port");
        }
        Ok(ports)
    }
}

/// What selects the launcher pods of the machine.
fn selector(kind: &str, object: &Value) -> anyhow::Result<Value> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match kind {
        "VirtualMachineInstanceReplicaSet" => {
            let selector = &object["spec"]["selector"];
            if selector["matchExpressions"].as_array().is_some_and(|list| !list.is_empty()) {
                bail!("cannot expose VirtualMachineInstanceReplicaSet with match expressions");
            }
            match &selector["matchLabels"] {
                Value::Object(labels) if !labels.is_empty() => Ok(selector["matchLabels"].clone()),
                _ => bail!("cannot expose VirtualMachineInstanceReplicaSet without any selector labels"),
            }
        }
        _ => Ok(json!({"vm.kubevirt.io/name": name})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn service(flags: &str, kind: &str, object: &Value) -> anyhow::Result<Value> {
        let words = format!("expose vm web --name s {flags}");
        Line::parse_from(words.split_whitespace()).args.service(kind, object)
    }

    #[test]
    fn services_follow_from_flags_and_interfaces() {
        let vm = json!({"metadata": {"name": "web"}, "spec": {"template": {"spec": {"domain": {"devices": {"interfaces": [
            {"name": "default", "ports": [{"name": "http", "port": 80}, {"port": 53, "protocol": "UDP"}]},
        ]}}}}}});
        let made = [
            service("--port 22 --type nodeport", "VirtualMachine", &vm).unwrap(),
            service(
                "--port 80 --target-port http --port-name web --protocol udp --cluster-ip None",
                "VirtualMachine",
                &vm,
            )
            .unwrap(),
            service("--ip-family ipv6,IPv4 --ip-family-policy preferdualstack", "VirtualMachine", &vm).unwrap(),
        ];
        insta::assert_json_snapshot!(made);
        let plain = json!({"metadata": {"name": "web"}});
        assert!(service("", "VirtualMachine", &plain).is_err());
        assert!(service("--port 1", "VirtualMachineInstanceReplicaSet", &plain).is_err());
    }
}
