//! DHCPv6 (RFC 8415) for one client.
//!
//! | the client says | the server |
//! |---|---|
//! | SOLICIT | advertises the address, or gives it at once when the client asks for rapid commit |
//! | REQUEST, RENEW, REBIND | gives the address, and ends the life of others that the client names |
//! | CONFIRM | says whether the client's addresses fit this link |
//! | INFORMATION-REQUEST | tells the DNS servers |
//! | RELEASE, DECLINE | says yes; the address stays the guest's |
//! | anything else, or to another server | is silent |
//!
//! Clients of DHCPv6 are known by an identifier of their own choice, not by their hardware address. The bridge is shared with nobody but the
//! guest, so whoever asks is the guest.

use std::net::Ipv6Addr;

use ferrovirt_launcher_rpc::network::{DhcpServer, DhcpV6};

use crate::LEASE_SECONDS;
use crate::wire::{array, exactly, take};

/// Where servers listen.
pub const SERVER_PORT: u16 = 547;
/// Where clients listen.
pub const CLIENT_PORT: u16 = 546;
/// The group that clients send to.
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// The server's identifier: by link-layer address, Ethernet. All our servers are the same server to a guest that moves between nodes.
const SERVER_DUID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 0];
/// Identity associations that are answered in one message; guests use one. More would only let a guest make us work.
const MOST_ASSOCIATIONS: usize = 8;
/// A client that is told this preference waits for no other server.
const HIGHEST_PREFERENCE: u8 = 255;

/// Numbers of the messages.
mod message {
    pub(super) const SOLICIT: u8 = 1;
    pub(super) const ADVERTISE: u8 = 2;
    pub(super) const REQUEST: u8 = 3;
    pub(super) const CONFIRM: u8 = 4;
    pub(super) const RENEW: u8 = 5;
    pub(super) const REBIND: u8 = 6;
    pub(super) const REPLY: u8 = 7;
    pub(super) const RELEASE: u8 = 8;
    pub(super) const DECLINE: u8 = 9;
    pub(super) const INFORMATION_REQUEST: u8 = 11;
}

/// Numbers of the options.
mod option {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const IA_NA: u16 = 3;
    pub(super) const IA_TA: u16 = 4;
    pub(super) const ADDRESS: u16 = 5;
    pub(super) const PREFERENCE: u16 = 7;
    pub(super) const STATUS: u16 = 13;
    pub(super) const RAPID_COMMIT: u16 = 14;
    pub(super) const DNS: u16 = 23;
    pub(super) const IA_PD: u16 = 25;
}

/// Numbers of the status codes.
mod status {
    pub(super) const SUCCESS: u16 = 0;
    pub(super) const NO_ADDRESSES: u16 = 2;
    pub(super) const NOT_ON_LINK: u16 = 4;
    pub(super) const NO_PREFIX: u16 = 6;
}

/// The answer to a datagram, if it deserves one; it goes back to the sender. Takes any bytes.
#[must_use]
pub fn answer(server: &DhcpServer, datagram: &[u8]) -> Option<Vec<u8>> {
    let lease = server.v6.as_ref()?;
    let request = Request::parse(datagram)?;
    if !request.is_well_addressed() {
        return None;
    }
    match request.kind {
        message::SOLICIT if request.options.get(option::RAPID_COMMIT).is_some() => {
            let mut reply = request.reply(message::REPLY);
            put(&mut reply, option::RAPID_COMMIT, &[]);
            Some(with_lease(reply, lease, &request))
        }
        message::SOLICIT => {
            let mut reply = request.reply(message::ADVERTISE);
            put(&mut reply, option::PREFERENCE, &[HIGHEST_PREFERENCE]);
            Some(with_lease(reply, lease, &request))
        }
        message::REQUEST | message::RENEW | message::REBIND => {
            Some(with_lease(request.reply(message::REPLY), lease, &request))
        }
        message::CONFIRM => confirm(lease, &request),
        message::RELEASE | message::DECLINE => Some(with_status(request.reply(message::REPLY), status::SUCCESS)),
        message::INFORMATION_REQUEST => Some(with_dns(request.reply(message::REPLY), lease)),
        _ => None,
    }
}

fn with_lease(mut reply: Vec<u8>, lease: &DhcpV6, request: &Request<'_>) -> Vec<u8> {
    let associations = request.options.filter(|code| matches!(code, option::IA_NA | option::IA_TA | option::IA_PD));
    let mut given = false;
    for (code, value) in associations.take(MOST_ASSOCIATIONS) {
        let mut value = value;
        let Some(id) = array::<4>(&mut value) else { continue };
        match code {
            option::IA_NA if !given => {
                given = true;
                put(&mut reply, code, &address_association(id, lease, value));
            }
            option::IA_NA => put(&mut reply, code, &with_status([&id[..], &[0; 8]].concat(), status::NO_ADDRESSES)),
            option::IA_TA => put(&mut reply, code, &with_status(id.to_vec(), status::NO_ADDRESSES)),
            _ => put(&mut reply, code, &with_status([&id[..], &[0; 8]].concat(), status::NO_PREFIX)),
        }
    }
    with_dns(reply, lease)
}

