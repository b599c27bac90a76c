//! What is left of a move when something dies in its middle: one by one, and at moments spread over the whole of it, the processes that
//! take part are killed with signal 9, and the nodes are cut off from each other.
//!
//! After each there is exactly one copy of the guest that runs, or none and the object says why; its disks are whole; it can be moved
//! again; nothing is left behind. [`watchdog`] looks all the time that no two copies run.
//!
//! | file | holds |
//! |---|---|
//! | `ground` | the cluster, whose processes are on this machine |
//! | `faults` | what is killed or cut, and how it is healed |
//! | `trial` | one move with one fault, and the judgement afterwards |
//! | `verdict` | when a move is settled, and how it ended |
//! | `processes` | the processes of a cluster on this machine, as the kernel knows them |
//! | `watchdog` | never two copies that run |
//!
//! It works on a local cluster with two nodes, and on the Kubernetes of `tests/kubernetes`. On the former the API server and virt-controller
//! are one process, so killing both at once is one fault on either. `run.sh` beside it is about guests that do not move.

mod faults;
mod ground;
mod processes;
mod trial;
mod verdict;
mod watchdog;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use blackbox::scene::Scene;
use clap::Parser;

use crate::faults::Fault;
use crate::ground::Ground;
use crate::trial::{Outcome, Stage};
use crate::verdict::Verdict;

