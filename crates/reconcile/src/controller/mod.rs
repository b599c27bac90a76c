//! The shape of a controller (observe, decide, act) and what runs it.
//!
//! ```text
//!   queue --key--> hold? --> observe --View--> decide --Plan--> act: action, action, ..., status --> done or retry
//! ```
//!
//! - [`Controller::observe`] collects everything that matters from caches.
//! - [`Controller::decide`] is a function of that view alone. It has no `self`, so it can reach neither a client nor a clock.
//! - [`Act::act`] carries one action out; the [runner](Runner) calls it for each action in order.
//!
//! The first failing action ends the run: later actions were decided for a world in which the earlier ones had worked. The
//! planned status is then not written either, as it would describe that world; [`Controller::status_after`] can say what to
//! write instead.

mod failure;
mod plan;
mod runner;
pub mod standard;

use std::{fmt::Debug, future::Future, time::Duration};

pub use self::{
    failure::{Category, Failure},
    plan::Plan,
    runner::{Outcome, Runner, reconcile},
};
use crate::queue::QueueKey;

/// One controller. See the [module](self) for how its parts follow each other.
pub trait Controller: Send + Sync + Sized {
    /// Names the controller in logs and metrics.
    const NAME: &'static str;
    /// What the queue carries, usually an [`ObjectKey`](crate::ObjectKey).
    type Key: QueueKey;
    /// Everything that a decision depends on, the time included.
    type View: Send + Sync;
    /// The things that this controller can do; an enum.
    type Action: Act<Self>;
    /// What it reports; compared with what is there already.
    type Status: PartialEq + Send + Sync;

    /// How long to hold `key` back because a cache has yet to show what was done for it; see
    /// [`Expectations::hold`](crate::Expectations::hold).
    fn hold(&self, key: &Self::Key) -> Option<Duration> {
        let _ = key;
        None
    }

    /// Collects the view of `key` from caches, without a call to the API; `None` when there is nothing to do for it.
    fn observe(&self, key: &Self::Key) -> Option<Self::View>;

    /// Judges. The same view always gives the same plan.
    fn decide(view: &Self::View) -> Plan<Self::Action, Self::Status>;

    /// The status as it was observed, if there was one. An equal one is not written again.
    fn observed_status(view: &Self::View) -> Option<&Self::Status>;

    /// What to report when an action failed; nothing unless overridden.
    fn status_after(view: &Self::View, failure: &Failure) -> Option<Self::Status> {
        let _ = (view, failure);
        None
    }

    /// Writes the status: the one write after the actions.
    fn write_status(&self, view: &Self::View, status: Self::Status)
    -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Something that a controller of type `C` can do. [`standard`] has the building blocks.
pub trait Act<C: Controller>: Debug + Send {
    /// Names the action in logs.
    fn name(&self) -> &'static str;

    /// Does it, for the key that it was decided for. Doing it twice must be harmless.
    fn act(self, controller: &C, key: &C::Key) -> impl Future<Output = Result<(), Failure>> + Send;
}
