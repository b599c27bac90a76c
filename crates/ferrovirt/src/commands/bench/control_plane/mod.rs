//! `ferrovirt bench control-plane`: how fast virt-controller makes launcher pods of many guests, and what that costs it and the API
//! server.
//!
//! Guests are wished for as fast as the API server takes them, on a cluster without nodes: their pods come to be and stay pending, and
//! nothing but API server and virt-controller is measured. virt-api does not run; what it would fill in, the bench does. Writes are
//! counted by the API server itself.
//!
//! ```text
//!  check that nobody else is at work ─► namespace, CRDs ─► virt-controller ─► one guest, to warm up ─► the burst ─► clean up
//! ```

mod burst;
mod cluster;
mod counters;
mod process;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use self::burst::Burst;
use self::cluster::Cluster;
use self::process::{Controller, Meter};
use self::report::Report;

/// Arguments of `bench control-plane`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Kubeconfig of a cluster without nodes, with all rights.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// How many guests are created.
    #[arg(long, default_value = "500", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    count: u32,
    /// How many guests are being created at the same time.
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u16).range(1..=256))]
    writers: u16,
    /// Program whose command `controller` is measured. Default: this one.
    #[arg(long, value_name = "PROGRAM")]
    controller: Option<PathBuf>,
    /// The burst may not take more seconds than this.
    #[arg(long, default_value = "600")]
    limit: u64,
    /// Output format.
    #[arg(short, long, default_value = "text")]
    output: super::Format,
}

/// Measures, cleans up and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(bench(args))
}

async fn bench(args: &Args) -> anyhow::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let client = super::super::pod::client(Some(&args.kubeconfig)).await?;
    cluster::refuse_if_in_use(&client).await?;
    let mut cluster = Cluster::new(client);
    let measured = tokio::select! {
        measured = measure(args, &mut cluster) => measured,
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("interrupted")),
    };
    // Its controller has ended with the measurement: from here on nobody else writes.
    eprintln!("cleaning up ...");
    let cleaned = tokio::select! {
        cleaned = cluster.clean_up() => cleaned,
        _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted again")),
    };
    let cleaned = cleaned.with_context(|| format!("please delete what is left: {}", cluster.belongings()));
    if let Ok(report) = &measured {
        match args.output {
            super::Format::Text => print!("{}", report.table()),
            super::Format::Json => println!("{}", serde_json::to_string_pretty(&report.json())?),
        }
    }
    measured.map(drop).and(cleaned)
}

async fn measure(args: &Args, cluster: &mut Cluster) -> anyhow::Result<Report> {
    cluster.prepare().await?;
    eprintln!("starting virt-controller ...");
    let mut controller = Controller::start(args, cluster.namespace())?;
    let meter = controller.meter();
    let measured = tokio::select! {
        measured = warm_up_and_burst(args, cluster, meter) => measured,
        ended = controller.ended() => Err(ended),
    };
    controller.stop().await;
    measured
}

async fn warm_up_and_burst(args: &Args, cluster: &Cluster, meter: Meter) -> anyhow::Result<Report> {
    cluster.until_led().await?;
    // Connections, caches and the API server's own preparations for new kinds are nobody's cost for a guest.
    eprintln!("warming up with one guest ...");
    cluster.start_and_remove_one().await?;
    let idle = meter.costs()?;
    let limit = Duration::from_secs(args.limit);
    let burst = tokio::time::timeout(limit, Burst::run(cluster, args.count as usize, usize::from(args.writers))).await;
    let burst = burst.with_context(|| format!("the guests are not all being placed after {} s", args.limit))??;
    let version = cluster.server_version().await?;
    Ok(Report { burst, idle, loaded: meter.costs()?, server: version })
}
