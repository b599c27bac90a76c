//! What the guest wrote to its serial port: kept within bounds, because the guest decides how much it writes, and shown to any number
//! of viewers, who take the console from nobody.
//!
//! QEMU appends to the log. Of a log that grew too large the beginning stays (how the guest booted) and the end (what it does now);
//! between them a hole is punched, which gives the space back and leaves every position where it was, so viewers go on undisturbed.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::paths;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::guest::Guest;

/// The beginning that stays.
const HEAD: u64 = 256 << 10;
/// The end that stays, at least.
const TAIL: u64 = 1 << 20;
/// The space from which on the middle goes.
const LOG_MAX: u64 = 4 << 20;
/// Holes begin and end at pages.
const PAGE: u64 = 4096;
/// A serial port under emulation writes some MiB in this time at most.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often a viewer's log is looked at: fast for a person, and many bytes at once.
const LOOK: Duration = Duration::from_millis(50);
/// How much is read at once.
const CHUNK: usize = 32 << 10;

/// Trims the log whenever it is too large.
pub async fn keep_small(uid: String) {
    let path = paths::serial_log(&uid);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = trim(Path::new(&path), LOG_MAX, HEAD, TAIL) {
            tracing::warn!(%error, path, "the serial log cannot be trimmed");
        }
    }
}

/// By the space that it takes, not by its length, which only grows.
fn trim(path: &Path, limit: u64, head: u64, tail: u64) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let nofollow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let file = match options.write(true).custom_flags(nofollow).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.blocks() * 512 <= limit {
        return Ok(());
    }
    let end = metadata.len().saturating_sub(tail) / PAGE * PAGE;
    let length = end.saturating_sub(head);
    if length == 0 {
        return Ok(());
    }
    match fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, head, length) {
        // A file system without holes: the log begins anew.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(0),
        done => Ok(done?),
    }
}

/// How a viewer wants to see the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// From the beginning; otherwise from now on.
    pub history: bool,
    /// Until the guest ends; otherwise until now.
    pub follow: bool,
}

impl View {
    /// `log=true` and `watch=true` of a console's query; without them the console itself is meant.
    pub fn parse(query: Option<&str>) -> Option<Self> {
        let is_on = |name: &str| query.is_some_and(|query| query.split('&').any(|part| part == format!("{name}=true")));
        let view = Self { history: is_on("log"), follow: is_on("watch") };
        (view.history || view.follow).then_some(view)
    }
}

/// One who looks at the log.
pub struct Viewer {
    reader: Reader,
    follow: bool,
}

impl Viewer {
    /// Looks at the log of the guest with this uid from now on.
    pub fn open(uid: &str, view: View) -> io::Result<Self> {
        Self::new(File::open(paths::serial_log(uid))?, view)
    }

    fn new(log: File, view: View) -> io::Result<Self> {
        let position = if view.history { 0 } else { log.metadata()?.len() };
        Ok(Self { reader: Reader { log, position }, follow: view.follow })
    }

    /// Shows the log until it ends, the viewer leaves or the guest does. What a viewer types goes nowhere.
    pub async fn show(mut self, guest: Arc<Guest>, viewer: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let (mut typed, mut shown) = tokio::io::split(viewer);
        let showing = async {
            loop {
                // Asked before reading, so that the last words of a guest that ends meanwhile are read in the next round.
                let is_alive = guest.life().is_alive();
                self.reader.copy(&mut shown).await?;
                if !self.follow || !is_alive {
                    return shown.shutdown().await;
                }
                sleep(LOOK).await;
            }
        };
        let leaving = async {
            let mut ignored = [0; 64];
            while typed.read(&mut ignored).await.is_ok_and(|length| length > 0) {}
        };
        tokio::select! {
            shown = showing => shown,
            () = leaving => Ok(()),
        }
    }
}

/// A position in the log.
pub struct Reader {
    log: File,
    position: u64,
}

impl Reader {
    /// At the beginning of a log.
    pub fn new(log: File) -> Self {
        Self { log, position: 0 }
    }

    /// Copies what there is beyond the position.
    pub async fn copy(&mut self, output: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        while let Some((start, end)) = self.next()? {
            if start > self.position {
                let lost = (start - self.position).div_ceil(1024);
                let note = format!("\r\n[{lost} KiB of the guest's output were not kept]\r\n");
                output.write_all(note.as_bytes()).await?;
            }
            self.position = start;
            while self.position < end {
                let wanted = usize::try_from(end - self.position).unwrap_or(CHUNK).min(CHUNK);
                let length = self.log.read_at(&mut buffer[..wanted], self.position)?;
                if length == 0 {
                    break;
                }
                output.write_all(&buffer[..length]).await?;
                self.position += length as u64;
            }
            output.flush().await?;
        }
        Ok(())
    }

