//! What is killed or cut, and how it is healed.

use std::time::Duration;

use anyhow::Result;

use crate::ground::Ground;
use crate::processes::{kill, launchers, libvirt_of};

/// The table that cuts a node off from another.
const TABLE: &str = "ferrovirt_fault";

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The libvirt of the launcher that has the guest is killed.
    SourceLibvirt,
    /// The virt-handler that has the guest is killed; on the local cluster the node's runtime is the same process.
    SourceHandler,
    /// The virt-handler that gets the guest is killed, likewise.
    TargetHandler,
    /// The launcher that gets the guest is killed, and its pod with it.
    TargetLauncher,
    /// The API server and every virt-controller are killed.
    ControlPlane,
    /// The nodes cannot reach each other for a second.
    CutShort,
    /// The nodes cannot reach each other for ten seconds.
    CutLong,
    /// The nodes cannot reach each other any more.
    CutForGood,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::SourceLibvirt,
        Self::SourceHandler,
        Self::TargetHandler,
        Self::TargetLauncher,
        Self::ControlPlane,
        Self::CutShort,
        Self::CutLong,
        Self::CutForGood,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SourceLibvirt => "source-libvirt",
            Self::SourceHandler => "source-handler",
            Self::TargetHandler => "target-handler",
            Self::TargetLauncher => "target-launcher",
            Self::ControlPlane => "control-plane",
            Self::CutShort => "cut-1s",
            Self::CutLong => "cut-10s",
            Self::CutForGood => "cut-for-good",
        }
    }
}

/// What the fault is done to.
pub(crate) struct Victim<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) guest: &'a str,
    /// The launcher that has the guest.
    pub(crate) launcher: i32,
    pub(crate) source: &'a str,
    pub(crate) target: &'a str,
}

impl Ground {
    /// Does the harm; a short one is over when this returns. `false`: there was nothing to harm, it had not begun or was over.
    pub(crate) async fn inflict(&self, fault: Fault, victim: &Victim<'_>) -> Result<bool> {
        let process = match fault {
            Fault::SourceLibvirt => libvirt_of(victim.launcher),
            Fault::SourceHandler => self.handler_of(victim.source)?,
            Fault::TargetHandler => self.handler_of(victim.target)?,
            Fault::TargetLauncher => {
                launchers(victim.namespace, victim.guest).into_iter().find(|pid| *pid != victim.launcher)
            }
            Fault::ControlPlane => return self.kill_control_plane().await.map(|()| true),
            Fault::CutShort => return self.cut_for(victim, Duration::from_secs(1)).await.map(|()| true),
            Fault::CutLong => return self.cut_for(victim, Duration::from_secs(10)).await.map(|()| true),
            Fault::CutForGood => return self.cut(victim.source, victim.target).map(|()| true),
        };
        let Some(process) = process else { return Ok(false) };
        kill(process).await?;
        Ok(true)
    }

    async fn cut_for(&self, victim: &Victim<'_>, time: Duration) -> Result<()> {
        self.cut(victim.source, victim.target)?;
        tokio::time::sleep(time).await;
        self.heal()
    }

    /// Packets between the two nodes are dropped without a word; both still reach the API server.
    fn cut(&self, one: &str, other: &str) -> Result<()> {
        let there = self.address_of(other)?;
        let rules = format!(
            "table ip {TABLE} {{\n\
             chain in {{ type filter hook input priority -300; ip saddr {there} drop; }}\n\
             chain out {{ type filter hook output priority -300; ip daddr {there} drop; }}\n\
             }}\n"
        );
        self.filter(one, &rules)
    }

    /// Whatever was cut is joined again.
    pub(crate) fn heal(&self) -> Result<()> {
        for node in self.nodes() {
            // Adding it first makes deleting it right whether it was there or not.
            self.filter(node, &format!("add table ip {TABLE}\ndelete table ip {TABLE}\n"))?;
        }
        Ok(())
    }
}
