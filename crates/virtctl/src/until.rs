//! Waiting for an object to become something: one list, then a watch, and again when the watch ends.

use std::time::Duration;

use anyhow::anyhow;
use futures::StreamExt;
use serde_json::Value;
use tokio::time::Instant;

use crate::session::{Refused, Session};

/// A pause before the object is listed again after its watch ended.
const PAUSE: Duration = Duration::from_millis(500);

/// The time is over.
#[derive(Debug, thiserror::Error)]
#[error("timed out waiting for {what}")]
pub(crate) struct TimedOut {
    /// What did not come.
    pub(crate) what: String,
}

/// Shows the object to `judge`, now and after every change, until it has an answer. A missing object is `None`.
pub(crate) async fn until<T>(
    session: &Session,
    collection: &str,
    name: &str,
    mut judge: impl FnMut(Option<&Value>) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let only = format!("fieldSelector=metadata.name%3D{name}");
    loop {
        let list = session.get(&format!("{collection}?{only}")).await?;
        if let Some(answer) = judge(list["items"].get(0))? {
            return Ok(answer);
        }
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let path = format!("{collection}?{only}&watch=true&resourceVersion={version}&allowWatchBookmarks=true");
        match session.watch(&path, "application/json").await {
            Ok(events) => {
                let mut events = std::pin::pin!(events);
                while let Some(Ok(event)) = events.next().await {
                    let object = match event["type"].as_str() {
                        Some("BOOKMARK") => continue,
                        Some("DELETED") => None,
                        _ => Some(&event["object"]),
                    };
                    if let Some(answer) = judge(object)? {
                        return Ok(answer);
                    }
                }
            }
            // The list is too old for the watch, or the server restarts.
            Err(Refused::Unreachable { .. }) => {}
            Err(refused) if refused.code() == Some(410) => {}
            Err(refused) => return Err(refused.into()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Gives up after a while.
pub(crate) async fn within<T>(
    patience: Duration,
    what: impl FnOnce() -> String,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout_at(Instant::now() + patience, work).await {
        Ok(done) => done,
        Err(_) => Err(anyhow!(TimedOut { what: what() })),
    }
}
