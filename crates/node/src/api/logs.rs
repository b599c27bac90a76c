//! `kubectl logs`.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use super::log_lines::{Filter, Options};
use super::{Answer, Body, Parameters, Place, Refusal};
use crate::context::Context;
use crate::layout::ContainerLayout;
use crate::pod::record::{ContainerRecord, Stage};

/// How often a followed file is looked at: short for people who watch, long enough to cost nothing.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// The output of a container, now or as it comes.
pub(super) fn answer(node: &Arc<Context>, place: &Place, parameters: &Parameters) -> Result<Answer, Refusal> {
    let record = place.record(node)?;
    let layout = node.layout.pod(&place.uid).container(&place.container);
    let attempt = if parameters.is_set("previous") {
        let missing =
            || format!("previous terminated container {:?} in pod {:?} not found", place.container, place.pod);
        record.attempt.checked_sub(1).ok_or_else(|| Refusal::bad_request(missing()))?
    } else {
        record.attempt
    };
    let path = layout.log(attempt);
    if !path.exists() {
        let message =
            format!("container {:?} in pod {:?} is waiting to start: ContainerCreating", place.container, place.pod);
        return Err(Refusal::bad_request(message));
    }
    let follow = parameters.is_set("follow") && !parameters.is_set("previous");
    let limit = number(parameters, "limitBytes")?;
    let reading = Reading {
        path,
        file: None,
        rest: Vec::new(),
        filter: Filter::new(options(parameters)?),
        left: limit,
        follow: follow.then_some((layout, record.id)),
        begun: false,
        done: false,
    };
    let mut answer = Response::new(body(chunks(reading)));
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    Ok(answer)
}

fn number(parameters: &Parameters, name: &str) -> Result<Option<usize>, Refusal> {
    let Some(text) = parameters.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Refusal::bad_request(format!("{name} {text:?} is not a number")))
}

fn options(parameters: &Parameters) -> Result<Options, Refusal> {
    let mut since = None;
    if let Some(seconds) = number(parameters, "sinceSeconds")? {
        let ago = jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        since = Timestamp::now().checked_sub(ago).ok();
    }
    if let Some(text) = parameters.get("sinceTime") {
        let time = text.parse().map_err(|_| Refusal::bad_request(format!("sinceTime {text:?} is not a time")))?;
        since = Some(time);
    }
    let stream = parameters.get("stream").map(str::to_lowercase).filter(|stream| stream != "all" && !stream.is_empty());
    Ok(Options { tail: number(parameters, "tailLines")?, since, timestamps: parameters.is_set("timestamps"), stream })
}

fn body(chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data))).boxed_unsync()
}

/// A reader of one log file.
struct Reading {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line that is not finished.
    rest: Vec<u8>,
    filter: Filter,
    left: Option<usize>,
    /// Whose end ends the reading.
    follow: Option<(ContainerLayout, String)>,
    begun: bool,
    done: bool,
}

fn chunks(reading: Reading) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold(reading, |mut reading| async move {
        loop {
            if reading.done || reading.left == Some(0) {
                return Ok(None);
            }
            let mut seen = reading.more().await?;
            if let Some(left) = &mut reading.left {
                seen.truncate(*left);
                *left -= seen.len();
            }
            if !seen.is_empty() {
                return Ok(Some((Bytes::from(seen), reading)));
            }
        }
    })
}

impl Reading {
    async fn more(&mut self) -> io::Result<Vec<u8>> {
        // Looked at before reading: what was written before the end is then read for certain.
        let ended = self.follow.as_ref().is_none_or(|(layout, id)| has_ended(layout, id));
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(File::open(&self.path).await?),
        };
        let mut fresh = Vec::new();
        if self.begun {
            file.take(CHUNK as u64).read_to_end(&mut fresh).await?;
        } else {
            // The tail needs all of it at once.
            file.read_to_end(&mut fresh).await?;
        }
        let idle = fresh.is_empty();
        self.rest.extend_from_slice(&fresh);
        let seen = if self.begun {
            self.finished_lines()
        } else {
            self.begun = true;
            let (seen, used) = self.filter.whole(&self.rest);
            self.rest.drain(..used);
            seen
        };
        if idle && seen.is_empty() {
            self.done = ended;
            if !ended {
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(seen)
    }

    fn finished_lines(&mut self) -> Vec<u8> {
        let end = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..end).collect();
        let lines = lines.split_inclusive(|&byte| byte == b'\n');
        lines.flat_map(|line| self.filter.line(line.strip_suffix(b"\n").unwrap_or(line))).collect()
    }
}

/// This attempt of the container is over, or the container is gone.
fn has_ended(layout: &ContainerLayout, id: &str) -> bool {
    ContainerRecord::read(layout).is_none_or(|record| record.id != id || matches!(record.stage, Stage::Ended(_)))
}
