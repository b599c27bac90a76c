//! `ferrovirt up`: the local cluster in the background.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::control_plane::node_name;
use crate::local::{Home, Process};
use crate::{pods, requirements};

/// How long a part may take to come up on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints a line; a reader that has left is no reason to fail once the cluster runs.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}

/// Arguments of `up`.
#[derive(clap::Args, Clone)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    home: Home,
    /// Address to listen on.
    ///
    /// Only this machine can connect to a loopback address; anything else opens the cluster to the network. Without it
    /// the address of the last start is used, and 127.0.0.1 with a free port the first time.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// File with static bearer tokens, one `token,user,uid,"group1,group2"` per line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How many nodes this machine plays; 0: only the API server, which needs no privileges. Default: as at the last start, at first 1.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=16))]
    nodes: Option<u8>,
}

impl UpArgs {
    /// What the control plane is started with.
    fn arguments(&self, command: &str, directory: &Path, nodes: u8) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![command.into(), "--state".into(), directory.into()];
        arguments.extend(["--nodes".into(), nodes.to_string().into()]);
        if let Some(listen) = self.listen {
            arguments.extend(["--listen".into(), listen.to_string().into()]);
        }
        if let Some(file) = &self.token_file {
            arguments.extend(["--token-file".into(), file.into()]);
        }
        arguments
    }

    /// As many nodes as asked for, else as many as there were.
    fn nodes(&self, directory: &Path) -> anyhow::Result<u8> {
        let remembered = directory.join("node-count");
        let before = std::fs::read_to_string(&remembered).ok().and_then(|text| text.trim().parse().ok());
        let nodes = self.nodes.or(before).unwrap_or(1);
        std::fs::write(&remembered, nodes.to_string())
            .with_context(|| format!("cannot write {}", remembered.display()))?;
        Ok(nodes)
    }
}

/// Starts what does not run.
pub(crate) fn run(args: &UpArgs) -> anyhow::Result<()> {
    let directory = args.home.directory()?;
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let nodes = args.nodes(&directory)?;
    if nodes > 0 {
        requirements::check()?;
    }
    let begin = Instant::now();
    match args.home.process()? {
        Some(process) => {
            say!("The local cluster runs already (process {}, https://{}).", process.pid, process.address);
        }
        None => say!("Starting the control plane (state in {}) ...", directory.display()),
    }
    if nodes == 0 {
        start_alone(args, &directory, begin)?;
    } else {
        start_supervised(args, &directory, nodes, begin)?;
    }
    welcome(&args.home.kubeconfig()?, nodes)
}

/// Only the API server: there is nothing to supervise.
fn start_alone(args: &UpArgs, directory: &Path, begin: Instant) -> anyhow::Result<()> {
    if args.home.process()?.is_some() {
        return Ok(());
    }
    let log = args.home.log()?;
    let mut child = spawn(&args.arguments("serve", directory, 0), &log, Stdio::piped())?;
    match wait_until_ready(&mut child)? {
        Some(address) => say!("Ready at {address} after {:.1} s.", begin.elapsed().as_secs_f64()),
        None => {
            let status = child.wait()?;
            bail!("the control plane ended ({status}) before it was ready; its last words:\n{}", last_words(&log));
        }
    }
    Ok(())
}

/// The supervisor starts the parts; each notes itself when it is up.
fn start_supervised(args: &UpArgs, directory: &Path, nodes: u8, begin: Instant) -> anyhow::Result<()> {
    if Process::read(&directory.join("supervisor"))?.is_none() {
        let log = directory.join("supervisor.log");
        spawn(&args.arguments("supervise", directory, nodes), &log, Stdio::null())?;
        wait_for(&directory.join("supervisor"), "the supervisor", &log)?;
    }
    let log = args.home.log()?;
    let process = wait_for(directory, "the control plane", &log)?;
    say!("Ready at https://{} after {:.1} s.", process.address, begin.elapsed().as_secs_f64());
    for index in 1..=nodes {
        let name = node_name(index);
        let own = directory.join("nodes").join(&name);
        wait_for(&own, &name, &own.join("node.log"))?;
        say!("{name} is up after {:.1} s.", begin.elapsed().as_secs_f64());
    }
    pods::admit(&args.home, PATIENCE).context("cannot let the nodes take pods")
}

fn wait_for(directory: &Path, what: &str, log: &Path) -> anyhow::Result<Process> {
    let begin = Instant::now();
    loop {
        if let Some(process) = Process::read(directory)? {
            return Ok(process);
        }
        if begin.elapsed() > PATIENCE {
            bail!("{what} did not come up within {} s; its last words:\n{}", PATIENCE.as_secs(), last_words(log));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// In a process group of its own, so that Ctrl-C in this terminal does not reach it.
fn spawn(arguments: &[OsString], log: &Path, output: Stdio) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(log).current_dir("/").process_group(0);
    command.spawn().context("cannot start the control plane")
}

/// The address, or `None` when the process ended instead.
fn wait_until_ready(child: &mut Child) -> anyhow::Result<Option<String>> {
    let output = child.stdout.take().context("the control plane has no standard output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok(line.trim().strip_prefix("ready ").map(str::to_owned))
}

fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].iter().map(|line| format!("  {line}\n")).collect()
}

fn welcome(kubeconfig: &Path, nodes: u8) -> anyhow::Result<()> {
    say!("\nKubeconfig: {}\n\nTry:", kubeconfig.display());
    say!("  export KUBECONFIG={}", kubeconfig.display());
    say!("  kubectl get {}", if nodes > 0 { "nodes" } else { "namespaces" });
    say!("  kubectl api-resources --api-group=kubevirt.io");
    say!("  kubectl explain virtualmachine.spec.runStrategy");
    Ok(())
}
