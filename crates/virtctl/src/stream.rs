//! Bytes between a guest's stream and something local: a terminal, a pipe, a connection.

use std::sync::Mutex;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use crate::session::Socket;

/// Proxies drop connections that are silent for a minute.
const PING_EVERY: Duration = Duration::from_secs(20);
/// A websocket has no half that can be closed: after the local side's end, the guest's last words are awaited this long.
const LINGER: Duration = Duration::from_secs(10);

/// How a copy ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The local side is done.
    Here,
    /// The cluster's side is done, for that reason.
    There(String),
}

/// Which bytes of the input are sent, and whether the user leaves after them.
pub(crate) type Filter = fn(&[u8]) -> (&[u8], bool);

/// Sends everything.
pub(crate) fn everything(bytes: &[u8]) -> (&[u8], bool) {
    (bytes, false)
}

/// Copies both ways until a side ends.
pub(crate) async fn copy(
    socket: Socket,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    filter: Filter,
) -> anyhow::Result<Ended> {
    let (mut to_guest, mut from_guest) = socket.split();
    let heard = Mutex::new(Instant::now());
    let upward = async {
        let mut buffer = vec![0; 32 << 10];
        let mut pings = tokio::time::interval(PING_EVERY);
        let mut open = true;
        loop {
            tokio::select! {
                read = input.read(&mut buffer), if open => {
                    let length = read?;
                    let (sent, leaves) = filter(&buffer[..length]);
                    if !sent.is_empty() {
                        to_guest.send(Message::binary(sent.to_vec())).await?;
                    }
                    if leaves {
                        let _ = to_guest.close().await;
                        return anyhow::Ok(Ended::Here);
                    }
                    open = length > 0;
                }
                _ = pings.tick() => to_guest.send(Message::Ping(bytes::Bytes::new())).await?,
                () = silence(&heard), if !open => {
                    let _ = to_guest.close().await;
                    return Ok(Ended::Here);
                }
            }
        }
    };
    let downward = async {
        while let Some(message) = from_guest.next().await {
            match message? {
                Message::Binary(bytes) => output.write_all(&bytes).await?,
                Message::Text(text) => output.write_all(text.as_bytes()).await?,
                Message::Close(frame) => {
                    return Ok(Ended::There(frame.map(|frame| frame.reason.to_string()).unwrap_or_default()));
                }
                _ => continue,
            }
            output.flush().await?;
            note(&heard);
        }
        anyhow::Ok(Ended::There(String::new()))
    };
    tokio::select! {
        ended = upward => ended,
        ended = downward => ended,
    }
}

fn note(heard: &Mutex<Instant>) {
    if let Ok(mut heard) = heard.lock() {
        *heard = Instant::now();
    }
}

/// Waits until nothing was heard for a while.
async fn silence(heard: &Mutex<Instant>) {
    let began = Instant::now();
    loop {
        let last = heard.lock().map_or(began, |heard| *heard).max(began);
        if last.elapsed() >= LINGER {
            return;
        }
        tokio::time::sleep_until(last + LINGER).await;
    }
}
