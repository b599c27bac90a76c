//! Leases on disks: one launcher writes a disk, also on storage where QEMU's own locks do not reach other nodes.
//!
//! A file beside the disk names the launcher that may write it, with a number that it raises every few seconds.
//!
//! | who | finds | does |
//! |---|---|---|
//! | who starts a guest | no lease | makes one |
//! | | a lease whose number rises | does not start: somebody writes there |
//! | | a lease that stands still for [`SILENCE`] | takes it, and starts if it still has it after [`CHECK`] |
//! | who has the lease | that it could not be renewed for [`PATIENCE`] | pauses its guest, until it can |
//! | | another's name on it | pauses its guest, for good: nothing is killed, and nothing is written |
//! | the target of a move | | takes it when the source has told it to run the guest, and gives it back if it cannot |
//!
//! Who has lost its storage pauses before anybody else may take the lease, because [`PATIENCE`] is shorter than [`SILENCE`]. What this
//! does not catch: a launcher that is stopped by a debugger while its QEMU is not. Clocks need not agree: only spans are measured.
//!
//! Where locks reach everybody, QEMU's do all of this, at once and without a file: there are no leases. Block devices have no place for
//! one: there the storage's access mode and the hand-over of a move are all that keeps a second writer away.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::messages::{DomainState, PauseReason};
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::description::Description;
use crate::guest::Guest;

/// Between two renewals. Shorter costs the storage a write for every guest; longer makes everything below longer.
const BEAT: Duration = Duration::from_secs(3);
/// How long the guest runs on when the lease cannot be renewed.
const PATIENCE: Duration = Duration::from_secs(12);
/// How long a lease has to stand still before its holder counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// How long one who took a lease waits for somebody else who did.
const CHECK: Duration = Duration::from_secs(6);

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The launcher that may write.
    holder: String,
    /// Its pod, for people.
    host: String,
    /// Raised with every renewal.
    beat: u64,
}

/// A disk that this launcher may write. Given up when this is dropped.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    ours: Record,
    /// The file of our own. Whoever takes the lease puts another in its place, so that a late renewal of ours changes nothing.
    file: File,
}

/// What became of a renewal.
#[derive(Debug, PartialEq, Eq)]
enum Renewed {
    Done,
    /// Somebody in this pod has it.
    Taken(String),
}

/// A name for this launcher that no other has.
fn identity() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Where the lease of a disk is, and what this launcher would write there.
fn draft(disk: &Path, holder: &str) -> (PathBuf, Record) {
    let name = disk.file_name().unwrap_or_default().to_string_lossy();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    (disk.with_file_name(format!(".{name}.lease")), Record { holder: holder.to_owned(), host, beat: 1 })
}

impl Lease {
    /// Gets the right to write a disk, or says who has it.
    async fn acquire(disk: &Path, holder: &str) -> Result<Self, String> {
        let (path, ours) = draft(disk, holder);
        let failed = |error: io::Error| format!("the lease {}: {error}", path.display());
        loop {
            if let Some(file) = create(&path, &ours).map_err(failed)? {
                return Ok(Self { path, ours, file });
            }
            let Some(first) = read(&path).map_err(failed)? else { continue };
            tracing::warn!(path = %path.display(), host = first.host, "the disk has a lease; is it renewed?");
            match watch(&path, &first).await.map_err(failed)? {
                Watched::Gone => continue,
                Watched::Renewed(by) => return Err(in_use(&path, &by)),
                Watched::Silent => {}
            }
            let file = replace(&path, &ours).map_err(failed)?;
            sleep(CHECK).await;
            match read(&path).map_err(failed)? {
                Some(record) if record == ours => return Ok(Self { path, ours, file }),
                Some(record) => return Err(in_use(&path, &record)),
                None => {}
            }
        }
    }

    /// Takes the right to write over from whoever had it, by its own word.
    fn seize(disk: &Path, holder: &str) -> io::Result<Self> {
        let (path, ours) = draft(disk, holder);
        let file = replace(&path, &ours)?;
        Ok(Self { path, ours, file })
    }

    /// Shows that this launcher lives.
    fn renew(&mut self) -> io::Result<Renewed> {
        self.ours.beat += 1;
        let written = self.file.write_all_at(&encoded(&self.ours)?, 0).and_then(|()| self.file.sync_all());
        // What counts is who is named there now, after a write that may have taken long.
        match read(&self.path)? {
            Some(record) if record.holder != self.ours.holder => return Ok(Renewed::Taken(record.host)),
            Some(_) => written?,
            None => match create(&self.path, &self.ours)? {
                Some(file) => self.file = file,
                None => return Ok(Renewed::Taken("an unknown pod".to_owned())),
            },
        }
        Ok(Renewed::Done)
    }

