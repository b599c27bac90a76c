//! The black-box suite of guests: takes a kubeconfig, runs real guests on the cluster and talks to them over their serial consoles.
//!
//! | file | holds |
//! |---|---|
//! | `cases/` | what is tried: one function for each case, and the table of them |
//! | `cluster` | requests, and waiting for objects to become something |
//! | `guest` | a guest under test: its object, its pod, how it ends |
//! | `manifest` | objects of guests |
//! | `console` | a login on a guest's serial console |
//! | `machine` | what a guest could leave behind on this machine |
//! | `scene` | what one case uses, and what is shown when it fails |

mod cases;
mod cluster;
mod console;
mod guest;
mod machine;
mod manifest;
mod scene;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Parser;
use futures::StreamExt;

use crate::cases::Case;
use crate::cluster::Cluster;
use crate::scene::Scene;

/// Runs real guests on a cluster and checks what becomes of them.
#[derive(Debug, Parser)]
struct Arguments {
    /// The cluster, as its admin.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Only cases whose `area/name` contains one of these.
    #[arg(long)]
    filter: Vec<String>,
    /// How many cases run at the same time. Each runs one or two guests.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// How long one case may take, in seconds.
    #[arg(long, default_value_t = 240)]
    patience: u64,
    /// Leave the namespaces of failed cases for a look.
    #[arg(long)]
    keep: bool,
    /// Only show the names of the cases.
    #[arg(long)]
    list: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let chosen =
        |case: &&Case| arguments.filter.is_empty() || arguments.filter.iter().any(|part| case.name.contains(part));
    let cases: Vec<Case> = cases::all().iter().filter(chosen).copied().collect();
    if arguments.list {
        cases.iter().for_each(|case| println!("{:<28} {}", case.name, case.about));
        return Ok(ExitCode::SUCCESS);
    }
    let cluster = Cluster::from_kubeconfig(&arguments.kubeconfig).await?;
    // Cases that look at the whole machine have it for themselves.
    let (alone, together): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(|case| case.alone);
    let mut failed = 0;
    let mut passed = 0;
    for (group, jobs) in [(together, arguments.jobs.max(1)), (alone, 1)] {
        let runs = group.into_iter().map(|case| run(&cluster, case, &arguments));
        let mut ended = futures::stream::iter(runs).buffer_unordered(jobs);
        while let Some(ok) = ended.next().await {
            if ok { passed += 1 } else { failed += 1 }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one case in a namespace of its own, says how it ended, and cleans up.
async fn run(cluster: &Cluster, case: Case, arguments: &Arguments) -> bool {
    let begin = Instant::now();
    let scene = match Scene::new(cluster.clone(), case.name).await {
        Ok(scene) => scene,
        Err(error) => {
            println!("FAILED  {}: {}\n    {error:#}", case.name, case.about);
            return false;
        }
    };
    let patience = Duration::from_secs(arguments.patience);
    let outcome = tokio::time::timeout(patience, (case.run)(scene.clone())).await;
    let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("not done after {} s", arguments.patience)));
    let seconds = begin.elapsed().as_secs_f32();
    match outcome {
        Ok(()) => {
            println!("ok      {} ({seconds:.1} s)", case.name);
            scene.remove().await;
            true
        }
        Err(error) => {
            let details = scene.details().await;
            println!("FAILED  {} ({seconds:.1} s): {}\n    {error:#}\n{details}", case.name, case.about);
            if !arguments.keep {
                scene.remove().await;
            }
            false
        }
    }
}
