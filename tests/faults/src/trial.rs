//! One move with one fault, and the judgement afterwards.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use blackbox::cluster::{GUESTS, SUBRESOURCES, wait};
use blackbox::guest::Guest;
use blackbox::machine::qemus_of;
use blackbox::manifest::{Manifest, shared_claim};
use blackbox::migration::Migration;
use blackbox::scene::Scene;
use blackbox::web;
use blackbox::workload::Count;
use serde_json::{Value, json};

use crate::faults::{Fault, Victim};
use crate::ground::Ground;
use crate::processes::launchers;
use crate::verdict::{Verdict, verdict};
use crate::watchdog::Watchdog;

/// The guest's name.
const NAME: &str = "worker";
/// Its disk that is shared by the nodes, and the one that is copied.
const DISKS: [&str; 2] = ["vda", "vdc"];
/// So many records take seconds to be read from an emulated guest, four times in a trial: a new guest is sooner there.
const MANY: u64 = 5000;
/// The reason of a kubelet that turns a pod away.
const NO_DEVICES: &str = "UnexpectedAdmissionError";
/// Long enough for whatever follows from a fault by itself: processes are started again, connections time out.
const SETTLE: u64 = 240;

/// How a trial ended that went as it should.
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    words: String,
    /// The move had not ended yet, and there was something to harm.
    pub(crate) is_harmed: bool,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.is_harmed { "" } else { "; it was over by then" };
        write!(f, "{}{note}", self.words)
    }
}

/// The guest that is moved, and what it is moved on.
pub(crate) struct Stage {
    scene: Scene,
    ground: Ground,
    guest: Guest,
    /// The claim of its shared disk. Each guest has another: what an earlier one wrote looks like its own records.
    claim: String,
    /// How many there were.
    guests: u32,
    /// How long the last move took in which nothing went wrong.
    span: Duration,
    /// After how much of it the guest ran on its new node.
    switch_over: Duration,
}

impl Stage {
    pub(crate) async fn new(scene: Scene, ground: Ground) -> Result<Self> {
        // From a run that was interrupted.
        ground.heal()?;
        let (guest, claim) = start(&scene, 1).await?;
        let mut stage =
            Self { scene, ground, guest, claim, guests: 1, span: Duration::ZERO, switch_over: Duration::ZERO };
        // The first one to a node takes longer.
        for _ in 0..2 {
            stage.undisturbed().await.context("a move without a fault")?;
        }
        Ok(stage)
    }

    /// How long a move takes when nothing goes wrong, on this machine and with what else it has to do now.
    pub(crate) fn span(&self) -> Duration {
        self.span
    }

    /// After what time a guest runs on its new node when nothing goes wrong, to a tenth of a second.
    pub(crate) fn switch_over(&self) -> Duration {
        self.switch_over
    }

    /// What a look at a failure begins with.
    pub(crate) async fn details(&self) -> String {
        self.scene.details().await
    }

