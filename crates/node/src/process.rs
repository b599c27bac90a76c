//! Processes that were not started by this process: found again, watched and signalled without ever meaning another one.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::descriptor;

/// A process by number, start and boot: numbers are used again, these three together are not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The number.
    pub pid: u32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
    /// Which boot.
    pub boot: String,
}

impl ProcessIdentity {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: start_ticks(pid)?, boot: boot()? })
    }
}

fn boot() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

fn start_ticks(pid: u32) -> Option<u64> {
    parse_start_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The program's name may hold anything, so fields are counted from its closing parenthesis. A process that ended and that its parent
/// has not looked at counts as gone.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A running process that is held by its descriptor.
#[derive(Debug)]
pub struct Process {
    descriptor: AsyncFd<OwnedFd>,
    identity: ProcessIdentity,
}

impl Process {
    /// Finds the process; `None` when it ended.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn find(identity: &ProcessIdentity) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(identity.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let descriptor = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Checked after it is held: from now on the number cannot become another process' without us noticing.
        if ProcessIdentity::of(identity.pid).as_ref() != Some(identity) {
            return Ok(None);
        }
        let descriptor = descriptor::register(descriptor, Interest::READABLE)?;
        Ok(Some(Self { descriptor, identity: identity.clone() }))
    }

    /// Who it is.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Sends a signal; a process that ended is fine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(self.descriptor.get_ref(), signal) {
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns when it ended.
    pub async fn ended(&self) {
        // An error here means that it cannot be watched any more, which is told to whoever looks next.
        let _ = self.descriptor.readable().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_do_not_confuse() {
        let stat = format!("7 (a) b) S {} 4242 0", (1..=18).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        assert_eq!(parse_start_ticks(&stat), Some(4242));
        assert_eq!(parse_start_ticks(&stat.replace(" S ", " Z ")), None);
    }

    #[tokio::test]
    async fn a_process_is_found_signalled_and_seen_to_end() {
        let mut child = tokio::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id().unwrap()).unwrap();
        let process = Process::find(&identity).unwrap().unwrap();
        let other = ProcessIdentity { start_ticks: identity.start_ticks + 1, ..identity.clone() };
        assert!(Process::find(&other).unwrap().is_none());
        process.signal(Signal::KILL).unwrap();
        process.ended().await;
        // Nobody waited for it yet, and it is gone all the same.
        assert!(Process::find(&identity).unwrap().is_none());
        child.wait().await.unwrap();
        assert!(Process::find(&identity).unwrap().is_none());
    }
}
