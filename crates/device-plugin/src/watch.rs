//! Notices that something in a directory came or went. What it was is for the reader to look at: an event only wakes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// The directories that are watched.
pub(crate) struct Watch {
    events: AsyncFd<OwnedFd>,
}

impl Watch {
    /// Watches the directory itself, or the nearest one above it that exists.
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut above = directory;
        while let Err(error) = inotify::add_watch(&events, above, flags) {
            match above.parent() {
                Some(parent) if error == Errno::NOENT => above = parent,
                _ => return Err(error.into()),
            }
        }
        #[expect(
            deprecated,
            reason = "deprecated for types whose descriptor may change or close under it; an owned descriptor does neither"
        )]
        let events = AsyncFd::new(events)?;
        Ok(Self { events })
    }

    /// Waits until something has happened, and takes note of all that has.
    pub(crate) async fn changed(&self) {
        if let Err(error) = self.next().await {
            // Only a kernel in trouble does this; whoever waits here has other ways to wake up, or none that would help.
            tracing::warn!(%error, "changes in a directory cannot be read");
            std::future::pending::<()>().await;
        }
    }

    async fn next(&self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut seen = false;
            let mut space = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(self.events.get_ref(), &mut space);
            loop {
                match reader.next() {
                    Ok(_) => seen = true,
                    Err(Errno::INTR) => {}
                    Err(Errno::WOULDBLOCK) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if seen {
                return Ok(());
            }
        }
    }
}
