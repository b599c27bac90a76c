//! `ferrovirt down`: ends the local cluster.

use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::Signal;

use crate::local::{Home, Process};

/// Arguments of `down`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    home: Home,
    /// Delete the cluster's state too: every object, key and certificate.
    #[arg(long)]
    delete: bool,
}

const PATIENCE: Duration = Duration::from_secs(15);

/// Stops the cluster and waits until it is gone.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let directory = args.home.directory()?;
    match args.home.process()? {
        None => println!("The local cluster does not run."),
        Some(process) => {
            println!("Stopping the control plane (process {}) ...", process.pid);
            stop(&process)?;
            println!("Stopped.");
        }
    }
    if args.delete && directory.exists() {
        // Only what `serve` makes: a mistyped --state must not cost somebody their files.
        for name in ["store", "pki"] {
            let _ = std::fs::remove_dir_all(directory.join(name));
        }
        for name in ["kubeconfig", "listen", "process", "ferrovirt.log"] {
            let _ = std::fs::remove_file(directory.join(name));
        }
        let _ = std::fs::remove_dir(&directory);
        println!("Deleted the state in {}.", directory.display());
    }
    Ok(())
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
