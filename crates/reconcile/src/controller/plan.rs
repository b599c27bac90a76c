//! [`Plan`]: what a decision wants done.

use std::time::Duration;

/// Actions in order, at most one status, and when to look again. The result of a decision, comparable in tests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a plan does nothing until it is run"]
pub struct Plan<A, S> {
    /// What to do, in this order.
    pub actions: Vec<A>,
    /// What to report after all actions worked.
    pub status: Option<S>,
    /// When to look again even if nothing changes.
    pub requeue: Option<Duration>,
}

impl<A, S> Default for Plan<A, S> {
    fn default() -> Self {
        Self { actions: Vec::new(), status: None, requeue: None }
    }
}

impl<A, S> Plan<A, S> {
    /// A plan that does nothing: all is as it should be.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Adds an action after those already planned.
    pub fn then(mut self, action: A) -> Self {
        self.actions.push(action);
        self
    }

    /// Sets the status to report.
    pub fn report(mut self, status: S) -> Self {
        self.status = Some(status);
        self
    }

    /// Looks again after `delay`; of several wishes the earliest holds.
    pub fn look_again_after(mut self, delay: Duration) -> Self {
        self.requeue = Some(self.requeue.map_or(delay, |earlier| earlier.min(delay)));
        self
    }

    /// Whether it asks for nothing but patience.
    pub fn is_idle(&self) -> bool {
        self.actions.is_empty() && self.status.is_none()
    }
}
