//! A suite: a table of cases, which are run in namespaces of their own, some at the same time.
//!
//! A case that fails is run once more, alone. If it passes then, it is *unsteady*: it counts as passed, and a line
//! `unsteady: NAME` at the end says so, which `scripts/test.sh` collects. An unsteady case is a defect of the product or of
//! the case; the repetition only keeps it from hiding the results of everything else.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
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
    /// A pod can have no address of another pod, and network policies hold.
    GuardedNetwork,
    /// Its nodes are our own, on the machine of the suite.
    LocalNodes,
}

/// Every so manieth case, so that several runs cover a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    number: usize,
    of: usize,
}

impl Part {
    fn has(self, index: usize) -> bool {
        index % self.of == self.number
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((number, of)) if number < of => Ok(Self { number, of }),
            _ => Err(format!("{text:?} is no part: write 0/4, 1/4, 2/4 or 3/4 for a quarter of the cases")),
        }
    }
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
    /// Only a part of these: `0/4` is every fourth case, `1/4` to `3/4` are the others.
    #[arg(long, value_name = "K/N")]
    pub part: Option<Part>,
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

/// Runs the chosen cases, says how each ended, and is a success when all passed, at the second try at the latest.
pub async fn run<S>(arguments: &Arguments, cases: Vec<Case<S>>, surroundings: impl Fn(Scene) -> S) -> Result<ExitCode> {
    let (cases, left_out) = chosen(arguments, cases);
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
    let mut failed = group(&cluster, together, arguments.jobs.max(1), arguments, &surroundings).await;
    failed.extend(group(&cluster, alone, 1, arguments, &surroundings).await);
    // Whoever asked for what is left of a failed case wants to look at it now.
    let mut unsteady = Vec::new();
    if !failed.is_empty() && !arguments.keep {
        println!("note    {} failed: once more, one at a time", failed.len());
        let again = group(&cluster, failed.clone(), 1, arguments, &surroundings).await;
        let is_among = |case: &&Case<S>| again.iter().any(|other| other.name == case.name);
        (failed, unsteady) = failed.into_iter().partition(is_among);
    }
    for case in &unsteady {
        println!("unsteady: {}", case.name);
    }
    let (passed, failed) = (cases.len() - failed.len(), failed.len());
    let besides = |count: usize, what: &str| if count == 0 { String::new() } else { format!(", {count} {what}") };
    let (skipped, left_out) = (besides(skipped.len(), "skipped"), besides(left_out, "left out"));
    println!("{passed} passed, {failed} failed{skipped}{left_out}");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The cases that were asked for, and how many were not.
fn chosen<S>(arguments: &Arguments, cases: Vec<Case<S>>) -> (Vec<Case<S>>, usize) {
    let all = cases.len();
    let is_named =
        |case: &Case<S>| arguments.filter.is_empty() || arguments.filter.iter().any(|part| case.name.contains(part));
    let named = cases.into_iter().filter(is_named).enumerate();
    let chosen: Vec<_> =
        named.filter(|(index, _)| arguments.part.is_none_or(|part| part.has(*index))).map(|(_, case)| case).collect();
    let left_out = all - chosen.len();
    (chosen, left_out)
}

/// Runs some cases, so many at a time, and returns those that failed. Nothing of them is left then.
async fn group<'a, S>(
    cluster: &Cluster,
    cases: Vec<&'a Case<S>>,
    jobs: usize,
    arguments: &Arguments,
    surroundings: &impl Fn(Scene) -> S,
) -> Vec<&'a Case<S>> {
    let runs = cases.into_iter().map(|case| async move { (case, one(cluster, case, arguments, surroundings).await) });
    let mut ended = futures::stream::iter(runs).buffer_unordered(jobs);
    let mut failed = Vec::new();
    // A real Kubernetes takes a dozen seconds to empty a namespace, most of them waiting: the next case need not.
    let mut removals = JoinSet::new();
    while let Some((case, (ok, scene))) = ended.next().await {
        if !ok {
            failed.push(case);
        }
        if let Some(scene) = scene.filter(|_| ok || !arguments.keep) {
            removals.spawn(async move { scene.remove().await });
        }
    }
    // What looks at the whole machine must find nothing of these.
    removals.join_all().await;
    failed
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        let parts: Vec<Part> = (0..4).map(|number| format!("{number}/4").parse().unwrap()).collect();
        for index in 0..100 {
            assert_eq!(parts.iter().filter(|part| part.has(index)).count(), 1, "{index}");
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in ["", "4/4", "1", "0/0", "-1/4", "a/b"] {
            assert!(text.parse::<Part>().unwrap_err().contains("is no part"), "{text}");
        }
    }
}
