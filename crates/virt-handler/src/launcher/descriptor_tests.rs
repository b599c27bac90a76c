//! What a launcher may hand over, and what not.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A launcher that answers with these bytes and descriptors in one message.
fn answer(bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> UnixStream {
    let (ours, launchers) = UnixStream::pair().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    sendmsg(launchers.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    ours
}

const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: descriptor\r\n\r\n{\"channel\":\"link\"}\n";

async fn refused(bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> String {
    receive(&answer(bytes, descriptors)).await.unwrap_err().to_string()
}

#[tokio::test]
async fn one_connected_socket_carries_bytes_both_ways_even_if_it_came_with_the_head() {
    let (given, mut other) = std::os::unix::net::UnixStream::pair()
        .map(|(a, b)| {
            b.set_nonblocking(true).unwrap();
            (a, UnixStream::from_std(b).unwrap())
        })
        .unwrap();
    let mut handed = receive(&answer(HEAD, &[given.as_fd()])).await.unwrap();
    drop(given);
    assert_eq!(handed.line, r#"{"channel":"link"}"#);
    let large = vec![7_u8; 3 << 20];
    let (mut back, sent) = (vec![0; large.len()], large.clone());
    let (write, read) = tokio::join!(other.write_all(&sent), handed.socket.read_exact(&mut back));
    write.unwrap();
    read.unwrap();
    assert_eq!(back, large);
    handed.socket.write_all(b"answer").await.unwrap();
    handed.socket.shutdown().await.unwrap();
    let mut text = String::new();
    other.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "answer");
}

#[tokio::test]
async fn a_socket_that_its_giver_made_blocking_blocks_nobody() {
    let (given, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut handed = receive(&answer(HEAD, &[given.as_fd()])).await.unwrap();
    given.set_nonblocking(false).unwrap();
    let mut byte = [0];
    let nothing = futures::poll!(Box::pin(handed.socket.read(&mut byte)));
    assert!(nothing.is_pending());
}

#[tokio::test]
async fn anything_but_one_connected_stream_socket_is_refused() {
    let (one, two) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(refused(HEAD, &[]).await.contains("0 descriptors"));
    assert!(refused(HEAD, &[one.as_fd(), two.as_fd()]).await.contains("2 descriptors"));
    assert!(refused(HEAD, &[one.as_fd(); 8]).await.contains("too many"));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(refused(HEAD, &[file.as_fd()]).await.contains("not a Unix stream"));
    let (datagram, _peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
    assert!(refused(HEAD, &[datagram.as_fd()]).await.contains("not a Unix stream"));
    let internet = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(refused(HEAD, &[internet.as_fd()]).await.contains("not a Unix stream"));
    let directory = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
    assert!(refused(HEAD, &[listener.as_fd()]).await.contains("not connected"));
}

#[tokio::test]
async fn refusals_and_nonsense_are_told_apart() {
    let body = br#"{"reason":"NoMove","message":"there is no such move"}"#;
    let head = format!("HTTP/1.1 409 Conflict\r\nContent-Length: {}\r\n\r\n", body.len());
    let error = receive(&answer(&[head.as_bytes(), body].concat(), &[])).await.unwrap_err();
    assert!(matches!(&error, LauncherError::Refused(refusal) if refusal.reason == "NoMove"), "{error:?}");
    let error = receive(&answer(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", &[])).await.unwrap_err();
    assert!(matches!(error, LauncherError::Failed(_)), "{error:?}");
    assert!(matches!(receive(&answer(b"SSH-2.0\r\n\r\n", &[])).await, Err(LauncherError::Protocol(_))));
    assert!(matches!(receive(&answer(b"HTTP/1.1 101", &[])).await, Err(LauncherError::Unreachable(_))), "it hung up");
    let endless = vec![b'a'; LONGEST + 1];
    assert!(matches!(receive(&answer(&endless, &[])).await, Err(LauncherError::Protocol(_))));
}
