//! What stands between two launchers: takes their descriptors and copies bytes, as two handlers do. It can be cut.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ferrovirt_launcher_rpc::migration::{Channel, Connection};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::UnixStream;
use tokio::task::{AbortHandle, JoinSet};

use super::Pod;

/// What is lost on the way.
#[derive(Clone, Copy)]
pub(crate) enum Loses {
    /// Nothing.
    Nothing,
    /// The first link breaks instead of carrying a line with this word; another is joined.
    Once(&'static str),
    /// The same, and no other is joined.
    ForGood(&'static str),
}

/// Joins two launchers until it is dropped.
pub(crate) struct Between {
    task: AbortHandle,
    taken: Arc<Mutex<Vec<Channel>>>,
}

impl Between {
    /// Joins the connections of a move.
    pub(crate) fn join(source: &Pod, target: &Pod, id: &str) -> Self {
        Self::join_badly(source, target, id, Loses::Nothing)
    }

    /// Joins the connections of a move, and loses something.
    pub(crate) fn join_badly(source: &Pod, target: &Pod, id: &str, loses: Loses) -> Self {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let task = join(source.socket(), target.socket(), id.to_owned(), taken.clone(), loses);
        Self { task: tokio::spawn(task).abort_handle(), taken }
    }

    /// The channels of the connections that were made, in order.
    pub(crate) fn taken(&self) -> Vec<Channel> {
        self.taken.lock().unwrap().clone()
    }

    /// Breaks all connections; nothing is joined any more.
    pub(crate) fn cut(self) {}
}

impl Drop for Between {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn join(source: PathBuf, target: PathBuf, id: String, taken: Arc<Mutex<Vec<Channel>>>, loses: Loses) {
    let mut copies = JoinSet::new();
    let mut links = 0;
    loop {
        let path = format!("/v1/migration/outgoing?id={id}");
        // The move has not begun, or is over.
        let Ok((line, outgoing)) = descriptor(&source, path).await else {
            tokio::time::sleep(super::STEP * 5).await;
            continue;
        };
        let Connection { channel } = serde_json::from_str(&line).unwrap();
        taken.lock().unwrap().push(channel);
        links += usize::from(channel == Channel::Link);
        let word = match loses {
            Loses::ForGood(_) if channel == Channel::Link && links > 1 => continue,
            Loses::Once(word) | Loses::ForGood(word) if channel == Channel::Link && links == 1 => Some(word),
            _ => None,
        };
        let path = format!("/v1/migration/incoming?id={id}&channel={}", channel.name());
        if let Ok((_, incoming)) = descriptor(&target, path).await {
            copies.spawn(async move {
                let open = |socket: OwnedFd| UnixStream::from_std(socket.into()).unwrap();
                let (mut outgoing, mut incoming) = (open(outgoing), open(incoming));
                match word {
                    Some(word) => carry_until(word, outgoing, incoming).await,
                    None => drop(copy_bidirectional(&mut outgoing, &mut incoming).await),
                }
            });
        }
    }
}

/// Carries lines until one has the word, which is lost with the connection.
async fn carry_until(word: &str, source: UnixStream, target: UnixStream) {
    let ((from_source, mut to_source), (from_target, mut to_target)) = (source.into_split(), target.into_split());
    let mut from_source = BufReader::new(from_source).lines();
    let mut from_target = BufReader::new(from_target).lines();
    loop {
        let (line, to) = tokio::select! {
            line = from_source.next_line() => (line, &mut to_target),
            line = from_target.next_line() => (line, &mut to_source),
        };
        let Ok(Some(line)) = line else { return };
        if line.contains(word) || to.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Asks a launcher for a descriptor.
async fn descriptor(launcher: &Path, path: String) -> io::Result<(String, OwnedFd)> {
    let launcher = launcher.to_owned();
    let (sender, answer) = tokio::sync::oneshot::channel();
    // In a thread of its own: it may wait for ever, and ends with the launcher.
    std::thread::spawn(move || sender.send(receive(&launcher, &path)));
    answer.await.map_err(io::Error::other)?
}

fn receive(launcher: &Path, path: &str) -> io::Result<(String, OwnedFd)> {
    let mut socket = StdUnixStream::connect(launcher)?;
    write!(socket, "GET {path} HTTP/1.1\r\nhost: launcher\r\nconnection: upgrade\r\nupgrade: descriptor\r\n\r\n")?;
    let (mut text, mut received) = (String::new(), None);
    loop {
        // The descriptor may come with the end of the head, so every read takes what is there.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [0; 4096];
        let read = recvmsg(&socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::empty())?.bytes;
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                received = descriptors.next();
            }
        }
        if read == 0 || !text.starts_with("HTTP/1.1 101") && text.contains("\r\n\r\n") {
            return Err(io::Error::other(text));
        }
        if let (Some((_, line)), Some(descriptor)) = (text.split_once("\r\n\r\n"), received.take()) {
            return Ok((line.trim().to_owned(), descriptor));
        }
    }
}
