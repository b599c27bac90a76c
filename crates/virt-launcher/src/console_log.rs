//! `virt-launcher console-log UID`: copies what the guest writes to its serial port to standard output, so that `kubectl logs -c
//! guest-console-log` shows it. A container of its own in the launcher pod, which sees nothing but that log.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ferrovirt_launcher_rpc::paths;
use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::AsyncWrite;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use crate::serial_log::Reader;

/// How the program is told to do this and nothing else.
pub const COMMAND: &str = "console-log";
/// Room for some dozen notices; what does not fit is read in the next round.
const NOTICES: usize = 4 << 10;

/// Shows the log of the guest with this uid until the pod ends.
pub async fn show(uid: &str) -> io::Result<()> {
    let mut termination = signal(SignalKind::terminate())?;
    let over = async {
        termination.recv().await;
    };
    follow(Path::new(&paths::serial_log(uid)), &mut tokio::io::stdout(), over).await
}

/// Copies the log from its beginning, and then what comes, until it is `over`. The log need not be there yet.
async fn follow(log: &Path, output: &mut (impl AsyncWrite + Unpin), over: impl Future<Output = ()>) -> io::Result<()> {
    let changes = Changes::new()?;
    let mut reader = None;
    let mut is_over = false;
    tokio::pin!(over);
    loop {
        if reader.is_none() {
            reader = changes.open(log)?.map(Reader::new);
        }
        if let Some(reader) = &mut reader {
            reader.copy(output).await?;
        }
        if is_over {
            return Ok(());
        }
        tokio::select! {
            changed = changes.wait() => changed?,
            () = &mut over => is_over = true,
        }
    }
}

/// What the kernel tells about the log and the directories above it.
struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    #[expect(
        deprecated,
        reason = "deprecated for types whose descriptor may change or close under it; an owned descriptor does neither"
    )]
    fn new() -> io::Result<Self> {
        Ok(Self(AsyncFd::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?)?))
    }

    /// The log, once it is there. What is not there yet is watched for, the outer directory first: nothing comes unseen in between.
    fn open(&self, log: &Path) -> io::Result<Option<File>> {
        let directories: Vec<&Path> = log.ancestors().skip(1).take(2).collect();
        for directory in directories.into_iter().rev() {
            self.watch(directory, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        }
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(log) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        self.watch(log, WatchFlags::MODIFY)?;
        Ok(Some(file))
    }

    fn watch(&self, path: &Path, what: WatchFlags) -> io::Result<()> {
        match inotify::add_watch(self.0.get_ref(), path, what) {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns when something has changed.
    async fn wait(&self) -> io::Result<()> {
        let mut notices = [0; NOTICES];
        loop {
            let mut ready = self.0.readable().await?;
            match rustix::io::read(self.0.get_ref(), &mut notices) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                read => return read.map(|_| ()).map_err(Into::into),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::AsyncReadExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_log_is_shown_from_its_beginning_as_it_grows_until_the_end() {
        let private = tempfile::tempdir().unwrap();
        let log = private.path().join("uid/log");
        let (mut shown, mut output) = tokio::io::duplex(1024);
        let (end, ends) = oneshot::channel::<()>();
        let path = log.clone();
        let task = tokio::spawn(async move { follow(&path, &mut output, async { drop(ends.await) }).await });
        // The follower waits for the directory, then for the file, then for more of it.
        tokio::task::yield_now().await;
        std::fs::create_dir(log.parent().unwrap()).unwrap();
        tokio::task::yield_now().await;
        let mut writer = File::create(&log).unwrap();
        let mut read = [0; 7];
        for text in [b"booting", b"another"] {
            writer.write_all(text).unwrap();
            shown.read_exact(&mut read).await.unwrap();
            assert_eq!(&read, text);
        }
        writer.write_all(b"the end").unwrap();
        end.send(()).unwrap();
        let mut rest = String::new();
        shown.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "the end");
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_link_in_its_place_is_not_followed() {
        let private = tempfile::tempdir().unwrap();
        let log = private.path().join("log");
        std::os::unix::fs::symlink("/etc/hostname", &log).unwrap();
        let (_shown, mut output) = tokio::io::duplex(1024);
        assert!(follow(&log, &mut output, std::future::pending()).await.is_err());
    }
}
