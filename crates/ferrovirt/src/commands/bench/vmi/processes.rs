//! The processes around guests, as the kernel knows them.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;

/// The kernel counts in hundredths of a second wherever Linux runs our programs.
const TICK: Duration = Duration::from_millis(10);

/// All processes at one moment.
pub(super) struct Machine {
    processes: HashMap<i32, Process>,
    /// The moment on both clocks.
    now: Instant,
    up: Duration,
}

struct Process {
    parent: i32,
    arguments: Vec<String>,
    started: Duration,
    computed: Duration,
}

/// What is around one guest.
#[derive(Debug, Clone)]
pub(super) struct Guest {
    /// When each started.
    pub(super) launcher: Instant,
    pub(super) libvirt: Instant,
    pub(super) qemu: Instant,
    /// Proportional memory in bytes.
    pub(super) launcher_memory: u64,
    pub(super) libvirt_memory: u64,
    pub(super) monitor_memory: u64,
    /// What launcher and libvirt computed.
    pub(super) computed: Duration,
}

impl Machine {
    /// Reads /proc.
    pub(super) fn now() -> anyhow::Result<Self> {
        let up = fs::read_to_string("/proc/uptime").context("cannot read /proc/uptime")?;
        let up: f64 = up.split_whitespace().next().context("/proc/uptime is empty")?.parse()?;
        let now = Instant::now();
        let entries = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let processes = entries.filter_map(|pid: i32| Some((pid, Process::read(pid)?))).collect();
        Ok(Self { processes, now, up: Duration::from_secs_f64(up) })
    }

    /// The processes of a guest.
    pub(super) fn guest(&self, namespace: &str, name: &str) -> Option<Guest> {
        let domain = format!("guest={namespace}_{name},");
        let qemu = self.find(|process| {
            process.is("qemu-system") && process.arguments.iter().any(|text| text.starts_with(&domain))
        })?;
        let launcher = self.find(|process| {
            process.is("virt-launcher") && process.has(&["--name", name]) && process.has(&["--namespace", namespace])
        })?;
        let libvirt = self.find(|process| process.is("libvirtd") && process.parent == launcher.0)?;
        Some(Guest {
            launcher: self.instant(launcher.1.started),
            libvirt: self.instant(libvirt.1.started),
            qemu: self.instant(qemu.1.started),
            launcher_memory: memory(launcher.0)?,
            libvirt_memory: memory(libvirt.0)?,
            monitor_memory: memory(launcher.1.parent).unwrap_or_default(),
            computed: launcher.1.computed + libvirt.1.computed,
        })
    }

    /// What our own processes that are not in pods computed.
    pub(super) fn computed(&self) -> Duration {
        self.processes.values().filter(|process| process.is("ferrovirt")).map(|process| process.computed).sum()
    }

    fn find(&self, wanted: impl Fn(&Process) -> bool) -> Option<(i32, &Process)> {
        self.processes.iter().find(|(_, process)| wanted(process)).map(|(pid, process)| (*pid, process))
    }

    /// A time since boot as a moment of ours.
    fn instant(&self, since_boot: Duration) -> Instant {
        self.now - self.up.saturating_sub(since_boot)
    }
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |index: usize| -> Option<Duration> { Some(TICK * fields.get(index)?.parse().ok()?) };
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = arguments.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            arguments: arguments.collect(),
            started: ticks(19)?,
            computed: ticks(11)? + ticks(12)?,
        })
    }

    fn is(&self, program: &str) -> bool {
        let name = self.arguments.first().and_then(|path| path.rsplit('/').next());
        name.is_some_and(|name| name.starts_with(program))
    }

    /// `--flag value` or `--flag=value`.
    fn has(&self, wanted: &[&str; 2]) -> bool {
        let joined = wanted.join("=");
        self.arguments.windows(2).any(|pair| pair == wanted) || self.arguments.contains(&joined)
    }
}

/// Shared pages count in part for each process that has them.
fn memory(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_with_its_memory() {
        let machine = Machine::now().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let process = &machine.processes[&own];
        assert!(process.started <= machine.up + Duration::from_secs(1));
        assert!(memory(own).unwrap() > 0);
    }

    #[test]
    fn flags_are_read_in_both_forms() {
        let process = |arguments: &[&str]| Process {
            parent: 1,
            arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
            started: Duration::ZERO,
            computed: Duration::ZERO,
        };
        for arguments in [["virt-launcher", "--name", "a"].as_slice(), &["/opt/virt-launcher", "--name=a"]] {
            assert!(process(arguments).has(&["--name", "a"]) && process(arguments).is("virt-launcher"));
        }
        assert!(!process(&["virt-launcher", "--name", "ab"]).has(&["--name", "a"]));
    }
}
