//! The reaper in a process of its own: it takes every child, so no other test may have one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use virt_launcher::reaper::{Children, Exit};

/// Children of this process that ended and wait to be reaped.
fn zombies() -> usize {
    let is_zombie = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let children = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    children.map(|pids| pids.split_whitespace().filter(|pid| is_zombie(pid)).count()).sum()
}

#[tokio::test]
async fn own_children_are_told_of_and_orphans_vanish() {
    set_child_subreaper(Some(getpid())).unwrap();
    let children = Children::default();
    tokio::spawn(children.clone().reap_for_ever());

    // The grandchildren outlive their parent and become ours; the pipe closes when the last of them is gone.
    let mut orphans = Command::new("sh");
    orphans.args(["-c", "for i in 1 2 3; do (sleep 0.2; exit 1) & done; exit 7"]).stdout(Stdio::piped());
    let mut parent = children.spawn(&mut orphans).unwrap();
    let stdout = parent.stdout.take().unwrap();
    assert_eq!(parent.exit.await.unwrap(), Exit::Code(7));
    let mut rest = Vec::new();
    pipe::Receiver::from_owned_fd(stdout.into()).unwrap().read_to_end(&mut rest).await.unwrap();
    let reaped = async {
        while zombies() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reaped).await.expect("orphans are reaped");

    let sleeper = children.spawn(Command::new("sleep").arg("600")).unwrap();
    sleeper.terminate();
    assert_eq!(sleeper.exit.await.unwrap(), Exit::Signal(15));
}
