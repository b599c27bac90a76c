//! A connection that a launcher hands over: one request, one descriptor.
//!
//! Launchers are hostile. What comes must be exactly one descriptor, of a connected Unix stream socket; whatever else comes is closed
//! unused. The exchange is read with room for descriptors from its first byte on: a descriptor that arrives together with the answer's
//! head would be lost to an ordinary read.
//!
//! The launcher may keep a copy of the socket and can make it block at any time; so every call on it says that it must not.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ferrovirt_launcher_rpc::messages::Refusal;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, Shutdown, SocketType,
    getpeername, recv, recvmsg, send, shutdown, sockopt,
};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use super::LauncherError;

/// The longest head, line or refusal.
const LONGEST: usize = 16 << 10;
/// Descriptors that one message can bring; the kernel closes those beyond. One more than allowed, to tell.
const ROOM: usize = 2;

/// What an answer brought.
#[derive(Debug)]
pub(super) struct Handed {
    /// The line beside the descriptor.
    pub(super) line: String,
    /// The descriptor, checked.
    pub(super) socket: HandedSocket,
}

/// The request for a descriptor.
pub(super) fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: launcher\r\nConnection: Upgrade\r\nUpgrade: descriptor\r\n\r\n")
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    ended: bool,
}

impl Reading {
    /// The answer's code and where its body begins, once its head is complete.
    fn head(&self) -> Result<Option<(u16, usize)>, LauncherError> {
        let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
        let code = self.bytes.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let code = code.and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        let code = code.ok_or_else(|| LauncherError::Protocol("the answer is not HTTP".to_owned()))?;
        Ok(Some((code, end + 4)))
    }

    /// How long the body of a refusal is, by its head.
    fn length(&self, body: usize) -> usize {
        let head = String::from_utf8_lossy(&self.bytes[..body]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        length.unwrap_or(LONGEST)
    }
}

/// Reads the answer: waits for its head as long as it takes, since the launcher may have nothing to connect yet.
pub(super) async fn receive(stream: &UnixStream) -> Result<Handed, LauncherError> {
    let mut reading = Reading::default();
    let (code, body) = loop {
        if let Some(head) = reading.head()? {
            break head;
        }
        more(stream, &mut reading).await?;
    };
    let rest = async {
        if code != 101 {
            return Err(refusal(stream, &mut reading, code, body).await);
        }
        let end = loop {
            match reading.bytes[body..].iter().position(|byte| *byte == b'\n') {
                Some(end) => break body + end,
                None => more(stream, &mut reading).await?,
            }
        };
        let line = String::from_utf8_lossy(&reading.bytes[body..end]).into_owned();
        Ok(Handed { line, socket: HandedSocket::check(std::mem::take(&mut reading.descriptors))? })
    };
    tokio::time::timeout(super::SHORT, rest).await.map_err(|_| LauncherError::Timeout(super::SHORT))?
}

/// 4xx: asking again is no use. 5xx: it may be.
async fn refusal(stream: &UnixStream, reading: &mut Reading, code: u16, body: usize) -> LauncherError {
    let wanted = body + reading.length(body);
    while reading.bytes.len() < wanted && !reading.ended {
        if more(stream, reading).await.is_err() {
            break;
        }
    }
    let refusal = serde_json::from_slice(&reading.bytes[body..])
        .unwrap_or_else(|_| Refusal { reason: "Unknown".to_owned(), message: format!("the launcher answered {code}") });
    if (400..500).contains(&code) { LauncherError::Refused(refusal) } else { LauncherError::Failed(refusal) }
}

/// Waits for more bytes and takes the descriptors that come with them.
async fn more(stream: &UnixStream, reading: &mut Reading) -> Result<(), LauncherError> {
    let broken = |error: io::Error| LauncherError::Unreachable(error.to_string());
    if reading.ended {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    if reading.bytes.len() >= LONGEST || reading.descriptors.len() > 1 {
        return Err(LauncherError::Protocol("the launcher sent more than was asked for".to_owned()));
    }
    loop {
        stream.readable().await.map_err(broken)?;
        match stream.try_io(Interest::READABLE, || take(stream, reading)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other.map_err(broken),
        }
    }
}

fn take(stream: &UnixStream, reading: &mut Reading) -> io::Result<()> {
    let mut bytes = [0_u8; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            reading.descriptors.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
    }
    reading.ended = received.bytes == 0;
    reading.bytes.extend_from_slice(&bytes[..received.bytes]);
    Ok(())
}

/// A socket that a launcher handed over.
#[derive(Debug)]
pub(super) struct HandedSocket(UnixStream);

impl HandedSocket {
    fn check(descriptors: Vec<OwnedFd>) -> Result<Self, LauncherError> {
        let wrong = |what: &str| LauncherError::Protocol(format!("the launcher handed over {what}"));
        let [socket] = <[OwnedFd; 1]>::try_from(descriptors)
            .map_err(|several| wrong(&format!("{} descriptors instead of one", several.len())))?;
        let is_stream = sockopt::socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM)
            && sockopt::socket_domain(&socket).is_ok_and(|domain| domain == AddressFamily::UNIX);
        if !is_stream {
            return Err(wrong("something that is not a Unix stream socket"));
        }
        if getpeername(&socket).is_err() {
            return Err(wrong("a socket that is not connected"));
        }
        let socket = std::os::unix::net::UnixStream::from(socket);
        let socket = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        Ok(Self(socket.map_err(|error| wrong(&format!("a socket that cannot be used: {error}")))?))
    }
}

impl AsyncRead for HandedSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            let read = self.0.try_io(Interest::READABLE, || {
                let read = recv(&self.0, buffer.initialize_unfilled(), RecvFlags::DONTWAIT);
                Ok(read.map(|(_, count)| count)?)
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for HandedSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_io(Interest::WRITABLE, || Ok(send(&self.0, bytes, flags)?)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(&self.0, Shutdown::Write) {
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
#[path = "descriptor_tests.rs"]
mod tests;
