//! What was measured, as a table and as numbers.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::processes::{Guest, Machine};

/// One guest.
pub(super) struct Life {
    begin: Instant,
    /// Its pod was seen.
    pub(super) pod: Option<Instant>,
    /// It was seen running.
    pub(super) running: Option<Instant>,
    /// Its processes.
    pub(super) processes: Option<Guest>,
}

impl Life {
    /// A guest that was asked for at `begin`.
    pub(super) fn begin(begin: Instant) -> Self {
        Self { begin, pod: None, running: None, processes: None }
    }

    fn stage(&self, stage: Stage) -> Option<Duration> {
        let processes = self.processes.as_ref();
        let moment = match stage {
            Stage::Pod => self.pod,
            Stage::Launcher => processes.map(|guest| guest.launcher),
            Stage::Libvirt => processes.map(|guest| guest.libvirt),
            Stage::Qemu => processes.map(|guest| guest.qemu),
            Stage::Running => self.running,
        };
        Some(moment?.saturating_duration_since(self.begin))
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Pod,
    Launcher,
    Libvirt,
    Qemu,
    Running,
}

const STAGES: [(&str, &str, Stage); 5] = [
    ("creation to pod", "pod", Stage::Pod),
    ("creation to launcher started", "launcher", Stage::Launcher),
    ("creation to libvirt started", "libvirt", Stage::Libvirt),
    ("creation to QEMU started", "qemu", Stage::Qemu),
    ("creation to Running", "running", Stage::Running),
];

/// Guests that were created together.
pub(super) struct Burst {
    lives: Vec<Life>,
    /// What the control plane and the nodes computed for all of them.
    ours: Duration,
}

impl Burst {
    /// All guests of a burst, and the machine before and after.
    pub(super) fn new(lives: Vec<Life>, before: &Machine, after: &Machine) -> Self {
        Self { lives, ours: after.computed().saturating_sub(before.computed()) }
    }

    fn times(&self, stage: Stage) -> Vec<Duration> {
        let mut times: Vec<_> = self.lives.iter().filter_map(|life| life.stage(stage)).collect();
        times.sort();
        times
    }

    fn mean(&self, of: impl Fn(&Guest) -> f64) -> f64 {
        let guests: Vec<f64> = self.lives.iter().filter_map(|life| life.processes.as_ref()).map(of).collect();
        guests.iter().sum::<f64>() / guests.len().max(1) as f64
    }

    fn costs(&self) -> [(&'static str, &'static str, f64); 5] {
        let mib = f64::from(1 << 20);
        [
            ("launcher, MiB (PSS)", "launcherMiB", self.mean(|guest| guest.launcher_memory as f64 / mib)),
            ("libvirt, MiB (PSS)", "libvirtMiB", self.mean(|guest| guest.libvirt_memory as f64 / mib)),
            ("container monitor, MiB (PSS)", "monitorMiB", self.mean(|guest| guest.monitor_memory as f64 / mib)),
            ("launcher and libvirt, CPU s", "podCpuSeconds", self.mean(|guest| guest.computed.as_secs_f64())),
            (
                "control plane and node, CPU s",
                "clusterCpuSeconds",
                self.ours.as_secs_f64() / self.lives.len().max(1) as f64,
            ),
        ]
    }
}

fn percentile(times: &[Duration], share: f64) -> Option<Duration> {
    let last = times.len().checked_sub(1)?;
    times.get((share * last as f64).round() as usize).copied()
}

/// One column per burst.
pub(super) fn table(bursts: &[Burst]) -> String {
    let mut text = format!("{:<38}", "guests in one burst");
    for burst in bursts {
        let _ = write!(text, "{:>12}", burst.lives.len());
    }
    text.push('\n');
    for (label, _, stage) in STAGES {
        for (name, share) in [("p50", 0.5), ("p95", 0.95)] {
            let _ = write!(text, "{:<38}", format!("{label}, {name}"));
            for burst in bursts {
                let time = percentile(&burst.times(stage), share);
                let _ =
                    write!(text, "{:>12}", time.map_or("-".to_owned(), |time| format!("{:.2} s", time.as_secs_f64())));
            }
            text.push('\n');
        }
    }
    let costs: Vec<_> = bursts.iter().map(Burst::costs).collect();
    for index in 0..costs.first().map_or(0, |costs| costs.len()) {
        let _ = write!(text, "{:<38}", format!("per guest: {}", costs[0][index].0));
        for burst in &costs {
            let _ = write!(text, "{:>12.2}", burst[index].2);
        }
        text.push('\n');
    }
    text
}

/// Plain numbers.
pub(super) fn json(bursts: &[Burst]) -> Value {
    let bursts = bursts.iter().map(|burst| {
        let mut values = json!({"guests": burst.lives.len()});
        for (_, name, stage) in STAGES {
            let times = burst.times(stage);
            let seconds = |share| percentile(&times, share).map(|time| time.as_secs_f64());
            values[name] = json!({"p50": seconds(0.5), "p95": seconds(0.95)});
        }
        for (_, name, value) in burst.costs() {
            values[name] = value.into();
        }
        values
    });
    json!({"bursts": bursts.collect::<Vec<_>>()})
}
