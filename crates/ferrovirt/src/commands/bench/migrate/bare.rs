//! The same guest under two libvirt daemons and nothing else, in the network namespaces of the two nodes.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovirt_launcher_rpc::paths;

use super::ours::{Launcher, Ours, inside};
use super::report::Move;
use super::ticks::{Listener, tail};

/// How long a daemon may take to listen, and the guest to tick.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(50);
const MARGIN: Duration = Duration::from_millis(500);
/// Where its daemon listens, in the namespace of each.
const SOCKET: &str = "qemu+unix:///session?socket=/run/libvirt/libvirt-sock";
/// The two nodes, as the local cluster calls them.
const NODES: [u8; 2] = [1, 2];

/// Two daemons, one guest.
pub(super) struct Bare {
    daemons: Vec<Daemon>,
    /// Which one has the guest.
    here: usize,
    domain: String,
    log: String,
    /// What the daemons' namespaces are furnished with; goes with this.
    _files: Files,
}

impl Bare {
    /// Starts both daemons and the guest, with the domain and the disks of ours, and waits until it ticks.
    pub(super) async fn start(state: &Path, ours: &Ours) -> anyhow::Result<Self> {
        let launcher = ours.launcher()?;
        let domain = launcher.domain();
        let files = Files::of(&launcher)?;
        let network = ferrovirt_cluster_network::Cluster::open(&state.join("network"), "ferrovirt").await?;
        let mut daemons = Vec::new();
        for index in NODES {
            let node = network.node(index, &crate::control_plane::node_name(index)).await?;
            daemons.push(Daemon::start(&node.netns(), node.addresses()[0], &files.directory)?);
        }
        for daemon in &daemons {
            daemon.until_it_listens().await?;
        }
        daemons[0].virsh(&["create", &files.domain_xml().to_string_lossy()])?;
        let bare = Self { daemons, here: 0, domain, log: paths::serial_log(launcher.uid()), _files: files };
        bare.until_it_ticks().await?;
        Ok(bare)
    }

    fn logs(&self) -> Vec<PathBuf> {
        self.daemons.iter().map(|daemon| inside(daemon.pid(), &self.log)).collect()
    }

    async fn until_it_ticks(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !tail(&self.logs()[0]).contains("tick\n") && !tail(&self.logs()[0]).contains("tick\r\n") {
            if begin.elapsed() > PATIENCE {
                bail!("the guest does not tick: {}", tail(&self.logs()[0]));
            }
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }

    /// Moves the guest to the other daemon.
    pub(super) async fn migrate(&mut self) -> anyhow::Result<Move> {
        let (from, to) = (&self.daemons[self.here], &self.daemons[1 - self.here]);
        let logs = self.logs();
        let listener = Listener::start(move || logs.clone());
        tokio::time::sleep(MARGIN).await;
        let (target, uri) = (format!("qemu+tcp://{}/session", to.address), format!("tcp://{}", to.address));
        let arguments: Vec<String> =
            ["migrate", "--live", "--p2p", "--copy-storage-inc", &self.domain, &target, "--migrateuri", &uri]
                .map(str::to_owned)
                .into();
        let mut command = from.virsh_command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let begin = Instant::now();
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let took = begin.elapsed();
        if !output.status.success() {
            bail!("virsh migrate failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        tokio::time::sleep(MARGIN).await;
        let silence = listener.end();
        let sent = from.virsh(&["domjobinfo", &self.domain, "--completed"]).ok().and_then(|text| processed(&text));
        let sent = sent.or_else(|| processed(&to.virsh(&["domjobinfo", &self.domain, "--completed"]).ok()?));
        self.here = 1 - self.here;
        Ok(Move { took, silence, sent })
    }
}

/// `Data processed: 12.345 MiB` in bytes.
fn processed(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Data processed:"))?;
    let (number, unit) = line.trim().split_once(' ')?;
    let unit: f64 = match unit.trim() {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * unit) as u64)
}

/// A directory that holds what a pod of the guest holds: disks, media, and the domain.
struct Files {
    directory: PathBuf,
}

impl Files {
    fn of(launcher: &Launcher) -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("ferrovirt-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let files = Self { directory };
        let socket = launcher.file("/run/libvirt/libvirt-sock");
        let uri = format!("qemu+unix:///session?socket={}", socket.display());
        let xml = output(Command::new("virsh").args(["-c", &uri, "dumpxml", "--inactive", &launcher.domain()]))?;
        std::fs::write(files.domain_xml(), without_network(&xml))?;
        files.copy(launcher, &paths::config_media("seed"))?;
        let image = files.copy_image(launcher)?;
        let overlay = files.path(&paths::overlay("root"));
        std::fs::create_dir_all(overlay.parent().context("an overlay has a directory")?)?;
        let mut create = Command::new("qemu-img");
        create.args(["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", &image.0]).arg(&overlay).arg(image.1);
        output(&mut create)?;
        std::fs::create_dir_all(files.path(&paths::guest_directory(launcher.uid())))?;
        Ok(files)
    }

    fn domain_xml(&self) -> PathBuf {
        self.directory.join("domain.xml")
    }

    /// Where a file of the pod is in this directory, which becomes `/run`.
    fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path.trim_start_matches("/var/run/"))
    }

