//! The OCI runtime (`crun`) and the monitor of each container (`conmon`).
//!
//! A monitor belongs to no one: it is detached, holds the container's output, reaps its first process and writes the exit code to a
//! file. So a container and the news of its end survive this process. Everything here can be repeated.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::Command;

use crate::files;
use crate::layout::{ContainerLayout, Layout};

/// How long the runtime may take for anything it does: far more than it ever needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A log that grows beyond this begins anew: a chatty container must not fill the disk.
const LARGEST_LOG: u64 = 32 << 20;

/// Why the runtime did not do it.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A program could not be started.
    #[error("cannot start {program}: {source}; is it installed?")]
    Spawn {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The runtime says no.
    #[error("{operation}: {message}")]
    Refused {
        /// What was asked.
        operation: &'static str,
        /// Its words.
        message: String,
    },
    /// It did not answer.
    #[error("{operation}: no answer within {} s", PATIENCE.as_secs())]
    Timeout {
        /// What was asked.
        operation: &'static str,
    },
    /// Something around it failed.
    #[error("{operation}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// What the runtime says about a container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RuntimeState {
    /// `created`, `running` or `stopped`.
    pub status: String,
    /// Its first process.
    #[serde(default)]
    pub pid: u32,
}

/// Calls the runtime.
#[derive(Debug, Clone)]
pub struct Runtime {
    program: PathBuf,
    conmon: PathBuf,
    state: PathBuf,
}

/// `{"data": pid}`, or a negative number and a message.
#[derive(Deserialize)]
struct MonitorReport {
    data: i64,
    #[serde(default)]
    message: String,
}

