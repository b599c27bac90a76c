//! The virt-controller under measurement: a child process, its costs as the kernel counts them, and its last words.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use super::super::memory::{self, Memory};

/// What launcher pods name; nobody pulls it.
const LAUNCHER_IMAGE: &str = "ferrovirt.io/launcher:bench";
/// How many lines of its log are shown when it fails.
const LAST_LINES: usize = 20;
/// How long it may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running virt-controller.
pub(super) struct Controller {
    child: Child,
    pid: i32,
    log: Arc<Mutex<VecDeque<String>>>,
}

/// Asks the kernel about it.
#[derive(Clone, Copy)]
pub(super) struct Meter {
    pid: i32,
}

/// What it has cost so far.
#[derive(Clone, Copy)]
pub(super) struct Costs {
    /// Memory.
    pub(super) memory: Memory,
    /// Processor time.
    pub(super) computed: Duration,
}

impl Controller {
    /// Starts it as a Deployment's pod would, with the lease in `namespace`.
    pub(super) fn start(args: &super::Args, namespace: &str) -> anyhow::Result<Self> {
        let program = args.controller.clone().map_or_else(std::env::current_exe, Ok)?;
        let mut command = Command::new(&program);
        command.arg("controller").arg("--kubeconfig").arg(&args.kubeconfig);
        command.args(["--namespace", namespace, "--name", namespace, "--launcher-image", LAUNCHER_IMAGE]);
        // Nobody asks for its health here.
        command.args(["--health", "127.0.0.1:0"]);
        // Ctrl-C is for the bench, which then ends it.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id().context("virt-controller ended at once")?;
        let log = Arc::<Mutex<VecDeque<String>>>::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(keep_last_lines(stderr, log.clone()));
        }
        Ok(Self { child, pid: i32::try_from(pid)?, log })
    }

    /// Tells its costs.
    pub(super) fn meter(&self) -> Meter {
        Meter { pid: self.pid }
    }

    /// Waits for its end, which nobody asked for, and says what it said.
    pub(super) async fn ended(&mut self) -> anyhow::Error {
        let status = self.child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
        let log = self.log.lock().map(|lines| lines.iter().cloned().collect::<Vec<_>>()).unwrap_or_default();
        anyhow::anyhow!("virt-controller ended ({status}); its last words:\n{}", log.join("\n"))
    }

    /// Ends it, politely at first.
    pub(super) async fn stop(mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid)
            && self.child.id().is_some()
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

impl Meter {
    /// What it has cost so far.
    pub(super) fn costs(self) -> anyhow::Result<Costs> {
        let memory = memory::of(&[self.pid])?.context("virt-controller has no memory")?;
        Ok(Costs { memory, computed: memory::computed(&[self.pid])?.unwrap_or_default() })
    }
}

async fn keep_last_lines(stderr: ChildStderr, log: Arc<Mutex<VecDeque<String>>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(mut log) = log.lock() {
            if log.len() == LAST_LINES {
                log.pop_front();
            }
            log.push_back(line);
        }
    }
}
