//! Programs that users run against the cluster: kubectl, virtctl. They end with their case, also when it fails.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

/// For a command that answers and ends.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before a command is run again: starting a program costs more than a look at an object.
const AGAIN: Duration = Duration::from_millis(500);

/// A program with the cluster and the namespace it works on.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it wrote to its standard output.
    pub out: String,
    /// What it wrote to its standard error.
    pub err: String,
}

impl Outcome {
    /// Both outputs, for looking for words.
    pub fn text(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

impl Program {
    /// The program at `path`, for one namespace of a cluster.
    pub fn new(path: &Path, kubeconfig: &Path, namespace: &str) -> Self {
        Self { path: path.to_owned(), kubeconfig: kubeconfig.to_owned(), namespace: namespace.to_owned() }
    }

    /// The command, for those who need more than its outcome. It is killed when its handle is dropped.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).arg("--namespace").arg(&self.namespace).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Starts a command that goes on until it is dropped.
    pub fn start<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Child> {
        self.command(arguments).spawn().with_context(|| format!("starting {}", self.path.display()))
    }

    /// Runs a command to its end, whatever that is.
    pub async fn attempt(&self, arguments: &[&str]) -> Result<Outcome> {
        self.feed(arguments, "").await
    }

    /// Runs a command that has to succeed, and returns what it wrote to its standard output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with(arguments, "").await
    }

    /// Like [`Self::run`], with text on its standard input.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let outcome = self.feed(arguments, input).await?;
        if outcome.code != 0 {
            bail!("`{}` ended with {}: {}", self.shown(arguments), outcome.code, outcome.text().trim());
        }
        Ok(outcome.out)
    }

    /// Runs a command that has to fail with all these words in what it says.
    pub async fn refused(&self, arguments: &[&str], words: &[&str]) -> Result<Outcome> {
        let outcome = self.attempt(arguments).await?;
        let said = outcome.text();
        if outcome.code == 0 {
            bail!("`{}` should fail and says: {}", self.shown(arguments), said.trim());
        }
        if let Some(missing) = words.iter().find(|word| !said.contains(**word)) {
            bail!("`{}` fails without the words {missing:?}: {}", self.shown(arguments), said.trim());
        }
        Ok(outcome)
    }

    /// Runs a command again and again until it ends as it should.
    pub async fn until(&self, arguments: &[&str], seconds: u64, right: impl Fn(&Outcome) -> bool) -> Result<Outcome> {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            let outcome = self.attempt(arguments).await?;
            if right(&outcome) {
                return Ok(outcome);
            }
            if Instant::now() > deadline {
                let (code, said) = (outcome.code, outcome.text());
                bail!("after {seconds} s `{}` still ends with {code} and says: {}", self.shown(arguments), said.trim());
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn feed(&self, arguments: &[&str], input: &str) -> Result<Outcome> {
        let work = async {
            let mut child = self.command(arguments).stdin(Stdio::piped()).spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // A program that does not read has closed its end, which is its right.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
            child.wait_with_output().await
        };
        let what = || format!("`{}`", self.shown(arguments));
        let output = tokio::time::timeout(PATIENCE, work).await.with_context(what)?.with_context(what)?;
        Ok(Outcome {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn shown(&self, arguments: &[&str]) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        format!("{name} {}", arguments.join(" "))
    }
}
