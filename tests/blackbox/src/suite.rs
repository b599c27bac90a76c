//! A suite: a table of cases, which are run in namespaces of their own, some at the same time.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::scene::Scene;

/// What a case needs, and not every cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Need {
    /// The default storage class makes volumes in block mode.
    BlockClaims,
    /// Pods have addresses of both families.
    Ipv6,
}

/// What every suite can be told.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The cluster, as its admin.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: PathBuf,
    /// Only cases whose `area/name` contains one of these; how many are left out is said at the end.
    #[arg(long)]
    pub filter: Vec<String>,
    /// What the cluster does not have: cases that need it are skipped, and listed.
    #[arg(long, value_name = "WHAT")]
    pub without: Vec<Need>,
    /// How many cases run at the same time. Each runs one or two guests.
    #[arg(long, default_value_t = 3)]
    pub jobs: usize,
    /// How long one case may take, in seconds.
    #[arg(long, default_value_t = 240)]
    pub patience: u64,
    /// Leave the namespaces of failed cases for a look.
    #[arg(long)]
    pub keep: bool,
    /// Only show the names of the cases.
    #[arg(long)]
    pub list: bool,
}

/// One case. It is given the suite's surroundings `S`, which are made from a [`Scene`].
pub struct Case<S> {
    /// `area/name`.
    pub name: String,
    /// What holds when it passes.
    pub about: String,
    /// It looks at the whole machine, so nothing else may run.
    pub alone: bool,
    /// What the cluster must have.
    pub needs: Option<Need>,
    /// What it does.
    pub run: Box<dyn Fn(S) -> BoxFuture<'static, Result<()>> + Send + Sync>,
}

impl<S> Case<S> {
    /// A case that may run beside others.
    pub fn new<F>(name: &str, about: &str, run: impl Fn(S) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let run = Box::new(move |s| -> BoxFuture<'static, Result<()>> { Box::pin(run(s)) });
        Self { name: name.to_owned(), about: about.to_owned(), alone: false, needs: None, run }
    }

    /// The same case, with nothing else beside it.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// The same case, for clusters that have something.
    #[must_use]
    pub fn needing(self, need: Need) -> Self {
        Self { needs: Some(need), ..self }
    }

    /// What it needs and these clusters lack.
    fn lacks(&self, without: &[Need]) -> Option<Need> {
        self.needs.filter(|need| without.contains(need))
    }
}

/// Runs the chosen cases, says how each ended, and is a success when all passed.
pub async fn run<S>(arguments: &Arguments, cases: Vec<Case<S>>, surroundings: impl Fn(Scene) -> S) -> Result<ExitCode> {
    let chosen =
        |case: &Case<S>| arguments.filter.is_empty() || arguments.filter.iter().any(|part| case.name.contains(part));
    let (cases, left_out): (Vec<_>, Vec<_>) = cases.into_iter().partition(chosen);
    if arguments.list {
        cases.iter().for_each(|case| println!("{:<32} {}", case.name, case.about));
        return Ok(ExitCode::SUCCESS);
    }
    let cluster = Cluster::from_kubeconfig(&arguments.kubeconfig).await?;
    let (skipped, cases): (Vec<_>, Vec<_>) =
        cases.into_iter().partition(|case| case.lacks(&arguments.without).is_some());
    for case in &skipped {
        let need = case.needs.and_then(|need| need.to_possible_value());
        println!("skipped {}: the cluster has no {}", case.name, need.as_ref().map_or("", |need| need.get_name()));
    }
    let (alone, together): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.alone);
    let mut failed = 0;
    let mut passed = 0;
    for (group, jobs) in [(together, arguments.jobs.max(1)), (alone, 1)] {
        let runs = group.into_iter().map(|case| one(&cluster, case, arguments, &surroundings));
        let mut ended = futures::stream::iter(runs).buffer_unordered(jobs);
        // A real Kubernetes takes a dozen seconds to empty a namespace, most of them waiting: the next case need not.
        let mut removals = JoinSet::new();
        while let Some((ok, scene)) = ended.next().await {
            *(if ok { &mut passed } else { &mut failed }) += 1;
            if let Some(scene) = scene.filter(|_| ok || !arguments.keep) {
                removals.spawn(async move { scene.remove().await });
            }
        }
        // What looks at the whole machine must find nothing of these.
        removals.join_all().await;
    }
    let besides = |count: usize, what: &str| if count == 0 { String::new() } else { format!(", {count} {what}") };
    let (skipped, left_out) = (besides(skipped.len(), "skipped"), besides(left_out.len(), "left out"));
    println!("{passed} passed, {failed} failed{skipped}{left_out}");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one case in a namespace of its own, and says how it ended. The namespace is left to be removed.
async fn one<S>(
    cluster: &Cluster,
    case: &Case<S>,
    arguments: &Arguments,
    surroundings: &impl Fn(Scene) -> S,
) -> (bool, Option<Scene>) {
    let begin = Instant::now();
    let scene = match Scene::new(cluster.clone(), &case.name).await {
        Ok(scene) => scene,
        Err(error) => {
            println!("FAILED  {}: {}\n    {error:#}", case.name, case.about);
            return (false, None);
        }
    };
    let patience = Duration::from_secs(arguments.patience);
    let outcome = tokio::time::timeout(patience, (case.run)(surroundings(scene.clone()))).await;
    let outcome = outcome.unwrap_or_else(|_| Err(anyhow!("not done after {} s", arguments.patience)));
    let seconds = begin.elapsed().as_secs_f32();
    let ok = outcome.is_ok();
    match outcome {
        Ok(()) => println!("ok      {} ({seconds:.1} s)", case.name),
        Err(error) => {
            let details = scene.details().await;
            println!("FAILED  {} ({seconds:.1} s): {}\n    {error:#}\n{details}", case.name, case.about);
        }
    }
    (ok, Some(scene))
}
