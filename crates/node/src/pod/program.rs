//! A program that a probe runs in a container: what it says is heard in part, and it ends when nobody waits for it any more.

use std::io;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::context::Context;
use crate::files::Scratch;
use crate::runtime::Runtime;

/// How much of what a program says is kept, of each stream. It may say as much as it likes.
const KEPT: usize = 1024;

/// How a program ended.
pub(super) struct Outcome {
    pub(super) status: ExitStatus,
    /// The beginning of what it said, on the error stream if there was anything.
    pub(super) said: String,
}

/// Runs `command` in a container until it ends. When the future is dropped, the program and what it has started are killed.
pub(super) async fn run(node: &Context, runtime: &Runtime, id: &str, command: &[String]) -> io::Result<Outcome> {
    let pid_file = Scratch::new(node, "pid");
    let mut call = runtime.command();
    // The runtime passes all of the container's limits on but this one.
    call.args(["exec", "--no-new-privs"]).arg("--pid-file").arg(pid_file.path()).arg(id).args(command);
    let mut child = call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // Dropped before the child, which has not waited for the program then: the number is still the program's.
    let mut unless_ended = Kill { pid_file, is_armed: true };
    let (out, error) = (child.stdout.take(), child.stderr.take());
    let (status, out, error) = tokio::join!(child.wait(), beginning(out), beginning(error));
    let status = status?;
    unless_ended.is_armed = false;
    let said = if error.is_empty() { out } else { error };
    Ok(Outcome { status, said: String::from_utf8_lossy(&said).trim().to_owned() })
}

/// Reads to the end, so that nobody waits for a full pipe.
async fn beginning(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut stream) = stream else { return kept };
    let mut buffer = vec![0; 8 * KEPT];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let room = KEPT.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(&buffer[..room]);
    }
    kept
}

/// The runtime starts the program in a session of its own, and so in a process group.
struct Kill {
    pid_file: Scratch,
    is_armed: bool,
}

impl Drop for Kill {
    fn drop(&mut self) {
        if !self.is_armed {
            return;
        }
        let program = std::fs::read_to_string(self.pid_file.path()).ok().and_then(|text| text.trim().parse().ok());
        let group = program.and_then(Pid::from_raw).and_then(|program| getpgid(Some(program)).ok());
        if let Some(group) = group.filter(|&group| group != getpgrp()) {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_a_long_speech_the_beginning_is_kept() {
        let long = [b"why: ".as_slice(), &vec![b'x'; 10 * 1024 * 1024]].concat();
        let kept = beginning(Some(long.as_slice())).await;
        assert_eq!((kept.len(), &kept[..5]), (KEPT, b"why: ".as_slice()));
        assert!(kept.capacity() <= 2 * KEPT);
        assert!(beginning(None::<&[u8]>).await.is_empty());
    }
}
