//! The socket: calls go out with a serial, replies come back with it, events go to whoever listens.
//!
//! One task owns the socket. It ends when the last [`Connection`] is dropped, or when the socket does; then every waiting call
//! and every [`Events`] hears of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::error::{Error, RemoteError};
use crate::events::{Event, Events};
use crate::packet::{Header, Kind, Packet, Program, Status};
use crate::procedures::{AUTH_LIST, CONNECT_OPEN, PING, PONG, Procedure};
use crate::xdr::{Decoder, Encoder, XdrError};

/// Calls that wait to be written. They are small and few; a full queue only makes callers wait.
const OUTGOING: usize = 16;
/// Events that wait to be read. A launcher has one domain; more than this is a guest that floods us.
const EVENTS: usize = 128;
const AUTH_NONE: i32 = 0;

/// A connection to libvirt. Clones share it.
#[derive(Debug, Clone)]
pub struct Connection {
    outgoing: mpsc::Sender<Vec<u8>>,
    shared: Arc<Shared>,
}

/// What callers and the task share.
#[derive(Debug)]
struct Shared {
    serial: AtomicU32,
    waiting: Mutex<Waiting>,
    events: broadcast::WeakSender<Event>,
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Waiting {
    replies: HashMap<u32, oneshot::Sender<Result<Vec<u8>, Error>>>,
    streams: HashMap<u32, mpsc::UnboundedSender<Result<Vec<u8>, Error>>>,
    /// Why nobody can wait any more.
    closed: Option<Arc<str>>,
}

impl Connection {
    /// Connects to the socket `path` and opens the driver `uri`.
    pub async fn open(path: impl AsRef<Path>, uri: &str) -> Result<Self, Error> {
        let path = path.as_ref();
        let connect = |source| Error::Connect { path: path.to_owned(), source: Arc::new(source) };
        let connection = Self::over(UnixStream::connect(path).await.map_err(connect)?);
        let offered = connection.call(AUTH_LIST, Encoder::new(), |reply| reply.list(20, Decoder::i32)).await?;
        if !offered.contains(&AUTH_NONE) {
            return Err(Error::Authentication { offered });
        }
        let arguments = Encoder::new().optional(Some(uri), Encoder::string).u32(0);
        connection.call(CONNECT_OPEN, arguments, |_| Ok(())).await?;
        Ok(connection)
    }

    /// Speaks the protocol over a connected socket.
    fn over(socket: UnixStream) -> Self {
        let (outgoing, queue) = mpsc::channel(OUTGOING);
        let (events, _) = broadcast::channel(EVENTS);
        let shared = Shared { serial: AtomicU32::new(1), waiting: Mutex::default(), events: events.downgrade() };
        let connection = Self { outgoing, shared: Arc::new(shared) };
        let (read, write) = socket.into_split();
        let reader = Reader { shared: connection.shared.clone(), events, outgoing: connection.outgoing.downgrade() };
        tokio::spawn(async move {
            let reason = tokio::select! {
                reason = reader.run(read) => reason,
                reason = run_writer(write, queue) => reason,
            };
            reader.close(&reason);
        });
        connection
    }

    /// Events from now on; see [`Connection::register`].
    pub fn events(&self) -> Events {
        let receiver = self.shared.events.upgrade().map_or_else(
            // A closed connection: a receiver that is closed as well.
            || broadcast::channel(1).1,
            |sender| sender.subscribe(),
        );
        Events { receiver }
    }

    /// The connection ended.
    pub async fn closed(&self) {
        self.outgoing.closed().await;
    }

    /// Makes a call and reads its reply.
    pub(crate) async fn call<T>(
        &self,
        procedure: Procedure,
        arguments: Encoder,
        decode: impl FnOnce(&mut Decoder) -> Result<T, XdrError>,
    ) -> Result<T, Error> {
        let body = self.exchange(procedure, self.next_serial(), arguments).await?;
        read_reply(procedure, body, decode)
    }

    /// Makes a call that opens a stream: the reply, and what follows.
    pub(crate) async fn call_for_stream<T>(
        &self,
        procedure: Procedure,
        arguments: Encoder,
        decode: impl FnOnce(&mut Decoder) -> Result<T, XdrError>,
    ) -> Result<(T, IncomingStream), Error> {
        let serial = self.next_serial();
        let (sender, chunks) = mpsc::unbounded_channel();
        self.shared.waiting.lock().streams.insert(serial, sender);
        // From here on the stream is forgotten when it is dropped, also if the call fails.
        let stream = IncomingStream { connection: self.clone(), procedure, serial, chunks };
        let body = self.exchange(procedure, serial, arguments).await?;
        Ok((read_reply(procedure, body, decode)?, stream))
    }

