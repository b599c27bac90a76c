//! Who is believed to be which node, and who is not.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// An authority and what it signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let (mut params, key) = (CertificateParams::new(Vec::new()).unwrap(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate with these names and its key.
    fn sign(&self, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let (mut params, key) = (CertificateParams::new(names).unwrap(), KeyPair::generate().unwrap());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        format!("{}{}", params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn identity(&self, names: &[&str]) -> Identity {
        Identity::parse(format!("{}{}", self.pem, self.sign(names)).as_bytes(), "test").unwrap()
    }

    fn node(&self, node: &str) -> TlsPeers {
        listen(self.identity(&[&certified_name(node)]))
    }
}

fn listen(identity: Identity) -> TlsPeers {
    TlsPeers::listen("127.0.0.1:0".parse().unwrap(), identity, Arc::new(plain_sockets)).unwrap()
}

/// Whether a caller got through to `called`: the handshake of TLS 1.3 ends for the caller before the called has judged.
async fn gets_through(caller: &TlsPeers, called: &TlsPeers, name: &str) -> bool {
    let Ok(mut stream) = caller.dial(name, called.address()).await else { return false };
    let mut byte = [0];
    tokio::select! {
        peer = called.accept() => peer.is_ok(),
        read = stream.read(&mut byte) => { assert!(!matches!(read, Ok(1))); false }
    }
}

#[tokio::test]
async fn nodes_of_one_cluster_know_each_other_by_name() {
    let authority = Authority::new();
    let (one, two) = (authority.node("node1"), authority.node("node2"));
    let (mut out, peer) = tokio::try_join!(one.dial("node2", two.address()), two.accept()).unwrap();
    assert_eq!(peer.node, "node1");
    let mut stream = peer.stream;
    out.write_all(b"there").await.unwrap();
    out.shutdown().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "there");
}

#[tokio::test]
async fn whoever_answers_must_be_the_wanted_node() {
    let authority = Authority::new();
    let (one, two) = (authority.node("node1"), authority.node("node2"));
    let error = one.dial("node3", two.address()).await.err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert!(gets_through(&one, &two, "node2").await);
}

#[tokio::test]
async fn a_foreign_authority_proves_nothing_in_either_direction() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let called = ours.node("node2");
    assert!(!gets_through(&theirs.node("node1"), &called, "node2").await);
    // It trusts us, but what it shows is foreign.
    let pem = format!("{}{}", ours.pem, theirs.sign(&[&certified_name("node1")]));
    let intruder = listen(Identity::parse(pem.as_bytes(), "test").unwrap());
    assert!(!gets_through(&intruder, &called, "node2").await);
    assert!(gets_through(&ours.node("node1"), &called, "node2").await);
}

#[tokio::test]
async fn other_certificates_of_the_cluster_name_no_node() {
    let authority = Authority::new();
    let called = authority.node("node2");
    let two = [certified_name("node1"), certified_name("node2")];
    for names in [&["node1"][..], &["kubernetes", &two[0]], &[&two[0], &two[1]]] {
        assert!(!gets_through(&listen(authority.identity(names)), &called, "node2").await, "{names:?}");
    }
}

#[tokio::test]
async fn without_a_certificate_nobody_is_let_in() {
    let authority = Authority::new();
    let called = authority.node("node2");
    let caller = authority.node("node1");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let anonymous = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
    let client = Arc::new(anonymous.unwrap().with_root_certificates(roots).with_no_client_auth());
    caller.identities.set(Identity { client, ..caller.identities.get().unwrap() });
    assert!(!gets_through(&caller, &called, "node2").await);
}

#[tokio::test]
async fn a_caller_that_says_nothing_holds_nobody_up() {
    let authority = Authority::new();
    let called = authority.node("node2");
    let _silent = TcpStream::connect(SocketAddr::from(called.address())).await.unwrap();
    assert!(gets_through(&authority.node("node1"), &called, "node2").await);
}

#[test]
fn an_incomplete_identity_says_what_is_missing() {
    let authority = Authority::new();
    let alone = authority.sign(&[&certified_name("node1")]);
    assert!(matches!(Identity::parse(alone.as_bytes(), "x"), Err(IdentityError::Incomplete(_))));
    assert!(matches!(Identity::parse(authority.pem.as_bytes(), "x"), Err(IdentityError::Pem(..))));
}

#[tokio::test]
async fn a_node_gets_its_identity_later_and_another_one_after_that() {
    let authority = Authority::new();
    let (identities, other) = (Identities::default(), authority.node("node2"));
    let node = TlsPeers::listen("127.0.0.1:0".parse().unwrap(), identities.clone(), Arc::new(plain_sockets)).unwrap();
    assert!(!gets_through(&node, &other, "node2").await);
    assert!(!gets_through(&other, &node, "node1").await);
    for _ in 0..2 {
        identities.set(authority.identity(&[&certified_name("node1")]));
        assert!(gets_through(&node, &other, "node2").await);
        assert!(gets_through(&other, &node, "node1").await);
    }
}
