//! The processes of a cluster on this machine, as the kernel knows them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use blackbox::cluster::wait;
use rustix::process::{Pid, Signal, kill_process};

/// Ends a process at once, and returns when it has ended: a launcher takes its guest along, which shows as alive until then.
pub(crate) async fn kill(pid: i32) -> Result<()> {
    let process = Pid::from_raw(pid).context("no process")?;
    kill_process(process, Signal::KILL).with_context(|| format!("killing process {pid}"))?;
    wait("a killed process to end", 30, || async { Ok(has_ended(pid).then_some(())) }).await
}

/// It is gone, or nothing is left of it but its exit code. Its first thread can end before others, which still hold its files.
fn has_ended(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let Some((_, fields)) = stat.rsplit_once(") ") else { return true };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    matches!(fields.first(), Some(&("Z" | "X"))) && matches!(fields.get(17), Some(&("0" | "1")))
}

/// The process that notes itself in a directory of the cluster's state.
pub(crate) fn noted_in(directory: &Path) -> Result<i32> {
    let file = directory.join("process");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
    pid.with_context(|| format!("{} names no process: {text:?}", file.display()))
}

/// All that run.
pub(crate) fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The command line.
pub(crate) fn arguments(pid: i32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Whether it runs a program of that name.
pub(crate) fn is(pid: i32, program: &str) -> bool {
    arguments(pid).first().and_then(|path| path.rsplit('/').next()) == Some(program)
}

/// Which network it is in; `None` when it has ended.
pub(crate) fn network_of(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The launchers of a guest: one, or two while it moves.
pub(crate) fn launchers(namespace: &str, name: &str) -> Vec<i32> {
    let is_its = |pid: &i32| {
        let words = arguments(*pid);
        let has = |flag: &str, value: &str| words.windows(2).any(|pair| pair[0] == flag && pair[1] == value);
        is(*pid, "virt-launcher") && has("--name", name) && has("--namespace", namespace)
    };
    all().filter(is_its).collect()
}

/// The libvirt of a launcher.
pub(crate) fn libvirt_of(launcher: i32) -> Option<i32> {
    all().find(|pid| parent(*pid) == Some(launcher) && is(*pid, "libvirtd"))
}

/// What the processors of a guest have computed in one QEMU, in hundredths of a second.
pub(crate) fn computed_by_processors(qemu: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{qemu}/task")).into_iter().flatten().flatten();
    let of_processor = threads
        .filter(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with("CPU ")));
    let ticks = |stat: String| -> Option<u64> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    of_processor.filter_map(|thread| ticks(fs::read_to_string(thread.path().join("stat")).ok()?)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_parent_and_no_guest() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(all().any(|pid| pid == own));
        assert!(parent(own).is_some() && network_of(own).is_some());
        assert_eq!(computed_by_processors(own), 0);
        assert!(launchers("no", "body").is_empty());
    }

    #[tokio::test]
    async fn a_killed_process_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!has_ended(pid));
        kill(pid).await.unwrap();
        assert!(has_ended(pid), "as a zombie");
        child.wait().unwrap();
        assert!(has_ended(pid), "as nothing at all");
    }
}
