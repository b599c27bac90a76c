//! What every Ferrovirt controller stands on: shared watches, a work queue, expectations, and the runner of
//! *observe, decide, act*.
//!
//! # Flow
//!
//! ```text
//!                 +-----------------------------------------------------------------------+
//!                 |                            API server                                 |
//!                 +-----------------------------------------------------------------------+
//!                       | one watch per kind                        ^ actions, then one status write
//!                       v                                           |
//!                +--------------+  changed keys   +-------+  key  +------------------------------+
//!                |  Cache + its | --------------> | Queue | ----> | Runner                       |
//!                |   indexes    |                 +-------+       |  hold -> observe -> decide   |
//!                +--------------+ <------------------------------ |       -> act -> status       |
//!                                        reads                    +------------------------------+
//! ```
//!
//! - [`watch`]: a [`Cache`] holds all objects of one kind, indexed, filled by one watch that the whole process shares.
//! - [`queue`]: a [`Queue`] decides which key is worked on next. It carries keys and priorities, never reasons.
//! - [`controller`]: the [`Controller`] trait splits a controller into observing, deciding and acting; the [`Runner`] drives it.
//!   [`controller::standard`] has the usual actions.
//! - [`expectations`]: [`Expectations`] hold a key back until the cache shows what was just done for it.
//! - [`leader`]: [`run_while_leader`] runs something in one process of many.
//! - [`component`]: what a process of several controllers is: one lease, one set of watches, one end.
//! - [`events`]: a [`Recorder`] tells people what happened, without flooding them.
//! - [`metrics`]: [`Metrics`] of queues and results.
//!
//! # Guarantees
//!
//! - **No change is lost.** Whatever happens to an object, the keys it belonged to and the keys it belongs to run afterwards,
//!   also when the watch broke off in between, and also when the worker panicked or was cancelled.
//! - **One at a time.** A key never runs twice at once within a process; across processes, [`leader`] says what holds.
//! - **Deciding is pure.** [`Controller::decide`] sees a view and nothing else.
//! - **A failed step ends the run.** What was decided on top of it is not done, and the planned status is not written.
//! - **At most one status write per run, none when nothing changed.**
//! - **Time is tokio's.** Everything here waits on tokio's clock and takes no randomness, so that a test with a paused clock
//!   plays hours in an instant, and the same way each time. Timestamps come from a [`Clock`].
//!
//! # Caveats
//!
//! - A cache lags behind the API server. A controller must be right with yesterday's view: derive the names of what it creates
//!   from the owner's uid, and guard deletes and updates by uid and version ([`controller::standard`] does).
//! - Reconciling says nothing about how often it runs. A key that was added ten times may run once; a key that nobody touched
//!   may run again.
//! - Whoever is told to stop finishes what is ready; whoever is dropped stops in the middle. Both must be harmless.
//!
//! # Example
//!
//! A complete controller (`examples/one_pod_per_job.rs`; the tests run it against a scripted API server):
//!
//! ```no_run
#![doc = include_str!("../examples/one_pod_per_job.rs")]
//! ```

pub mod backoff;
pub mod clock;
pub mod component;
pub mod controller;
pub mod events;
pub mod expectations;
pub mod key;
pub mod leader;
pub mod metrics;
pub mod queue;
pub mod watch;

pub use backoff::Backoff;
pub use clock::Clock;
pub use controller::{Act, Controller, Failure, Plan, Runner};
pub use events::{Note, Recorder};
pub use expectations::Expectations;
pub use key::ObjectKey;
pub use leader::{LeaderConfig, Led, run_while_leader};
pub use metrics::Metrics;
pub use queue::{Priority, Queue};
pub use watch::{Cache, Index, Watches};
