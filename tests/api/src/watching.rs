//! Reads a watch: one JSON object per line, for as long as the case asks.

use std::time::Duration;

use anyhow::{Result, anyhow};
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::case::Watch;

const PATIENCE: Duration = Duration::from_secs(30);

/// Reads events until there are enough or the server ends the watch. Running out of time is an event of its own, so that it is seen
/// in the comparison and refused when recording.
pub(crate) async fn read(response: Response<Body>, wanted: &Watch) -> Result<Value> {
    let deadline = Instant::now() + wanted.seconds.map_or(PATIENCE, Duration::from_secs);
    let mut body = response.into_body();
    let (mut pending, mut events) = (Vec::new(), Vec::new());
    loop {
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let event: Value =
                serde_json::from_slice(&line).unwrap_or_else(|_| json!({"text": String::from_utf8_lossy(&line)}));
            let ends_initial = ends_initial_events(&event);
            if event["type"] != "BOOKMARK" || ends_initial || wanted.keep_bookmarks {
                events.push(event);
            }
            if wanted.events.is_some_and(|count| events.len() >= count) || (wanted.initial && ends_initial) {
                return Ok(Value::Array(events));
            }
        }
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(frame)) => {
                let frame = frame.map_err(|error| anyhow!("the watch broke off: {error}"))?;
                pending.extend(frame.into_data().unwrap_or_default());
            }
            Ok(None) => {
                events.extend((!pending.is_empty()).then(|| json!({"text": String::from_utf8_lossy(&pending)})));
                return Ok(Value::Array(events));
            }
            Err(_) => {
                events.push(json!("the watch gave no more events in time"));
                return Ok(Value::Array(events));
            }
        }
    }
}

fn ends_initial_events(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}
