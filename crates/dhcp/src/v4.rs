//! DHCPv4 (RFC 2131 and 2132, 3396, 3397, 3442) for one client.
//!
//! | the client says | the server |
//! |---|---|
//! | DISCOVER | offers the address |
//! | REQUEST of the address | acknowledges |
//! | REQUEST of another address | refuses, so that the client starts over |
//! | REQUEST to another server | is silent |
//! | INFORM | tells the options, without a lease |
//! | RELEASE, DECLINE, anything else | is silent: the address stays the guest's |

use std::net::{Ipv4Addr, SocketAddrV4};

use ferrovirt_launcher_rpc::network::{DhcpServer, DhcpV4, Route};

use crate::wire::{array, domain_name, exactly, take};
use crate::{LEASE_SECONDS, parse_mac};

/// Where servers listen.
pub const SERVER_PORT: u16 = 67;
/// Where clients listen.
pub const CLIENT_PORT: u16 = 68;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Fields before the options, the cookie included.
const FIXED: usize = 240;
/// What every client has to accept as an IP packet.
const SMALLEST_MAXIMUM: u16 = 576;
const IP_AND_UDP_HEADERS: usize = 28;

/// Numbers of the options.
mod option {
    pub(super) const PAD: u8 = 0;
    pub(super) const SUBNET_MASK: u8 = 1;
    pub(super) const ROUTER: u8 = 3;
    pub(super) const DNS: u8 = 6;
    pub(super) const HOSTNAME: u8 = 12;
    pub(super) const DOMAIN: u8 = 15;
    pub(super) const MTU: u8 = 26;
    pub(super) const NTP: u8 = 42;
    pub(super) const REQUESTED_ADDRESS: u8 = 50;
    pub(super) const LEASE: u8 = 51;
    pub(super) const MESSAGE_TYPE: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const LARGEST_MESSAGE: u8 = 57;
    pub(super) const CLIENT_ID: u8 = 61;
    pub(super) const TFTP_SERVER: u8 = 66;
    pub(super) const BOOT_FILE: u8 = 67;
    pub(super) const SEARCH: u8 = 119;
    pub(super) const CLASSLESS_ROUTES: u8 = 121;
    pub(super) const PRIVATE: std::ops::RangeInclusive<u8> = 224..=254;
    pub(super) const END: u8 = 255;
}

/// Numbers of the messages.
mod message {
    pub(super) const DISCOVER: u8 = 1;
    pub(super) const OFFER: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const ACK: u8 = 5;
    pub(super) const NAK: u8 = 6;
    pub(super) const INFORM: u8 = 8;
}

/// What to send, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The guest's address once it has it, else everybody on the link.
    pub to: SocketAddrV4,
    /// The datagram.
    pub payload: Vec<u8>,
}

/// The answer to a datagram, if it deserves one. Takes any bytes.
#[must_use]
pub fn answer(server: &DhcpServer, datagram: &[u8]) -> Option<Reply> {
    let lease = server.v4.as_ref()?;
    let request = Request::parse(datagram)?;
    if request.mac != parse_mac(&server.client_mac)? {
        return None;
    }
    let kind = decide(lease, &request)?;
    let knows_its_address = kind != message::NAK && request.own_address == lease.address;
    let to = if knows_its_address { lease.address } else { Ipv4Addr::BROADCAST };
    Some(Reply { to: SocketAddrV4::new(to, CLIENT_PORT), payload: write(lease, &request, kind) })
}

/// The message to answer with.
fn decide(lease: &DhcpV4, request: &Request<'_>) -> Option<u8> {
    let address = request.option_address(option::REQUESTED_ADDRESS);
    let wanted = address.or((!request.own_address.is_unspecified()).then_some(request.own_address));
    let for_another_server = request.option_address(option::SERVER).is_some_and(|server| server != lease.server);
    match exactly(request.option(option::MESSAGE_TYPE))? {
        [message::DISCOVER] => Some(message::OFFER),
        [message::REQUEST] if for_another_server => None,
        [message::REQUEST] if wanted? == lease.address => Some(message::ACK),
        [message::REQUEST] => Some(message::NAK),
        [message::INFORM] => Some(message::ACK),
        _ => None,
    }
}

/// The parts of a client's message that matter here.
struct Request<'a> {
    transaction: [u8; 4],
    flags: [u8; 2],
    own_address: Ipv4Addr,
    mac: [u8; 6],
    options: &'a [u8],
}

impl<'a> Request<'a> {
    /// Requests of Ethernet clients that came straight from them, not through a relay.
    fn parse(mut datagram: &'a [u8]) -> Option<Self> {
        const REQUEST_ETHERNET_SIX_OCTETS: [u8; 3] = [1, 1, 6];

        let rest = &mut datagram;
        if array::<3>(rest)? != REQUEST_ETHERNET_SIX_OCTETS {
            return None;
        }
        take(rest, 1)?; // hops
        let transaction = array(rest)?;
        take(rest, 2)?; // seconds
        let flags = array(rest)?;
        let own_address = Ipv4Addr::from(array::<4>(rest)?);
        take(rest, 8)?; // your and next server's address
        let relay = Ipv4Addr::from(array::<4>(rest)?);
        let mac = array(rest)?;
        take(rest, 10 + 64 + 128)?; // padding of the hardware address, server name, boot file
        let is_dhcp = array::<4>(rest)? == COOKIE;
        (is_dhcp && relay.is_unspecified()).then_some(Self { transaction, flags, own_address, mac, options: rest })
    }

