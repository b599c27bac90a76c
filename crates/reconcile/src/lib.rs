//! Reconcilers.

pub mod backoff;
pub mod clock;
pub mod key;
pub mod queue;

pub use backoff::Backoff;
pub use clock::Clock;
pub use key::ObjectKey;