    fn copy(&self, launcher: &Launcher, path: &str) -> anyhow::Result<()> {
        let to = self.path(path);
        std::fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        let from = launcher.file(path);
        std::fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    }

    /// The image below the overlay: its path in a pod, and its size.
    fn copy_image(&self, launcher: &Launcher) -> anyhow::Result<(String, String)> {
        let overlay = launcher.file(&paths::overlay("root"));
        let mut command = Command::new("qemu-img");
        let info = output(command.args(["info", "-U", "--output=json"]).arg(overlay))?;
        let info: serde_json::Value = serde_json::from_str(&info)?;
        let image = info["backing-filename"].as_str().context("the overlay has no image below it")?;
        self.copy(launcher, image)?;
        Ok((image.to_owned(), info["virtual-size"].to_string()))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The domain without network cards, whose taps are the pod's.
fn without_network(xml: &str) -> String {
    let (mut rest, mut text) = (xml, String::new());
    while let Some((before, after)) = rest.split_once("<interface ") {
        text.push_str(before);
        rest = after.split_once("</interface>").map_or("", |(_, rest)| rest);
    }
    text + rest
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One libvirt daemon with namespaces of its own; everything in there ends with it.
struct Daemon {
    process: Child,
    address: IpAddr,
}

impl Daemon {
    fn start(netns: &Path, address: IpAddr, files: &Path) -> anyhow::Result<Self> {
        let process = Command::new("nsenter")
            .arg(format!("--net={}", netns.display()))
            .args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"])
            .args([include_str!("bare.sh"), "bare.sh"])
            .arg(files)
            .arg(address.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run nsenter and unshare")?;
        Ok(Self { process, address })
    }

    /// The first process in there: the child of `unshare`, which has taken `nsenter`'s place.
    fn pid(&self) -> i32 {
        let outer = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap_or_default();
        children.split_whitespace().next().and_then(|pid| pid.parse().ok()).unwrap_or_default()
    }

    fn virsh_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid().to_string(), "--mount", "--net", "virsh", "-c", SOCKET]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    fn virsh(&self, arguments: &[&str]) -> anyhow::Result<String> {
        output(&mut self.virsh_command(arguments))
    }

    async fn until_it_listens(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            match self.virsh(&["version"]) {
                Ok(_) => return Ok(()),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error.context("libvirtd does not answer")),
                Err(_) => tokio::time::sleep(STEP).await,
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // unshare takes the whole process namespace along.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_cards_are_left_out() {
        let xml =
            "<devices><interface type='ethernet'><mac/></interface><disk/><interface type='x'></interface></devices>";
        assert_eq!(without_network(xml), "<devices><disk/></devices>");
    }

    #[test]
    fn virshs_numbers_are_read() {
        assert_eq!(
            processed("Job type: Completed\nData processed:   1.500 MiB\nData remaining: 0.000 B\n"),
            Some(3 << 19)
        );
        assert_eq!(processed("nothing"), None);
    }
}
