//! What QEMU left behind when it ended: how its process ended, and the last lines that it wrote to its log.
//!
//! Log and exit status go with the pod, so they travel with the last report: without them nobody can tell a crash of QEMU from a kill.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ferrovirt_launcher_rpc::paths;
use rustix::fs::OFlags;

use crate::reaper::Exit;

/// How much of the log's end is looked at.
const TAIL: u64 = 4 << 10;
/// How many lines are told.
const LINES: usize = 4;
/// How many bytes are told: events have room for 1,024, and the last words of a container for 4,096 in all.
const LENGTH: usize = 600;

/// Where libvirt has QEMU write to.
pub fn log_directory() -> PathBuf {
    Path::new(paths::PRIVATE).join("libvirt/qemu/log")
}

/// What there is to tell about QEMU's end, in a sentence.
pub fn of_qemu(exit: Option<Exit>, directory: &Path) -> Option<String> {
    let mut told = exit.map(|exit| format!("QEMU ended with {exit}")).unwrap_or_default();
    let log = newest(directory).and_then(|path| read_tail(&path).ok()).unwrap_or_default();
    let lines = essence(&log);
    if !lines.is_empty() {
        let separator = if told.is_empty() { "QEMU wrote" } else { ", and wrote" };
        let _ = write!(told, "{separator}: {lines}");
    }
    (!told.is_empty()).then_some(told)
}

/// A launcher has one domain; a log of another name is of an earlier try.
fn newest(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let logs = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "log"));
    logs.max_by_key(|entry| entry.metadata().and_then(|metadata| metadata.modified()).ok()).map(|entry| entry.path())
}

/// The file is QEMU's: no link is followed, and nothing waited for.
fn read_tail(path: &Path) -> io::Result<String> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(String::new());
    }
    let mut tail = vec![0; usize::try_from(metadata.len().min(TAIL)).unwrap_or_default()];
    let count = file.read_at(&mut tail, metadata.len().saturating_sub(TAIL))?;
    tail.truncate(count);
    let text = String::from_utf8_lossy(&tail);
    // A tail begins in the middle of a line.
    let begin = if metadata.len() > TAIL { text.find('\n').map_or(text.len(), |end| end + 1) } else { 0 };
    Ok(text[begin..].to_owned())
}

/// The last lines of a log that QEMU wrote, without libvirt's own and without what is always there.
fn essence(log: &str) -> String {
    // libvirt writes the command in lines that end with a backslash, but for the last.
    let mut in_command = false;
    let mut lines: Vec<&str> = Vec::new();
    for line in log.lines().map(str::trim) {
        let was_in_command = std::mem::replace(&mut in_command, line.ends_with('\\'));
        let is_noise = was_in_command
            || in_command
            || line.is_empty()
            || [": starting up libvirt version", ": shutting down, reason=", "char device redirected to "]
                .iter()
                .any(|noise| line.contains(noise));
        if !is_noise {
            lines.push(line);
        }
    }
    let last = lines.split_off(lines.len().saturating_sub(LINES)).join("; ");
    let printable: String = last.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    // The end says why.
    let start = (printable.len().saturating_sub(LENGTH)..=printable.len()).find(|at| printable.is_char_boundary(*at));
    printable[start.unwrap_or_default()..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "2026-11-19 06:59:49.281+0000: starting up libvirt version: 9.0.0, qemu version: 7.2.22\n\
        LC_ALL=C \\\nPATH=/usr/bin \\\n/usr/bin/qemu-system-x86_64 \\\n-name guest=default_demo \\\n-msg timestamp=on\n\
        char device redirected to /dev/pts/0 (label charserial0)\n";

    #[test]
    fn of_a_log_what_qemu_said_last_remains() {
        let said = "qemu-system-x86_64: ../block/io.c:1933: bdrv_co_write_req_prepare: Assertion `x' failed.";
        let log = format!("{START}{said}\n2026-11-19 07:00:49.281+0000: shutting down, reason=crashed\n");
        assert_eq!(essence(&log), said);
        assert_eq!(essence(START), "");
        // A tail may begin in the middle of the command.
        assert_eq!(essence(&log[log.find("PATH").unwrap()..]), said);
        let many: String = (0..9).map(|i| format!("line {i}\n")).collect();
        assert_eq!(essence(&many), "line 5; line 6; line 7; line 8");
        let long = format!("{}é\u{7}", "x".repeat(2000));
        assert!(essence(&long).len() <= LENGTH && essence(&long).ends_with("xé?"));
    }

    #[test]
    fn an_end_is_told_with_what_there_is() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(of_qemu(None, directory.path()), None);
        assert_eq!(of_qemu(Some(Exit::Signal(9)), directory.path()).unwrap(), "QEMU ended with signal 9");
        std::fs::write(directory.path().join("a.log"), format!("{START}out of memory\n")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", directory.path().join("b.txt")).unwrap();
        assert_eq!(
            of_qemu(Some(Exit::Code(1)), directory.path()).unwrap(),
            "QEMU ended with code 1, and wrote: out of memory"
        );
        assert_eq!(of_qemu(None, directory.path()).unwrap(), "QEMU wrote: out of memory");
    }

    #[test]
    fn of_a_long_log_whole_lines_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        std::fs::write(&path, format!("{}\nthe end\n", "x".repeat(5000))).unwrap();
        assert_eq!(read_tail(&path).unwrap(), "the end\n");
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(read_tail(&path).unwrap(), "short\n");
    }

    #[test]
    fn a_log_that_is_no_file_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", directory.path().join("a.log")).unwrap();
        assert_eq!(of_qemu(None, directory.path()), None);
    }
}
