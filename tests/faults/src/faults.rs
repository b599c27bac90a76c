//! What is killed or cut, and how it is healed.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use blackbox::cluster::Cluster;

use crate::processes::{kill, launchers, libvirt_of, noted_in};

/// The table that cuts a node off from another.
const TABLE: &str = "ferrovirt_fault";

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The libvirt of the launcher that has the guest is killed.
    SourceLibvirt,
    /// The node process with its virt-handler that has the guest is killed.
    SourceHandler,
    /// The node process with its virt-handler that gets the guest is killed.
    TargetHandler,
    /// The launcher that gets the guest is killed, and its pod with it.
    TargetLauncher,
    /// The API server and virt-controller are killed.
    ControlPlane,
    /// The nodes cannot reach each other for a second.
    CutShort,
    /// The nodes cannot reach each other for ten seconds.
    CutLong,
    /// The nodes cannot reach each other any more.
    CutForGood,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::SourceLibvirt,
        Self::SourceHandler,
        Self::TargetHandler,
        Self::TargetLauncher,
        Self::ControlPlane,
        Self::CutShort,
        Self::CutLong,
        Self::CutForGood,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SourceLibvirt => "source-libvirt",
            Self::SourceHandler => "source-handler",
            Self::TargetHandler => "target-handler",
            Self::TargetLauncher => "target-launcher",
            Self::ControlPlane => "control-plane",
            Self::CutShort => "cut-1s",
            Self::CutLong => "cut-10s",
            Self::CutForGood => "cut-for-good",
        }
    }
}

/// What the fault is done to.
pub(crate) struct Victim<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) guest: &'a str,
    /// The launcher that has the guest.
    pub(crate) launcher: i32,
    pub(crate) source: &'a str,
    pub(crate) target: &'a str,
}

/// The local cluster on this machine.
pub(crate) struct Local {
    state: PathBuf,
    /// Addresses of the nodes.
    addresses: HashMap<String, String>,
}

impl Local {
    pub(crate) async fn new(cluster: &Cluster, state: &Path) -> Result<Self> {
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
        if addresses.len() < 2 {
            bail!("two nodes with addresses are needed, and there are {addresses:?}: ferrovirt up --nodes 2");
        }
        Ok(Self { state: state.to_owned(), addresses })
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.addresses.keys()
    }

    /// Does the harm; a short one is over when this returns. `false`: there was nothing to harm, it had not begun or was over.
    pub(crate) async fn inflict(&self, fault: Fault, victim: &Victim<'_>) -> Result<bool> {
        let node = |name: &str| noted_in(&self.state.join("nodes").join(name));
        match fault {
            Fault::SourceLibvirt => match libvirt_of(victim.launcher) {
                Some(libvirt) => kill(libvirt).await?,
                None => return Ok(false),
            },
            Fault::SourceHandler => kill(node(victim.source)?).await?,
            Fault::TargetHandler => kill(node(victim.target)?).await?,
            Fault::TargetLauncher => {
                let others = launchers(victim.namespace, victim.guest).into_iter().find(|pid| *pid != victim.launcher);
                match others {
                    Some(launcher) => kill(launcher).await?,
                    None => return Ok(false),
                }
            }
            Fault::ControlPlane => kill(noted_in(&self.state)?).await?,
            Fault::CutShort => self.cut_for(victim, Duration::from_secs(1)).await?,
            Fault::CutLong => self.cut_for(victim, Duration::from_secs(10)).await?,
            Fault::CutForGood => self.cut(victim.source, victim.target)?,
        }
        Ok(true)
    }

    async fn cut_for(&self, victim: &Victim<'_>, time: Duration) -> Result<()> {
        self.cut(victim.source, victim.target)?;
        tokio::time::sleep(time).await;
        self.heal()
    }

    /// Packets between the two nodes are dropped without a word; both still reach the API server.
    fn cut(&self, one: &str, other: &str) -> Result<()> {
        let (here, there) = (self.address(one)?, self.address(other)?);
        let rules = format!(
            "table ip {TABLE} {{\n\
             chain in {{ type filter hook input priority -300; ip saddr {there} drop; }}\n\
             chain out {{ type filter hook output priority -300; ip daddr {there} drop; }}\n\
             }}\n"
        );
        nft(&namespace_of(here)?, &rules)
    }

    fn address(&self, node: &str) -> Result<&str> {
        self.addresses.get(node).map(String::as_str).with_context(|| format!("no address of node {node}"))
    }

    /// Whatever was cut is joined again.
    pub(crate) fn heal(&self) -> Result<()> {
        for address in self.addresses.values() {
            // Adding it first makes deleting it right whether it was there or not.
            nft(&namespace_of(address)?, &format!("add table ip {TABLE}\ndelete table ip {TABLE}\n"))?;
        }
        Ok(())
    }
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

fn nft(namespace: &str, rules: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "nft", "-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting nft")?;
    child.stdin.take().context("nft reads nothing")?.write_all(rules.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("nft in {namespace}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