    /// A move in which nothing goes wrong, and that leaves nothing behind.
    async fn undisturbed(&mut self) -> Result<()> {
        (self.span, self.switch_over) = wait("a node whose kubelet takes the guest", SETTLE, || async {
            let watchdog = Watchdog::new(&self.scene.namespace, NAME);
            let begin = Instant::now();
            match self.guest.moved().await {
                Ok(_) => {
                    let span = begin.elapsed();
                    Ok(Some((span, watchdog.judge()?.map_or(span, |at| at - begin))))
                }
                // A node whose virt-handler was killed has no devices to offer until that is started again, and a kubelet says so.
                Err(error) if error.to_string().contains(NO_DEVICES) => {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        })
        .await?;
        match self.alone().await? {
            true => Ok(()),
            false => bail!("the guest has failed"),
        }
    }

    /// Another guest instead of one that is gone or strange.
    pub(crate) async fn renew(&mut self) -> Result<()> {
        self.ground.heal()?;
        wait_for_api(&self.scene).await?;
        self.guest.delete().await?;
        self.guest.gone(120).await?;
        self.another().await
    }

    async fn another(&mut self) -> Result<()> {
        self.guests += 1;
        (self.guest, self.claim) = start(&self.scene, self.guests).await?;
        Ok(())
    }

    /// One move with one fault after a time; says how it ended.
    pub(crate) async fn trial(&mut self, fault: Fault, delay: Duration) -> Result<Outcome> {
        if self.guest.count().await?.written > MANY {
            self.renew().await?;
        }
        let count = self.guest.count().await?;
        let source = self.guest.node().await?;
        let target = self.ground.nodes().find(|node| **node != source).context("no other node")?.clone();
        let launcher = *launchers(&self.scene.namespace, NAME).first().context("the guest has no launcher")?;
        let victim =
            Victim { namespace: &self.scene.namespace, guest: NAME, launcher, source: &source, target: &target };
        let watchdog = Watchdog::new(&self.scene.namespace, NAME);
        let migration = self.guest.migrate().await?;
        tokio::time::sleep(delay).await;
        let is_harmed = self.inflict(fault, &victim, &migration).await?;
        let outcome = self.outcome(&migration, count).await;
        self.ground.heal()?;
        watchdog.judge()?;
        let (verdict, words) = outcome?;
        // Another guest has taken the place of one that is lost, and begins to count anew.
        let count = if verdict == Verdict::Lost { self.guest.count().await? } else { count };
        self.undisturbed().await.context("the move afterwards")?;
        self.intact(count).await.context("after the move afterwards")?;
        Ok(Outcome { verdict, words, is_harmed })
    }

    /// A victim that is not there yet is waited for, as long as the move goes on. `false`: the move was over before.
    async fn inflict(&self, fault: Fault, victim: &Victim<'_>, migration: &Migration) -> Result<bool> {
        wait("something to harm, or the end of the move", SETTLE, || async {
            let is_over = matches!(migration.phase().await?.as_str(), "Succeeded" | "Failed");
            let is_done = self.ground.inflict(fault, victim).await?;
            Ok((is_done || is_over).then_some(is_done && !is_over))
        })
        .await
    }

    /// Waits until everything has come to rest, and judges what is left.
    async fn outcome(&mut self, migration: &Migration, count: Count) -> Result<(Verdict, String)> {
        wait_for_api(&self.scene).await?;
        let verdict = wait("the move to be settled", SETTLE, || async {
            // The API server may be killed between two looks. The guest is looked at last: what a migration that has ended says, the
            // guest's account of it says too by then.
            let (Ok(object), Ok(guest)) = (migration.get().await, self.guest.get().await) else { return Ok(None) };
            Ok(verdict(&guest, object.as_ref(), &migration.uid))
        })
        .await?;
        if verdict == Verdict::Lost || !self.alone().await? {
            return Ok((Verdict::Lost, self.lost(count).await?));
        }
        self.intact(count).await?;
        let node = self.guest.node().await?;
        let words = match verdict {
            Verdict::Moved => format!("it moved to {node}"),
            _ => format!("it stayed on {node}: {}", migration.end(10).await?.reason()),
        };
        Ok((verdict, words))
    }

    /// Waits for exactly one QEMU, in one launcher's pod, on the guest's node, and nothing else; `false`: the guest has failed meanwhile,
    /// as one that had just moved does when its new launcher is killed.
    async fn alone(&self) -> Result<bool> {
        wait("one launcher, one QEMU and one pod to be left, on the guest's node", 90, || async {
            let (all, copies) = (launchers(&self.scene.namespace, NAME), qemus_of(&self.scene.namespace, NAME));
            let (Ok(pods), Ok(guest)) = (self.guest.pods().await, self.guest.get().await) else { return Ok(None) };
            if guest["status"]["phase"] == "Failed" {
                return Ok(Some(false));
            }
            let is_over = |pod: &&Value| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let alive: Vec<_> = pods.iter().filter(|pod| !is_over(pod)).collect();
            let is_its = alive.len() == 1 && alive[0]["spec"]["nodeName"] == guest["status"]["nodeName"];
            Ok((all.len() == 1 && copies.len() == 1 && is_its).then_some(true))
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

    /// Why the guest has ended, in the words of the event about that.
    async fn reason(&self) -> Result<Option<String>> {
        let events = self.scene.cluster.get(&self.scene.path("/api/v1", "events")).await?;
        let is_about_its_end = |event: &&Value| {
            event["involvedObject"]["uid"] == self.guest.uid.as_str()
                && event["reason"] == "Stopped"
                && event["type"] == "Warning"
        };
        let told = events["items"].as_array().into_iter().flatten().find(is_about_its_end);
        Ok(told.and_then(|event| event["message"].as_str()).map(str::to_owned))
    }

    /// No copy is left: the object has to say so, an event has to say why, and the shared disk has to be whole. Another guest takes its place.
    async fn lost(&mut self, count: Count) -> Result<String> {
        let told = wait("an event that says why the guest has failed", 20, || self.reason()).await?;
        wait("no QEMU to be left", 60, || async { Ok(qemus_of(&self.scene.namespace, NAME).is_empty().then_some(())) })
            .await?;
        self.ground.heal()?;
        self.guest.delete().await?;
        self.guest.gone(120).await?;
        check_shared(&self.scene, &self.claim, count.written).await?;
        self.another().await?;
        Ok(format!("it is lost: {told}"))
    }
}

/// A guest that writes to both disks, and the claim of the shared one.
async fn start(scene: &Scene, number: u32) -> Result<(Guest, String)> {
    let claim = format!("shared-{number}");
    scene.create("persistentvolumeclaims", &shared_claim(&claim, "64Mi")).await?;
    let shared = json!({"persistentVolumeClaim": {"claimName": claim}});
    let manifest = Manifest::working(NAME, shared, &["write-records /dev/vdc &"])
        .volume("scratch", json!({"emptyDisk": {"capacity": "16Mi"}}));
    let guest = scene.start(manifest.json()).await?;
    guest.working().await?;
    guest.condition("LiveMigratable", "True", 30).await?;
    Ok((guest, claim))
}

/// Somebody else reads what is on the shared disk.
async fn check_shared(scene: &Scene, claim: &str, written: u64) -> Result<()> {
    let shared = json!({"persistentVolumeClaim": {"claimName": claim}});
    let manifest =
        Manifest::kernel("reader").volume("data", shared).user_data("#cloud-config\nruncmd: [\"serve 80\"]\n");
    let reader = scene.start(manifest.json()).await?;
    reader.running().await?;
    wait("the guest that reads the shared disk to answer", 120, || async {
        Ok(web::ask(&reader.address().await?, 80, "/cgi-bin/who").await.ok())
    })
    .await?;
    reader.records_of_another("vda", written).await.context("the shared disk is not whole")?;
    reader.delete().await?;
    reader.gone(60).await
}

/// The API server may have been killed. One that starts knows aggregated APIs a moment later, and consoles are one.
async fn wait_for_api(scene: &Scene) -> Result<()> {
    wait("the API server to answer", 60, || async {
        let guests = scene.cluster.get(&scene.path(GUESTS, "virtualmachineinstances")).await;
        let consoles = scene.cluster.get(SUBRESOURCES).await;
        Ok(guests.and(consoles).ok().map(drop))
    })
    .await
}