    /// It is ours again: nobody else ran the guest.
    fn retake(&mut self) -> io::Result<()> {
        self.ours.beat += 1;
        self.file = replace(&self.path, &self.ours)?;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let is_ours = read(&self.path).is_ok_and(|record| record.is_some_and(|it| it.holder == self.ours.holder));
        if is_ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the lease of a disk stays: the next start waits for its silence");
        }
    }
}

fn in_use(path: &Path, by: &Record) -> String {
    format!(
        "the disk beside {} is written by the launcher in {}: end that one first; two guests on one disk destroy it",
        path.display(),
        by.host
    )
}

fn encoded(record: &Record) -> io::Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(io::Error::other)
}

fn fill(mut file: File, record: &Record) -> io::Result<File> {
    file.write_all(&encoded(record)?)?;
    file.sync_all()?;
    Ok(file)
}

/// Makes the file, unless there is one.
fn create(path: &Path, record: &Record) -> io::Result<Option<File>> {
    match File::create_new(path) {
        Ok(file) => fill(file, record).map(Some),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts another file in place of whatever is there.
fn replace(path: &Path, record: &Record) -> io::Result<File> {
    let draft = path.with_extension(&record.holder);
    let file = fill(File::create(&draft)?, record)?;
    std::fs::rename(&draft, path)?;
    Ok(file)
}

/// What the file says; one that is just being made says nothing yet.
fn read(path: &Path) -> io::Result<Option<Record>> {
    match std::fs::read(path) {
        Ok(text) => {
            let unknown = Record { holder: String::new(), host: "an unknown pod".to_owned(), beat: 0 };
            Ok(Some(serde_json::from_slice(&text).unwrap_or(unknown)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

enum Watched {
    Gone,
    Renewed(Record),
    Silent,
}

async fn watch(path: &Path, first: &Record) -> io::Result<Watched> {
    let mut waited = Duration::ZERO;
    while waited < SILENCE {
        sleep(BEAT).await;
        waited += BEAT;
        match read(path)? {
            None => return Ok(Watched::Gone),
            Some(record) if record != *first => return Ok(Watched::Renewed(record)),
            Some(_) => {}
        }
    }
    Ok(Watched::Silent)
}

/// The disks of a domain that need a lease: files that it writes, that are not copied, on storage whose locks stay on the node.
fn disks(xml: &str, copied: &[String]) -> Result<Vec<PathBuf>, String> {
    let description = Description::parse(xml).map_err(|error| error.to_string())?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("mountinfo: {error}"))?;
    let is_written = |target: &String| !copied.contains(target) && !description.read_only.contains(target);
    let files = description.files.iter().filter(|(target, _)| is_written(target)).map(|(_, file)| PathBuf::from(file));
    let needs_lease = |file: &PathBuf| {
        let real = file.canonicalize().unwrap_or_else(|_| file.clone());
        !locks_reach_everybody(&mounts, &real) && has_room(&real)
    };
    Ok(files.filter(needs_lease).collect())
}

/// Whether a file can be made beside a disk. Where not, the guest runs all the same, as guarded as the storage is.
fn has_room(disk: &Path) -> bool {
    let directory = disk.parent().unwrap_or(Path::new("/"));
    let can = access(directory, Access::WRITE_OK);
    if let Err(error) = can {
        tracing::warn!(%error, disk = %disk.display(), "the disk has neither locks that reach other nodes nor room for a lease");
    }
    can.is_ok()
}

/// Gets the right to write all disks of a guest that starts here.
pub async fn acquire(xml: &str) -> Result<Vec<Lease>, String> {
    let (disks, mut leases) = (disks(xml, &[])?, Vec::new());
    let holder = identity().map_err(|error| format!("a name for this launcher: {error}"))?;
    for disk in disks {
        leases.push(Lease::acquire(&disk, &holder).await?);
    }
    Ok(leases)
}

/// Takes the right to write the disks of a guest that moves here, which its source has stopped.
pub fn seize(xml: &str, copied: &[String]) -> Result<Vec<Lease>, String> {
    let failed = |error: io::Error| format!("the lease of a disk cannot be taken over: {error}");
    let holder = identity().map_err(failed)?;
    disks(xml, copied)?.iter().map(|disk| Lease::seize(disk, &holder).map_err(failed)).collect()
}

/// Keeps leases as long as the guest lives here, and pauses it when they are lost.
pub fn keep(guest: &Arc<Guest>, leases: Vec<Lease>) {
    if !leases.is_empty() {
        guest.run("leases", Keeper { guest: guest.clone(), leases, was_doubtful: false, has_paused: false }.run());
    }
}

struct Keeper {
    guest: Arc<Guest>,
    leases: Vec<Lease>,
    /// The guest may have run elsewhere.
    was_doubtful: bool,
    /// The guest stands still because of us.
    has_paused: bool,
}

impl Keeper {
    async fn run(mut self) {
        let mut reports = self.guest.watch();
        loop {
            let ended = reports.wait_for(|report| matches!(report.state, DomainState::Off(_)));
            if timeout(BEAT, ended).await.is_ok() {
                return;
            }
            // It stands still, and who has it is decided elsewhere.
            if self.guest.is_in_doubt() {
                self.was_doubtful = true;
                continue;
            }
            if self.is_kept().await { self.go_on().await } else { self.pause().await }
        }
    }

    /// Renews all. Storage may not answer at all, so that a thread of its own waits for it.
    async fn is_kept(&mut self) -> bool {
        let (mut leases, retake) = (std::mem::take(&mut self.leases), std::mem::take(&mut self.was_doubtful));
        let mut renewing = tokio::task::spawn_blocking(move || {
            let kept = leases.iter_mut().all(|lease| renewed(lease, retake));
            (leases, kept)
        });
        let done = match timeout(PATIENCE, &mut renewing).await {
            Ok(done) => done,
            Err(_) => {
                tracing::error!("the storage does not answer; the guest is paused until it does");
                self.pause().await;
                renewing.await
            }
        };
        let Ok((leases, kept)) = done else { return false };
        self.leases = leases;
        kept
    }

    async fn pause(&mut self) {
        if let (DomainState::Running, Ok((libvirt, domain))) = (self.guest.report().state, self.guest.alive()) {
            match libvirt.suspend(&domain).await {
                Ok(()) => self.has_paused = true,
                Err(error) => tracing::error!(%error, "a guest that must not write could not be paused"),
            }
        }
    }

    async fn go_on(&mut self) {
        let is_paused = matches!(self.guest.report().state, DomainState::Paused(PauseReason::User));
        if std::mem::take(&mut self.has_paused)
            && is_paused
            && let Ok((libvirt, domain)) = self.guest.alive()
            && let Err(error) = libvirt.resume(&domain).await
        {
            tracing::error!(%error, "the guest has its disks again and could not go on");
            self.has_paused = true;
        }
    }
}

fn renewed(lease: &mut Lease, retake: bool) -> bool {
    let renewed = if retake { lease.retake().map(|()| Renewed::Done) } else { lease.renew() };
    match renewed {
        Ok(Renewed::Done) => true,
        Ok(Renewed::Taken(host)) => {
            tracing::error!(path = %lease.path.display(), host, "the disk was taken by another launcher; the guest stays paused");
            false
        }
        Err(error) => {
            tracing::error!(%error, path = %lease.path.display(), "the lease of a disk cannot be renewed");
            false
        }
    }
}

/// Whether a lock on this file is seen by every node that has the file: said by the mount that it is on.
fn locks_reach_everybody(mountinfo: &str, file: &Path) -> bool {
    let mounts = mountinfo.lines().filter_map(Mount::parse).filter(|mount| file.starts_with(&mount.point));
    // Of mounts at the same place the last one counts.
    let Some(mount) = mounts.max_by_key(|mount| mount.point.as_os_str().len()) else { return true };
    let has = |wanted: &[&str]| mount.options.split(',').any(|option| wanted.contains(&option));
    match mount.kind {
        "nfs" | "nfs4" => !has(&["nolock", "local_lock=all", "local_lock=posix"]),
        "cifs" | "smb3" => !has(&["nobrl", "forcemandatorylock"]),
        "9p" | "virtiofs" => false,
        "fuse.glusterfs" | "fuse.ceph" | "fuse.ceph-fuse" => true,
        kind => !kind.starts_with("fuse"),
    }
}

struct Mount<'a> {
    point: PathBuf,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.replace("\\040", " ");
        let mut rest = after.split(' ');
        let kind = rest.next()?;
        Some(Self { point: point.into(), kind, options: rest.nth(1).unwrap_or_default() })
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
