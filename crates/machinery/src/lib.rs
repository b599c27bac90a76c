//! The rules of Kubernetes objects as pure functions: selectors, patches, server-side apply, structural schemas,
//! printer columns, and the wire formats of requests. No IO, no clock, no randomness.

pub mod error;
pub mod schema;
