//! An independent codec (dhcproto) plays the client.

use dhcproto::v6::{DhcpOption, IAAddr, IANA, IAPD, IATA, Message, MessageType, OptionCode, Status};
use dhcproto::{Decodable, Decoder, Encodable};
use proptest::prelude::*;

use super::*;

const ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 2);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 9);
const LEASE: u32 = 999 * 86400;

fn server() -> DhcpServer {
    let v6 = DhcpV6 { address: ADDRESS, dns: vec!["fd00::a".parse().unwrap()] };
    DhcpServer { device: "k6t-eth0".to_owned(), client_mac: "02:00:00:aa:bb:cc".to_owned(), v4: None, v6: Some(v6) }
}

fn client(kind: MessageType, options: &[DhcpOption]) -> Message {
    let mut message = Message::new_with_id(kind, [1, 2, 3]);
    for option in options {
        message.opts_mut().insert(option.clone());
    }
    message
}

fn ask(message: &Message) -> Option<Message> {
    let reply = answer(&server(), &message.to_vec().unwrap())?;
    Some(Message::decode(&mut Decoder::new(&reply)).unwrap())
}

fn id() -> DhcpOption {
    DhcpOption::ClientId(vec![0, 2, 9, 9, 9])
}

fn us() -> DhcpOption {
    DhcpOption::ServerId(SERVER_DUID.to_vec())
}

fn association(id: u32, addresses: &[Ipv6Addr]) -> DhcpOption {
    let address = |addr: &Ipv6Addr| {
        let opts = dhcproto::v6::DhcpOptions::new();
        DhcpOption::IAAddr(IAAddr { addr: *addr, preferred_life: 1, valid_life: 1, opts })
    };
    DhcpOption::IANA(IANA { id, t1: 0, t2: 0, opts: addresses.iter().map(address).collect() })
}

/// Addresses with their lifetimes, of the association with this id.
fn given(message: &Message, id: u32) -> Vec<(Ipv6Addr, u32)> {
    let all = message.opts().get_all(OptionCode::IANA).unwrap_or_default();
    let association = all.iter().find_map(|option| match option {
        DhcpOption::IANA(association) if association.id == id => Some(association),
        _ => None,
    });
    let addresses = association.unwrap().opts.get_all(OptionCode::IAAddr).unwrap_or_default();
    let pair = |option: &DhcpOption| match option {
        DhcpOption::IAAddr(address) => (address.addr, address.valid_life),
        other => panic!("{other:?}"),
    };
    addresses.iter().map(pair).collect()
}

