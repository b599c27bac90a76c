//! What libvirt answers, and what it says unasked. Its process shares the pod with a hostile guest.
//!
//! Input: pieces of a length (2 bytes) and as many bytes. The first byte of a piece says how it is sent: as the answer to the next
//! call, as an error, as an event before the answer, or as raw bytes on the socket. What is left after the last call is a stream.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use ferrovirt_libvirt::packet::{Header, Kind, Packet, Program, Status};
use ferrovirt_libvirt::{Connection, Error};
use libfuzzer_sys::fuzz_target;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};

/// The call that is answered with a stream.
const SCREENSHOT: i32 = 211;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));

fuzz_target!(|input: &[u8]| {
    RUNTIME.block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let pieces = pieces(input);
        let server = async move {
            let (socket, _) = listener.accept().await.expect("a client");
            serve(socket, pieces).await;
        };
        let client = tokio::time::timeout(Duration::from_secs(10), ask(&path));
        let (_, asked) = tokio::join!(server, client);
        assert!(asked.is_ok(), "the client waits although the server is gone");
    });
});

fn pieces(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        pieces.push(piece.to_vec());
        input = rest;
    }
    pieces
}

/// Answers until the pieces are used up, then hangs up.
async fn serve(mut socket: UnixStream, pieces: Vec<Vec<u8>>) {
    let mut pieces = pieces.into_iter();
    // Two answers let every input past the greeting.
    for body in [vec![0, 0, 0, 1, 0, 0, 0, 0], Vec::new()] {
        let Ok(call) = Packet::read(&mut socket).await else { return };
        let answer = Packet { header: Header { kind: Kind::Reply, ..call.header }, body };
        if socket.write_all(&answer.encode()).await.is_err() {
            return;
        }
    }
    while let Ok(call) = Packet::read(&mut socket).await {
        loop {
            let Some(piece) = pieces.next() else { return };
            let (how, body) = piece.split_first().map_or((0, Vec::new()), |(how, body)| (*how, body.to_vec()));
            let (header, is_answer) = match how % 4 {
                0 => (Header { kind: Kind::Reply, ..call.header }, true),
                1 => (Header { kind: Kind::Reply, status: Status::Error, ..call.header }, true),
                2 => {
                    let procedure = 300 + i32::from(how / 4);
                    let event =
                        Header { program: Program::Remote, procedure, kind: Kind::Message, serial: 0, status: Status::Ok };
                    (event, false)
                }
                _ => {
                    let _ = socket.write_all(&body).await;
                    return;
                }
            };
            if socket.write_all(&Packet { header, body }.encode()).await.is_err() {
                return;
            }
            if is_answer {
                break;
            }
        }
        if call.header.procedure == SCREENSHOT {
            return stream(socket, call.header, pieces).await;
        }
    }
}

/// A stream has no calls to answer: everything that is left comes, and then the end of the socket.
async fn stream(mut socket: UnixStream, header: Header, pieces: impl Iterator<Item = Vec<u8>>) {
    for piece in pieces {
        let (how, body) = piece.split_first().map_or((0, Vec::new()), |(how, body)| (*how, body.to_vec()));
        let kind = if how % 2 == 0 { Kind::Stream } else { Kind::StreamHole };
        let status = match how / 2 % 3 {
            0 => Status::Continue,
            1 => Status::Ok,
            _ => Status::Error,
        };
        if socket.write_all(&Packet { header: Header { kind, status, ..header }, body }.encode()).await.is_err() {
            return;
        }
    }
}

/// Every answer that has a shape of its own, until the socket closes.
async fn ask(path: &std::path::Path) -> Result<(), Error> {
    let libvirt = Connection::open(path, "qemu:///session").await?;
    let _events = libvirt.events();
    while let Err(error) = libvirt.capabilities().await {
        if error.code().is_none() {
            return Err(error);
        }
    }
    libvirt.domains().await?;
    let domain = libvirt.lookup("guest").await?;
    libvirt.state(&domain).await?;
    libvirt.interface_addresses(&domain).await?;
    libvirt.guest_info(&domain).await?;
    libvirt.job_stats(&domain).await?;
    libvirt.agent_command(&domain, "{}", Duration::from_secs(1)).await?;
    libvirt.screenshot(&domain).await.map(|_| ())
}