/// The association that holds the guest's address. Addresses that the client had under it otherwise get no more life.
fn address_association(id: [u8; 4], lease: &DhcpV6, mut asked: &[u8]) -> Vec<u8> {
    let mut out = id.to_vec();
    out.extend_from_slice(&(LEASE_SECONDS / 2).to_be_bytes());
    out.extend_from_slice(&(LEASE_SECONDS / 5 * 4).to_be_bytes());
    put_address(&mut out, lease.address, LEASE_SECONDS);
    take(&mut asked, 8); // the times that the client would like
    let others = Options(asked).addresses().filter(|address| *address != lease.address);
    for address in others.take(MOST_ASSOCIATIONS) {
        put_address(&mut out, address, 0);
    }
    out
}

fn confirm(lease: &DhcpV6, request: &Request<'_>) -> Option<Vec<u8>> {
    let associations = request.options.filter(|code| code == option::IA_NA);
    let mut addresses = associations.flat_map(|(_, value)| Options(value.get(12..).unwrap_or_default()).addresses());
    let first = addresses.next()?; // without an address there is nothing to say
    let all_fit = first == lease.address && addresses.all(|address| address == lease.address);
    let status = if all_fit { status::SUCCESS } else { status::NOT_ON_LINK };
    Some(with_status(request.reply(message::REPLY), status))
}

fn with_dns(mut reply: Vec<u8>, lease: &DhcpV6) -> Vec<u8> {
    if !lease.dns.is_empty() {
        let servers: Vec<u8> = lease.dns.iter().flat_map(Ipv6Addr::octets).collect();
        put(&mut reply, option::DNS, &servers);
    }
    reply
}

fn with_status(mut out: Vec<u8>, code: u16) -> Vec<u8> {
    put(&mut out, option::STATUS, &code.to_be_bytes());
    out
}

fn put_address(out: &mut Vec<u8>, address: Ipv6Addr, seconds: u32) {
    let seconds = seconds.to_be_bytes();
    put(out, option::ADDRESS, &[&address.octets()[..], &seconds, &seconds].concat());
}

fn put(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    // No value that we write is near this length, except an identifier that the client made so; its own datagram was shorter than that.
    let Ok(length) = u16::try_from(value.len()) else { return };
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
}

/// A client's message.
struct Request<'a> {
    kind: u8,
    transaction: [u8; 3],
    options: Options<'a>,
}

impl<'a> Request<'a> {
    fn parse(mut datagram: &'a [u8]) -> Option<Self> {
        let [kind] = array(&mut datagram)?;
        Some(Self { kind, transaction: array(&mut datagram)?, options: Options(datagram) })
    }

    /// Whether the identifiers are there that this kind of message must have, and not those that it must not (RFC 8415, section 16).
    fn is_well_addressed(&self) -> bool {
        let client = self.options.get(option::CLIENT_ID).is_some_and(|id| !id.is_empty());
        let server = self.options.get(option::SERVER_ID);
        let to_us = server == Some(&SERVER_DUID);
        match self.kind {
            message::SOLICIT | message::CONFIRM | message::REBIND => client && server.is_none(),
            message::REQUEST | message::RENEW | message::RELEASE | message::DECLINE => client && to_us,
            message::INFORMATION_REQUEST => server.is_none() || to_us,
            _ => false,
        }
    }

    /// The beginning of an answer: its kind, the transaction and who speaks with whom.
    fn reply(&self, kind: u8) -> Vec<u8> {
        let mut out = vec![kind];
        out.extend_from_slice(&self.transaction);
        if let Some(id) = self.options.get(option::CLIENT_ID) {
            put(&mut out, option::CLIENT_ID, id);
        }
        put(&mut out, option::SERVER_ID, &SERVER_DUID);
        out
    }
}

/// A list of options as it came. Reading ends at the first that is broken.
#[derive(Clone, Copy)]
struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    fn filter(self, wanted: impl Fn(u16) -> bool) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            loop {
                let code = u16::from_be_bytes(array(&mut rest)?);
                let length = u16::from_be_bytes(array(&mut rest)?);
                let value = take(&mut rest, usize::from(length))?;
                if wanted(code) {
                    return Some((code, value));
                }
            }
        })
    }

    fn get(self, wanted: u16) -> Option<&'a [u8]> {
        self.filter(|code| code == wanted).map(|(_, value)| value).next()
    }

    fn addresses(self) -> impl Iterator<Item = Ipv6Addr> {
        let values = self.filter(|code| code == option::ADDRESS);
        values.filter_map(|(_, value)| exactly::<16>(value.get(..16)).map(Ipv6Addr::from))
    }
}

#[cfg(test)]
#[path = "v6_tests.rs"]
mod tests;
