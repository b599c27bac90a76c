//! Pid 1 of a launcher pod.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use virt_launcher::guest::Identity;
use virt_launcher::{console_log, disks, run};

/// Runs one guest in its pod.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The VMI's uid
    #[arg(long)]
    uid: String,
    /// The VMI's name
    #[arg(long)]
    name: String,
    /// The VMI's namespace
    #[arg(long)]
    namespace: String,
    /// Seconds that the guest may take to power off when the pod is told to end
    #[arg(long, default_value_t = 45)]
    grace_period_seconds: u64,
}

fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    if std::env::args().nth(1).as_deref() == Some(disks::HELPER) {
        let is_done = disks::help(std::io::stdin(), std::io::stdout())?;
        return Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let [_, command, uid] = std::env::args().collect::<Vec<_>>().as_slice()
        && command == console_log::COMMAND
    {
        runtime()?.block_on(console_log::show(uid))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Arguments { uid, name, namespace, grace_period_seconds } = Arguments::parse();
    let identity = Identity { uid, name, namespace, grace: Duration::from_secs(grace_period_seconds) };
    runtime()?.block_on(run(identity))
}
