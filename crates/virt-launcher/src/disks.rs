//! Disks are prepared by a short-lived copy of this program.
//!
//! Images are hostile and reading them takes memory: a process of its own gives that back when it is done, and it may wait for its
//! `qemu-img` itself, which the launcher, who reaps everything, could not.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use ferrovirt_launcher_rpc::disks::DiskTask;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use crate::reaper::{Children, Exit};
use crate::refusal::Refused;

/// The argument that makes this program the helper.
pub const HELPER: &str = "prepare-disks";
/// More than any message about a disk.
const ANSWER_MAX: u64 = 64 * 1024;

/// Prepares all disks, in order; the first failure ends it.
pub async fn prepare(children: &Children, tasks: &[DiskTask]) -> Result<(), Refused> {
    if tasks.is_empty() {
        return Ok(());
    }
    let failed = |what: &str, error: std::io::Error| Refused::DiskHelper(format!("{what}: {error}"));
    let input = serde_json::to_vec(tasks).map_err(|error| Refused::DiskHelper(error.to_string()))?;
    // Through /proc, so that it is this very program even when its file was replaced.
    let mut command = Command::new("/proc/self/exe");
    command.arg(HELPER).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = children.spawn(&mut command).map_err(|error| failed("the helper cannot be started", error))?;
    let answer = exchange(&mut child.stdin, &mut child.stdout, &input)
        .await
        .map_err(|error| failed("the helper cannot be spoken to", error))?;
    match child.exit.await {
        Ok(Exit::Code(0)) => Ok(()),
        Ok(Exit::Code(_)) if !answer.is_empty() => Err(Refused::Disk(answer)),
        Ok(exit) => Err(Refused::DiskHelper(format!("the helper ended with {exit}"))),
        Err(_) => Err(Refused::DiskHelper("the helper was lost".to_owned())),
    }
}

async fn exchange(
    stdin: &mut Option<std::process::ChildStdin>,
    stdout: &mut Option<std::process::ChildStdout>,
    input: &[u8],
) -> std::io::Result<String> {
    if let Some(stdin) = stdin.take() {
        pipe::Sender::from_owned_fd(stdin.into())?.write_all(input).await?;
    }
    let mut answer = Vec::new();
    if let Some(stdout) = stdout.take() {
        pipe::Receiver::from_owned_fd(stdout.into())?.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// What the helper does: tasks from `input`, the reason of a failure to `output`. False when one failed.
pub fn help(mut input: impl Read, mut output: impl Write) -> anyhow::Result<bool> {
    let mut text = Vec::new();
    input.read_to_end(&mut text)?;
    let tasks: Vec<DiskTask> = serde_json::from_slice(&text)?;
    for task in &tasks {
        if let Err(error) = ferrovirt_storage::prepare(task) {
            output.write_all(chain(&error).as_bytes())?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_fails_is_named() {
        let tasks = r#"[{"kind":"rawImage","volume":"data","path":"/nonexistent/disk.img"}]"#;
        let mut answer = Vec::new();
        assert!(!help(tasks.as_bytes(), &mut answer).unwrap());
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains("data") && answer.contains("/nonexistent"), "{answer}");
    }

    #[test]
    fn tasks_are_done() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let task = DiskTask::RawImage {
            volume: "data".to_owned(),
            path: path.to_string_lossy().into_owned(),
            create: Some(1 << 20),
        };
        let mut answer = Vec::new();
        assert!(help(serde_json::to_string(&[task]).unwrap().as_bytes(), &mut answer).unwrap());
        assert_eq!(std::fs::metadata(path).unwrap().len(), 1 << 20);
    }
}
