//! The node runtime on this machine, with a real OCI runtime, against an API server in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod harness;
mod hostile;
mod kubectl;
mod lifecycle;
mod volumes;