    /// The next stretch of bytes that were kept.
    fn next(&mut self) -> io::Result<Option<(u64, u64)>> {
        let length = self.log.metadata()?.len();
        if length < self.position {
            // It began anew.
            self.position = 0;
        }
        if length == self.position {
            return Ok(None);
        }
        let start = match seek(&self.log, SeekFrom::Data(self.position)) {
            Err(Errno::NXIO) => return Ok(None),
            found => found?,
        };
        let end = seek(&self.log, SeekFrom::Hole(start))?;
        Ok(Some((start, end)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::guest::for_tests;
    use crate::life::Life;

    struct Log {
        path: std::path::PathBuf,
        writer: File,
        _directory: tempfile::TempDir,
    }

    fn log() -> Log {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let writer = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        Log { path, writer, _directory: directory }
    }

    async fn read(path: &Path) -> String {
        let mut output = Vec::new();
        Reader { log: File::open(path).unwrap(), position: 0 }.copy(&mut output).await.unwrap();
        String::from_utf8(output).unwrap()
    }

    #[tokio::test]
    async fn of_a_large_log_the_beginning_and_the_end_stay() {
        let mut log = log();
        for letter in [b'a', b'b', b'c', b'd'] {
            log.writer.write_all(&[letter; 8192]).unwrap();
        }
        trim(&log.path, 32768, 8192, 8192).unwrap();
        assert_eq!(std::fs::metadata(&log.path).unwrap().blocks() * 512, 32768, "it was not too large");
        log.writer.write_all(&[b'e'; 4096]).unwrap();
        trim(&log.path, 32768, 8192, 8192).unwrap();
        log.writer.write_all(b"more").unwrap();
        assert!(std::fs::metadata(&log.path).unwrap().blocks() * 512 <= 32768);
        let shown = read(&log.path).await;
        let (beginning, rest) = shown.split_once("\r\n[").unwrap();
        let (note, end) = rest.split_once("]\r\n").unwrap();
        assert_eq!(beginning, "a".repeat(8192));
        assert_eq!(note, "20 KiB of the guest's output were not kept");
        assert_eq!(end, format!("{}{}more", "d".repeat(4096), "e".repeat(4096)));
        trim(&log.path, 1, 8192, 8192).unwrap();
        assert_eq!(read(&log.path).await, shown, "trimming again changes nothing");
    }

    #[tokio::test]
    async fn a_log_that_began_anew_is_read_from_its_beginning() {
        let mut log = log();
        log.writer.write_all(b"before").unwrap();
        let mut reader = Reader { log: File::open(&log.path).unwrap(), position: 6 };
        let mut output = Vec::new();
        log.writer.set_len(0).unwrap();
        log.writer.write_all(b"anew").unwrap();
        reader.copy(&mut output).await.unwrap();
        assert_eq!(output, b"anew");
    }

    #[test]
    fn no_log_is_no_error_and_a_link_is_not_followed() {
        trim(Path::new("/nonexistent"), 1, 1, 1).unwrap();
        let log = log();
        let link = log.path.with_extension("link");
        std::os::unix::fs::symlink(&log.path, &link).unwrap();
        assert!(trim(&link, 0, 0, 0).is_err());
    }

    #[test]
    fn a_view_is_asked_for() {
        assert_eq!(View::parse(None), None);
        assert_eq!(View::parse(Some("log=false&other=true")), None);
        assert_eq!(View::parse(Some("log=true")), Some(View { history: true, follow: false }));
        assert_eq!(View::parse(Some("watch=true")), Some(View { history: false, follow: true }));
        assert_eq!(View::parse(Some("log=true&watch=true")), Some(View { history: true, follow: true }));
    }

    #[tokio::test]
    async fn viewers_see_what_comes_until_the_guest_ends() {
        let mut log = log();
        log.writer.write_all(b"booting\n").unwrap();
        let guest = for_tests();
        guest.change(Life::begin_start);
        guest.change(|life| life.created(false));
        let viewer = |view| Viewer::new(File::open(&log.path).unwrap(), view).unwrap();
        let mut viewers = Vec::new();
        for view in [View { history: true, follow: true }, View { history: false, follow: true }] {
            let (mut near, far) = tokio::io::duplex(1024);
            tokio::spawn(viewer(view).show(guest.clone(), far));
            near.write_all(b"typed in vain").await.unwrap();
            viewers.push(near);
        }
        (&log.writer).write_all(b"login: ").unwrap();
        guest.change(Life::vanished);
        for (viewer, expected) in viewers.iter_mut().zip(["booting\nlogin: ", "login: "]) {
            let mut all = String::new();
            viewer.read_to_string(&mut all).await.unwrap();
            assert_eq!(all, expected);
        }
        let (mut near, far) = tokio::io::duplex(1024);
        viewer(View { history: true, follow: false }).show(for_tests(), far).await.unwrap();
        let mut all = String::new();
        near.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "booting\nlogin: ");
    }
}
