//! From a container of a pod to the OCI runtime's configuration. No IO.

pub mod container;
pub mod environment;
pub mod resources;
pub mod seccomp;
pub mod security;
pub mod spec;
