//! DHCP for the one guest of a launcher pod: the server that [`ferrovirt_launcher_rpc::network::DhcpServer`] describes.
//!
//! ```text
//!   packet ──► v4::answer ──► Reply { to, payload }      pure: rules and wire format
//!   packet ──► v6::answer ──► payload                    pure
//!      ▲                          │
//!      └── serve: two UDP sockets ┘                      everything that touches the kernel
//! ```
//!
//! There is one client with one address for ever, so there is no state: a server that starts again, or one on the node that the guest moved to,
//! gives the same answers. It needs no capability where `net.ipv4.ip_unprivileged_port_start` lets it have its ports, and no raw
//! socket: a client that has no address yet is reached by broadcast.
//!
//! Packets come from the guest and are hostile. The codec is our own and small: it looks only at the options that matter here, where a full
//! one refuses a whole packet for an option that nobody asked about.

mod serve;
pub mod v4;
pub mod v6;
mod wire;

pub use serve::{DhcpError, serve};

/// How long a lease lasts. The guest's address never changes; a lease as good as endless keeps it from asking.
const LEASE_SECONDS: u32 = 999 * 24 * 60 * 60;

/// A hardware address written with colons.
fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_six_pairs() {
        assert_eq!(parse_mac("02:00:00:aB:cd:ff"), Some([2, 0, 0, 0xab, 0xcd, 0xff]));
        for wrong in
            ["", "02:00:00:ab:cd", "02:00:00:ab:cd:ff:00", "2:0:0:ab:cd:ff", "02-00-00-ab-cd-ff", "é2:00:00:ab:cd:f"]
        {
            assert_eq!(parse_mac(wrong), None, "{wrong}");
        }
    }
}
