//! Datagrams of guests to their DHCP servers.
//!
//! Input: one byte that chooses the protocol, then the datagram. Where a client's own address belongs the right one is put in, or
//! almost every datagram would be dropped for it.
#![no_main]

use std::sync::LazyLock;

use ferrovirt_launcher_rpc::network::DhcpServer;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

/// Where a DHCPv4 message has its client's address, and that address.
const CLIENT: std::ops::Range<usize> = 28..34;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// What fits on a link of usual size: an answer must not need more.
const LARGEST_ANSWER: usize = 1472;

static SERVER: LazyLock<DhcpServer> = LazyLock::new(|| {
    serde_json::from_value(json!({
        "device": "k6t-eth0", "clientMac": "02:00:00:00:00:01",
        "v4": {
            "server": "10.0.2.1", "address": "10.0.2.2", "prefix": 24, "router": "10.0.2.1",
            "routes": [{"destination": "169.254.0.0", "prefix": 16, "gateway": "0.0.0.0"}],
            "dns": ["10.96.0.10"], "mtu": 1400, "hostname": "guest", "leaseSeconds": 86400,
        },
        "v6": {"address": "fd10:0:2::2", "dns": ["fd00::10"]},
    }))
    .expect("this is a server")
});

fuzz_target!(|input: &[u8]| {
    let Some((kind, datagram)) = input.split_first() else { return };
    if kind % 2 == 0 {
        let mut datagram = datagram.to_vec();
        if let Some(address) = datagram.get_mut(CLIENT) {
            address.copy_from_slice(&MAC);
        }
        if let Some(reply) = ferrovirt_dhcp::v4::answer(&SERVER, &datagram) {
            assert!(reply.payload.len() <= LARGEST_ANSWER);
        }
    } else if let Some(reply) = ferrovirt_dhcp::v6::answer(&SERVER, datagram) {
        assert!(reply.len() <= LARGEST_ANSWER.max(datagram.len() + 256));
    }
});
