//! `ferrovirt bench vmi`: how long guests take to start, and what our processes around each of them cost.
//!
//! Guests are created in one burst, paused, so that their own work does not disturb the measurement. When objects change is seen by a
//! watch; when processes started, and what they hold, is the kernel's word. So the bench runs on the machine whose nodes it measures.

mod processes;
mod report;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_kubernetes::{Namespace, Pod};
use futures::TryStreamExt;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use self::processes::Machine;
use self::report::{Burst, Life};
use crate::local::Home;

/// Arguments of `bench vmi`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    home: Home,
    /// Kubeconfig of the cluster. Default: the local one.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How many guests are created at once, one burst after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,10,50", value_name = "NUMBER,…", value_parser = clap::value_parser!(u32).range(1..=500))]
    guests: Vec<u32>,
    /// No burst may take more seconds than this.
    #[arg(long, default_value = "300")]
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
    let path = args.kubeconfig.clone().map_or_else(|| args.home.kubeconfig(), Ok)?;
    let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let client =
        Client::try_from(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let namespace = format!("ferrovirt-bench-{}", std::process::id());
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    namespaces.create(&PostParams::default(), &object).await?;
    let mut bursts = Vec::new();
    let measured = tokio::select! {
        measured = measure(args, &client, &namespace, &mut bursts) => measured,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    eprintln!("cleaning up ...");
    let cleaned = remove(&client, &namespace).await;
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    match args.output {
        super::Format::Text => print!("{}", report::table(&bursts)),
        super::Format::Json => println!("{}", report::json(&bursts)),
    }
    measured.and(cleaned)
}

async fn measure(args: &Args, client: &Client, namespace: &str, bursts: &mut Vec<Burst>) -> anyhow::Result<()> {
    for &guests in &args.guests {
        eprintln!("{guests} guests: creating ...");
        let limit = Duration::from_secs(args.limit);
        let burst = tokio::time::timeout(limit, burst(client, namespace, guests as usize)).await;
        bursts.push(burst.with_context(|| format!("{guests} guests did not start within {} s", args.limit))??);
        eprintln!("{guests} guests: removing ...");
        remove(client, namespace).await?;
    }
    Ok(())
}

/// One burst from creation until all run.
async fn burst(client: &Client, namespace: &str, count: usize) -> anyhow::Result<Burst> {
    let guests: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut guest_changes =
        std::pin::pin!(watcher(guests.clone(), watcher::Config::default()).default_backoff().applied_objects());
    let mut pod_changes = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff().applied_objects());
    let before = Machine::now()?;
    let mut lives: HashMap<String, Life> = HashMap::new();
    let mut creations = futures::stream::FuturesUnordered::new();
    for number in 0..count {
        let guests = &guests;
        creations.push(async move {
            let name = format!("bench-{count}-{number}");
            let begin = Instant::now();
            guests.create(&PostParams::default(), &guest(&name)?).await?;
            anyhow::Ok((name, begin))
        });
    }
    while let Some((name, begin)) = creations.try_next().await? {
        lives.insert(name, Life::begin(begin));
    }
    while lives.values().any(|life| life.running.is_none()) {
        tokio::select! {
            guest = guest_changes.try_next() => seen_guest(&mut lives, &guest?.context("the watch ended")?)?,
            pod = pod_changes.try_next() => seen_pod(&mut lives, &pod?.context("the watch ended")?),
        }
    }
    let after = Machine::now()?;
    for (name, life) in &mut lives {
        life.processes = Some(
            after.guest(namespace, name).with_context(|| format!("the processes of {name} are not on this machine"))?,
        );
    }
    Ok(Burst::new(lives.into_values().collect(), &before, &after))
}

fn seen_guest(lives: &mut HashMap<String, Life>, guest: &VirtualMachineInstance) -> anyhow::Result<()> {
    let Some(life) = lives.get_mut(&guest.name_any()) else { return Ok(()) };
    match guest.status.as_ref().and_then(|status| status.phase) {
        Some(Phase::Running) => life.running = life.running.or_else(|| Some(Instant::now())),
        Some(Phase::Failed | Phase::Succeeded) => bail!("{} ended: {:?}", guest.name_any(), guest.status),
        _ => {}
    }
    Ok(())
}

fn seen_pod(lives: &mut HashMap<String, Life>, pod: &Pod) {
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "VirtualMachineInstance");
    if let Some(life) = owner.and_then(|owner| lives.get_mut(&owner.name)) {
        life.pod = life.pod.or_else(|| Some(Instant::now()));
    }
}

/// Deletes every guest of the namespace and waits until they are gone.
async fn remove(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let guests: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    guests.delete_collection(&DeleteParams::default(), &kube::api::ListParams::default()).await?;
    let begin = Instant::now();
    while !guests.list_metadata(&kube::api::ListParams::default().limit(1)).await?.items.is_empty() {
        if begin.elapsed() > Duration::from_secs(120) {
            bail!("guests in the namespace {namespace} are still there after 120 s");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// A small guest that waits for its first instruction.
fn guest(name: &str) -> anyhow::Result<VirtualMachineInstance> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name},
        "spec": {
            "startStrategy": "Paused",
            "terminationGracePeriodSeconds": 0,
            "domain": {
                // Next to nothing: a node takes as many guests as its processors have room for.
                "resources": {"requests": {"cpu": "10m"}},
                "memory": {"guest": "64Mi"},
                "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
            },
            "networks": [{"name": "default", "pod": {}}],
        },
    }))?)
}
