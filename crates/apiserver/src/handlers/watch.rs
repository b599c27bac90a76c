//! Watches: the tail of a resource's log as a stream of frames.
//!
//! A watch has no queue of its own. It reads the store's history with a cursor, so a client that stops reading costs
//! nothing, and one that falls behind the history gets a 410 in the stream and lists again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use tokio::time::Instant;

use super::read::wait_until_fresh;
use crate::http::negotiate::{Output, Shape};
use crate::http::options::{ListOptions, Query};
use crate::http::respond::Answer;
use crate::lease::Lease;
use crate::listing;
use crate::registry::Resource;
use crate::select::Selection;
use crate::server::{Call, Server};
use crate::status::{ApiError, ApiResult};
use crate::store::{Event, Object, Revision, Watch, WatchError};
use crate::view::View;

/// How often a quiet watch hears where the store is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How much is gathered into one chunk when a client catches up.
const CHUNK: usize = 64 * 1024;
/// A watch without a time limit lives between this long and twice as long.
const DEFAULT_LIFE_SECONDS: u64 = 1800;
/// Instants do not reach as far as the numbers that clients can ask for.
const LONGEST_LIFE_SECONDS: u64 = 10 * 365 * 24 * 60 * 60;

/// `watch`
pub async fn watch(server: &Arc<Server>, resource: &Arc<Resource>, call: &Call) -> ApiResult<Answer> {
    let mut options = ListOptions::parse(&call.query, true)?;
    let output = Output::negotiate(&call.headers, &call.query)?;
    let path = call.path()?;
    if !path.name.is_empty() {
        // The old /watch/… form names the object in the path.
        options.fields = ferrovirt_machinery::selector::FieldSelector::parse(&format!("metadata.name={}", path.name))
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
    }
    let tail = Tail::start(
        server.clone(),
        resource.clone(),
        path.namespace.clone(),
        options,
        output.clone(),
        call.query.clone(),
    )
    .await?;
    let frames = futures::stream::unfold(tail, |mut tail| async move {
        let chunk = tail.next_chunk().await?;
        Some((Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Frame::data(chunk)), tail))
    });
    let mut response = http::Response::new(StreamBody::new(frames.boxed()).boxed_unsync());
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(output.content_type()));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

/// One watch being served.
struct Tail {
    server: Arc<Server>,
    resource: Arc<Resource>,
    options: ListOptions,
    selection: Selection,
    output: Output,
    query: Query,
    /// Objects to send before the first change.
    initial: Option<Lease<std::vec::IntoIter<Arc<Object>>>>,
    /// After the initial objects comes the bookmark that says so.
    ends_initial: Option<Revision>,
    log: Watch,
    deadline: Instant,
    next_bookmark: Instant,
    /// The client was told of this revision already.
    told: Revision,
    first_row: bool,
    finished: bool,
    /// What the client wants to see next is gone from the history.
    lost: bool,
}

enum Step {
    Event(Arc<Event>),
    Lost(Revision),
    Bookmark,
    End,
}

impl Tail {
    async fn start(
        server: Arc<Server>,
        resource: Arc<Resource>,
        namespace: String,
        options: ListOptions,
        output: Output,
        query: Query,
    ) -> ApiResult<Self> {
        let selection = Selection::new(&resource, &options)?;
        let namespace = (!namespace.is_empty() && resource.namespaced).then_some(namespace.as_str());
        let wants_initial = match options.send_initial_events {
            Some(wanted) => wanted,
            None => options.resource_version.unwrap_or(0) == 0,
        };
        let mut initial = Vec::new();
        let mut from = options.resource_version.unwrap_or(0);
        if wants_initial || from == 0 {
            wait_until_fresh(&server, from).await?;
            let page = server.store.list(&resource.storage, namespace, None, None, None).map_err(ApiError::internal)?;
            from = page.revision;
            if wants_initial {
                initial = page.objects;
            }
        }
        let head = server.store.revision();
        let (log, lost) = match server.store.watch(&resource.storage, namespace, from.min(head)) {
            Ok(log) => (log, false),
            // The client is told inside the stream, as kube-apiserver does.
            Err(WatchError::Compacted { .. }) => {
                (server.store.watch(&resource.storage, namespace, head).map_err(ApiError::internal)?, true)
            }
            Err(error) => return Err(ApiError::internal(error)),
        };
        let life = options
            .timeout_seconds
            .unwrap_or_else(|| DEFAULT_LIFE_SECONDS + rand::random_range(0..DEFAULT_LIFE_SECONDS));
        let now = Instant::now();
        Ok(Self {
            // Whoever gets the state first and takes bookmarks is told where it ends.
            ends_initial: (wants_initial && (options.bookmarks || options.send_initial_events == Some(true)))
                .then_some(from),
            server,
            resource,
            output,
            query,
            initial: (!initial.is_empty()).then(|| Lease::new(initial.into_iter(), listing::PATIENCE)),
            log,
            deadline: now + Duration::from_secs(life.min(LONGEST_LIFE_SECONDS)),
            next_bookmark: now + BOOKMARK_EVERY,
            told: from,
            first_row: true,
            finished: false,
            lost,
            selection,
            options,
        })
    }

