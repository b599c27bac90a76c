//! [`follow`]: takes in a watch, whatever happens to it.

use futures::{StreamExt, stream::BoxStream};
use kube::runtime::watcher::{self, Event};
use tracing::{debug, warn};

use ferrovirt_kubernetes::json::DecodeError;

use super::document::Document;
use crate::backoff::Backoff;

/// What a watch fills.
pub(super) trait Sink: Send + Sync {
    /// Takes in one event. What cannot be read changes nothing.
    fn take(&self, event: Event<Document>) -> Result<(), DecodeError>;

    /// The pauses between attempts.
    fn backoff(&self) -> &Backoff;
}

/// Takes in a watch until it ends, which [`watcher`](kube::runtime::watcher()) never does: errors are logged and retried
/// after a pause. `what` names the watch in the log.
///
/// An object that cannot be read is not passed over: whoever reads the cache would take it for deleted. The watch begins
/// anew instead, with a listing that ends when everything in it can be read.
pub(super) async fn follow(
    what: &str,
    sink: &dyn Sink,
    open: impl Fn() -> BoxStream<'static, watcher::Result<Event<Document>>>,
) {
    let mut events = open();
    let mut failures = 0;
    while let Some(event) = events.next().await {
        let problem = match event {
            Ok(event) => {
                // The start of a listing proves nothing yet: a server that refuses to list lets every attempt begin.
                // Nor do its objects, one of which may be unreadable.
                let proves = matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_));
                match sink.take(event) {
                    Ok(()) => {
                        failures = if proves { 0 } else { failures };
                        continue;
                    }
                    Err(error) => {
                        events = open();
                        format!("an object cannot be read: {error}")
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        failures += 1;
        let pause = sink.backoff().delay(what, failures);
        if failures == 1 {
            debug!(what, problem, ?pause, "watch interrupted");
        } else {
            warn!(what, problem, ?pause, failures, "watch keeps failing");
        }
        tokio::time::sleep(pause).await;
    }
}
