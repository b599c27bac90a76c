//! Terminals: the master side of a pseudo terminal that the runtime hands over.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use crate::descriptor;

/// The master side of a pseudo terminal.
pub(super) struct Terminal {
    descriptor: AsyncFd<OwnedFd>,
}

impl Terminal {
    /// Takes the descriptor that the runtime sends over its console socket.
    pub(super) async fn receive(stream: &UnixStream) -> io::Result<Self> {
        let descriptor = stream.async_io(Interest::READABLE, || receive_descriptor(stream)).await?;
        fcntl_setfl(&descriptor, fcntl_getfl(&descriptor)? | OFlags::NONBLOCK)?;
        Ok(Self { descriptor: descriptor::register(descriptor, Interest::READABLE | Interest::WRITABLE)? })
    }

    /// Reads some bytes; 0 when nobody holds the other side any more.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read =
            self.descriptor.async_io(Interest::READABLE, |descriptor| Ok(rustix::io::read(descriptor, &mut *buffer)?));
        match read.await {
            // What Linux says when the other side is closed.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(0),
            other => other,
        }
    }

    /// Writes all bytes.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self
                .descriptor
                .async_io(Interest::WRITABLE, |descriptor| Ok(rustix::io::write(descriptor, bytes)?))
                .await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Tells the programs how large the terminal is.
    pub(super) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.descriptor.get_ref(), size)?)
    }
}

fn receive_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut bytes = [0_u8; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    descriptors.flatten().next().ok_or_else(|| io::Error::other("the runtime sent no terminal"))
}
