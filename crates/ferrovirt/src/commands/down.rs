//! `ferrovirt down`: ends the local cluster.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;

use crate::local::{Home, Process};
use crate::pods;

/// Arguments of `down`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    home: Home,
    /// Delete the cluster's state too: every object, disk, image, key and certificate.
    #[arg(long)]
    delete: bool,
    /// Leave the guests running; the next `up` finds them again. This is how Ferrovirt itself is upgraded.
    #[arg(long, conflicts_with = "delete")]
    keep_guests: bool,
}

const PATIENCE: Duration = Duration::from_secs(15);

/// Stops the cluster and waits until it is gone.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let directory = args.home.directory()?;
    // The supervisor first: it would start the others again.
    let mut stopped = stop_part("the supervisor", &directory.join("supervisor"))?;
    // Without a node nobody can power guests off; those of a node that died go on, and need their network.
    let has_node = nodes(&directory).iter().any(|(_, own)| matches!(Process::read(own), Ok(Some(_))));
    let is_emptied = has_node && !args.keep_guests;
    if is_emptied {
        pods::remove_all(&args.home)?;
    }
    for (name, own) in nodes(&directory) {
        stopped |= stop_part(&name, &own)?;
    }
    if let Some(process) = args.home.process()? {
        println!("Stopping the control plane (process {}) ...", process.pid);
        stop(&process)?;
        stopped = true;
    }
    println!("{}", if stopped { "Stopped." } else { "The local cluster does not run." });
    if is_emptied || args.delete {
        remove_network(&directory)?;
    }
    if args.delete && directory.exists() {
        // Only what the parts make: a mistyped --state must not cost somebody their files.
        for name in ["store", "pki", "nodes", "images", "volumes", "network", "shared", "supervisor"] {
            let _ = std::fs::remove_dir_all(directory.join(name));
        }
        for name in ["kubeconfig", "listen", "process", "node-count", "ferrovirt.log", "supervisor.log"] {
            let _ = std::fs::remove_file(directory.join(name));
        }
        let _ = std::fs::remove_dir(&directory);
        println!("Deleted the state in {}.", directory.display());
    }
    Ok(())
}

/// The nodes that this state knows.
fn nodes(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(directory.join("nodes")).into_iter().flatten().flatten();
    let mut nodes: Vec<_> =
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect();
    nodes.sort();
    nodes
}

fn stop_part(name: &str, directory: &Path) -> anyhow::Result<bool> {
    let Some(process) = Process::read(directory)? else { return Ok(false) };
    println!("Stopping {name} (process {}) ...", process.pid);
    stop(&process)?;
    Ok(true)
}

/// Bridges, namespaces and rules of the nodes: without guests nobody needs them, and the next `up` makes them again.
fn remove_network(directory: &Path) -> anyhow::Result<()> {
    let network = directory.join("network");
    if !network.exists() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime
        .block_on(ferrovirt_cluster_network::Cluster::remove_at(&network))
        .context("cannot remove the nodes' network")
}

fn stop(process: &Process) -> anyhow::Result<()> {
    process.signal(Signal::TERM)?;
    let begin = Instant::now();
    while process.is_alive() {
        if begin.elapsed() > PATIENCE {
            bail!("process {} does not end; end it with: kill -9 {}", process.pid, process.pid);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    Ok(())
}
