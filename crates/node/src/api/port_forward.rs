//! `kubectl port-forward`: TCP connections into a pod's network.
//!
//! The client speaks SPDY, inside of a websocket or, when it is older, on the connection itself. For each connection it opens two streams
//! with the same request number: one for bytes, one on which we tell what went wrong.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as BlockingStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, HeaderName, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

use super::spdy::{Frame, REFUSED_STREAM, Reader, Writer};
use super::websocket::{self, Socket};
use super::{Answer, Place, Refusal, full};
use crate::context::Context;

/// SPDY inside of a websocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// The protocol on top of SPDY.
const PROTOCOL: &str = "portforward.k8s.io";
/// How long a port of the pod may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// Frames that wait for a slow side before the other has to.
const WAITING: usize = 16;
/// Bytes of one frame.
const CHUNK: usize = 16 * 1024;
/// Connections at once over one `kubectl port-forward`.
const MOST_STREAMS: usize = 1024;

pub(super) async fn answer(
    node: &Arc<Context>,
    place: &Place,
    mut request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    if !node.layout.pod(&place.uid).root().exists() {
        return Err(Refusal::bad_request(format!("pod {:?} is not running", place.pod)));
    }
    let network = node.networks.attach(&place.uid).await.map_err(Refusal::internal)?.namespace;
    if websocket::is_wanted(request.headers()) {
        let (answer, _, upgrade) = websocket::accept(&mut request, &[TUNNEL])?;
        tokio::spawn(async move {
            match websocket::open(upgrade).await {
                Ok(socket) => tunnel(socket, network).await,
                Err(error) => tracing::debug!(%error, "a port-forward connection was not upgraded"),
            }
        });
        return Ok(answer);
    }
    let asked = request.headers().get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"SPDY/3.1"));
    if !asked {
        return Err(Refusal::bad_request("port-forward needs an upgrade to a websocket or to SPDY/3.1"));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => session(TokioIo::new(stream), network).await,
            Err(error) => tracing::debug!(%error, "a port-forward connection was not upgraded"),
        }
    });
    let mut answer = Response::new(full(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(HeaderName::from_static("x-stream-protocol-version"), HeaderValue::from_static(PROTOCOL));
    Ok(answer)
}

/// Messages of a websocket as one stream of bytes.
async fn tunnel(socket: Socket, network: PathBuf) {
    let (near, far) = tokio::io::duplex(4 * CHUNK);
    let (mut sink, mut messages) = socket.split();
    let (mut read, mut write) = tokio::io::split(far);
    let inbound = async {
        while let Some(Ok(message)) = messages.next().await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => Bytes::from(text),
                Message::Close(_) => break,
                _ => continue,
            };
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = write.shutdown().await;
    };
    let outbound = async {
        let mut buffer = vec![0; 2 * CHUNK];
        while let Ok(length @ 1..) = read.read(&mut buffer).await {
            if sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..length]))).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    let _ = tokio::join!(inbound, outbound, session(near, network));
}

/// One stream that the client opened.
struct Opened {
    id: u32,
    /// Bytes of the client; ends with its side of the stream.
    incoming: mpsc::Receiver<Bytes>,
}

/// The two streams of a connection, as they come.
#[derive(Default)]
struct Pair {
    data: Option<Opened>,
    error: Option<Opened>,
}

/// A SPDY connection until the client leaves.
async fn session<S: AsyncRead + AsyncWrite + Send + 'static>(stream: S, network: PathBuf) {
    let (mut read, mut write) = tokio::io::split(stream);
    let (frames, mut outgoing) = mpsc::channel::<Vec<u8>>(WAITING);
    let writing = async {
        while let Some(frame) = outgoing.recv().await {
            if write.write_all(&frame).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    let reading = async move {
        let mut client = Client {
            frames,
            writer: Writer::default(),
            streams: HashMap::new(),
            pairs: HashMap::new(),
            connections: JoinSet::new(),
            network: Arc::from(network),
        };
        let mut reader = Reader::default();
        let mut buffer = vec![0; CHUNK];
        while let Ok(length @ 1..) = read.read(&mut buffer).await {
            reader.feed(&buffer[..length]);
            loop {
                match reader.next_frame() {
                    Ok(Some(frame)) => client.take(frame).await,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "a port-forward connection ended");
                        return;
                    }
                }
            }
        }
        // Dropping the client ends its connections.
    };
    tokio::join!(writing, reading);
}