    fn next_serial(&self) -> u32 {
        self.shared.serial.fetch_add(1, Ordering::Relaxed)
    }

    async fn exchange(&self, procedure: Procedure, serial: u32, arguments: Encoder) -> Result<Vec<u8>, Error> {
        let (sender, reply) = oneshot::channel();
        {
            let mut waiting = self.shared.waiting.lock();
            if let Some(reason) = &waiting.closed {
                return Err(Error::Closed(reason.clone()));
            }
            waiting.replies.insert(serial, sender);
        }
        self.send(procedure, Kind::Call, serial, Status::Ok, arguments.finish()).await?;
        // The sender is only dropped without a word when the whole runtime goes down.
        reply.await.unwrap_or_else(|_| Err(Error::Closed("the runtime ended".into())))
    }

    async fn send(
        &self,
        procedure: Procedure,
        kind: Kind,
        serial: u32,
        status: Status,
        body: Vec<u8>,
    ) -> Result<(), Error> {
        let header = Header { program: procedure.program, procedure: procedure.number, kind, serial, status };
        let bytes = Packet { header, body }.encode();
        self.outgoing.send(bytes).await.map_err(|_| Error::Closed(self.why_closed()))
    }

    fn why_closed(&self) -> Arc<str> {
        self.shared.waiting.lock().closed.clone().unwrap_or_else(|| "it is shutting down".into())
    }
}

fn read_reply<T>(
    procedure: Procedure,
    body: Vec<u8>,
    decode: impl FnOnce(&mut Decoder) -> Result<T, XdrError>,
) -> Result<T, Error> {
    // A newer libvirt may append fields, so what follows is not looked at.
    decode(&mut Decoder::new(body)).map_err(|source| Error::Reply { procedure: procedure.name, source })
}

/// Data that follows a reply.
#[derive(Debug)]
pub(crate) struct IncomingStream {
    connection: Connection,
    procedure: Procedure,
    serial: u32,
    chunks: mpsc::UnboundedReceiver<Result<Vec<u8>, Error>>,
}

impl IncomingStream {
    /// All of it, if it is at most `limit` bytes.
    pub(crate) async fn collect(mut self, limit: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        loop {
            let chunk = self.chunks.recv().await.ok_or_else(|| Error::Closed(self.connection.why_closed()))??;
            if chunk.is_empty() {
                break;
            }
            all.extend_from_slice(&chunk);
            if all.len() > limit {
                self.end(Status::Error).await?;
                return Err(Error::StreamTooLong { procedure: self.procedure.name, limit });
            }
        }
        self.end(Status::Ok).await?;
        Ok(all)
    }

    async fn end(&self, status: Status) -> Result<(), Error> {
        self.connection.send(self.procedure, Kind::Stream, self.serial, status, Vec::new()).await
    }
}

impl Drop for IncomingStream {
    fn drop(&mut self) {
        self.connection.shared.waiting.lock().streams.remove(&self.serial);
    }
}

async fn run_writer(mut socket: OwnedWriteHalf, mut queue: mpsc::Receiver<Vec<u8>>) -> String {
    while let Some(bytes) = queue.recv().await {
        if let Err(error) = socket.write_all(&bytes).await {
            return format!("its socket could not be written: {error}");
        }
    }
    "nobody uses it any more".to_owned()
}

/// The reading half of the task.
struct Reader {
    shared: Arc<Shared>,
    events: broadcast::Sender<Event>,
    /// Weak, or the connection would keep itself alive.
    outgoing: mpsc::WeakSender<Vec<u8>>,
}

impl Reader {
    async fn run(&self, socket: OwnedReadHalf) -> String {
        let mut socket = tokio::io::BufReader::with_capacity(4096, socket);
        loop {
            match Packet::read(&mut socket).await {
                Ok(packet) => self.dispatch(packet).await,
                Err(error) => {
                    let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                    return format!("{error}{}", source.unwrap_or_default());
                }
            }
        }
    }

    async fn dispatch(&self, packet: Packet) {
        match (packet.header.program, packet.header.kind) {
            (Program::KeepAlive, Kind::Message) if packet.header.procedure == PING => self.answer_ping().await,
            (Program::Remote, Kind::Message) => self.event(packet),
            (Program::Remote | Program::Qemu, Kind::Reply) => self.reply(packet),
            (Program::Remote, Kind::Stream) => self.chunk(packet),
            _ => tracing::debug!(header = ?packet.header, "libvirt sent something that nobody asked for"),
        }
    }