/// Kills and cuts in the middle of live migrations and checks what is left.
#[derive(Debug, Parser)]
struct Command {
    /// The state directory of a local cluster, or of the Kubernetes of `tests/kubernetes`; its kubeconfig is used.
    #[arg(long)]
    state: PathBuf,
    /// At how many moments of a move each fault happens.
    #[arg(long, env = "FERROVIRT_FAULT_MOMENTS", default_value_t = 3)]
    moments: u32,
    /// Only moments so many milliseconds before and after the guest usually begins to run on its new node, instead of the whole move.
    #[arg(long, value_name = "MILLISECONDS")]
    around_switch_over: Option<u64>,
    /// Only faults whose name contains one of these.
    #[arg(long)]
    filter: Vec<String>,
    /// Leave the guest for a look when a trial failed, and end there.
    #[arg(long)]
    keep: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let command = Command::parse();
    let (ground, cluster) = Ground::at(&command.state).await?;
    let before = ground.machine();
    let scene = Scene::new(cluster, "faults/moves").await?;
    let done = all(&command, &scene, ground).await;
    if !command.keep || matches!(done, Ok(0)) {
        scene.remove().await;
    }
    let failed = match done {
        Ok(failed) => failed,
        Err(error) => {
            println!("FAILED  {error:#}\n{}", scene.details().await);
            return Ok(ExitCode::FAILURE);
        }
    };
    if let Err(error) = before.clean_again(60).await {
        println!("FAILED  at the end: {error:#}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every fault at every moment; how many failed.
async fn all(command: &Command, scene: &Scene, ground: Ground) -> Result<u32> {
    let chosen = |fault: &Fault| {
        command.filter.is_empty() || command.filter.iter().any(|part| fault.name().contains(part.as_str()))
    };
    let faults: Vec<Fault> = Fault::ALL.into_iter().filter(chosen).collect();
    if faults.is_empty() || command.moments == 0 {
        bail!(
            "nothing is left to do: --filter names one of {:?}, and --moments is one or more",
            Fault::ALL.map(Fault::name)
        );
    }
    let mut stage = Stage::new(scene.clone(), ground).await?;
    println!(
        "a move takes {:.1} s, {:.1} s until the switch-over",
        stage.span().as_secs_f64(),
        stage.switch_over().as_secs_f64()
    );
    let mut all = Score::default();
    for fault in faults {
        let mut score = Score::default();
        for moment in 0..command.moments {
            let delay = match command.around_switch_over {
                Some(reach) => around(stage.switch_over(), Duration::from_millis(reach), moment, command.moments),
                None => moment_of(stage.span(), moment, command.moments),
            };
            match repeated(command, &mut stage, fault, delay).await? {
                Some(outcome) => score.count(&outcome),
                None => score.failed += 1,
            }
            if command.keep && score.failed > 0 {
                return Ok(score.failed);
            }
        }
        println!("note    {}: {score}", fault.name());
        all.add(score);
    }
    println!("{} passed, {} failed", all.passed(), all.failed);
    Ok(all.failed)
}

/// A trial, and a second one with another guest when the first failed; nothing when both did.
async fn repeated(command: &Command, stage: &mut Stage, fault: Fault, delay: Duration) -> Result<Option<Outcome>> {
    let name = format!("{} after {:.2} s", fault.name(), delay.as_secs_f64());
    for attempt in 0..2 {
        let begin = Instant::now();
        match stage.trial(fault, delay).await {
            Ok(outcome) => {
                println!("ok      {name}: {outcome} ({:.0} s)", begin.elapsed().as_secs_f64());
                if attempt > 0 {
                    println!("unsteady: {name}");
                }
                return Ok(Some(outcome));
            }
            Err(error) => {
                println!("FAILED  {name}: {error:#}\n{}", stage.details().await);
                if command.keep {
                    break;
                }
                stage.renew().await?;
            }
        }
    }
    Ok(None)
}

/// How trials ended.
#[derive(Debug, Default, Clone, Copy)]
struct Score {
    moved: u32,
    stayed: u32,
    lost: u32,
    failed: u32,
    /// Of those that passed: the move was over before its moment came.
    too_late: u32,
}

impl Score {
    fn count(&mut self, outcome: &Outcome) {
        match outcome.verdict {
            Verdict::Moved => self.moved += 1,
            Verdict::Stayed => self.stayed += 1,
            Verdict::Lost => self.lost += 1,
        }
        self.too_late += u32::from(!outcome.is_harmed);
    }

    fn add(&mut self, other: Self) {
        self.moved += other.moved;
        self.stayed += other.stayed;
        self.lost += other.lost;
        self.failed += other.failed;
        self.too_late += other.too_late;
    }

    fn passed(&self) -> u32 {
        self.moved + self.stayed + self.lost
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { moved, stayed, lost, failed, too_late } = self;
        write!(f, "{} of {} were right: ", self.passed(), self.passed() + failed)?;
        write!(f, "{moved} moved, {stayed} stayed, {lost} are lost and say why; for {too_late} it came after the move")
    }
}

/// Moments spread evenly over a move, from its request to just after its usual end; a single one is in the middle.
fn moment_of(span: Duration, moment: u32, moments: u32) -> Duration {
    let whole = span.mul_f64(1.1);
    if moments == 1 { whole / 2 } else { whole * moment / (moments - 1) }
}

/// Moments spread evenly around one, as far as `reach`; a single one is the one.
fn around(middle: Duration, reach: Duration, moment: u32, moments: u32) -> Duration {
    let after_start = if moments == 1 { reach } else { 2 * reach * moment / (moments - 1) };
    (middle + after_start).saturating_sub(reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_around_the_switch_over_reach_to_both_sides_of_it() {
        let (middle, reach) = (Duration::from_secs(3), Duration::from_millis(500));
        assert_eq!(around(middle, reach, 0, 11), Duration::from_millis(2500));
        assert_eq!(around(middle, reach, 5, 11), middle);
        assert_eq!(around(middle, reach, 10, 11), Duration::from_millis(3500));
        assert_eq!(around(middle, reach, 0, 1), middle);
        assert_eq!(around(Duration::from_millis(200), reach, 0, 2), Duration::ZERO);
    }

    #[test]
    fn moments_reach_from_the_request_to_after_the_end() {
        let span = Duration::from_secs(10);
        assert_eq!(moment_of(span, 0, 20), Duration::ZERO);
        assert_eq!(moment_of(span, 19, 20), Duration::from_secs(11));
        assert_eq!(moment_of(span, 0, 1), Duration::from_millis(5500));
    }
}
