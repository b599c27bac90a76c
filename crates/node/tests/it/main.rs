//! The node runtime on this machine, with a real OCI runtime, against an API server in memory.

mod harness;
mod kubectl;
mod lifecycle;
mod volumes;