    async fn answer_ping(&self) {
        let header =
            Header { program: Program::KeepAlive, procedure: PONG, kind: Kind::Message, serial: 0, status: Status::Ok };
        if let Some(outgoing) = self.outgoing.upgrade() {
            // A closed queue ends the task anyway.
            let _ = outgoing.send(Packet { header, body: Vec::new() }.encode()).await;
        }
    }

    fn event(&self, packet: Packet) {
        match Event::decode(packet.header.procedure, packet.body) {
            // Nobody listens: that is no error.
            Ok(Some(event)) => drop(self.events.send(event)),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, event = packet.header.procedure, "an event of libvirt cannot be read"),
        }
    }

    fn reply(&self, packet: Packet) {
        // Without an entry the caller was dropped; it does not matter any more.
        if let Some(sender) = self.shared.waiting.lock().replies.remove(&packet.header.serial) {
            let _ = sender.send(outcome(packet));
        }
    }

    fn chunk(&self, packet: Packet) {
        let waiting = self.shared.waiting.lock();
        if let Some(sender) = waiting.streams.get(&packet.header.serial) {
            let _ = sender.send(outcome(packet));
        }
    }

    fn close(&self, reason: &str) {
        let reason: Arc<str> = reason.into();
        let mut waiting = self.shared.waiting.lock();
        for (_, sender) in waiting.replies.drain() {
            let _ = sender.send(Err(Error::Closed(reason.clone())));
        }
        waiting.streams.clear();
        waiting.closed = Some(reason);
    }
}

