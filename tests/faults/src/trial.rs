//! One move with one fault, and the judgement afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use blackbox::cluster::{GUESTS, wait};
use blackbox::guest::Guest;
use blackbox::machine::qemus_of;
use blackbox::manifest::{Manifest, shared_claim};
use blackbox::migration::Migration;
use blackbox::scene::Scene;
use blackbox::web;
use blackbox::workload::Count;
use serde_json::{Value, json};

use crate::faults::{Fault, Local, Victim};
use crate::processes::launchers;
use crate::watchdog::Watchdog;

/// The guest's name.
const NAME: &str = "worker";
/// Its disk that is shared by the nodes, and the one that is copied.
const DISKS: [&str; 2] = ["vda", "vdc"];
/// Long enough for whatever follows from a fault by itself: processes are started again, connections time out.
const SETTLE: u64 = 240;

/// The guest that is moved, and what it is moved on.
pub(crate) struct Stage {
    scene: Scene,
    local: Local,
    guest: Guest,
}

impl Stage {
    pub(crate) async fn new(scene: Scene, local: Local) -> Result<Self> {
        // From a run that was interrupted.
        local.heal()?;
        scene.create("persistentvolumeclaims", &shared_claim("shared", "64Mi")).await?;
        let guest = start(&scene).await?;
        Ok(Self { scene, local, guest })
    }

