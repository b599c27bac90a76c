//! Connections of a move as descriptors: the handler gets one end (`SCM_RIGHTS`), the other is ours or QEMU's.
//!
//! ```text
//!   source   QEMU ──► listener here ──► accepted socket ──► handler        target   handler ──► socket connected to QEMU's listener
//!            link ──► one end of a pair ──────────────────► handler                 handler ──► one end of a pair ──► link
//! ```

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrovirt_launcher_rpc::migration::{Channel, Connection};
use ferrovirt_launcher_rpc::paths;
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

use crate::refusal::Refused;
use crate::server::{Answer, empty};

/// What a caller has to write into `Upgrade`.
pub const PROTOCOL: &str = "descriptor";

/// A connection and what it is for.
pub type Outgoing = (Channel, OwnedFd);

/// Connections that the handler has not taken yet, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    connections: VecDeque<Outgoing>,
    is_closed: bool,
}

impl Outbox {
    /// Adds one; when nobody wants it any more it is closed, and `false`.
    pub fn put(&self, connection: Outgoing) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.is_closed {
            waiting.connections.push_back(connection);
            self.news.notify_one();
        }
        !waiting.is_closed
    }

    /// Nobody wants connections any more: those that wait are closed, and so will be those that come.
    pub fn close(&self) {
        *self.waiting.lock() = Waiting { connections: VecDeque::new(), is_closed: true };
        self.news.notify_waiters();
    }

    /// Waits for the next one; `None` when there will be none any more.
    pub async fn take(&self) -> Option<Outgoing> {
        loop {
            let news = self.news.notified();
            {
                let mut waiting = self.waiting.lock();
                if let Some(connection) = waiting.connections.pop_front() {
                    if !waiting.connections.is_empty() {
                        self.news.notify_one();
                    }
                    return Some(connection);
                }
                if waiting.is_closed {
                    return None;
                }
            }
            news.await;
        }
    }
}

/// Which side of a move a socket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// QEMU connects to it.
    Source,
    /// QEMU listens on it.
    Target,
}

/// The socket of a channel. A launcher makes one move at a time.
pub fn socket(side: Side, channel: Channel) -> PathBuf {
    let side = match side {
        Side::Source => "from",
        Side::Target => "to",
    };
    Path::new(paths::PRIVATE).join("migration").join(format!("{side}-{}", channel.name()))
}

/// The same as libvirt wants to be told.
pub fn uri(side: Side, channel: Channel) -> String {
    format!("unix://{}", socket(side, channel).display())
}

/// Makes the directory of the sockets and removes what an earlier move left there.
pub fn make_room(side: Side) -> io::Result<()> {
    for channel in [Channel::Memory, Channel::Disks] {
        let path = socket(side, channel);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Listens for QEMU at the source.
pub fn listen(channel: Channel) -> io::Result<UnixListener> {
    UnixListener::bind(socket(Side::Source, channel))
}

/// Hands what QEMU connects to the handler, or closes it when nobody wants it any more.
pub async fn accept(listener: UnixListener, channel: Channel, outbox: Arc<Outbox>) {
    loop {
        let accepted = listener.accept().await.and_then(|(socket, _)| descriptor(socket));
        match accepted {
            // One that is closed again tells QEMU more than one that cannot be made.
            Ok(socket) => drop(outbox.put((channel, socket))),
            Err(error) => {
                tracing::error!(%error, channel = channel.name(), "a connection of QEMU could not be accepted");
                return;
            }
        }
    }
}

/// Connects to QEMU at the target.
pub async fn connect(channel: Channel) -> io::Result<OwnedFd> {
    descriptor(UnixStream::connect(socket(Side::Target, channel)).await?)
}

/// A link: our end, and the one for the handler.
pub fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    Ok((ours, descriptor(theirs)?))
}

fn descriptor(socket: UnixStream) -> io::Result<OwnedFd> {
    Ok(socket.into_std()?.into())
}

/// Whether the caller can take a descriptor.
pub fn check(request: &Request<Incoming>) -> Result<(), Refused> {
    let wanted = request.headers().get(header::UPGRADE).is_some_and(|value| value.as_bytes() == PROTOCOL.as_bytes());
    if wanted { Ok(()) } else { Err(Refused::NoDescriptorUpgrade) }
}

/// Answers with a line and a descriptor.
pub fn hand_over(request: Request<Incoming>, connection: Option<Connection>, socket: OwnedFd) -> Answer {
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let sent = async {
            let upgraded = upgraded.await.map_err(io::Error::other)?;
            let parts = upgraded
                .downcast::<TokioIo<UnixStream>>()
                .map_err(|_| io::Error::other("the connection is no Unix socket"))?;
            send(&parts.io.into_inner(), &line(connection), socket.as_fd()).await
        };
        if let Err(error) = sent.await {
            // The socket is closed with its descriptor: whoever waits at its other end hears of it.
            tracing::warn!(%error, "a connection of the move could not be handed over");
        }
    });
    let mut answer = Response::new(empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static(PROTOCOL));
    answer
}