/// A body, or the error that it holds.
fn outcome(packet: Packet) -> Result<Vec<u8>, Error> {
    match packet.header.status {
        Status::Ok | Status::Continue => Ok(packet.body),
        Status::Error => Err(RemoteError::decode(packet.body)
            .map_or_else(|source| Error::Reply { procedure: "a call that failed", source }, Error::Remote)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use crate::events::NoEvent;
    use crate::procedures::{GET_LIB_VERSION, GET_VERSION, SCREENSHOT, events as messages};

    /// The other end of a connection.
    struct Server(UnixStream);

    impl Server {
        fn pair() -> (Connection, Self) {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (Connection::over(ours), Self(theirs))
        }

        async fn read(&mut self) -> Packet {
            Packet::read(&mut self.0).await.unwrap()
        }

        async fn answer(&mut self, to: &Packet, kind: Kind, status: Status, body: Vec<u8>) {
            let header = Header { kind, status, ..to.header };
            self.0.write_all(&Packet { header, body }.encode()).await.unwrap();
        }

        async fn reply(&mut self, to: &Packet, body: Encoder) {
            self.answer(to, Kind::Reply, Status::Ok, body.finish()).await;
        }
    }

    #[tokio::test]
    async fn replies_find_their_calls_in_any_order() {
        let (connection, mut server) = Server::pair();
        let calls = async {
            tokio::join!(
                connection.call(GET_VERSION, Encoder::new(), Decoder::u64),
                connection.call(GET_LIB_VERSION, Encoder::new(), Decoder::u64),
            )
        };
        let serve = async {
            let (first, second) = (server.read().await, server.read().await);
            assert_ne!(first.header.serial, second.header.serial);
            server.reply(&second, Encoder::new().u64(2)).await;
            server.reply(&first, Encoder::new().u64(1)).await;
        };
        let ((first, second), ()) = tokio::join!(calls, serve);
        assert_eq!((first.unwrap(), second.unwrap()), (1, 2));
    }

    #[tokio::test]
    async fn an_error_reply_is_typed() {
        let (connection, mut server) = Server::pair();
        let serve = async {
            let call = server.read().await;
            let body = Encoder::new().i32(55).i32(10).optional(Some("domain is not running"), Encoder::string);
            server.answer(&call, Kind::Reply, Status::Error, body.finish()).await;
        };
        let (result, ()) = tokio::join!(connection.call(GET_VERSION, Encoder::new(), Decoder::u64), serve);
        assert_eq!(result.unwrap_err().code(), Some(ErrorCode::OperationInvalid));
    }

    #[tokio::test]
    async fn a_reply_that_is_too_short_is_named() {
        let (connection, mut server) = Server::pair();
        let serve = async {
            let call = server.read().await;
            server.reply(&call, Encoder::new().u32(1)).await;
        };
        let (result, ()) = tokio::join!(connection.call(GET_VERSION, Encoder::new(), Decoder::u64), serve);
        assert_eq!(result.unwrap_err().to_string(), "libvirt's reply to get-version cannot be read");
    }

    #[tokio::test]
    async fn a_closed_socket_ends_calls_and_events() {
        let (connection, mut server) = Server::pair();
        let mut events = connection.events();
        let serve = async {
            server.read().await;
            drop(server);
        };
        let (result, ()) = tokio::join!(connection.call(GET_VERSION, Encoder::new(), Decoder::u64), serve);
        assert!(matches!(result, Err(Error::Closed(_))));
        assert_eq!(events.next().await, Err(NoEvent::Closed));
        connection.closed().await;
        let late = connection.call(GET_VERSION, Encoder::new(), Decoder::u64).await;
        assert!(matches!(late, Err(Error::Closed(_))), "{late:?}");
        assert_eq!(connection.events().next().await, Err(NoEvent::Closed));
    }

    #[tokio::test]
    async fn a_ping_is_answered() {
        let (_connection, mut server) = Server::pair();
        let header =
            Header { program: Program::KeepAlive, procedure: PING, kind: Kind::Message, serial: 0, status: Status::Ok };
        server.0.write_all(&Packet { header, body: Vec::new() }.encode()).await.unwrap();
        let pong = server.read().await;
        assert_eq!(pong.header, Header { procedure: PONG, ..header });
    }

    #[tokio::test]
    async fn the_socket_closes_with_the_last_handle() {
        let (connection, mut server) = Server::pair();
        drop(connection.clone());
        drop(connection);
        assert!(Packet::read(&mut server.0).await.is_err());
    }

    #[tokio::test]
    async fn a_slow_listener_hears_that_events_are_lost() {
        let (connection, mut server) = Server::pair();
        let mut events = connection.events();
        let header = Header {
            program: Program::Remote,
            procedure: messages::REBOOT,
            kind: Kind::Message,
            serial: 0,
            status: Status::Ok,
        };
        let domain = crate::Domain { name: "guest".to_owned(), uuid: [7; 16], id: 3 };
        let body = domain.encode(Encoder::new().i32(1)).finish();
        for _ in 0..=EVENTS {
            server.0.write_all(&Packet { header, body: body.clone() }.encode()).await.unwrap();
        }
        // A call and its reply: everything before it has been read by then.
        let serve = async {
            let call = server.read().await;
            server.reply(&call, Encoder::new().u64(1)).await;
        };
        let (result, ()) = tokio::join!(connection.call(GET_VERSION, Encoder::new(), Decoder::u64), serve);
        result.unwrap();
        assert_eq!(events.next().await, Err(NoEvent::Lost(1)));
        assert_eq!(events.next().await, Ok(Event::Reboot(domain)));
    }

    #[tokio::test]
    async fn a_stream_is_collected_and_finished() {
        let (connection, mut server) = Server::pair();
        let call = async {
            let (mime, stream) = connection
                .call_for_stream(SCREENSHOT, Encoder::new(), |reply| reply.optional(Decoder::string))
                .await
                .unwrap();
            (mime, stream.collect(100).await)
        };
        let serve = async {
            let call = server.read().await;
            server.reply(&call, Encoder::new().optional(Some("image/png"), Encoder::string)).await;
            server.answer(&call, Kind::Stream, Status::Continue, b"ab".to_vec()).await;
            server.answer(&call, Kind::Stream, Status::Continue, b"c".to_vec()).await;
            server.answer(&call, Kind::Stream, Status::Continue, Vec::new()).await;
            server.read().await.header
        };
        let ((mime, bytes), end) = tokio::join!(call, serve);
        assert_eq!((mime.as_deref(), bytes.unwrap().as_slice()), (Some("image/png"), &b"abc"[..]));
        assert_eq!((end.kind, end.status), (Kind::Stream, Status::Ok));
    }

    #[tokio::test]
    async fn a_stream_without_end_is_given_up() {
        let (connection, mut server) = Server::pair();
        let call = async {
            let (_, stream) = connection.call_for_stream(SCREENSHOT, Encoder::new(), |_| Ok(())).await.unwrap();
            stream.collect(3).await
        };
        let serve = async {
            let call = server.read().await;
            server.reply(&call, Encoder::new().u32(0)).await;
            server.answer(&call, Kind::Stream, Status::Continue, b"abcd".to_vec()).await;
            server.read().await.header.status
        };
        let (result, end) = tokio::join!(call, serve);
        assert!(matches!(result, Err(Error::StreamTooLong { limit: 3, .. })));
        assert_eq!(end, Status::Error);
        assert!(connection.shared.waiting.lock().streams.is_empty());
    }
}
