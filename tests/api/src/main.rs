//! The black-box API suite: has the same conversations with any server that a kubeconfig names, and compares its answers with those
//! that were recorded from the reference, a real kube-apiserver. A case that fails is run once more, alone, and is listed as unsteady when
//! it passes then.

mod blank;
mod case;
mod client;
mod compare;
mod pointer;
mod run;
mod watching;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use futures::StreamExt;
use serde_json::Value;

use crate::case::{Case, Suite};
use crate::client::Server;
use crate::compare::{Difference, compare};
use crate::run::UsedNamespaces;

/// Runs the API cases against a cluster and compares the answers with the recorded ones.
#[derive(Debug, Parser)]
struct Arguments {
    /// The cluster to ask, as its admin.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Record the answers instead of comparing them. Only ever against the reference.
    #[arg(long)]
    record: bool,
    /// Only cases whose `area/name` contains this.
    #[arg(long)]
    filter: Option<String>,
    /// How many cases run at the same time.
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// Where the cases and answers are.
    #[arg(long, default_value = env!("CARGO_MANIFEST_DIR"))]
    suite: PathBuf,
    /// How many differences to show for a failed case.
    #[arg(long, default_value_t = 12)]
    show: usize,
}

/// How a case ended.
enum Outcome {
    Passed,
    Recorded,
    Failed(Vec<Difference>),
    Unstable(Vec<Difference>),
    Broken(anyhow::Error),
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let suite = Suite::new(arguments.suite.clone());
    let cases = suite.cases(arguments.filter.as_deref())?;
    let server = Server::from_kubeconfig(&arguments.kubeconfig).await?;
    let failed = round(&arguments, &suite, &server, cases.iter().collect(), arguments.jobs.max(1)).await;
    // Alone: what fails again has a cause that is not in the company of the others.
    let again = if failed.is_empty() || arguments.record {
        failed.clone()
    } else {
        println!("note      {} failed: once more, one at a time", failed.len());
        round(&arguments, &suite, &server, failed.clone(), 1).await
    };
    for case in failed.iter().filter(|case| again.iter().all(|other| other.name != case.name)) {
        println!("unsteady: {}", case.name);
    }
    let (passed, failed) = (cases.len() - again.len(), again.len());
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs some cases, so many at a time, says how each ended, and returns those that failed.
async fn round<'a>(
    arguments: &Arguments,
    suite: &Suite,
    server: &Server,
    cases: Vec<&'a Case>,
    jobs: usize,
) -> Vec<&'a Case> {
    let used = UsedNamespaces::default();
    let outcomes = futures::stream::iter(cases).map(|case| {
        let used = &used;
        async move {
            let outcome = if arguments.record {
                record_case(server, suite, used, case).await
            } else {
                check_case(server, suite, used, case).await
            };
            (case, outcome.unwrap_or_else(Outcome::Broken))
        }
    });
    let mut outcomes = outcomes.buffer_unordered(jobs);
    let mut failed = Vec::new();
    while let Some((case, outcome)) = outcomes.next().await {
        report(case, &outcome, arguments.show);
        if !matches!(outcome, Outcome::Passed | Outcome::Recorded) {
            failed.push(case);
        }
    }
    drop(outcomes);
    used.delete(server).await;
    failed
}

async fn check_case(server: &Server, suite: &Suite, used: &UsedNamespaces, case: &Case) -> Result<Outcome> {
    let recorded =
        read_answer(&suite.answer_file(case)).context("no recorded answer; record it against the reference")?;
    let answer = run::run(server, suite, used, case).await?;
    let ignored: Vec<_> = case.differs.iter().map(|differs| differs.path.as_str()).collect();
    let differences = compare(&recorded, &answer, &ignored);
    Ok(if differences.is_empty() { Outcome::Passed } else { Outcome::Failed(differences) })
}

/// Two runs must agree before an answer counts as recorded.
async fn record_case(server: &Server, suite: &Suite, used: &UsedNamespaces, case: &Case) -> Result<Outcome> {
    let first = run::run(server, suite, used, case).await?;
    let second = run::run(server, suite, used, case).await?;
    let differences = compare(&first, &second, &[]);
    if !differences.is_empty() {
        return Ok(Outcome::Unstable(differences));
    }
    let file = suite.answer_file(case);
    if read_answer(&file).is_ok_and(|recorded| compare(&recorded, &first, &[]).is_empty()) {
        return Ok(Outcome::Passed);
    }
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
    std::fs::write(&file, serde_json::to_string_pretty(&first)? + "\n")?;
    Ok(Outcome::Recorded)
}

fn read_answer(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn report(case: &Case, outcome: &Outcome, show: usize) {
    match outcome {
        Outcome::Passed => println!("ok        {}", case.name),
        Outcome::Recorded => println!("recorded  {}", case.name),
        Outcome::Broken(error) => println!("FAILED    {}: {}\n    {error:#}", case.name, case.about),
        Outcome::Failed(differences) => {
            println!("FAILED    {}: {}", case.name, case.about);
            show_differences(differences, show, "expected");
        }
        Outcome::Unstable(differences) => {
            println!("UNSTABLE  {}: {}", case.name, case.about);
            show_differences(differences, show, "at first");
        }
    }
}

fn show_differences(differences: &[Difference], show: usize, expected: &str) {
    let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    for difference in differences.iter().take(show) {
        println!(
            "    {}\n      {expected} {}\n      got      {}",
            difference.path,
            text(&difference.expected),
            text(&difference.got)
        );
    }
    if differences.len() > show {
        println!("    … and {} more", differences.len() - show);
    }
}
