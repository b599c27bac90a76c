//! An independent codec (dhcproto) plays the client.

use dhcproto::v4::{DhcpOption, DhcpOptions, Message, MessageType, OptionCode, UnknownOption};
use dhcproto::{Decodable, Decoder, Encodable};
use proptest::prelude::*;

use super::*;

const MAC: [u8; 6] = [0x02, 0, 0, 0xaa, 0xbb, 0xcc];
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

fn lease() -> DhcpV4 {
    DhcpV4 {
        server: SERVER,
        address: ADDRESS,
        prefix: 24,
        router: Some(SERVER),
        routes: Vec::new(),
        dns: vec![[10, 96, 0, 10].into(), [1, 1, 1, 1].into()],
        search: vec!["not..usable".to_owned(), "shop.svc.cluster.local".to_owned(), "cluster.local.".to_owned()],
        mtu: Some(1450),
        hostname: Some("web".to_owned()),
        ntp: vec![[192, 0, 2, 1].into()],
        tftp_server: Some("tftp.example".to_owned()),
        boot_file: Some("pxelinux.0".to_owned()),
        private: vec![(224, "first".to_owned()), (254, "last".to_owned()), (100, "not private".to_owned())],
    }
}

fn server(lease: DhcpV4) -> DhcpServer {
    DhcpServer { device: "k6t-eth0".to_owned(), client_mac: "02:00:00:AA:bb:cc".to_owned(), v4: Some(lease), v6: None }
}

fn client(kind: MessageType, options: &[DhcpOption]) -> Message {
    let nobody = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(7, nobody, nobody, nobody, nobody, &MAC);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    for option in options {
        message.opts_mut().insert(option.clone());
    }
    message
}

fn ask(lease: DhcpV4, message: &Message) -> Option<(SocketAddrV4, Message)> {
    let reply = answer(&server(lease), &message.to_vec().unwrap())?;
    Some((reply.to, Message::decode(&mut Decoder::new(&reply.payload)).unwrap()))
}

fn kind(message: &Message) -> MessageType {
    message.opts().msg_type().unwrap()
}

fn large() -> DhcpOption {
    DhcpOption::MaxMessageSize(1500)
}

#[test]
fn an_offer_holds_every_option() {
    let id = DhcpOption::ClientIdentifier(vec![1, 2, 3]);
    let (to, offer) = ask(lease(), &client(MessageType::Discover, &[large(), id.clone()])).unwrap();
    assert_eq!(to, SocketAddrV4::new(Ipv4Addr::BROADCAST, 68));
    assert_eq!((offer.xid(), offer.yiaddr(), offer.chaddr()), (7, ADDRESS, &MAC[..]));
    let mut expected = DhcpOptions::new();
    let name = |text: &str| text.parse().unwrap();
    for option in [
        DhcpOption::MessageType(MessageType::Offer),
        DhcpOption::ServerIdentifier(SERVER),
        id,
        DhcpOption::AddressLeaseTime(999 * 86400),
        DhcpOption::SubnetMask([255, 255, 255, 0].into()),
        DhcpOption::Router(vec![SERVER]),
        DhcpOption::DomainNameServer(lease().dns),
        DhcpOption::InterfaceMtu(1450),
        DhcpOption::Hostname("web".to_owned()),
        DhcpOption::DomainName("shop.svc.cluster.local".to_owned()),
        DhcpOption::DomainSearch(vec![name("shop.svc.cluster.local."), name("cluster.local.")]),
        DhcpOption::NtpServers(lease().ntp),
        DhcpOption::TFTPServerName(b"tftp.example".to_vec()),
        DhcpOption::BootfileName(b"pxelinux.0".to_vec()),
        DhcpOption::Unknown(UnknownOption::new(OptionCode::Unknown(224), b"first".to_vec())),
        DhcpOption::Unknown(UnknownOption::new(OptionCode::Unknown(254), b"last".to_vec())),
    ] {
        expected.insert(option);
    }
    assert_eq!(offer.opts(), &expected);
}

#[test]
fn routes_include_the_default_one() {
    let route = |destination: [u8; 4], prefix, gateway| Route { destination: destination.into(), prefix, gateway };
    let routes = vec![route([169, 254, 1, 1], 32, Ipv4Addr::UNSPECIFIED), route([172, 16, 5, 9], 12, SERVER)];
    let (_, offer) = ask(DhcpV4 { routes, ..lease() }, &client(MessageType::Discover, &[large()])).unwrap();
    let Some(DhcpOption::ClasslessStaticRoute(told)) = offer.opts().get(OptionCode::ClasslessStaticRoute) else {
        panic!("{offer:?}");
    };
    let told: Vec<String> = told.iter().map(|(network, gateway)| format!("{network} {gateway}")).collect();
    assert_eq!(told, ["169.254.1.1/32 0.0.0.0", "172.16.0.0/12 10.0.2.1", "0.0.0.0/0 10.0.2.1"]);
}

#[test]
fn the_right_address_is_acknowledged_and_another_refused() {
    for (wanted, expected) in [(ADDRESS, MessageType::Ack), (OTHER, MessageType::Nak)] {
        let (to, reply) =
            ask(lease(), &client(MessageType::Request, &[DhcpOption::RequestedIpAddress(wanted)])).unwrap();
        assert_eq!((kind(&reply), to.ip()), (expected, &Ipv4Addr::BROADCAST));
    }
}

