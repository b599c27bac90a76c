//! What guests move on: a cluster whose nodes are on this machine, so that its processes can be killed and its network cut.
//!
//! | | local cluster | Kubernetes |
//! |---|---|---|
//! | started by | `ferrovirt up --nodes 2` | `tests/kubernetes/cluster.sh up`, and an installation |
//! | control plane | one process, which its supervisor starts again | kube-apiserver, started again here, and virt-controllers, started again by kubelets |
//! | node | a process with virt-handler in it | a kubelet; its virt-handler is a pod with the node's network |

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use blackbox::cluster::Cluster;
use blackbox::machine::Machine;

use crate::processes::{all, arguments, is, kill, network_of, noted_in};

/// Where its control groups are, those of its own pods among them, which come and go.
const NODES_OF_KUBERNETES: &str = "ferrovirt-kubernetes-";
/// Starts what of that Kubernetes has died.
const CLUSTER_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../kubernetes/cluster.sh");

/// Which cluster it is, by its state directory.
enum Kind {
    Local(PathBuf),
    Kubernetes(PathBuf),
}

/// The cluster.
pub(crate) struct Ground {
    kind: Kind,
    /// The nodes' addresses, by their names.
    addresses: HashMap<String, String>,
}

impl Ground {
    /// The cluster of a state directory, and whoever may do everything there.
    pub(crate) async fn at(state: &Path) -> Result<(Self, Cluster)> {
        let (own, kubernetes) = (state.join("kubeconfig"), state.join("admin.kubeconfig"));
        let is_kubernetes = kubernetes.exists();
        let cluster = Cluster::from_kubeconfig(if is_kubernetes { &kubernetes } else { &own }).await?;
        let addresses = addresses(&cluster).await?;
        if addresses.len() < 2 {
            bail!("two nodes with addresses are needed, and there are {addresses:?}: ferrovirt up --nodes 2");
        }
        let state = state.to_owned();
        let kind = if is_kubernetes { Kind::Kubernetes(state) } else { Kind::Local(state) };
        Ok((Self { kind, addresses }, cluster))
    }

    /// The names of all nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.addresses.keys()
    }

    pub(crate) fn address_of(&self, node: &str) -> Result<&str> {
        self.addresses.get(node).map(String::as_str).with_context(|| format!("no address of node {node}"))
    }

    /// What is on this machine that trials must not leave more of.
    pub(crate) fn machine(&self) -> Machine {
        match self.kind {
            Kind::Local(_) => Machine::now(),
            // A component that was killed is another container afterwards.
            Kind::Kubernetes(_) => Machine::now_without(NODES_OF_KUBERNETES),
        }
    }

    /// The virt-handler of a node; `None`: it was killed, and has not been started again yet.
    pub(crate) fn handler_of(&self, node: &str) -> Result<Option<i32>> {
        match &self.kind {
            Kind::Local(state) => noted_in(&state.join("nodes").join(node)).map(Some),
            Kind::Kubernetes(_) => {
                let network = network_of(kubelet_of(node)?);
                Ok(components("handler").find(|pid| network_of(*pid) == network))
            }
        }
    }

    /// Ends the API server and every virt-controller at once, and has them started again.
    pub(crate) async fn kill_control_plane(&self) -> Result<()> {
        let state = match &self.kind {
            Kind::Local(state) => return kill(noted_in(state)?).await,
            Kind::Kubernetes(state) => state,
        };
        let its = state.to_string_lossy();
        let is_its = |pid: &i32| is(*pid, "kube-apiserver") && arguments(*pid).iter().any(|word| word.contains(&*its));
        let server = all().find(is_its).context("no kube-apiserver runs")?;
        for pid in components("controller").chain([server]).collect::<Vec<_>>() {
            kill(pid).await?;
        }
        let mut start = tokio::process::Command::new(CLUSTER_SCRIPT);
        start.arg("--state").arg(state).args(["start", "kube-apiserver"]);
        // It leaves processes behind that would keep a pipe open.
        let status = start.stdout(Stdio::null()).stderr(Stdio::null()).status().await.context("starting cluster.sh")?;
        if !status.success() {
            bail!("kube-apiserver does not start again: its log is in {}", state.display());
        }
        Ok(())
    }

    /// Gives rules to the packet filter of a node.
    pub(crate) fn filter(&self, node: &str, rules: &str) -> Result<()> {
        let mut command = match self.kind {
            Kind::Local(_) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespace_of(self.address_of(node)?)?]);
                command
            }
            Kind::Kubernetes(_) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{}/ns/net", kubelet_of(node)?));
                command
            }
        };
        command.args(["nft", "-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting nft")?;
        child.stdin.take().context("nft reads nothing")?.write_all(rules.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("nft on {node}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

async fn addresses(cluster: &Cluster) -> Result<HashMap<String, String>> {
    let nodes = cluster.get("/api/v1/nodes").await?;
    let mut addresses = HashMap::new();
    for node in nodes["items"].as_array().into_iter().flatten() {
        let all = node["status"]["addresses"].as_array().into_iter().flatten();
        let own =
            all.filter(|address| address["type"] == "InternalIP").filter_map(|address| address["address"].as_str());
        let v4 = own.into_iter().find(|address| !address.contains(':'));
        if let (Some(name), Some(address)) = (node["metadata"]["name"].as_str(), v4) {
            addresses.insert(name.to_owned(), address.to_owned());
        }
    }
    Ok(addresses)
}

/// The network namespace that has an address.
fn namespace_of(address: &str) -> Result<String> {
    for entry in std::fs::read_dir("/run/netns").context("looking for network namespaces")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let shown = Command::new("ip").args(["-n", &name, "-o", "addr"]).output()?;
        if String::from_utf8_lossy(&shown.stdout).contains(&format!(" {address}/")) {
            return Ok(name);
        }
    }
    bail!("no network namespace has the address {address}")
}

fn kubelet_of(node: &str) -> Result<i32> {
    let flag = format!("--hostname-override={node}");
    let kubelet = all().find(|pid| is(*pid, "kubelet") && arguments(*pid).contains(&flag));
    kubelet.with_context(|| format!("no kubelet of {node} runs"))
}

/// The processes of a component's pods.
fn components(command: &str) -> impl Iterator<Item = i32> {
    all().filter(move |pid| is(*pid, "ferrovirt") && arguments(*pid).get(1).is_some_and(|word| word == command))
}
