//! The work queue: which key is reconciled next.
//!
//! ```text
//!            add_after                due                take
//!   (idle) ------------> [delayed] ---------> [ready] ---------> [running]
//!      ^  \________________ add ________________^                   |  |
//!      |                                                            |  | added again
//!      |                          done                              |  v
//!      +------------------------------------------------------------+ [running, again]
//!                                                       done: to ready or delayed
//! ```
//!
//! - A key waits at most once, however often it is added. Adding it again can only make it run **sooner** (the earliest due
//!   time wins) and **higher** (the highest priority wins).
//! - A key never runs twice at the same time. Added while it runs, it runs once more after [`Ticket::done`].
//! - Among ready keys the highest priority goes first; equal priorities are first come, first served.
//! - Failures are counted per key and make the pauses between retries grow ([`Backoff`](crate::Backoff)); success forgets them.
//!
//! An add that was due later is covered by the earlier run, because a reconciler says after each run when to look again. So a
//! delayed add is a reminder to look, not a message that must arrive.
//!
//! A low priority can starve behind a steady stream of a higher one. Priorities are for bursts (the first listing after a
//! start, a node that comes back), not for permanent classes of service.
//!
//! [`QueueCore`] is the state machine: no clock, no async, no locks. [`Queue`] wraps it for use.

mod core;
mod handle;
#[cfg(test)]
mod model_tests;

use std::{hash::Hash, time::Duration};

pub use self::{
    core::{QueueCore, Taken, Time},
    handle::{Queue, QueueConfig, Ticket},
};

/// What a queue carries: small, comparable, cheap to clone. Anything suitable is a `QueueKey` by itself.
pub trait QueueKey: Clone + Ord + Hash + Send + Sync + std::fmt::Debug + 'static {}

impl<T: Clone + Ord + Hash + Send + Sync + std::fmt::Debug + 'static> QueueKey for T {}

/// Who goes first; the larger number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// Objects seen in a first listing: nothing happened to them just now.
    pub const BACKGROUND: Self = Self(-100);
    /// Ordinary changes.
    pub const NORMAL: Self = Self(0);
    /// Somebody waits for it.
    pub const URGENT: Self = Self(100);
}

/// What a queue tells about itself while it works; every method does nothing unless overridden.
///
/// Called with the queue's lock held: count and return.
pub trait QueueHook: Send + Sync {
    /// A key became ready; `depth` keys are ready now.
    fn became_ready(&self, depth: usize) {
        let _ = depth;
    }
    /// A key was handed out after being ready for `waited`; `depth` keys are still ready.
    fn taken(&self, waited: Duration, depth: usize) {
        let _ = (waited, depth);
    }
    /// A key was finished after `worked`.
    fn finished(&self, worked: Duration) {
        let _ = worked;
    }
    /// A key was scheduled again because it failed.
    fn retried(&self) {}
}

/// The hook that ignores everything.
impl QueueHook for () {}
