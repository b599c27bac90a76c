//! `kubectl exec`: a program in a running container, over a websocket with one channel per stream.
//!
//! Every message begins with the number of its channel. The last message is the outcome, on the error channel.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::Request;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::streams::Terminal;
use super::websocket::{self, Socket};
use super::{Answer, Parameters, Place, Refusal};
use crate::context::Context;
use crate::files::{self, Scratch};
use crate::oci::spec::{Process, Spec};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// With version 5: the channel whose number follows is closed.
const CLOSE: u8 = 255;
/// Versions of the channels.
const PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Messages that wait for a slow client before the program has to.
const WAITING: usize = 16;

/// What the client asked for.
struct Wish {
    id: String,
    process: Process,
    stdin: bool,
    terminal: bool,
}

pub(super) async fn answer(
    node: &Arc<Context>,
    place: &Place,
    mut request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let parameters = Parameters::of(request.uri());
    let wish = wish(node, place, &parameters)?;
    if !websocket::is_wanted(request.headers()) {
        return Err(Refusal::bad_request("exec needs a websocket; kubectl 1.31 and newer use one"));
    }
    let (answer, _, upgrade) = websocket::accept(&mut request, PROTOCOLS)?;
    let node = node.clone();
    tokio::spawn(async move {
        match websocket::open(upgrade).await {
            Ok(socket) => converse(&node, &wish, socket).await,
            Err(error) => tracing::debug!(%error, "an exec connection was not upgraded"),
        }
    });
    Ok(answer)
}

/// The container's own process with another command: same user, environment and capabilities.
fn wish(node: &Context, place: &Place, parameters: &Parameters) -> Result<Wish, Refusal> {
    let id = place.running(node)?;
    let layout = node.layout.pod(&place.uid).container(&place.container);
    let spec: Spec =
        files::read_json(&layout.config()).ok_or_else(|| Refusal::internal("the container's configuration is gone"))?;
    let arguments = parameters.all("command");
    if arguments.is_empty() {
        return Err(Refusal::bad_request("you must specify at least one command for the container"));
    }
    let flag = |name: &str, kubelet: &str| parameters.is_set(name) || parameters.is_set(kubelet);
    let terminal = parameters.is_set("tty");
    let mut process = Process { args: arguments, terminal, ..spec.process };
    if terminal && !process.env.iter().any(|variable| variable.starts_with("TERM=")) {
        process.env.push("TERM=xterm".to_owned());
    }
    Ok(Wish { id, process, stdin: flag("stdin", "input"), terminal })
}

async fn converse(node: &Context, wish: &Wish, socket: Socket) {
    let (sink, stream) = socket.split();
    let (sender, receiver) = mpsc::channel(WAITING);
    let writer = tokio::spawn(write_messages(receiver, sink));
    let outcome = match start(node, wish).await {
        Ok(Running::Piped { child, .. }) => piped(child, stream, &sender).await,
        Ok(Running::OnTerminal { child, terminal, .. }) => on_terminal(child, terminal, stream, &sender).await,
        Err(error) => failure(&error.to_string()),
    };
    let _ = sender.send(channel(ERROR, outcome.to_string().as_bytes())).await;
    let normal = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let _ = sender.send(Message::Close(Some(normal))).await;
    drop(sender);
    let _ = writer.await;
}

/// A program that was started.
enum Running {
    Piped { child: Child, _process: Scratch },
    OnTerminal { child: Child, terminal: Arc<Terminal>, _process: Scratch },
}

async fn start(node: &Context, wish: &Wish) -> std::io::Result<Running> {
    let process = Scratch::new(node, "process");
    files::write_json(process.path(), &wish.process)?;
    let mut command = node.runtime.command();
    command.arg("exec").arg("--process").arg(process.path());
    if !wish.terminal {
        command.stdin(if wish.stdin { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).arg(&wish.id);
        return Ok(Running::Piped { child: command.spawn()?, _process: process });
    }
    let console = Scratch::new(node, "console");
    let listener = UnixListener::bind(console.path())?;
    command.arg("--console-socket").arg(console.path()).arg(&wish.id);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let terminal = tokio::select! {
        accepted = listener.accept() => Terminal::receive(&accepted?.0).await?,
        _ = child.wait() => return Err(std::io::Error::other(complaint(&mut child).await)),
    };
    Ok(Running::OnTerminal { child, terminal: Arc::new(terminal), _process: process })
}

/// What the runtime said before it gave up.
async fn complaint(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_string(&mut text).await;
    }
    format!("the program did not start: {}", text.trim())
}