#[test]
fn a_renewal_goes_to_the_address_and_only_there() {
    let mut renewal = client(MessageType::Request, &[]);
    renewal.set_ciaddr(ADDRESS);
    let (to, reply) = ask(lease(), &renewal).unwrap();
    assert_eq!((to, kind(&reply), reply.ciaddr()), (SocketAddrV4::new(ADDRESS, 68), MessageType::Ack, ADDRESS));

    renewal.set_ciaddr(OTHER);
    let (to, reply) = ask(lease(), &renewal).unwrap();
    assert_eq!((to.ip(), kind(&reply)), (&Ipv4Addr::BROADCAST, MessageType::Nak));
    assert_eq!((reply.yiaddr(), reply.opts().len()), (Ipv4Addr::UNSPECIFIED, 2));
}

#[test]
fn information_comes_without_a_lease() {
    let mut inform = client(MessageType::Inform, &[]);
    inform.set_ciaddr(OTHER);
    let (to, reply) = ask(lease(), &inform).unwrap();
    assert_eq!((to.ip(), kind(&reply), reply.yiaddr()), (&Ipv4Addr::BROADCAST, MessageType::Ack, [0; 4].into()));
    assert!(!reply.opts().contains(OptionCode::AddressLeaseTime));
    assert!(reply.opts().contains(OptionCode::DomainNameServer));
}

#[test]
fn silence_for_everybody_and_everything_else() {
    let mut other_mac = client(MessageType::Discover, &[]);
    other_mac.set_chaddr(&[2, 0, 0, 0, 0, 9]);
    let mut long_mac = client(MessageType::Discover, &[]);
    long_mac.set_chaddr(&[2, 0, 0, 0xaa, 0xbb, 0xcc, 0]);
    let mut relayed = client(MessageType::Discover, &[]);
    relayed.set_giaddr(OTHER);
    let mut reply = client(MessageType::Discover, &[]);
    reply.set_opcode(dhcproto::v4::Opcode::BootReply);
    let to_another =
        client(MessageType::Request, &[DhcpOption::RequestedIpAddress(ADDRESS), DhcpOption::ServerIdentifier(OTHER)]);
    let wants_nothing = client(MessageType::Request, &[]);
    for message in [other_mac, long_mac, relayed, reply, to_another, wants_nothing] {
        assert_eq!(ask(lease(), &message), None, "{message}");
    }
    for kind in [MessageType::Release, MessageType::Decline, MessageType::Offer, MessageType::Unknown(77)] {
        assert_eq!(ask(lease(), &client(kind, &[DhcpOption::RequestedIpAddress(ADDRESS)])), None);
    }
    let without_lease = DhcpServer { v4: None, ..server(lease()) };
    assert_eq!(answer(&without_lease, &client(MessageType::Discover, &[]).to_vec().unwrap()), None);
}

#[test]
fn a_small_client_gets_what_fits_and_the_important_first() {
    let long = DhcpV4 { boot_file: Some("x".repeat(400)), ..lease() };
    let discover = client(MessageType::Discover, &[]);
    let reply = answer(&server(long.clone()), &discover.to_vec().unwrap()).unwrap();
    assert!(reply.payload.len() <= 548, "{}", reply.payload.len());
    let message = Message::decode(&mut Decoder::new(&reply.payload)).unwrap();
    assert!(!message.opts().contains(OptionCode::BootfileName));
    assert!(message.opts().contains(OptionCode::Unknown(254)), "what comes later and is small still fits");

    let (_, message) = ask(long, &client(MessageType::Discover, &[large()])).unwrap();
    let Some(DhcpOption::BootfileName(name)) = message.opts().get(OptionCode::BootfileName) else { panic!() };
    assert_eq!(name.len(), 400, "a long option comes in parts and is one again");
}

#[test]
fn masks_of_all_sizes() {
    assert_eq!((mask(0), mask(12), mask(32), mask(200)), ([0; 4], [255, 240, 0, 0], [255; 4], [255; 4]));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = answer(&server(lease()), &bytes);
    }

    /// Bytes that get past the first checks, with options of all kinds.
    #[test]
    fn answers_are_always_for_the_client(
        fields in prop::array::uniform24(any::<u8>()), ours in any::<bool>(), kind in 0_u8..10,
        options in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut bytes = vec![1, 1, 6];
        bytes.extend_from_slice(&fields[..21]);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(if ours { &MAC } else { &[9; 6] });
        bytes.resize(236, 0);
        bytes.extend_from_slice(&COOKIE);
        bytes.extend_from_slice(&[53, 1, kind]);
        bytes.extend_from_slice(&options);
        if let Some(reply) = answer(&server(lease()), &bytes) {
            prop_assert!(ours);
            prop_assert!([ADDRESS, Ipv4Addr::BROADCAST].contains(reply.to.ip()));
            let message = Message::decode(&mut Decoder::new(&reply.payload)).unwrap();
            prop_assert_eq!(message.chaddr(), &MAC[..]);
            prop_assert!(message.yiaddr() == ADDRESS || message.yiaddr().is_unspecified());
        }
    }

    /// Whatever a user writes into the options, the answer is well-formed and fits.
    #[test]
    fn any_settings_fit(texts in prop::collection::vec(".{0,300}", 3), search in prop::collection::vec("[a-z.]{0,80}", 0..9),
                        private in prop::collection::vec((any::<u8>(), ".{0,80}"), 0..9), prefix in any::<u8>()) {
        let lease = DhcpV4 {
            hostname: Some(texts[0].clone()), tftp_server: Some(texts[1].clone()), boot_file: Some(texts[2].clone()),
            search, private, prefix, ..lease()
        };
        let reply = answer(&server(lease), &client(MessageType::Discover, &[]).to_vec().unwrap()).unwrap();
        prop_assert!(reply.payload.len() <= 548);
        let mut options = &reply.payload[FIXED..];
        loop {
            match options {
                [255] => break,
                [_, length, rest @ ..] if rest.len() >= usize::from(*length) => options = &rest[usize::from(*length)..],
                broken => prop_assert!(false, "{broken:?}"),
            }
        }
    }
}
