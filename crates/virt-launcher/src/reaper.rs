//! Every child is reaped at once, whoever started it.
//!
//! libvirt daemonises QEMU and its probes, so they become ours, and it polls until a probe is gone: a reaper that waits costs seconds
//! at each start. Because everything is reaped here, nobody else may wait for a child: who starts one through [`Children::spawn`] is
//! told how it ended.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How the names of QEMU's programs begin.
const QEMU: &str = "qemu-";

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

impl From<WaitStatus> for Exit {
    fn from(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (_, Some(signal)) => Self::Signal(signal),
            (code, None) => Self::Code(code.unwrap_or_default()),
        }
    }
}

/// A child that somebody here started.
#[derive(Debug)]
pub struct OwnChild {
    pid: Pid,
    /// Resolves when it ended.
    pub exit: oneshot::Receiver<Exit>,
    /// Its standard input, if that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
}

impl OwnChild {
    /// Asks it to end. Only meaningful before [`OwnChild::exit`] resolved: later the number may be somebody else's.
    pub fn terminate(&self) {
        if let Err(error) = kill_process(self.pid, Signal::TERM) {
            tracing::debug!(%error, pid = self.pid.as_raw_nonzero(), "a child is gone already");
        }
    }
}

/// All children of this process.
#[derive(Debug, Clone, Default)]
pub struct Children {
    own: Arc<Mutex<HashMap<i32, oneshot::Sender<Exit>>>>,
    /// How the last QEMU ended. libvirt is told no more than that it did.
    qemu: Arc<Mutex<Option<Exit>>>,
}

impl Children {
    /// Starts a child whose end is told.
    pub fn spawn(&self, command: &mut Command) -> io::Result<OwnChild> {
        // The lock is held until the child is noted down: it cannot be reaped unnoticed in between.
        let mut own = self.own.lock();
        let mut child = command.spawn()?;
        let (sender, exit) = oneshot::channel();
        own.insert(child.id().cast_signed(), sender);
        Ok(OwnChild { pid: Pid::from_child(&child), exit, stdin: child.stdin.take(), stdout: child.stdout.take() })
    }

    /// How the last QEMU ended, if one did.
    pub fn end_of_qemu(&self) -> Option<Exit> {
        *self.qemu.lock()
    }

    /// Reaps for ever.
    pub async fn reap_for_ever(self) -> io::Result<()> {
        let mut signals = signal(SignalKind::child())?;
        loop {
            self.reap();
            signals.recv().await;
        }
    }

    /// Reaps all that ended. Several ends may share one signal.
    fn reap(&self) {
        let mut own = self.own.lock();
        // Before they are reaped, while they still have names.
        let qemus = children_named(QEMU);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let exit = Exit::from(status);
            match own.remove(&pid.as_raw_nonzero().get()) {
                // Nobody may be interested any more.
                Some(sender) => drop(sender.send(exit)),
                None if qemus.contains(&pid.as_raw_nonzero().get()) => {
                    tracing::info!(pid = pid.as_raw_nonzero(), %exit, "QEMU ended");
                    *self.qemu.lock() = Some(exit);
                }
                None => tracing::debug!(pid = pid.as_raw_nonzero(), %exit, "reaped"),
            }
        }
    }
}

/// The children of this process, living and dead, whose names begin so. None where the kernel does not list children.
fn children_named(prefix: &str) -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children =
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>());
    let is_named =
        |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(prefix));
    children.filter(is_named).collect()
}
