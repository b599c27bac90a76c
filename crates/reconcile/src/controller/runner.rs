//! Runs a controller: takes keys from its queue, carries plans out, and decides when a key comes back.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Act, Category, Controller, Failure, Plan};
use crate::{
    metrics::Metrics,
    queue::{Queue, Ticket},
};

/// What one run of one key came to.
#[derive(Debug)]
pub enum Outcome {
    /// The plan was carried out; look again after the given time, if any.
    Done(Option<Duration>),
    /// Not looked at: a cache has to catch up first, for which the given time is the limit.
    Held(Duration),
    /// A step failed.
    Failed(Failure),
}

impl Outcome {
    /// The `result` label of the reconcile metric.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Done(_) => "success",
            Self::Held(_) => "held",
            Self::Failed(failure) => failure.category().label(),
        }
    }
}

/// One run of one key: hold, observe, decide, act. What [`Runner`] does for each key, and what simulations call directly.
pub async fn reconcile<C: Controller>(controller: &C, key: &C::Key) -> Outcome {
    if let Some(limit) = controller.hold(key) {
        return Outcome::Held(limit);
    }
    let Some(view) = controller.observe(key) else { return Outcome::Done(None) };
    let Plan { actions, status, requeue } = C::decide(&view);
    if let Err(failure) = run_actions(controller, key, actions).await {
        if let Some(status) = C::status_after(&view, &failure)
            && let Err(second) = write_status(controller, &view, status).await
        {
            // The action's failure is the one that decides what happens next; this one would only hide it.
            debug!(controller = C::NAME, ?key, error = second.message(), "cannot report the failure");
        }
        return Outcome::Failed(failure);
    }
    if let Some(status) = status
        && let Err(failure) = write_status(controller, &view, status).await
    {
        return Outcome::Failed(failure);
    }
    Outcome::Done(requeue)
}

async fn run_actions<C: Controller>(controller: &C, key: &C::Key, actions: Vec<C::Action>) -> Result<(), Failure> {
    for action in actions {
        debug!(controller = C::NAME, ?key, action = action.name(), "acting");
        action.act(controller, key).await?;
    }
    Ok(())
}

async fn write_status<C: Controller>(controller: &C, view: &C::View, status: C::Status) -> Result<(), Failure> {
    if C::observed_status(view) == Some(&status) {
        return Ok(());
    }
    controller.write_status(view, status).await
}

/// Runs a controller with a number of workers that share its queue.
pub struct Runner<C: Controller> {
    controller: C,
    queue: Queue<C::Key>,
    workers: usize,
    metrics: Option<Metrics>,
}

impl<C: Controller> Runner<C> {
    /// A runner with one worker. The caches must have [synced](crate::Cache::synced) before it runs.
    pub fn new(controller: C, queue: Queue<C::Key>) -> Self {
        Self { controller, queue, workers: 1, metrics: None }
    }

    /// How many keys may be worked on at the same time.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Counts results there.
    #[must_use]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        metrics.announce_results(C::NAME);
        self.metrics = Some(metrics.clone());
        self
    }

    /// Works until `stop`, then finishes what is ready and returns. Dropping the future instead stops at once.
    ///
    /// All workers live in the caller's task: nothing keeps running after a drop, which is what losing leadership needs.
    pub async fn run(&self, stop: CancellationToken) {
        let workers = async {
            // Whatever wakes the caller, only workers that can go on are looked at.
            let mut workers: FuturesUnordered<_> = (0..self.workers).map(|_| self.work()).collect();
            while workers.next().await.is_some() {}
        };
        let close_queue = async {
            stop.cancelled().await;
            self.queue.shut_down();
        };
        // The workers leave when the queue is closed and empty, and not before.
        futures::future::join(workers, close_queue).await;
    }

    async fn work(&self) {
        while let Some(ticket) = self.queue.next().await {
            // Boxed, so that a worker that waits is small, and there can be many.
            let outcome = Box::pin(self.guarded(ticket.key())).await;
            if let Some(metrics) = &self.metrics {
                metrics.count_result(C::NAME, outcome.label());
            }
            finish::<C>(ticket, &outcome);
        }
    }

    /// One poisonous object must not take the controller down with it.
    async fn guarded(&self, key: &C::Key) -> Outcome {
        match AssertUnwindSafe(reconcile(&self.controller, key)).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
                Outcome::Failed(Failure::new(Category::Panic, format!("reconcile {key:?}"), text))
            }
        }
    }
}

/// Gives the key back with what the outcome asks for.
fn finish<C: Controller>(ticket: Ticket<C::Key>, outcome: &Outcome) {
    let failure = match outcome {
        Outcome::Done(None) => return ticket.done(),
        Outcome::Done(Some(delay)) => return ticket.done_then_after(*delay),
        Outcome::Held(limit) => return ticket.postpone(*limit),
        Outcome::Failed(failure) => failure,
    };
    let (key, category, failures) = (ticket.key(), failure.category(), ticket.failures() + 1);
    if category.is_quiet() {
        debug!(controller = C::NAME, ?key, category = category.label(), error = failure.message(), "will try again");
    } else {
        warn!(controller = C::NAME, ?key, category = category.label(), failures, error = failure.message(), "failed");
    }
    match failure.retry_after() {
        _ if !category.is_worth_retrying() => ticket.done(),
        Some(delay) => ticket.postpone(delay),
        None => ticket.retry(),
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
