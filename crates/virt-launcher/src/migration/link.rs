//! The launchers' own connection: lines of JSON in both directions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferrovirt_launcher_rpc::migration::Line;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A domain's XML and two cookies are far below it.
const LINE_MAX: u64 = 16 * 1024 * 1024;

/// What a link tells, with its number: what an older one says does not count.
#[derive(Debug)]
pub enum Heard {
    /// A line.
    Line(u64, Line),
    /// It broke, or the other side speaks nonsense.
    Cut(u64),
}

/// A link that is open, as far as is known. It closes when it is dropped.
#[derive(Debug)]
pub struct Link {
    /// Which one.
    pub number: u64,
    lines: mpsc::UnboundedSender<Line>,
    reader: AbortHandle,
}

impl Link {
    /// Speaks over a socket; what is heard goes to `heard`.
    pub fn new<T: From<Heard> + Send + 'static>(
        number: u64,
        socket: UnixStream,
        heard: mpsc::UnboundedSender<T>,
    ) -> Self {
        let (read, write) = socket.into_split();
        let (lines, queue) = mpsc::unbounded_channel();
        tokio::spawn(speak(write, queue));
        let reader = tokio::spawn(listen(number, read, heard)).abort_handle();
        Self { number, lines, reader }
    }

    /// Says it. That it did not arrive is heard as a cut.
    pub fn say(&self, line: Line) {
        let _ = self.lines.send(line);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn speak(mut socket: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Line>) {
    while let Some(line) = queue.recv().await {
        let Ok(mut text) = serde_json::to_vec(&line) else { return };
        text.push(b'\n');
        if socket.write_all(&text).await.is_err() {
            return;
        }
    }
}

async fn listen<T: From<Heard>>(number: u64, socket: OwnedReadHalf, heard: mpsc::UnboundedSender<T>) {
    let mut socket = BufReader::with_capacity(4096, socket);
    loop {
        let mut text = Vec::new();
        let line = match (&mut socket).take(LINE_MAX).read_until(b'\n', &mut text).await {
            Ok(_) if text.ends_with(b"\n") => serde_json::from_slice(&text).ok(),
            _ => None,
        };
        let is_over = line.is_none();
        let said = line.map_or(Heard::Cut(number), |line| Heard::Line(number, line));
        if heard.send(said.into()).is_err() || is_over {
            return;
        }
    }
}

/// A cookie as text.
pub fn encode(cookie: &[u8]) -> Option<String> {
    Some(STANDARD.encode(cookie))
}

/// A cookie from text; nonsense is no cookie, which libvirt then refuses.
pub fn decode(cookie: Option<&str>) -> Vec<u8> {
    cookie.and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ferrovirt_handover::ToTarget;

    use super::*;

    #[tokio::test]
    async fn lines_are_heard_and_so_is_the_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, mut heard) = mpsc::unbounded_channel::<Heard>();
        let link = Link::new(1, ours, sender.clone());
        let other = Link::new(2, theirs, mpsc::unbounded_channel::<Heard>().0);
        let line = Line::Source { word: ToTarget::Query, cookie: encode(b"abc"), offer: None };
        other.say(line.clone());
        let Some(Heard::Line(1, said)) = heard.recv().await else { panic!("nothing was heard") };
        assert_eq!(said, line);
        drop(other);
        assert!(matches!(heard.recv().await, Some(Heard::Cut(1))));
        drop(link);
    }

    #[tokio::test]
    async fn nonsense_is_a_cut() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (sender, mut heard) = mpsc::unbounded_channel::<Heard>();
        let _link = Link::new(1, ours, sender);
        theirs.write_all(b"hello\n").await.unwrap();
        assert!(matches!(heard.recv().await, Some(Heard::Cut(1))));
    }

    #[test]
    fn cookies_survive_a_round_trip() {
        assert_eq!(decode(encode(b"\0\xffcookie").as_deref()), b"\0\xffcookie");
        assert_eq!(decode(None), b"");
    }
}