/// What is known about one client.
struct Client {
    frames: mpsc::Sender<Vec<u8>>,
    writer: Writer,
    /// Where bytes of a stream go.
    streams: HashMap<u32, mpsc::Sender<Bytes>>,
    /// Connections that are not complete, by request number.
    pairs: HashMap<String, (u16, Pair)>,
    connections: JoinSet<()>,
    network: Arc<Path>,
}

impl Client {
    async fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Open { stream, headers, finished } => self.open(stream, &headers, finished).await,
            Frame::Data { stream, bytes, finished } => {
                if let Some(sender) = self.streams.get(&stream) {
                    // One that reads no more is no reason to stop the others.
                    let _ = if bytes.is_empty() { Ok(()) } else { sender.send(bytes).await };
                }
                if finished {
                    self.streams.remove(&stream);
                }
            }
            Frame::Reset { stream } => drop(self.streams.remove(&stream)),
            Frame::Ping { number } => self.send(Writer::ping(number)).await,
            Frame::GoAway | Frame::Other => {}
        }
        while self.connections.try_join_next().is_some() {}
    }

    async fn send(&self, frame: Vec<u8>) {
        let _ = self.frames.send(frame).await;
    }

    async fn open(&mut self, stream: u32, headers: &[(String, String)], finished: bool) {
        let header = |wanted: &str| {
            let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.trim_end_matches('\0').to_owned())
        };
        let port = header("port").and_then(|port| port.parse::<u16>().ok()).filter(|&port| port > 0);
        let (Some(port), Some(kind)) = (port, header("streamtype")) else {
            return self.send(Writer::reset(stream, REFUSED_STREAM)).await;
        };
        if self.streams.len() >= MOST_STREAMS || !matches!(kind.as_str(), "data" | "error") {
            return self.send(Writer::reset(stream, REFUSED_STREAM)).await;
        }
        let request = header("requestid").unwrap_or_else(|| format!("port {port}"));
        let (sender, incoming) = mpsc::channel(WAITING);
        if !finished {
            self.streams.insert(stream, sender);
        }
        let reply = self.writer.reply(stream);
        self.send(reply).await;
        let (_, pair) = self.pairs.entry(request.clone()).or_insert_with(|| (port, Pair::default()));
        let opened = Some(Opened { id: stream, incoming });
        if kind == "data" {
            pair.data = opened;
        } else {
            pair.error = opened;
        }
        if pair.data.is_some()
            && pair.error.is_some()
            && let Some((port, Pair { data: Some(data), error: Some(error) })) = self.pairs.remove(&request)
        {
            self.connections.spawn(connection(port, data, error, self.frames.clone(), self.network.clone()));
        }
    }
}

/// One TCP connection into the pod.
async fn connection(port: u16, mut data: Opened, error: Opened, frames: mpsc::Sender<Vec<u8>>, network: Arc<Path>) {
    let trouble = match dial(port, &network).await {
        Ok(stream) => copy(stream, &mut data, &frames).await.err(),
        Err(error) => Some(error),
    };
    let trouble = trouble.map(|error| format!("error forwarding port {port} to the pod: {error}")).unwrap_or_default();
    let _ = frames.send(Writer::data(error.id, trouble.as_bytes(), true)).await;
    let _ = frames.send(Writer::data(data.id, b"", true)).await;
}

/// Connects to a port of the pod's loopback, as programs in the pod would.
async fn dial(port: u16, network: &Path) -> io::Result<TcpStream> {
    let network = network.to_owned();
    let connect = move || {
        let v4 = BlockingStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), CONNECT);
        v4.or_else(|error| {
            let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
            BlockingStream::connect_timeout(&v6, CONNECT).map_err(|_| error)
        })
    };
    let stream = tokio::task::spawn_blocking(move || ferrovirt_cluster_network::run_in(&network, connect)).await;
    let stream = stream.unwrap_or_else(|error| Err(io::Error::other(error)))?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream)
}

async fn copy(stream: TcpStream, data: &mut Opened, frames: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    let (mut read, mut write) = stream.into_split();
    let to_pod = async {
        while let Some(bytes) = data.incoming.recv().await {
            write.write_all(&bytes).await?;
        }
        write.shutdown().await
    };
    let from_pod = async {
        let mut buffer = vec![0; CHUNK];
        loop {
            let length = read.read(&mut buffer).await?;
            if length == 0 || frames.send(Writer::data(data.id, &buffer[..length], false)).await.is_err() {
                return io::Result::Ok(());
            }
        }
    };
    tokio::pin!(to_pod);
    // The pod's end of the connection decides: a client that only sends may close its side early.
    tokio::select! {
        done = from_pod => done,
        Err(error) = &mut to_pod => Err(error),
    }
}
