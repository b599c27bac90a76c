//! The local cluster as other commands see it: its directory and the process that serves it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, test_kill_process};

/// Where the local cluster keeps its state.
#[derive(clap::Args, Clone)]
pub(crate) struct Home {
    /// Directory of the local cluster's state.
    ///
    /// Default: `$XDG_STATE_HOME/ferrovirt`, or `~/.local/state/ferrovirt`.
    #[arg(long = "state", env = "FERROVIRT_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Home {
    /// The directory, which need not exist.
    pub(crate) fn directory(&self) -> anyhow::Result<PathBuf> {
        if let Some(directory) = &self.state {
            return std::path::absolute(directory).context("cannot make the path of --state absolute");
        }
        if let Some(base) = std::env::var_os("XDG_STATE_HOME").filter(|base| !base.is_empty()) {
            return Ok(PathBuf::from(base).join("ferrovirt"));
        }
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        let home = home.context("neither --state, XDG_STATE_HOME nor HOME says where to keep the cluster's state")?;
        Ok(PathBuf::from(home).join(".local/state/ferrovirt"))
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        Ok(self.directory()?.join("kubeconfig"))
    }

    /// What `serve` prints, for `up` to show when it fails.
    pub(crate) fn log(&self) -> anyhow::Result<PathBuf> {
        Ok(self.directory()?.join("ferrovirt.log"))
    }

    /// The process that serves the cluster, if it is alive.
    pub(crate) fn process(&self) -> anyhow::Result<Option<Process>> {
        Process::read(&self.directory()?)
    }
}

/// The process that serves the local cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its id.
    pub pid: i32,
    /// When it started, in the kernel's ticks: a reused pid has another one.
    started: u64,
    /// Where it listens.
    pub address: String,
}

impl Process {
    const FILE: &'static str = "process";

    /// Notes the calling process as the server of `directory`.
    pub(crate) fn register(directory: &Path, address: &str) -> anyhow::Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let pid = i32::try_from(std::process::id())?;
        let started = start_time(pid).context("cannot read this process's start time")?;
        let path = directory.join(Self::FILE);
        fs::write(&path, format!("{pid} {started} {address}\n"))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Forgets the server of `directory`.
    pub(crate) fn unregister(directory: &Path) {
        let _ = fs::remove_file(directory.join(Self::FILE));
    }

    /// The process that noted itself in `directory`, if it is alive.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Option<Self>> {
        let path = directory.join(Self::FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [pid, started, address] = parts.as_slice() else { return Ok(None) };
        let (Ok(pid), Ok(started)) = (pid.parse(), started.parse()) else { return Ok(None) };
        let process = Self { pid, started, address: (*address).to_owned() };
        Ok(process.is_alive().then_some(process))
    }

    /// Still the same process, not another one with its id.
    pub(crate) fn is_alive(&self) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        test_kill_process(pid).is_ok() && start_time(self.pid) == Some(self.started)
    }

    /// Waits until the process is gone, whoever its parent is.
    pub(crate) async fn ended(&self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            // A thread that waits: tokio has no safe way to watch a descriptor that it did not make.
            let _ = tokio::task::spawn_blocking(move || poll(&mut [PollFd::new(&handle, PollFlags::IN)], None)).await;
        }
    }

    /// Asks the process to end, or ends it.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { bail!("{} is not a process id", self.pid) };
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }
}

/// Field 22 of `/proc/PID/stat`; the name before it may hold anything, so fields are counted from its last parenthesis.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_a_reused_id_is_not() {
        let directory = tempfile::tempdir().unwrap();
        Process::register(directory.path(), "127.0.0.1:1").unwrap();
        let process = Process::read(directory.path()).unwrap().unwrap();
        assert_eq!(process.address, "127.0.0.1:1");
        let reused = Process { started: process.started + 1, ..process };
        assert!(!reused.is_alive());
        Process::unregister(directory.path());
        assert_eq!(Process::read(directory.path()).unwrap(), None);
    }

    #[test]
    fn a_damaged_file_means_no_process() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(Process::FILE), "nonsense").unwrap();
        assert_eq!(Process::read(directory.path()).unwrap(), None);
    }
}
