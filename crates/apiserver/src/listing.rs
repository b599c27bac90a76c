//! Lists on their way to clients: an item at a time, in pieces of some size.
//!
//! A list can be as large as the store. Only one piece of it exists as bytes, whatever its form (JSON, for people, YAML, a table), and large
//! objects are not copied at all; so many clients with slow lines cost little. The objects are those of one revision, kept alive by the list
//! for as long as [`PATIENCE`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;

use crate::http::negotiate::Output;
use crate::http::options::Query;
use crate::http::respond::{self, Answer, ResponseBody};
use crate::lease::Lease;
use crate::registry::Resource;
use crate::store::Object;
use crate::view::{View, put_revision};

/// Lists that are not larger are answered at once, with their length. Larger pieces cost memory for each client, smaller ones calls.
const PIECE: usize = 64 << 10;
/// Stored texts from this size on are sent from where they are, without a copy.
const LARGE: usize = 16 << 10;
/// As long as kube-apiserver's requests may take. Whoever has not taken a list then has to ask again.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A client took longer than [`PATIENCE`] for a list.
#[derive(Debug, thiserror::Error)]
#[error("the client has taken too long to read its list")]
struct TooSlow;

/// Answers with a list of `objects`.
pub fn answer(
    resource: Arc<Resource>,
    output: Output,
    query: Query,
    now: jiff::Timestamp,
    objects: Vec<Arc<Object>>,
    meta: &Value,
) -> Answer {
    let content_type = output.content_type();
    let view = View::new(&resource, &output, &query, now);
    let (head, items) = view.list_head(meta);
    let format = Format::of(&output);
    let mut listing = Listing {
        format,
        now,
        rest: objects.into_iter(),
        begun: false,
        ready: VecDeque::new(),
        query,
        output,
        resource,
    };
    let mut out = BytesMut::with_capacity(PIECE + LARGE);
    format.open(&head, items, listing.rest.len() == 0, &mut out);
    listing.fill(out);
    let mut answer = respond::bytes(StatusCode::OK, content_type, Bytes::new());
    *answer.body_mut() = listing.body();
    answer
}

/// How items stand in a list.
#[derive(Clone, Copy)]
enum Format {
    Compact,
    /// JSON for people.
    Indented,
    Yaml,
}

impl Format {
    fn of(output: &Output) -> Self {
        match (output.yaml, output.pretty) {
            (true, _) => Self::Yaml,
            (false, true) => Self::Indented,
            (false, false) => Self::Compact,
        }
    }

    /// The list up to its first item.
    fn open(self, head: &Value, items: &str, is_empty: bool, out: &mut BytesMut) {
        // Writing to memory cannot fail, and a Value always has string keys.
        let head = match self {
            Self::Compact => serde_json::to_string(head).unwrap_or_default(),
            Self::Indented => serde_json::to_string_pretty(head).unwrap_or_default(),
            Self::Yaml => serde_saphyr::to_string(head).unwrap_or_default(),
        };
        match self {
            // The items come after the other fields, in the same braces.
            Self::Compact => put(out, &[head.strip_suffix('}').unwrap_or_default(), ",\"", items, "\":["]),
            Self::Indented => put(out, &[head.strip_suffix("\n}").unwrap_or_default(), ",\n  \"", items, "\": ["]),
            Self::Yaml => put(out, &[&head, items, if is_empty { ": []\n" } else { ":\n" }]),
        }
    }

    /// What stands between two items, or before the first.
    fn separate(self, is_first: bool, out: &mut BytesMut) {
        match self {
            Self::Compact if is_first => {}
            Self::Compact => out.put_u8(b','),
            Self::Indented if is_first => out.put_slice(b"\n    "),
            Self::Indented => out.put_slice(b",\n    "),
            Self::Yaml => {}
        }
    }

    fn item(self, value: &Value, out: &mut BytesMut) {
        match self {
            Self::Compact => {
                let _ = serde_json::to_writer(out.writer(), value);
            }
            // Strings have no line ends in JSON: each one is between tokens.
            Self::Indented => {
                let text = serde_json::to_string_pretty(value).unwrap_or_default();
                put(out, &[&text.replace('\n', "\n    ")]);
            }
            Self::Yaml => {
                let text = serde_saphyr::to_string(value).unwrap_or_default();
                for (index, line) in text.lines().enumerate() {
                    let indent = match (index, line.is_empty()) {
                        (0, _) => "- ",
                        (_, true) => "",
                        (_, false) => "  ",
                    };
                    put(out, &[indent, line, "\n"]);
                }
            }
        }
    }

    fn close(self, is_empty: bool, out: &mut BytesMut) {
        match self {
            Self::Compact => out.put_slice(b"]}\n"),
            Self::Indented if is_empty => out.put_slice(b"]\n}\n"),
            Self::Indented => out.put_slice(b"\n  ]\n}\n"),
            Self::Yaml => {}
        }
    }
}

fn put(out: &mut BytesMut, texts: &[&str]) {
    for text in texts {
        out.put_slice(text.as_bytes());
    }
}

/// The rest of a list.
struct Listing {
    resource: Arc<Resource>,
    output: Output,
    query: Query,
    now: jiff::Timestamp,
    format: Format,
    rest: std::vec::IntoIter<Arc<Object>>,
    /// An item was written.
    begun: bool,
    /// Pieces that were not taken yet.
    ready: VecDeque<Bytes>,
}

impl Listing {
    fn body(mut self) -> ResponseBody {
        if self.rest.len() == 0
            && self.ready.len() == 1
            && let Some(all) = self.ready.pop_front()
        {
            return respond::full(all);
        }
        let pieces = futures::stream::unfold(Some(Lease::new(self, PATIENCE)), |lease| async move {
            let lease = lease?;
            match lease.with(Self::next) {
                Some(Some(piece)) => Some((Ok(piece), Some(lease))),
                Some(None) => None,
                None => Some((Err(TooSlow.into()), None)),
            }
        });
        StreamBody::new(pieces.map_ok(Frame::data).boxed()).boxed_unsync()
    }

    fn next(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() && self.rest.len() > 0 {
            self.fill(BytesMut::with_capacity(PIECE + LARGE));
        }
        self.ready.pop_front()
    }

    /// Makes the next pieces ready: `out` with as many items behind it as fit, and what closes the list behind the last.
    fn fill(&mut self, mut out: BytesMut) {
        let view = View::new(&self.resource, &self.output, &self.query, self.now);
        let mut passed = 0;
        while out.len() + passed < PIECE {
            let Some(object) = self.rest.next() else { break };
            self.format.separate(!self.begun, &mut out);
            self.begun = true;
            let Some((head, before, after)) = view.verbatim(&object) else {
                self.format.item(&view.item(&object), &mut out);
                continue;
            };
            out.put_slice(head.as_bytes());
            passed += put_or_pass(&mut self.ready, &mut out, before);
            put_revision(object.revision, &mut out);
            passed += put_or_pass(&mut self.ready, &mut out, after);
        }
        if self.rest.len() == 0 {
            self.format.close(!self.begun, &mut out);
        }
        self.ready.push_back(out.freeze());
    }
}

/// Copies a small text behind what is there; a large one becomes a piece of its own. Returns the size of what became a piece.
fn put_or_pass(ready: &mut VecDeque<Bytes>, out: &mut BytesMut, text: Bytes) -> usize {
    if text.len() < LARGE {
        out.put_slice(&text);
        return 0;
    }
    let before = out.split().freeze();
    let size = before.len() + text.len();
    ready.extend([before, text]);
    size
}
