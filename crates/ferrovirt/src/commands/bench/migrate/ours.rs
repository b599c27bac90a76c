//! The guest that moves between the nodes of the local cluster.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ferrovirt_api::meta::{Condition, find_condition};
use ferrovirt_api::migration::MigrationPhase;
use ferrovirt_api::names::conditions;
use ferrovirt_api::vmi::VirtualMachineInstancePhase as Phase;
use ferrovirt_api::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use ferrovirt_kubernetes::Namespace;
use ferrovirt_launcher_rpc::paths;
use futures::TryStreamExt;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::Args;
use super::report::Move;
use super::ticks::{Listener, TICKING};

/// The guest's name.
const NAME: &str = "bench";
/// How long a guest may take to boot, and to go.
const PATIENCE: Duration = Duration::from_secs(180);
/// Ticks before the request and after the end of a move, so that usual ones are seen too.
const MARGIN: Duration = Duration::from_millis(500);

/// The guest and its namespace.
pub(super) struct Ours {
    client: Client,
    namespace: String,
}

impl Ours {
    /// Makes the namespace.
    pub(super) async fn new(client: Client, namespace: &str) -> anyhow::Result<Self> {
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
        Ok(Self { client, namespace: namespace.to_owned() })
    }

    fn guests(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn moves(&self) -> Api<VirtualMachineInstanceMigration> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Starts the guest and waits until it can move and its agent answers: then it ticks.
    pub(super) async fn start(&self, args: &Args) -> anyhow::Result<()> {
        let guests = self.guests();
        guests.create(&PostParams::default(), &guest(args)?).await?;
        let ready = async {
            let mut changes =
                std::pin::pin!(watcher(guests, watcher::Config::default()).default_backoff().applied_objects());
            while let Some(guest) = changes.try_next().await? {
                let status = guest.status.unwrap_or_default();
                if status.phase.is_some_and(Phase::is_final) {
                    bail!("the guest ended: {:?}", status.conditions);
                }
                let holds = |kind| find_condition(&status.conditions, kind).is_some_and(Condition::is_true);
                if let Some(obstacle) =
                    find_condition(&status.conditions, conditions::LIVE_MIGRATABLE).filter(|found| !found.is_true())
                {
                    bail!("the guest cannot move: {}", obstacle.message.as_deref().unwrap_or_default());
                }
                if holds(conditions::LIVE_MIGRATABLE) && holds(conditions::AGENT_CONNECTED) {
                    return Ok(());
                }
            }
            bail!("the watch of the guest ended")
        };
        tokio::time::timeout(PATIENCE, ready).await.context("the guest has not booted")?
    }

    /// Moves the guest to the other node.
    pub(super) async fn migrate(&self) -> anyhow::Result<Move> {
        let uid = self.guests().get(NAME).await?.uid().context("the guest has no uid")?;
        let listener = Listener::start(move || logs(&uid));
        tokio::time::sleep(MARGIN).await;
        let begin = Instant::now();
        let wanted = json!({"metadata": {"generateName": "bench-"}, "spec": {"vmiName": NAME}});
        let wanted = self.moves().create(&PostParams::default(), &serde_json::from_value(wanted)?).await?;
        let only = watcher::Config::default().fields(&format!("metadata.name={}", wanted.name_any()));
        let mut changes = std::pin::pin!(watcher(self.moves(), only).default_backoff().applied_objects());
        while let Some(moved) = changes.try_next().await? {
            let status = moved.status.unwrap_or_default();
            let state = status.migration_state.unwrap_or_default();
            match status.phase {
                Some(MigrationPhase::Succeeded) => {
                    let took = begin.elapsed();
                    tokio::time::sleep(MARGIN).await;
                    let sent = state.progress.and_then(|progress| u64::try_from(progress.sent_bytes?).ok());
                    return Ok(Move { took, silence: listener.end(), sent });
                }
                Some(MigrationPhase::Failed) => {
                    bail!("the move failed: {}", state.failure_reason.unwrap_or_default())
                }
                _ => {}
            }
        }
        bail!("the watch of the move ended")
    }

    /// The launcher that has the guest now.
    pub(super) fn launcher(&self) -> anyhow::Result<Launcher> {
        let found = launchers().find(|launcher| launcher.namespace == self.namespace && launcher.name == NAME);
        found.context("the guest's launcher is not on this machine")
    }

    /// Deletes everything and waits until the guest is gone.
    pub(super) async fn remove(&self) -> anyhow::Result<()> {
        let guests = self.guests();
        let _ = guests.delete(NAME, &DeleteParams::default()).await;
        let begin = Instant::now();
        while guests.get_metadata_opt(NAME).await?.is_some() {
            if begin.elapsed() > PATIENCE {
                bail!("the guest {}/{NAME} is still there after {} s", self.namespace, PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Api::<Namespace>::all(self.client.clone()).delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// A launcher on this machine.
pub(super) struct Launcher {
    pid: i32,
    uid: String,
    name: String,
    namespace: String,
}

impl Launcher {
    /// A file of the launcher's pod, seen from outside.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        inside(self.pid, path)
    }

    /// libvirt's name for the guest.
    pub(super) fn domain(&self) -> String {
        format!("{}_{}", self.namespace, self.name)
    }

    /// The guest's uid.
    pub(super) fn uid(&self) -> &str {
        &self.uid
    }
}

/// A file as a process sees it.
pub(super) fn inside(pid: i32, path: &str) -> PathBuf {
    // /var/run is a link to /run, which would be followed out of the process' root.
    Path::new(&format!("/proc/{pid}/root{}", path.replacen("/var/run/", "/run/", 1))).to_owned()
}

fn launchers() -> impl Iterator<Item = Launcher> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line);
        let words: Vec<&str> = line.split('\0').collect();
        words.first()?.ends_with("virt-launcher").then_some(())?;
        let value = |flag: &str| {
            let joined = words.iter().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
            let apart = words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied();
            joined.or(apart).map(str::to_owned)
        };
        Some(Launcher { pid, uid: value("--uid")?, name: value("--name")?, namespace: value("--namespace")? })
    })
}

/// The serial logs of a guest in all of its launchers.
fn logs(uid: &str) -> Vec<PathBuf> {
    let log = paths::serial_log(uid);
    launchers().filter(|launcher| launcher.uid == uid).map(|launcher| launcher.file(&log)).collect()
}

/// A small Linux that ticks.
fn guest(args: &Args) -> anyhow::Result<VirtualMachineInstance> {
    let user_data = format!("#cloud-config\nruncmd:\n  - '{TICKING}'\n");
    Ok(serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": NAME},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "memory": {"guest": args.memory},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "containerDisk": {"image": args.image, "imagePullPolicy": "Never"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": user_data}},
            ],
        },
    }))?)
}
