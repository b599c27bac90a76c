//! `ferrovirt supervise`: keeps the parts of the local cluster running.
//!
//! Each part notes itself in its directory, so a supervisor that was started again finds the parts that still run and leaves them
//! alone. A part that ends is started again, at once the first time and with growing pauses when it keeps ending.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::serve;
use crate::control_plane::node_name;
use crate::local::Process;

/// Arguments of `supervise`: those of the control plane.
#[derive(clap::Args, Clone)]
pub(crate) struct SuperviseArgs {
    #[command(flatten)]
    pub serve: serve::Args,
}

/// How long a part must live to be counted as healthy.
const HEALTHY: Duration = Duration::from_secs(10);
/// The longest pause before a part is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// One program to keep running.
struct Part {
    name: String,
    /// Where it notes itself.
    directory: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
}

/// Runs until SIGTERM; the parts are ended by `down`, which ends the supervisor first.
pub(crate) fn run(args: &SuperviseArgs) -> anyhow::Result<()> {
    serve::log();
    let directory = args.serve.home.directory()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        Process::register(&directory.join("supervisor"), "supervisor")?;
        // Now, while it is what was started: an upgrade replaces the file under the same name.
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        for part in parts(args, &directory) {
            tokio::spawn(keep(program.clone(), part));
        }
        terminate.recv().await;
        Process::unregister(&directory.join("supervisor"));
        Ok(())
    })
}

fn parts(args: &SuperviseArgs, directory: &Path) -> Vec<Part> {
    let state = directory.display().to_string();
    let mut arguments = vec!["serve".to_owned(), "--state".to_owned(), state.clone()];
    arguments.extend(["--nodes".to_owned(), args.serve.nodes.to_string()]);
    if let Some(listen) = args.serve.listen {
        arguments.extend(["--listen".to_owned(), listen.to_string()]);
    }
    if let Some(file) = &args.serve.token_file {
        arguments.extend(["--token-file".to_owned(), file.display().to_string()]);
    }
    let control_plane = Part {
        name: "control plane".to_owned(),
        directory: directory.to_owned(),
        log: directory.join("ferrovirt.log"),
        arguments,
    };
    let nodes = (1..=args.serve.nodes).map(|index| {
        let name = node_name(index);
        let own = directory.join("nodes").join(&name);
        let arguments = ["node", "--state", &state, "--index", &index.to_string()].map(str::to_owned).to_vec();
        Part { log: own.join("node.log"), directory: own, name, arguments }
    });
    std::iter::once(control_plane).chain(nodes).collect()
}

/// Starts the part whenever it does not run.
async fn keep(program: PathBuf, part: Part) {
    let mut pause = Duration::ZERO;
    loop {
        let begin = Instant::now();
        match Process::read(&part.directory) {
            Ok(Some(process)) => process.ended().await,
            _ => {
                if let Err(error) = start(&program, &part).await {
                    tracing::error!("cannot start the {}: {error:#}", part.name);
                }
            }
        }
        pause = match begin.elapsed() {
            life if life > HEALTHY => Duration::ZERO,
            _ => (2 * pause).clamp(Duration::from_millis(200), LONGEST_PAUSE),
        };
        tracing::warn!("the {} ended; it is started again", part.name);
        tokio::time::sleep(pause).await;
    }
}

/// Starts it in a process group of its own and waits for its end.
async fn start(program: &Path, part: &Part) -> anyhow::Result<()> {
    std::fs::create_dir_all(&part.directory)?;
    let log = File::options().create(true).append(true).open(&part.log);
    let log = log.with_context(|| format!("cannot write {}", part.log.display()))?;
    let mut command = Command::new(program);
    command
        .args(&part.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .current_dir("/")
        .process_group(0);
    let mut child = tokio::process::Command::from(command).kill_on_drop(false).spawn()?;
    child.wait().await?;
    Ok(())
}
