//! The crate from outside: golden documents, libvirt's schema, a real libvirt, properties.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod golden;
mod libvirtd;
mod properties;
mod refusals;
mod samples;
mod schema;
mod tasks;
