//! Reconcilers.

pub mod backoff;
pub mod clock;
pub mod controller;
pub mod expectations;
pub mod key;
pub mod metrics;
pub mod queue;
pub mod watch;

pub use backoff::Backoff;
pub use clock::Clock;
pub use controller::{Act, Controller, Failure, Plan, Runner};
pub use expectations::Expectations;
pub use key::ObjectKey;
pub use metrics::Metrics;
pub use queue::{Priority, Queue};
pub use watch::{Cache, Index, Watches};