    /// The next bytes for the client; `None` ends the stream.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        while out.is_empty() {
            if self.finished {
                return None;
            }
            if self.write_initial(&mut out) {
                continue;
            }
            match self.step().await {
                Step::Event(event) => {
                    self.write_event(&event, &mut out);
                    self.write_ready(&mut out);
                }
                Step::Lost(at) => {
                    let error = expired(at, self.server.store.compacted());
                    write_frame("ERROR", &error.to_status(), &mut out);
                    self.finished = true;
                }
                Step::Bookmark => self.write_bookmark(&mut out),
                Step::End => {
                    // Just before the end the client learns how far it got, so that the next watch starts there.
                    self.finished = true;
                    self.write_bookmark(&mut out);
                }
            }
        }
        Some(out.freeze())
    }

    async fn step(&mut self) -> Step {
        if self.lost {
            return Step::Lost(self.told);
        }
        let bookmark_at = if self.options.bookmarks { self.next_bookmark } else { self.deadline };
        tokio::select! {
            biased;
            event = self.log.next() => match event {
                Ok(event) => Step::Event(event),
                Err(WatchError::Compacted { .. }) => Step::Lost(self.told),
                Err(_) => Step::End,
            },
            () = tokio::time::sleep_until(self.deadline) => Step::End,
            () = tokio::time::sleep_until(bookmark_at) => Step::Bookmark,
        }
    }

    /// Sends what was there before the watch; false when that is done.
    fn write_initial(&mut self, out: &mut BytesMut) -> bool {
        let mut wrote = false;
        while let Some(objects) = self.initial.take() {
            match objects.with(Iterator::next) {
                Some(Some(object)) => {
                    if self.selection.matches(&object) {
                        self.write_object("ADDED", &object, object.revision, out);
                    }
                    wrote = true;
                    self.initial = Some(objects);
                    if out.len() >= CHUNK {
                        break;
                    }
                }
                Some(None) => {}
                // The client took too long for the state at its start: it has to begin anew.
                None => {
                    self.lost = true;
                    return false;
                }
            }
        }
        if !wrote && let Some(revision) = self.ends_initial.take() {
            let view = View::new(&self.resource, &self.output, &self.query, self.server.environment.now());
            write_frame("BOOKMARK", &view.bookmark(revision, true), out);
            wrote = true;
        }
        wrote
    }

    /// Adds what else is there already, so that a client that catches up gets few large chunks.
    fn write_ready(&mut self, out: &mut BytesMut) {
        while out.len() < CHUNK {
            match self.log.try_next() {
                Ok(Some(event)) => self.write_event(&event, out),
                _ => break,
            }
        }
    }

    fn write_event(&mut self, event: &Event, out: &mut BytesMut) {
        if event.revision <= self.told {
            // The client asked to start later than now.
            return;
        }
        self.told = event.revision;
        let is = event.object.as_ref().filter(|object| self.selection.matches(object));
        let was = event.previous.as_ref().filter(|object| self.selection.matches(object));
        match (is.cloned(), was.cloned()) {
            (Some(object), Some(_)) => self.write_object("MODIFIED", &object, event.revision, out),
            (Some(object), None) => self.write_object("ADDED", &object, event.revision, out),
            // It left the selection or the store: the last state that the client knew, with the new version.
            (None, Some(object)) => self.write_object("DELETED", &object, event.revision, out),
            (None, None) => {}
        }
    }

    fn write_object(&mut self, kind: &str, object: &Object, revision: Revision, out: &mut BytesMut) {
        let view = View::new(&self.resource, &self.output, &self.query, self.server.environment.now());
        if let Shape::Table { .. } = self.output.shape
            && !self.first_row
        {
            // Only the first event of a table watch carries the column definitions.
            let mut one = BytesMut::new();
            view.write(object, revision, &mut one);
            if let Ok(mut table) = serde_json::from_slice::<Value>(&one) {
                table["columnDefinitions"] = Value::Null;
                write_frame(kind, &table, out);
            }
            return;
        }
        self.first_row = false;
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        view.write(object, revision, out);
        out.put_slice(b"}\n");
    }

    fn write_bookmark(&mut self, out: &mut BytesMut) {
        self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
        if !self.options.bookmarks {
            return;
        }
        if let Ok(revision) = self.log.progress() {
            self.told = self.told.max(revision);
            let view = View::new(&self.resource, &self.output, &self.query, self.server.environment.now());
            write_frame("BOOKMARK", &view.bookmark(self.told, false), out);
        }
    }
}

fn write_frame(kind: &str, object: &Value, out: &mut BytesMut) {
    out.put_slice(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").as_bytes());
}

fn expired(at: Revision, compacted: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {at} ({})", compacted + 1))
}
