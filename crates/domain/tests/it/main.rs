//! The crate from outside: golden documents, libvirt's schema, a real libvirt, properties.

mod golden;
mod samples;
mod schema;
