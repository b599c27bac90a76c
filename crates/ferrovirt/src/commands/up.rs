//! `ferrovirt up`: the control plane in the background.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use super::serve;

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
    serve: serve::Args,
}

/// Starts the cluster unless it runs.
pub(crate) fn run(args: &UpArgs) -> anyhow::Result<()> {
    let home = &args.serve.home;
    if let Some(process) = home.process()? {
        say!("The local cluster runs already (process {}, https://{}).", process.pid, process.address);
        return welcome(&home.kubeconfig()?);
    }
    let directory = home.directory()?;
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    say!("Starting the control plane (state in {}) ...", directory.display());
    let begin = Instant::now();
    let log = home.log()?;
    let mut child = spawn(args, &directory, &log)?;
    match wait_until_ready(&mut child)? {
        Some(address) => say!("Ready at {address} after {:.1} s.", begin.elapsed().as_secs_f64()),
        None => {
            let status = child.wait()?;
            bail!("the control plane ended ({status}) before it was ready; its last words:\n{}", last_words(&log));
        }
    }
    welcome(&home.kubeconfig()?)
}

/// In a process group of its own, so that Ctrl-C in this terminal does not reach it.
fn spawn(args: &UpArgs, directory: &Path, log: &Path) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--state").arg(directory);
    if let Some(listen) = args.serve.listen {
        command.arg("--listen").arg(listen.to_string());
    }
    if let Some(file) = &args.serve.token_file {
        command.arg("--token-file").arg(file);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).current_dir("/").process_group(0);
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

fn welcome(kubeconfig: &Path) -> anyhow::Result<()> {
    say!("\nKubeconfig: {}\n\nTry:", kubeconfig.display());
    say!("  export KUBECONFIG={}", kubeconfig.display());
    say!("  kubectl get namespaces");
    say!("  kubectl api-resources --api-group=kubevirt.io");
    say!("  kubectl explain virtualmachine.spec.runStrategy");
    Ok(())
}
