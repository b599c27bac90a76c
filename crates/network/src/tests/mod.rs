//! Tests on real network namespaces: a world, a pod and a guest, each in one of its own, and nothing outside of them.
//!
//! ```text
//!   world ──── w0 ═ eth0 ──── pod ──── k6t-eth0 ──── p0 ═ g0 ──── guest
//!   10.244.7.1                10.244.7.2, made by set_up          what DHCP says
//! ```
//!
//! The guest is plugged into the bridge with a veth pair beside the tap device, which only QEMU could make talk.

mod bridged;
mod crashes;
mod masqueraded;
mod namespace;
mod pod;