fn line(connection: Option<Connection>) -> Vec<u8> {
    let mut line = connection.and_then(|connection| serde_json::to_vec(&connection).ok()).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Sends one message with one descriptor.
pub async fn send(to: &UnixStream, line: &[u8], socket: BorrowedFd<'_>) -> io::Result<()> {
    let sent = to
        .async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let sockets = [socket];
            control.push(SendAncillaryMessage::ScmRights(&sockets));
            Ok(sendmsg(to, &[IoSlice::new(line)], &mut control, SendFlags::NOSIGNAL)?)
        })
        .await?;
    if sent == line.len() { Ok(()) } else { Err(io::Error::other("a short line was cut")) }
}

#[cfg(test)]
mod tests {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_descriptor_arrives_with_its_line() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut end, sent) = pair().unwrap();
        send(&ours, b"{}\n", sent.as_fd()).await.unwrap();
        drop(sent);
        theirs.readable().await.unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [0; 16];
        let message =
            recvmsg(&theirs, &mut [io::IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::empty()).unwrap();
        assert_eq!(&buffer[..message.bytes], b"{}\n");
        let Some(RecvAncillaryMessage::ScmRights(mut received)) = control.drain().next() else { panic!("no rights") };
        let mut other = UnixStream::from_std(received.next().unwrap().into()).unwrap();
        end.write_all(b"hello").await.unwrap();
        let mut text = [0; 5];
        other.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"hello");
    }

    #[tokio::test]
    async fn connections_are_taken_in_order() {
        let outbox = Outbox::default();
        for channel in [Channel::Link, Channel::Memory] {
            assert!(outbox.put((channel, pair().unwrap().1)));
        }
        assert_eq!(outbox.take().await.unwrap().0, Channel::Link);
        assert_eq!(outbox.take().await.unwrap().0, Channel::Memory);
        let (next, ()) = tokio::join!(outbox.take(), async {
            tokio::task::yield_now().await;
            outbox.put((Channel::Disks, pair().unwrap().1));
        });
        assert_eq!(next.unwrap().0, Channel::Disks);
    }

    /// Whoever waits at the other end hears of it, whether a handler is there or not.
    #[tokio::test]
    async fn what_nobody_wants_is_closed() {
        let outbox = Outbox::default();
        let ((mut waits, early), (mut comes, late)) = (pair().unwrap(), pair().unwrap());
        outbox.put((Channel::Memory, early));
        outbox.close();
        assert!(!outbox.put((Channel::Memory, late)));
        for end in [&mut waits, &mut comes] {
            assert_eq!(end.read(&mut [0]).await.unwrap(), 0);
        }
        assert!(outbox.take().await.is_none());
    }

    #[tokio::test]
    async fn a_handler_that_waits_hears_that_nothing_comes() {
        let outbox = Outbox::default();
        let (taken, ()) = tokio::join!(outbox.take(), async {
            tokio::task::yield_now().await;
            outbox.close();
        });
        assert!(taken.is_none());
    }

    #[test]
    fn sockets_fit_into_an_address() {
        for side in [Side::Source, Side::Target] {
            for channel in [Channel::Memory, Channel::Disks] {
                assert!(socket(side, channel).as_os_str().len() < 108);
            }
        }
        assert_ne!(socket(Side::Source, Channel::Disks), socket(Side::Target, Channel::Disks));
    }
}