    /// The value of an option. What follows a broken option is not seen.
    fn option(&self, wanted: u8) -> Option<&'a [u8]> {
        let mut rest = self.options;
        loop {
            match array(&mut rest)? {
                [option::PAD] => {}
                [option::END] => return None,
                [code] => {
                    let [length] = array(&mut rest)?;
                    let value = take(&mut rest, usize::from(length))?;
                    if code == wanted {
                        return Some(value);
                    }
                }
            }
        }
    }

    fn option_address(&self, wanted: u8) -> Option<Ipv4Addr> {
        exactly::<4>(self.option(wanted)).map(Ipv4Addr::from)
    }

    /// How many bytes the answer may have.
    fn room(&self) -> usize {
        let largest = exactly(self.option(option::LARGEST_MESSAGE)).map_or(SMALLEST_MAXIMUM, u16::from_be_bytes);
        usize::from(largest.max(SMALLEST_MAXIMUM)) - IP_AND_UDP_HEADERS
    }
}

fn write(lease: &DhcpV4, request: &Request<'_>, kind: u8) -> Vec<u8> {
    let is_inform = request.option(option::MESSAGE_TYPE) == Some(&[message::INFORM]);
    let gives_lease = kind != message::NAK && !is_inform;
    let address = if gives_lease { lease.address } else { Ipv4Addr::UNSPECIFIED };
    let own_address = if kind == message::ACK { request.own_address } else { Ipv4Addr::UNSPECIFIED };

    let mut out = Vec::with_capacity(usize::from(SMALLEST_MAXIMUM));
    out.extend_from_slice(&[2, 1, 6, 0]);
    out.extend_from_slice(&request.transaction);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&request.flags);
    out.extend_from_slice(&own_address.octets());
    out.extend_from_slice(&address.octets());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&request.mac);
    out.resize(FIXED - COOKIE.len(), 0);
    out.extend_from_slice(&COOKIE);

    put(&mut out, option::MESSAGE_TYPE, &[kind]);
    put(&mut out, option::SERVER, &lease.server.octets());
    if let Some(id) = request.option(option::CLIENT_ID) {
        put(&mut out, option::CLIENT_ID, id); // RFC 6842
    }
    if gives_lease {
        put(&mut out, option::LEASE, &LEASE_SECONDS.to_be_bytes());
    }
    if kind != message::NAK {
        put_what_fits(&mut out, &settings(lease), request.room());
    }
    out.push(option::END);
    out
}

/// Appends an option; a long one in several parts (RFC 3396).
fn put(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    for part in value.chunks(usize::from(u8::MAX)) {
        #[expect(clippy::cast_possible_truncation, reason = "a part has at most 255 bytes")]
        out.extend_from_slice(&[code, part.len() as u8]);
        out.extend_from_slice(part);
    }
}

/// Appends the options in order, without those that would make the message larger than the client accepts.
fn put_what_fits(out: &mut Vec<u8>, options: &[(u8, Vec<u8>)], room: usize) {
    for (code, value) in options {
        let before = out.len();
        put(out, *code, value);
        if out.len() >= room {
            out.truncate(before);
            tracing::warn!(option = code, "the DHCP client accepts no message large enough for this option");
        }
    }
}

/// What the guest is told besides its address, the most important first.
fn settings(lease: &DhcpV4) -> Vec<(u8, Vec<u8>)> {
    let names: Vec<Vec<u8>> = lease.search.iter().filter_map(|name| domain_name(name)).collect();
    let domain = lease.search.iter().find(|name| domain_name(name).is_some());
    let domain = domain.map_or("", |name| name.trim_end_matches('.'));
    let text = |value: &Option<String>| value.clone().unwrap_or_default().into_bytes();
    let mut options = vec![
        (option::SUBNET_MASK, mask(lease.prefix).to_vec()),
        (option::ROUTER, addresses(lease.router.as_slice())),
        (option::CLASSLESS_ROUTES, classless_routes(lease)),
        (option::DNS, addresses(&lease.dns)),
        (option::MTU, lease.mtu.map(|mtu| mtu.to_be_bytes().to_vec()).unwrap_or_default()),
        (option::HOSTNAME, text(&lease.hostname)),
        (option::DOMAIN, domain.into()),
        (option::SEARCH, names.concat()),
        (option::NTP, addresses(&lease.ntp)),
        (option::TFTP_SERVER, text(&lease.tftp_server)),
        (option::BOOT_FILE, text(&lease.boot_file)),
    ];
    let private = lease.private.iter().filter(|(code, _)| option::PRIVATE.contains(code));
    options.extend(private.map(|(code, value)| (*code, value.clone().into_bytes())));
    options
}

fn mask(prefix: u8) -> [u8; 4] {
    let host_bits = 32_u32.saturating_sub(prefix.into());
    u32::MAX.checked_shl(host_bits).unwrap_or(0).to_be_bytes()
}

fn addresses(addresses: &[Ipv4Addr]) -> Vec<u8> {
    addresses.iter().flat_map(Ipv4Addr::octets).collect()
}

/// A client that is told routes ignores the router option (RFC 3442), so the default route is one of them.
fn classless_routes(lease: &DhcpV4) -> Vec<u8> {
    if lease.routes.is_empty() {
        return Vec::new();
    }
    let has_default = lease.routes.iter().any(|route| route.prefix == 0);
    let router = lease.router.filter(|_| !has_default);
    let default = router.map(|gateway| Route { destination: Ipv4Addr::UNSPECIFIED, prefix: 0, gateway });
    let mut out = Vec::new();
    for route in lease.routes.iter().chain(&default) {
        let prefix = route.prefix.min(32);
        let network = u32::from(route.destination) & u32::from_be_bytes(mask(prefix));
        out.push(prefix);
        out.extend_from_slice(&network.to_be_bytes()[..usize::from(prefix.div_ceil(8))]);
        out.extend_from_slice(&route.gateway.octets());
    }
    out
}

#[cfg(test)]
#[path = "v4_tests.rs"]
mod tests;