    /// How long a move takes when nothing goes wrong.
    pub(crate) async fn measure(&self) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        for _ in 0..2 {
            let begin = Instant::now();
            self.guest.moved().await.context("a move without a fault")?;
            longest = longest.max(begin.elapsed());
        }
        Ok(longest)
    }

    /// Another guest instead of one that is gone or strange.
    pub(crate) async fn renew(&mut self) -> Result<()> {
        self.local.heal()?;
        wait_for_api(&self.scene).await?;
        self.guest.delete().await?;
        self.guest.gone(120).await?;
        self.guest = start(&self.scene).await?;
        Ok(())
    }

    /// One move with one fault after a time; says how it ended.
    pub(crate) async fn trial(&mut self, fault: Fault, delay: Duration) -> Result<String> {
        let count = self.guest.count().await?;
        let source = self.guest.node().await?;
        let target = self.local.nodes().find(|node| **node != source).context("no other node")?.clone();
        let launcher = *launchers(&self.scene.namespace, NAME).first().context("the guest has no launcher")?;
        let victim =
            Victim { namespace: &self.scene.namespace, guest: NAME, launcher, source: &source, target: &target };
        let watchdog = Watchdog::new(&self.scene.namespace, NAME);
        let migration = self.guest.migrate().await?;
        tokio::time::sleep(delay).await;
        let is_done = self.inflict(fault, &victim).await?;
        let outcome = self.outcome(&migration, count).await;
        self.local.heal()?;
        watchdog.judge()?;
        let outcome = outcome?;
        self.guest.moved().await.context("the move afterwards")?;
        self.intact(count).await.context("after the move afterwards")?;
        Ok(if is_done { outcome } else { format!("{outcome} (there was nothing left to harm)") })
    }

    /// A victim that is not there yet is waited for, as long as it could come.
    async fn inflict(&self, fault: Fault, victim: &Victim<'_>) -> Result<bool> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let is_done = self.local.inflict(fault, victim).await?;
            if is_done || Instant::now() > deadline {
                return Ok(is_done);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until everything has come to rest, and judges what is left.
    async fn outcome(&mut self, migration: &Migration, count: Count) -> Result<String> {
        wait_for_api(&self.scene).await?;
        let phase = wait("the move to come to an end", SETTLE, || async {
            // The API server may be killed between two looks.
            let Ok(guest) = self.guest.get().await else { return Ok(None) };
            if guest["status"]["phase"] == "Failed" {
                return Ok(Some("lost".to_owned()));
            }
            let Ok(object) = migration.get().await else { return Ok(None) };
            let phase = object.map_or("Failed".to_owned(), |object| {
                object["status"]["phase"].as_str().unwrap_or_default().to_owned()
            });
            Ok(matches!(phase.as_str(), "Succeeded" | "Failed").then_some(phase))
        })
        .await?;
        if phase == "lost" || self.guest.phase().await? == "Failed" {
            return self.lost(count).await;
        }
        let node = self.guest.node().await?;
        let ended = migration.end(10).await?;
        if !self.alone().await? {
            return self.lost(count).await;
        }
        self.intact(count).await?;
        Ok(match phase.as_str() {
            "Succeeded" => format!("it moved to {node}"),
            _ => format!("it stayed on {node}: {}", ended.reason()),
        })
    }

    /// Waits for exactly one QEMU, in one launcher's pod, and nothing else; `false`: the guest has failed meanwhile, as one that had
    /// just moved does when its new launcher is killed.
    async fn alone(&self) -> Result<bool> {
        wait("one launcher, one QEMU and one pod to be left", 90, || async {
            let (all, copies) = (launchers(&self.scene.namespace, NAME), qemus_of(&self.scene.namespace, NAME));
            let (Ok(pods), Ok(phase)) = (self.guest.pods().await, self.guest.phase().await) else { return Ok(None) };
            if phase == "Failed" {
                return Ok(Some(false));
            }
            let is_over = |pod: &&Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let alive = pods.iter().filter(|pod| !is_over(pod)).count();
            Ok((all.len() == 1 && copies.len() == 1 && alive == 1).then_some(true))
        })
        .await
    }

    /// It has gone on from there, and its disks have all that they said they had.
    async fn intact(&self, count: Count) -> Result<()> {
        self.guest.goes_on(count).await?;
        for disk in DISKS {
            self.guest.records(disk).await?;
        }
        Ok(())
    }

    /// No copy is left: the object has to say so and why, and the shared disk has to be whole. Another guest takes its place.
    async fn lost(&mut self, count: Count) -> Result<String> {
        let object = self.guest.get().await?;
        let state = &object["status"]["migrationState"];
        let told = state["failureReason"].as_str().or_else(|| object["status"]["reason"].as_str());
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let told =
            told.or_else(|| conditions.filter(|one| one["status"] == "False").find_map(|one| one["message"].as_str()));
        let told = told.map(str::to_owned).context("the guest has failed, and nothing says why")?;
        wait("no QEMU to be left", 60, || async { Ok(qemus_of(&self.scene.namespace, NAME).is_empty().then_some(())) })
            .await?;
        self.local.heal()?;
        self.guest.delete().await?;
        self.guest.gone(120).await?;
        check_shared(&self.scene, count.written).await?;
        self.guest = start(&self.scene).await?;
        Ok(format!("it is lost: {told}"))
    }
}

/// A guest that writes to both disks.
async fn start(scene: &Scene) -> Result<Guest> {
    let shared = json!({"persistentVolumeClaim": {"claimName": "shared"}});
    let manifest = Manifest::working(NAME, shared, &["write-records /dev/vdc &"])
        .volume("scratch", json!({"emptyDisk": {"capacity": "16Mi"}}));
    let guest = scene.start(manifest.json()).await?;
    guest.working().await?;
    guest.condition("LiveMigratable", "True", 30).await?;
    Ok(guest)
}

/// Somebody else reads what is on the shared disk.
async fn check_shared(scene: &Scene, written: u64) -> Result<()> {
    let shared = json!({"persistentVolumeClaim": {"claimName": "shared"}});
    let manifest =
        Manifest::kernel("reader").volume("data", shared).user_data("#cloud-config\nruncmd: [\"serve 80\"]\n");
    let reader = scene.start(manifest.json()).await?;
    reader.running().await?;
    let said = wait("somebody else to read the shared disk", 120, || async {
        let address = reader.address().await?;
        Ok(web::ask(&address, 80, &format!("/cgi-bin/check?vda+{written}")).await.ok())
    })
    .await?;
    reader.delete().await?;
    reader.gone(60).await?;
    match said == format!("records {written}") {
        true => Ok(()),
        false => bail!("the shared disk is not whole: {said}"),
    }
}

/// The API server may have been killed.
async fn wait_for_api(scene: &Scene) -> Result<()> {
    wait("the API server to answer", 60, || async {
        Ok(scene.cluster.get(&scene.path(GUESTS, "virtualmachineinstances")).await.ok().map(drop))
    })
    .await
}