fn status(options: &dhcproto::v6::DhcpOptions) -> Option<Status> {
    match options.get(OptionCode::StatusCode)? {
        DhcpOption::StatusCode(code) => Some(code.status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_solicitation_is_answered_with_the_address() {
    let reply = ask(&client(MessageType::Solicit, &[id(), association(5, &[])])).unwrap();
    assert_eq!((reply.msg_type(), reply.xid()), (MessageType::Advertise, [1, 2, 3]));
    assert_eq!(given(&reply, 5), [(ADDRESS, LEASE)]);
    assert_eq!(reply.opts().get(OptionCode::ClientId), Some(&id()));
    assert_eq!(reply.opts().get(OptionCode::ServerId), Some(&us()));
    assert_eq!(reply.opts().get(OptionCode::Preference), Some(&DhcpOption::Preference(255)));
    let dns = DhcpOption::DomainNameServers(vec!["fd00::a".parse().unwrap()]);
    assert_eq!(reply.opts().get(OptionCode::DomainNameServers), Some(&dns));
}

#[test]
fn rapid_commit_saves_a_round() {
    let reply = ask(&client(MessageType::Solicit, &[id(), DhcpOption::RapidCommit, association(5, &[])])).unwrap();
    assert_eq!(reply.msg_type(), MessageType::Reply);
    assert!(reply.opts().get(OptionCode::RapidCommit).is_some());
    assert_eq!(given(&reply, 5), [(ADDRESS, LEASE)]);
}

#[test]
fn requests_and_renewals_end_foreign_addresses() {
    for kind in [MessageType::Request, MessageType::Renew] {
        let reply = ask(&client(kind, &[id(), us(), association(5, &[OTHER, ADDRESS])])).unwrap();
        assert_eq!(reply.msg_type(), MessageType::Reply);
        assert_eq!(given(&reply, 5), [(ADDRESS, LEASE), (OTHER, 0)]);
    }
    let reply = ask(&client(MessageType::Rebind, &[id(), association(5, &[ADDRESS])])).unwrap();
    assert_eq!(given(&reply, 5), [(ADDRESS, LEASE)]);
}

#[test]
fn there_is_one_address_and_no_more() {
    let more = [
        id(),
        us(),
        association(5, &[]),
        association(6, &[]),
        DhcpOption::IATA(IATA { id: 7, opts: dhcproto::v6::DhcpOptions::new() }),
        DhcpOption::IAPD(IAPD { id: 8, t1: 0, t2: 0, opts: dhcproto::v6::DhcpOptions::new() }),
    ];
    let reply = ask(&client(MessageType::Request, &more)).unwrap();
    assert_eq!([given(&reply, 5), given(&reply, 6)].concat(), [(ADDRESS, LEASE)]);
    let statuses: Vec<Option<Status>> = reply
        .opts()
        .iter()
        .filter_map(|option| match option {
            DhcpOption::IANA(it) => Some(status(&it.opts)),
            DhcpOption::IATA(it) => Some(status(&it.opts)),
            DhcpOption::IAPD(it) => Some(status(&it.opts)),
            _ => None,
        })
        .collect();
    let none = Some(Status::NoAddrsAvail);
    assert_eq!(statuses.len(), 4);
    assert_eq!(statuses.iter().filter(|it| **it == none).count(), 2);
    assert_eq!(statuses.iter().filter(|it| **it == Some(Status::NoPrefixAvail)).count(), 1);

    let flood: Vec<DhcpOption> = [id(), us()].into_iter().chain((0..100).map(|n| association(n, &[]))).collect();
    let reply = ask(&client(MessageType::Request, &flood)).unwrap();
    assert_eq!(reply.opts().get_all(OptionCode::IANA).unwrap().len(), MOST_ASSOCIATIONS);
}

#[test]
fn a_client_that_moved_learns_whether_its_address_fits() {
    for (addresses, expected) in [
        (&[ADDRESS][..], Some(Status::Success)),
        (&[ADDRESS, OTHER], Some(Status::NotOnLink)),
        (&[OTHER], Some(Status::NotOnLink)),
        (&[], None),
    ] {
        let reply = ask(&client(MessageType::Confirm, &[id(), association(5, addresses)]));
        assert_eq!(reply.and_then(|reply| status(reply.opts())), expected, "{addresses:?}");
    }
}

#[test]
fn information_and_farewells() {
    let reply = ask(&client(MessageType::InformationRequest, &[])).unwrap();
    assert_eq!(reply.msg_type(), MessageType::Reply);
    assert!(reply.opts().get(OptionCode::DomainNameServers).is_some());
    for kind in [MessageType::Release, MessageType::Decline] {
        let reply = ask(&client(kind, &[id(), us(), association(5, &[ADDRESS])])).unwrap();
        assert_eq!(status(reply.opts()), Some(Status::Success));
    }
}

#[test]
fn silence_for_what_is_not_for_us() {
    let another = DhcpOption::ServerId(vec![0, 3, 0, 1, 9, 9, 9, 9, 9, 9]);
    let wanted = association(5, &[]);
    for message in [
        client(MessageType::Solicit, std::slice::from_ref(&wanted)),
        client(MessageType::Solicit, &[id(), us(), wanted.clone()]),
        client(MessageType::Request, &[id(), wanted.clone()]),
        client(MessageType::Request, &[id(), another.clone(), wanted.clone()]),
        client(MessageType::Renew, &[id(), another.clone(), wanted.clone()]),
        client(MessageType::Rebind, &[id(), us(), wanted.clone()]),
        client(MessageType::Release, &[id(), another.clone()]),
        client(MessageType::InformationRequest, &[another]),
        client(MessageType::Advertise, &[id(), us(), wanted.clone()]),
        client(MessageType::Reconfigure, &[id(), us(), wanted]),
    ] {
        assert_eq!(ask(&message), None, "{message:?}");
    }
    assert_eq!(answer(&DhcpServer { v6: None, ..server() }, &[11, 1, 2, 3]), None);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = answer(&server(), &bytes);
    }

    /// Messages with the right head and any options, also broken ones inside of associations.
    #[test]
    fn answers_are_well_formed_and_no_flood(
        kind in 0_u8..14, to_us in any::<bool>(), tail in prop::collection::vec((0_u16..30, prop::collection::vec(any::<u8>(), 0..60)), 0..12),
        rest in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut bytes = vec![kind, 1, 2, 3];
        put(&mut bytes, option::CLIENT_ID, &[0, 2, 9]);
        if to_us {
            put(&mut bytes, option::SERVER_ID, &SERVER_DUID);
        }
        for (code, value) in tail {
            put(&mut bytes, code, &value);
        }
        bytes.extend_from_slice(&rest);
        if let Some(reply) = answer(&server(), &bytes) {
            prop_assert!(reply.len() <= bytes.len() + 64 * MOST_ASSOCIATIONS);
            prop_assert_eq!(&reply[1..4], &[1, 2, 3]);
            let mut options = &reply[4..];
            while !options.is_empty() {
                let _code = array::<2>(&mut options).unwrap();
                let length = u16::from_be_bytes(array(&mut options).unwrap());
                take(&mut options, usize::from(length)).unwrap();
            }
        }
    }
}
