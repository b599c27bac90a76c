//! `ferrovirt bench apiserver`: how fast and how large an API server is at several sizes.
//!
//! With `--compare` two servers take turns in one run: machines differ and are noisy, ratios travel better.

mod client;
mod phases;
mod report;
mod sample;
mod target;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::config::Kubeconfig;
use tokio::signal::unix::{SignalKind, signal};

use self::phases::Effort;
use self::report::Results;
use self::sample::Sample;
use self::target::Target;
use super::Format;
use crate::local::Home;

/// Arguments of `bench apiserver`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    home: Home,
    /// Kubeconfig of the server to measure. Default: the local cluster.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Process whose memory counts; repeat it for several. Default: the local cluster's process, where it is the one measured.
    #[arg(long, value_name = "PID")]
    pid: Vec<i32>,
    /// Measure this server too, in turns, and print how many times better the first one is.
    #[arg(long, value_name = "KUBECONFIG")]
    compare: Option<PathBuf>,
    /// Process of the compared server whose memory counts; repeat it for several (kube-apiserver and etcd).
    #[arg(long, value_name = "PID", requires = "compare")]
    compare_pid: Vec<i32>,
    /// How many objects there are when it is measured.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000", value_name = "NUMBER,…", value_parser = clap::value_parser!(u32).range(1..=200_000))]
    objects: Vec<u32>,
    /// How many writers write at the same time.
    #[arg(long, default_value = "64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    writers: u16,
    /// How many updates all writers make at each size.
    #[arg(long, default_value = "5000", value_parser = clap::value_parser!(u32).range(1..))]
    updates: u32,
    /// No phase may take more seconds than this.
    #[arg(long, default_value = "120", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Output format.
    #[arg(short, long, default_value = "text")]
    output: Format,
}

/// Measures, cleans up and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(bench(args))
}

async fn bench(args: &Args) -> anyhow::Result<()> {
    let mut targets = targets(args).await?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut results = Vec::new();
    let outcome = tokio::select! {
        outcome = measure(args, &mut targets, &mut results) => outcome,
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("interrupted")),
    };
    let mut clean = Ok(());
    for target in &mut targets {
        eprintln!("{}: cleaning up ...", target.name);
        let cleaned = tokio::select! {
            cleaned = target.clean_up() => cleaned,
            _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted again")),
        };
        if let Err(error) = cleaned {
            let (namespace, url) = (target.namespace(), &target.endpoint.url);
            eprintln!("{error:#}");
            clean = Err(anyhow::anyhow!("the namespace {namespace} on {url} could not be deleted; please do so"));
        }
    }
    // What was measured before a failure took minutes too.
    if results.iter().any(|server: &Results| !server.sizes.is_empty()) {
        match args.output {
            Format::Json => println!("{}", serde_json::to_string_pretty(&report::json(&results))?),
            Format::Text => print!("{}", report::table(&results)),
        }
    }
    outcome.and(clean)
}

async fn targets(args: &Args) -> anyhow::Result<Vec<Target>> {
    let local = args.home.kubeconfig()?;
    let first = args.kubeconfig.clone().unwrap_or_else(|| local.clone());
    let mut pids = args.pid.clone();
    if pids.is_empty() && same_file(&first, &local) {
        pids.extend(args.home.process()?.map(|process| process.pid));
    }
    if args.kubeconfig.is_none() && args.home.process()?.is_none() {
        bail!("the local cluster does not run; start it with: ferrovirt up, or give --kubeconfig");
    }
    let mut targets = vec![Target::new(read(&first)?, pids).await?];
    if let Some(other) = &args.compare {
        let other = Target::new(read(other)?, args.compare_pid.clone()).await?;
        if other.endpoint.url == targets[0].endpoint.url {
            bail!("--compare names the same server, {}", other.endpoint.url);
        }
        targets.push(other);
    }
    Ok(targets)
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn read(path: &Path) -> anyhow::Result<Kubeconfig> {
    Kubeconfig::read_from(path).with_context(|| format!("cannot use the kubeconfig {}", path.display()))
}

/// Servers take turns at each size, so that a slow minute of the machine hits both.
async fn measure(args: &Args, targets: &mut [Target], results: &mut Vec<Results>) -> anyhow::Result<()> {
    let effort = Effort {
        updates: args.updates as usize,
        sequential: 200,
        gets: 500,
        lists: 5,
        limit: Duration::from_secs(u64::from(args.limit)),
    };
    let sample = Arc::new(Sample::new()?);
    let mut sizes: Vec<usize> = args.objects.iter().map(|&size| size as usize).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for target in &mut *targets {
        target
            .prepare(usize::from(args.writers))
            .await
            .with_context(|| format!("preparing {}", target.endpoint.url))?;
    }
    results.extend(targets.iter().map(|target| Results {
        name: target.name.clone(),
        url: target.endpoint.url.clone(),
        sizes: Vec::new(),
    }));
    for size in sizes {
        for (target, results) in targets.iter_mut().zip(&mut *results) {
            let measured = phases::run(target, &sample, size, &effort).await;
            results.sizes.push(measured.with_context(|| format!("measuring {}", target.endpoint.url))?);
        }
    }
    Ok(())
}
