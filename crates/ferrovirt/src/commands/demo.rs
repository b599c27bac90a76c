//! `ferrovirt demo`: a guest to look at, with each step on the way to it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_api::meta::find_condition;
use ferrovirt_api::names::conditions;
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use futures::TryStreamExt;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;

use crate::local::Home;

/// Arguments of `demo`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    #[command(flatten)]
    home: Home,
    /// Name of the guest.
    #[arg(long, default_value = "demo")]
    name: String,
    /// Container disk to boot from; `ferrovirt images list` shows what is there.
    #[arg(long, default_value = "ferrovirt.io/guest:test")]
    image: String,
    /// How many seconds it may take.
    #[arg(long, default_value = "180")]
    patience: u64,
}

/// Creates the guest unless it is there, and follows it until it has booted.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let limit = Duration::from_secs(args.patience);
        match tokio::time::timeout(limit, demo(args)).await {
            Ok(done) => done,
            Err(_) => bail!(
                "the guest {} has not booted after {} s; see: kubectl describe vmi {}",
                args.name,
                args.patience,
                args.name
            ),
        }
    })
}

async fn demo(args: &Args) -> anyhow::Result<()> {
    let path = args.home.kubeconfig()?;
    let kubeconfig = Kubeconfig::read_from(&path)
        .with_context(|| format!("cannot read {}; start the cluster with: ferrovirt up", path.display()))?;
    let client =
        Client::try_from(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let guests: Api<VirtualMachineInstance> = Api::namespaced(client, "default");
    let mut steps = Steps { begin: Instant::now(), told: Vec::new() };
    match guests.create(&PostParams::default(), &guest(args)?).await {
        Ok(_) => steps.tell(format!("created   VirtualMachineInstance default/{} from {}", args.name, args.image)),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            steps.tell(format!("found     VirtualMachineInstance default/{}", args.name));
        }
        Err(error) => return Err(error.into()),
    }
    let only = watcher::Config::default().fields(&format!("metadata.name={}", args.name));
    let mut changes = std::pin::pin!(watcher(guests, only).default_backoff().applied_objects());
    while let Some(guest) = changes.try_next().await? {
        if follow(&mut steps, &guest)? {
            let virtctl = std::env::current_exe().map(|program| program.with_file_name("virtctl"));
            let (virtctl, kubeconfig) = (virtctl.unwrap_or_else(|_| "virtctl".into()), path.display());
            println!(
                "\nConsole: {} --kubeconfig {kubeconfig} console {}   (leave it with Ctrl-])",
                virtctl.display(),
                args.name
            );
            return Ok(());
        }
    }
    bail!("the watch of the guest ended")
}

/// Says what is new; `true` when the guest has booted.
fn follow(steps: &mut Steps, guest: &VirtualMachineInstance) -> anyhow::Result<bool> {
    let status = guest.status.clone().unwrap_or_default();
    for kind in [conditions::POD_SCHEDULED, conditions::SYNCHRONIZED] {
        if let Some(condition) = find_condition(&status.conditions, kind).filter(|condition| !condition.is_true()) {
            let word = |text: &Option<String>| text.clone().unwrap_or_default();
            steps.tell(format!("waits     {}: {}", word(&condition.reason), word(&condition.message)));
        }
    }
    match status.phase {
        Some(Phase::Scheduled) => steps.tell(format!("scheduled on {}", status.node_name.unwrap_or_default())),
        Some(Phase::Running) => {
            steps.tell(format!("started   QEMU runs on {}", status.node_name.unwrap_or_default()));
            if let Some(address) = status.interfaces.iter().find_map(|interface| interface.ip_address.as_deref()) {
                steps.tell(format!("address   {address}"));
            }
            if find_condition(&status.conditions, conditions::AGENT_CONNECTED).is_some() {
                let system = status.guest_os_info.and_then(|info| info.pretty_name).unwrap_or_default();
                steps.tell(format!(
                    "booted    its guest agent answers{}{system}",
                    if system.is_empty() { "" } else { ": " }
                ));
                return Ok(true);
            }
        }
        Some(phase) if phase.is_final() => {
            bail!("the guest ended: {phase:?}; see: kubectl describe vmi, kubectl get events")
        }
        _ => {}
    }
    Ok(false)
}

/// Lines with the time since the beginning, each once.
struct Steps {
    begin: Instant,
    told: Vec<String>,
}

impl Steps {
    fn tell(&mut self, line: String) {
        if !self.told.contains(&line) {
            println!("{:6.2} s  {line}", self.begin.elapsed().as_secs_f64());
            self.told.push(line);
        }
    }
}

/// A small guest that anybody can reach and log into.
fn guest(args: &Args) -> anyhow::Result<VirtualMachineInstance> {
    let user_data = "#cloud-config\nhostname: demo\npassword: demo\n";
    Ok(serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": args.name, "labels": {"app": "demo"}},
        "spec": {
            "domain": {
                "memory": {"guest": "128Mi"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                    "rng": {},
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "containerDisk": {"image": args.image, "imagePullPolicy": "Never"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": user_data}},
            ],
            "terminationGracePeriodSeconds": 10,
        },
    }))?)
}
