//! The rules of Kubernetes objects as pure functions: selectors, patches, server-side apply, structural schemas,
//! printer columns, and the wire formats of requests. No IO, no clock, no randomness.

pub mod apply;
pub mod builtin;
pub mod cel;
pub mod error;
pub mod json;
pub mod meta;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod quote;
pub mod schema;
pub mod selector;
pub mod table;
