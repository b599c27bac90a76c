//! `ferrovirt bench migrate`: what a live migration costs here, and what the same move costs with nothing but libvirt.
//!
//! One guest moves between the two nodes of the local cluster. A second one, with the same domain and the same disks, moves between two
//! libvirt daemons that run in the same two network namespaces, by `virsh migrate`. Both tick on their serial ports; how long the ticks are
//! missing is the downtime as somebody outside sees it. The two take turns, so that the machine's moods meet both.

mod bare;
mod ours;
mod report;
mod ticks;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use self::bare::Bare;
use self::ours::Ours;
use self::report::Move;
use crate::local::Home;

/// Arguments of `bench migrate`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    home: Home,
    /// How often each guest moves.
    #[arg(long, default_value = "10", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    moves: u32,
    /// Memory of the guests.
    #[arg(long, default_value = "128Mi", value_name = "SIZE")]
    memory: String,
    /// Container disk of the guests: a Linux that obeys cloud-init. `ferrovirt images list` shows what is there.
    #[arg(long, default_value = "ferrovirt.io/guest:test", value_name = "IMAGE")]
    image: String,
    /// No move may take more seconds than this.
    #[arg(long, default_value = "120", value_name = "SECONDS")]
    limit: u64,
    /// Output format.
    #[arg(short, long, default_value = "text")]
    output: super::Format,
}

impl Args {
    fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }

    fn kubeconfig(&self) -> anyhow::Result<PathBuf> {
        self.home.kubeconfig()
    }
}

/// Measures, cleans up and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(bench(args))
}

async fn bench(args: &Args) -> anyhow::Result<()> {
    let path = args.kubeconfig()?;
    let kubeconfig = Kubeconfig::read_from(&path)
        .with_context(|| format!("cannot read {}; start a cluster with: ferrovirt up --nodes 2", path.display()))?;
    let client =
        Client::try_from(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let namespace = format!("ferrovirt-bench-{}", std::process::id());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let guest = Ours::new(client, &namespace).await?;
    let measured = tokio::select! {
        measured = measure(args, &guest, &mut ours, &mut bare) => measured,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    eprintln!("cleaning up ...");
    let cleaned = guest.remove().await;
    match args.output {
        super::Format::Text => print!("{}", report::table(&ours, &bare)),
        super::Format::Json => println!("{}", report::json(&ours, &bare)),
    }
    measured.and(cleaned)
}

async fn measure(args: &Args, guest: &Ours, ours: &mut Vec<Move>, bare: &mut Vec<Move>) -> anyhow::Result<()> {
    eprintln!("starting a guest of {} ...", args.memory);
    guest.start(args).await?;
    eprintln!("starting the same guest under libvirt alone ...");
    let mut other = Bare::start(&args.home.directory()?, guest).await?;
    for number in 1..=args.moves {
        eprintln!("move {number} of {} ...", args.moves);
        bare.push(in_time(args, "virsh migrate", other.migrate()).await?);
        ours.push(in_time(args, "the move", guest.migrate()).await?);
    }
    Ok(())
}

async fn in_time(args: &Args, what: &str, work: impl Future<Output = anyhow::Result<Move>>) -> anyhow::Result<Move> {
    match tokio::time::timeout(args.limit(), work).await {
        Ok(done) => done,
        Err(_) => bail!("{what} has not ended after {} s (--limit)", args.limit),
    }
}