impl Runtime {
    /// A runtime with its state in the node's directory.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn open(layout: &Layout, crun: &Path, conmon: &Path) -> io::Result<Self> {
        fs::create_dir_all(layout.runtime_state())?;
        let program = if needs_legacy_view() {
            write_wrapper(&layout.runtime_wrapper(), crun)?;
            layout.runtime_wrapper()
        } else {
            crun.to_owned()
        };
        Ok(Self { program, conmon: conmon.to_owned(), state: layout.runtime_state() })
    }

    fn options(&self) -> [String; 2] {
        [format!("--root={}", self.state.display()), "--cgroup-manager=cgroupfs".to_owned()]
    }

    /// The runtime with its options, for calls with streams of their own.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.options()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn call(&self, operation: &'static str, arguments: &[&str]) -> Result<Output, RuntimeError> {
        let output = self.command().args(arguments).output();
        let output = tokio::time::timeout(PATIENCE, output).await.map_err(|_| RuntimeError::Timeout { operation })?;
        output.map_err(|source| RuntimeError::Spawn { program: self.program.clone(), source })
    }

    async fn expect(&self, operation: &'static str, arguments: &[&str]) -> Result<Output, RuntimeError> {
        let output = self.call(operation, arguments).await?;
        if output.status.success() {
            return Ok(output);
        }
        Err(RuntimeError::Refused { operation, message: words(&output.stderr) })
    }

    /// Makes a container and its monitor; returns its first process, which waits for [`Runtime::start`].
    ///
    /// # Errors
    /// The runtime's own words.
    pub async fn create(
        &self,
        id: &str,
        layout: &ContainerLayout,
        log: &Path,
        terminal: bool,
    ) -> Result<u32, RuntimeError> {
        let operation = "create container";
        fs::create_dir_all(layout.exits()).map_err(|source| RuntimeError::Io { operation, source })?;
        let pipe = layout.monitor_pipe();
        let reports = open_pipe(&pipe).map_err(|source| RuntimeError::Io { operation, source })?;
        let child = self.monitor_command(id, layout, log, terminal).spawn();
        let child = child.map_err(|source| RuntimeError::Spawn { program: self.conmon.clone(), source })?;
        let report = async {
            // The monitor's first process ends at once, and well, unless something is wrong with what it was told.
            let output = child.wait_with_output().await.map_err(|source| RuntimeError::Io { operation, source })?;
            if !output.status.success() {
                return Err(RuntimeError::Refused { operation, message: words(&output.stderr) });
            }
            let mut line = String::new();
            BufReader::new(reports)
                .read_line(&mut line)
                .await
                .map_err(|source| RuntimeError::Io { operation, source })?;
            Ok(line)
        };
        let line = tokio::time::timeout(PATIENCE, report).await.map_err(|_| RuntimeError::Timeout { operation })??;
        let _ = files::remove_file(&pipe);
        match serde_json::from_str::<MonitorReport>(&line) {
            Ok(report) if report.data > 0 => Ok(u32::try_from(report.data).unwrap_or_default()),
            Ok(report) => Err(RuntimeError::Refused { operation, message: words(report.message.as_bytes()) }),
            Err(_) => Err(RuntimeError::Refused { operation, message: format!("conmon reports {line:?}") }),
        }
    }

    fn monitor_command(&self, id: &str, layout: &ContainerLayout, log: &Path, terminal: bool) -> Command {
        // The shell opens the pipe for both directions. So the monitor can report to a node that was killed meanwhile: it would die of
        // a pipe that nobody can read, and leave a container that nobody watches.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec 3<>\"$1\"; shift; exec \"$@\"", "sh"]).arg(layout.monitor_pipe()).arg(&self.conmon);
        command.args(["--api-version", "1", "-c", id, "-u", id, "-r"]).arg(&self.program);
        command.args(self.options().map(|option| format!("--runtime-arg={option}")));
        command.arg("-b").arg(layout.bundle()).arg("-p").arg(layout.pid()).arg("-P").arg(layout.monitor_pid());
        command.arg("-l").arg(format!("k8s-file:{}", log.display()));
        command.arg(format!("--log-size-max={LARGEST_LOG}"));
        command.arg("--exit-dir").arg(layout.exits());
        command.args(["--full-attach", "--no-new-keyring", "--no-sync-log"]);
        if terminal {
            command.arg("-t");
        }
        command.env("_OCI_SYNCPIPE", "3");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Lets a created container run.
    ///
    /// # Errors
    /// The runtime's own words.
    pub async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        self.expect("start container", &["start", id]).await.map(|_| ())
    }

    /// What the runtime knows about a container; `None`: nothing.
    ///
    /// # Errors
    /// When the runtime cannot be asked.
    pub async fn state(&self, id: &str) -> Result<Option<RuntimeState>, RuntimeError> {
        let output = self.call("ask for a container", &["state", id]).await?;
        Ok(output.status.success().then(|| serde_json::from_slice(&output.stdout).ok()).flatten())
    }

    /// Whether there is a container of this name, in whatever state.
    pub fn knows(&self, id: &str) -> bool {
        self.state.join(id).exists()
    }

    /// Kills what still runs of a container, and forgets it with its control group. One that is not there is fine.
    ///
    /// # Errors
    /// The runtime's own words.
    pub async fn delete(&self, id: &str) -> Result<(), RuntimeError> {
        if !self.knows(id) {
            return Ok(());
        }
        self.expect("delete container", &["delete", "--force", id]).await.map(|_| ())
    }
}

/// A named pipe, open for reading. It has no end while it is open for writing as well, so only whole lines are read.
fn open_pipe(path: &Path) -> io::Result<pipe::Receiver> {
    files::remove_file(path)?;
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)?;
    pipe::OpenOptions::new().read_write(true).open_receiver(path)
}

/// A program's complaint in one line.
fn words(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

/// crun before 1.9 refuses machines with both kinds of control groups when the unified tree has a controller.
fn needs_legacy_view() -> bool {
    let controllers = fs::read_to_string("/sys/fs/cgroup/unified/cgroup.controllers").unwrap_or_default();
    !controllers.trim().is_empty()
}

/// Starts the runtime without a view of the unified tree, in a mount namespace of its own.
fn write_wrapper(path: &Path, crun: &Path) -> io::Result<()> {
    let script = format!(
        "#!/bin/sh\nexec unshare --mount --propagation slave sh -c 'umount /sys/fs/cgroup/unified && exec \"$@\"' sh '{}' \"$@\"\n",
        crun.display()
    );
    let next = path.with_extension("new");
    fs::write(&next, script)?;
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755))?;
    fs::rename(&next, path)
}
