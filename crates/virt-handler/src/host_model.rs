//! The processor of guests that follow their host (`host-model`), as libvirt chooses it on this node: a named model, and the features that
//! the guest gets beyond it. Another node can go on with such a guest if it has both.
//!
//! libvirt is asked without a daemon: virsh runs its driver by itself, below a directory that is gone afterwards.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ferrovirt_domain::Accelerator;
use ferrovirt_launcher_rpc::paths::RUNTIME_USER;
use serde::Deserialize;
use tokio::process::Command;

/// How long libvirt and QEMU may take for the answer: seconds on a busy node.
const PATIENCE: Duration = Duration::from_secs(60);
/// The driver needs neither a log daemon nor a sandbox to answer.
const DRIVER_CONFIGURATION: &str = "stdio_handler = \"file\"\nsecurity_driver = \"none\"\nremember_owner = 0\nnamespaces = []\ncgroup_controllers = []\n";

/// The node's own processor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HostModel {
    /// Its model.
    pub model: String,
    /// What it has beyond the model.
    pub features: BTreeSet<String>,
}

/// Asks libvirt; nothing if it does not say.
pub(crate) async fn host_model(accelerator: Accelerator) -> Option<HostModel> {
    // Launchers are asked for as who they run; where that is not possible, as who we are.
    let launcher = rustix::process::geteuid().is_root().then_some(RUNTIME_USER);
    let mut reason = String::new();
    for user in [launcher, None] {
        match tokio::time::timeout(PATIENCE, ask(accelerator, user)).await {
            Ok(Ok(found)) => return Some(found),
            Ok(Err(error)) => reason = error,
            Err(_) => reason = format!("no answer within {} s", PATIENCE.as_secs()),
        }
    }
    tracing::warn!(reason, "libvirt does not say which processor this node has: guests that follow it cannot move");
    None
}

async fn ask(accelerator: Accelerator, user: Option<u32>) -> Result<HostModel, String> {
    let directory = Directory::new(user).map_err(|error| format!("a directory for libvirt: {error}"))?;
    let kind = match accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg => "qemu",
    };
    let mut virsh = Command::new("virsh");
    virsh.args(["--connect", &format!("qemu:///embed?root={}", directory.0.display())]);
    virsh.args(["domcapabilities", "--virttype", kind]);
    virsh.env("HOME", &directory.0).env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null()).kill_on_drop(true);
    if let Some(user) = user {
        // The device's group, where it has one: QEMU is asked what it can do with it.
        let group = std::fs::metadata("/dev/kvm").map_or(user, |device| device.gid());
        virsh.uid(user).gid(if group == 0 { user } else { group });
    }
    let output = virsh.output().await.map_err(|error| format!("virsh: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(words.lines().last().unwrap_or("virsh failed without a word").to_owned());
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Where the driver works. A temporary directory of root's may be closed to the users that libvirt and QEMU run as; `/run` is not.
fn path() -> std::io::Result<PathBuf> {
    let run = Path::new("/run");
    let is_usable = rustix::process::geteuid().is_root() && run.is_dir();
    let parent = if is_usable { run.to_owned() } else { std::env::temp_dir().canonicalize()? };
    Ok(parent.join(format!("ferrovirt-host-model-{}", std::process::id())))
}

/// A directory for the driver; removed when this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(user: Option<u32>) -> std::io::Result<Self> {
        let made = Self(path()?);
        std::fs::create_dir(&made.0)?;
        let configuration = made.0.join("etc");
        std::fs::create_dir(&configuration)?;
        std::fs::write(configuration.join("qemu.conf"), DRIVER_CONFIGURATION)?;
        for path in [&made.0, &configuration] {
            std::os::unix::fs::chown(path, user, user)?;
        }
        Ok(made)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(directory: &Path) {
    if let Err(error) = std::fs::remove_dir_all(directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, directory = %directory.display(), "what libvirt left could not be removed");
    }
}

#[derive(Deserialize)]
struct Capabilities {
    cpu: Cpu,
}

#[derive(Deserialize)]
struct Cpu {
    #[serde(default)]
    mode: Vec<Mode>,
}

#[derive(Deserialize)]
struct Mode {
    #[serde(rename = "@name")]
    name: String,
    #[serde(rename = "@supported")]
    supported: String,
    #[serde(default)]
    model: Vec<Model>,
    #[serde(default)]
    feature: Vec<Feature>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "$text")]
    name: String,
}

#[derive(Deserialize)]
struct Feature {
    #[serde(rename = "@policy")]
    policy: String,
    #[serde(rename = "@name")]
    name: String,
}

fn parse(xml: &str) -> Result<HostModel, String> {
    let capabilities: Capabilities =
        quick_xml::de::from_str(xml).map_err(|error| format!("libvirt's answer is not understood: {error}"))?;
    let mode = capabilities.cpu.mode.into_iter().find(|mode| mode.name == "host-model" && mode.supported == "yes");
    let mode = mode.ok_or("libvirt knows no host model here")?;
    let model = mode.model.into_iter().next().ok_or("libvirt's host model has no name")?.name;
    let required = mode.feature.into_iter().filter(|feature| feature.policy == "require");
    Ok(HostModel { model, features: required.map(|feature| feature.name).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_and_what_it_has_beyond_are_read() {
        let answer = "<domainCapabilities><path>/usr/bin/qemu</path><cpu>
            <mode name='host-passthrough' supported='yes'><enum name='hostPassthroughMigratable'><value>on</value></enum></mode>
            <mode name='maximum' supported='yes'/>
            <mode name='host-model' supported='yes'>
              <model fallback='forbid'>Skylake-Client-IBRS</model><vendor>Intel</vendor>
              <feature policy='require' name='ss'/><feature policy='disable' name='mpx'/><feature policy='require' name='pdcm'/>
            </mode>
            <mode name='custom' supported='yes'><model usable='no' vendor='AMD'>EPYC</model><model usable='yes' vendor='Intel'>Haswell</model></mode>
          </cpu><devices/></domainCapabilities>";
        let features = ["pdcm", "ss"].map(str::to_owned).into();
        assert_eq!(parse(answer), Ok(HostModel { model: "Skylake-Client-IBRS".to_owned(), features }));
    }

    #[test]
    fn a_node_without_one_says_so() {
        let none = "<domainCapabilities><cpu><mode name='host-model' supported='no'/></cpu></domainCapabilities>";
        assert_eq!(parse(none), Err("libvirt knows no host model here".to_owned()));
        assert!(parse("<domainCapabilities/>").unwrap_err().contains("not understood"));
    }

    #[tokio::test]
    async fn libvirt_knows_this_node_and_leaves_nothing() {
        let found = host_model(Accelerator::Tcg).await.unwrap();
        assert!(!found.model.is_empty() && !found.features.is_empty(), "{found:?}");
        assert!(!path().unwrap().exists());
    }
}
