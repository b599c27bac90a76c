//! What a guest could leave behind on this machine: processes, network devices and namespaces, mounts, control groups, loop devices.
//!
//! Only where the suite runs on the machine of the cluster, as root; other clusters are looked at through their API alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::cluster::wait;

/// Programs that run for a guest. The control plane's and the nodes' own processes are not among them.
const PROGRAMS: [&str; 8] =
    ["qemu-system-x86", "libvirtd", "virtqemud", "virt-launcher", "conmon", "crun", "swtpm", "qemu-img"];

/// A picture of the machine.
#[derive(Debug, Clone)]
pub struct Machine {
    there: BTreeSet<String>,
    /// What is not looked at.
    without: Option<&'static str>,
}

impl Machine {
    /// What is there now.
    pub fn now() -> Self {
        Self { there: everything(), without: None }
    }

    /// What is there now, but for everything with a certain word in its name.
    pub fn now_without(word: &'static str) -> Self {
        Self { there: everything(), without: Some(word) }
    }

    /// Waits until nothing is there that was not there before.
    pub async fn clean_again(&self, seconds: u64) -> Result<()> {
        let counts = |entry: &&String| self.without.is_none_or(|word| !entry.contains(word));
        let left = || everything().difference(&self.there).filter(counts).cloned().collect::<Vec<_>>();
        let clean = wait("the machine to be clean", seconds, || async { Ok(left().is_empty().then_some(())) }).await;
        if clean.is_err() && !left().is_empty() {
            bail!("left behind on the machine:\n      {}", left().join("\n      "));
        }
        Ok(())
    }
}

fn everything() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    processes(&mut all);
    network(&mut all);
    mounts(&mut all);
    control_groups(Path::new("/sys/fs/cgroup"), &mut all);
    for (place, what) in [("/run/netns", "network namespace"), ("/sys/block", "block device")] {
        all.extend(names(Path::new(place)).map(|name| format!("{what} {name}")).filter(|entry| is_used(entry)));
    }
    all
}

fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// A loop device exists before anybody uses it.
fn is_used(entry: &str) -> bool {
    match entry.strip_prefix("block device loop") {
        Some(number) => fs::metadata(format!("/sys/block/loop{number}/loop/backing_file")).is_ok(),
        None => true,
    }
}

fn processes(all: &mut BTreeSet<String>) {
    for pid in names(Path::new("/proc")).filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // A process that has ended and waits for its parent has no command line.
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if PROGRAMS.contains(&name.trim()) && !command.is_empty() {
            let words = String::from_utf8_lossy(&command).replace('\0', " ");
            all.insert(format!("process {pid} {}", words.chars().take(160).collect::<String>()));
        }
    }
}

fn network(all: &mut BTreeSet<String>) {
    let mut places = vec![None];
    places.extend(names(Path::new("/run/netns")).map(Some));
    for place in places {
        let mut command = Command::new("ip");
        if let Some(name) = &place {
            command.args(["-n", name]);
        }
        let Ok(output) = command.args(["-o", "link"]).output() else { continue };
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let device = line.split(": ").nth(1).unwrap_or_default();
            let device = device.split('@').next().unwrap_or_default();
            all.insert(format!("network device {device} in {}", place.as_deref().unwrap_or("the host")));
        }
    }
}

fn mounts(all: &mut BTreeSet<String>) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    all.extend(table.lines().filter_map(|line| line.split(' ').nth(4)).map(|place| format!("mount {place}")));
}

fn control_groups(directory: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.insert(format!("control group {}", entry.path().display()));
            control_groups(&entry.path(), all);
        }
    }
}

/// The process of a guest's QEMU on this machine.
pub fn qemu_of(namespace: &str, name: &str) -> Option<i32> {
    qemus_of(namespace, name).first().copied()
}

/// All processes of a guest's QEMUs: while it moves there are two.
pub fn qemus_of(namespace: &str, name: &str) -> Vec<i32> {
    let wanted = format!("guest={namespace}_{name},");
    let is_its = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&wanted)
    };
    names(Path::new("/proc")).filter_map(|pid| pid.parse().ok()).filter(is_its).collect()
}
