//! A guest's network inside its pod: what virt-handler builds between the pod's link and the guest's tap device.
//!
//! ```text
//!  masquerade                                   bridge
//!
//!  eth0 (the pod's address)                     eth0 (a port without an address)
//!    │  routing, nftables: in DNAT, out SNAT      │
//!  k6t-eth0 (10.0.2.1, fd10:0:2::1)             k6t-eth0 (169.254.75.10 for DHCP)
//!    │                                            │
//!  tap0 ── guest (10.0.2.2, fd10:0:2::2)        tap0 ── guest (the pod's MAC and address)
//! ```
//!
//! [`plan()`] reads a VMI and is pure. [`set_up`] makes it so inside the pod's network namespace, on a thread of its own that enters it. It may be
//! called again at any time, also after a crash in the middle: every step looks first and changes only what differs, and nothing outside
//! the namespace is remembered. Deleting the namespace undoes everything.

mod bridge;
mod facts;
mod kernel;
mod masquerade;
pub mod plan;
mod resolv;
mod rules;
mod set_up;
mod subnet;

#[cfg(test)]
mod tests;

pub use kernel::{ChangeError, NetworkError};
pub use plan::{Binding, InterfacePlan, Masquerade, Ports, Unsupported, plan};
pub use resolv::ResolvConf;
pub use set_up::{State, set_up};
pub use subnet::{Subnet, SubnetError};

/// A 64-bit FNV-1a hash: for names and addresses that must be the same tomorrow, not for secrets.
fn stable_hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A locally administered unicast hardware address that follows from the parts.
fn derived_mac(parts: &[&str]) -> [u8; 6] {
    let [_, _, _, a, b, c, d, e] = stable_hash(parts).to_be_bytes();
    [0x02, a, b, c, d, e]
}

/// A hardware address as text.
fn mac_text(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}
