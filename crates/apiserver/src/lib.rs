//! The embedded API server.

pub mod auth;
pub mod store;