fn channel(number: u8, bytes: &[u8]) -> Message {
    let mut message = Vec::with_capacity(bytes.len() + 1);
    message.push(number);
    message.extend_from_slice(bytes);
    Message::Binary(Bytes::from(message))
}

async fn write_messages(mut messages: mpsc::Receiver<Message>, mut sink: SplitSink<Socket, Message>) {
    while let Some(message) = messages.recv().await {
        if sink.send(message).await.is_err() {
            // Whoever sends learns it from the closed channel.
            return;
        }
    }
    let _ = sink.close().await;
}

async fn piped(mut child: Child, mut stream: SplitStream<Socket>, sender: &mpsc::Sender<Message>) -> Value {
    let mut stdin = child.stdin.take();
    let outputs = async {
        let out = pump(child.stdout.take(), STDOUT, sender);
        let error = pump(child.stderr.take(), STDERR, sender);
        tokio::join!(out, error);
    };
    let inputs = async {
        while let Some(input) = next_input(&mut stream).await {
            match input {
                Input::Bytes(bytes) => write_or_close(&mut stdin, &bytes).await,
                Input::Closed => stdin = None,
                Input::Size { .. } => {}
            }
        }
    };
    tokio::select! {
        () = outputs => {}
        // The client left: nobody reads what the program says.
        () = inputs => return failure("the client went away"),
    }
    outcome(child.wait().await)
}

async fn on_terminal(
    mut child: Child,
    terminal: Arc<Terminal>,
    mut stream: SplitStream<Socket>,
    sender: &mpsc::Sender<Message>,
) -> Value {
    let output = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length) = terminal.read(&mut buffer).await {
            if length == 0 || sender.send(channel(STDOUT, &buffer[..length])).await.is_err() {
                return;
            }
        }
    };
    let input = async {
        while let Some(input) = next_input(&mut stream).await {
            let done = match input {
                Input::Bytes(bytes) => terminal.write_all(&bytes).await,
                Input::Size { columns, rows } => terminal.resize(columns, rows),
                // End of file, as a terminal says it.
                Input::Closed => terminal.write_all(b"\x04").await,
            };
            if let Err(error) = done {
                tracing::debug!(%error, "a terminal took no input");
            }
        }
    };
    tokio::select! {
        () = output => {}
        () = input => return failure("the client went away"),
    }
    outcome(child.wait().await)
}

/// What comes from the client.
enum Input {
    Bytes(Bytes),
    Closed,
    Size { columns: u16, rows: u16 },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

/// The next thing that matters; `None`: the client left.
async fn next_input(stream: &mut SplitStream<Socket>) -> Option<Input> {
    loop {
        let bytes = match stream.next().await?.ok()? {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return None,
            _ => continue,
        };
        match bytes.split_first() {
            Some((&STDIN, _)) => return Some(Input::Bytes(bytes.slice(1..))),
            Some((&CLOSE, [STDIN])) => return Some(Input::Closed),
            Some((&RESIZE, size)) => {
                if let Ok(Size { width, height }) = serde_json::from_slice(size) {
                    return Some(Input::Size { columns: width, rows: height });
                }
            }
            _ => {}
        }
    }
}

async fn write_or_close<W: AsyncWrite + Unpin>(stdin: &mut Option<W>, bytes: &[u8]) {
    let Some(open) = stdin else { return };
    // A program that reads no more is no error.
    if open.write_all(bytes).await.is_err() || open.flush().await.is_err() {
        *stdin = None;
    }
}

async fn pump<R: AsyncRead + Unpin>(output: Option<R>, number: u8, sender: &mpsc::Sender<Message>) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length) = output.read(&mut buffer).await {
        if length == 0 || sender.send(channel(number, &buffer[..length])).await.is_err() {
            return;
        }
    }
}

/// The `Status` that says how it ended.
fn outcome(status: std::io::Result<ExitStatus>) -> Value {
    match status.map(|status| status.code()) {
        Ok(Some(0)) => json!({"metadata": {}, "status": "Success"}),
        Ok(Some(code)) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "code": 500,
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Ok(None) => failure("the program was killed"),
        Err(error) => failure(&error.to_string()),
    }
}

fn failure(message: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500})
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn outcomes_carry_the_exit_code() {
        assert_eq!(outcome(Ok(ExitStatus::from_raw(0)))["status"], "Success");
        let failed = outcome(Ok(ExitStatus::from_raw(7 << 8)));
        assert_eq!(failed["details"]["causes"][0]["message"], "7");
        assert_eq!(outcome(Ok(ExitStatus::from_raw(9)))["message"], "the program was killed");
    }
}
