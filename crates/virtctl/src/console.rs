//! `virtctl console`: the guest's serial port in this terminal.

use std::io::IsTerminal;

use futures::{SinkExt, StreamExt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::connect::Cluster;

/// Ctrl-].
const ESCAPE: u8 = 0x1d;

/// Arguments of `console`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// The guest, also written as `vmi/NAME`.
    name: String,
}

/// A terminal that hands every key on as it is typed, until this is dropped.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn enter() -> Self {
        if !std::io::stdin().is_terminal() {
            return Self(None);
        }
        let Ok(before) = tcgetattr(std::io::stdin()) else { return Self(None) };
        let mut raw = before.clone();
        raw.make_raw();
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &raw);
        Self(Some(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Copies both ways until the user leaves or the guest ends.
pub(crate) async fn run(cluster: &Cluster, args: &Args) -> anyhow::Result<()> {
    let name = args.name.rsplit_once('/').map_or(args.name.as_str(), |(_, name)| name);
    let (mut to_guest, mut from_guest) = cluster.stream(name, "console").await?.split();
    eprintln!("Successfully connected to {name} console. The escape sequence is ^]\r");
    let terminal = RawTerminal::enter();
    let typed = async {
        let (mut input, mut keys) = (tokio::io::stdin(), [0; 4096]);
        loop {
            let count = input.read(&mut keys).await?;
            let escape = keys[..count].iter().position(|key| *key == ESCAPE);
            let sent = &keys[..escape.unwrap_or(count)];
            to_guest.send(Message::binary(sent.to_vec())).await?;
            if escape.is_some() {
                return anyhow::Ok(());
            }
            if count == 0 {
                // Nothing more is typed, but there may be more to read.
                std::future::pending::<()>().await;
            }
        }
    };
    let shown = async {
        let mut output = tokio::io::stdout();
        while let Some(message) = from_guest.next().await {
            match message? {
                Message::Binary(bytes) => output.write_all(&bytes).await?,
                Message::Text(text) => output.write_all(text.as_bytes()).await?,
                Message::Close(reason) => {
                    let reason = reason.map(|reason| reason.reason.to_string()).unwrap_or_default();
                    return Ok(Some(reason));
                }
                _ => {}
            }
            output.flush().await?;
        }
        anyhow::Ok(None)
    };
    let ended = tokio::select! {
        done = typed => done.map(|()| None),
        ended = shown => ended,
    };
    drop(terminal);
    if let Some(reason) = ended?.filter(|reason| !reason.is_empty()) {
        eprintln!("\nThe connection ended: {reason}");
    }
    // The thread that reads standard input cannot be interrupted.
    std::process::exit(0);
}
