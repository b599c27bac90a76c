//! The store with real files: builds, imports, pulls from a registry on the loopback interface, and hostile images. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod builds;
mod hostile;
mod imports;
mod pulls;
mod server;
