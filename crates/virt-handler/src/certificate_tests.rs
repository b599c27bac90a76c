//! A node and somebody who signs for it, with an API server between them that is played.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, Issuer, PKCS_ECDSA_P256_SHA256, SignatureAlgorithm};
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use super::*;

/// Minutes of a usual certificate.
const DAY: u64 = 24 * 60;

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

    /// Signs a request as the cluster's operator does, from an hour ago for so many minutes.
    fn sign(&self, request: &str, minutes: u64) -> String {
        let (_, pem) = x509_parser::pem::parse_x509_pem(request.as_bytes()).unwrap();
        let (_, asked) = X509CertificationRequest::from_der(&pem.contents).unwrap();
        let names = asked.requested_extensions().unwrap().find_map(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => {
                Some(names.general_names.iter().map(dns_name).collect::<Vec<_>>())
            }
            _ => None,
        });
        let mut params = CertificateParams::new(names.unwrap_or_default()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let from = SystemTime::now() - Duration::from_secs(3600);
        params.not_before = from.into();
        params.not_after = (from + Duration::from_secs(minutes * 60)).into();
        let key = Key(asked.certification_request_info.subject_pki.subject_public_key.data.to_vec());
        params.signed_by(&key, &self.issuer).unwrap().pem()
    }
}

fn dns_name(name: &GeneralName<'_>) -> String {
    let GeneralName::DNSName(name) = name else { panic!("{name} is no DNS name") };
    (*name).to_owned()
}

/// The public key of a request.
struct Key(Vec<u8>);

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// Requests by name, as an API server keeps them.
type Requests = Arc<Mutex<BTreeMap<String, Value>>>;

fn client(requests: &Requests) -> Client {
    let requests = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let requests = requests.clone();
        async move {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut known = requests.lock();
            let (code, answer) = match serde_json::from_slice::<Value>(&body) {
                Ok(made) => {
                    known.insert(made["metadata"]["name"].as_str().unwrap().to_owned(), made.clone());
                    (201, made)
                }
                Err(_) => match known.get(&name) {
                    Some(found) => (200, found.clone()),
                    None => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
                },
            };
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, std::convert::Infallible>(answer.unwrap())
        }
    });
    Client::new(service, "default")
}

struct World {
    directory: tempfile::TempDir,
    requests: Requests,
    keeper: Keeper,
    shown: Vec<u8>,
}

impl World {
    fn new(authority: &Authority) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let requests = Requests::default();
        let keeper = Keeper {
            client: client(&requests),
            node: "node1".to_owned(),
            directory: directory.path().to_owned(),
            bundle: directory.path().join("ca-bundle"),
            identities: Identities::default(),
        };
        std::fs::write(&keeper.bundle, &authority.pem).unwrap();
        Self { directory, requests, keeper, shown: Vec::new() }
    }

    async fn look(&mut self) -> Duration {
        self.keeper.look(&mut self.shown).await
    }

    /// Whether others are shown a certificate, and which.
    fn shown(&self) -> Option<Vec<u8>> {
        self.keeper.identities.get().is_ok().then(|| std::fs::read(self.file("identity.pem")).unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The one request, whose status becomes this.
    fn answer(&self, status: impl Fn(&str) -> Value) {
        let mut requests = self.requests.lock();
        let (_, last) = requests.iter_mut().find(|(_, request)| request.get("status").is_none()).unwrap();
        let asked: CertificateSigningRequest = serde_json::from_value(last.clone()).unwrap();
        let pem = String::from_utf8(asked.0.spec.request.0).unwrap();
        last["status"] = status(&pem);
    }

    fn grant(&self, authority: &Authority, minutes: u64) {
        self.answer(|pem| {
            let certificate = ByteString(authority.sign(pem, minutes).into_bytes());
            json!({"certificate": serde_json::to_value(certificate).unwrap()})
        });
    }
}

#[tokio::test]
async fn a_node_asks_once_and_gets_its_certificate() {
    let authority = Authority::new();
    let mut world = World::new(&authority);
    for _ in 0..3 {
        assert_eq!(world.look().await, SOON);
    }
    assert_eq!(world.requests.lock().len(), 1, "who waits does not ask again");
    let request: CertificateSigningRequest =
        serde_json::from_value(world.requests.lock().values().next().unwrap().clone()).unwrap();
    assert!(request.metadata.name.as_ref().unwrap().starts_with("virt-handler-node1-"));
    assert_eq!(request.spec.signer_name, SIGNER);
    assert!(world.shown().is_none());
    world.grant(&authority, DAY);
    assert_eq!(world.look().await, Duration::ZERO);
    assert_eq!(world.look().await, LOOK);
    assert!(world.shown().is_some());
    let mode = world.file("identity.pem").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!world.file("next.key").exists());
}

#[tokio::test]
async fn what_was_kept_is_used_without_asking() {
    let authority = Authority::new();
    let mut world = World::new(&authority);
    world.look().await;
    world.grant(&authority, DAY);
    world.look().await;
    let before = world.requests.lock().len();
    // A new process, and nobody there who signs.
    (world.shown, world.keeper.identities) = (Vec::new(), Identities::default());
    assert_eq!(world.look().await, LOOK);
    assert!(world.shown().is_some());
    assert_eq!(world.requests.lock().len(), before);
}

#[tokio::test]
async fn a_certificate_is_renewed_with_another_key_before_it_ends() {
    let authority = Authority::new();
    let mut world = World::new(&authority);
    world.look().await;
    // An hour of it has passed already.
    world.grant(&authority, 70);
    world.look().await;
    assert_eq!(world.look().await, LOOK);
    let first = world.shown().unwrap();
    assert_eq!(world.requests.lock().len(), 2, "it was asked for the next one");
    world.grant(&authority, DAY);
    world.look().await;
    world.look().await;
    assert_ne!(world.shown().unwrap(), first);
    let key = |pem: &[u8]| PrivateKeyDer::from_pem_slice(pem).unwrap().secret_der().to_vec();
    assert_ne!(key(&world.shown().unwrap()), key(&first));
}

#[tokio::test]
async fn who_is_refused_says_why_and_asks_with_another_key() {
    let authority = Authority::new();
    let mut world = World::new(&authority);
    world.look().await;
    world.answer(
        |_| json!({"conditions": [{"type": "Denied", "status": "True", "reason": "OtherNode", "message": "no"}]}),
    );
    assert_eq!(world.look().await, REFUSED);
    world.look().await;
    assert_eq!(world.requests.lock().len(), 2);
    world.grant(&authority, DAY);
    world.look().await;
    world.look().await;
    assert!(world.shown().is_some());
}

#[tokio::test]
async fn a_new_authority_may_arrive_later_than_what_it_signed() {
    let (old, new) = (Authority::new(), Authority::new());
    let mut world = World::new(&old);
    world.look().await;
    world.grant(&new, DAY);
    assert_eq!(world.look().await, SOON);
    assert!(world.shown().is_none());
    std::fs::write(&world.keeper.bundle, format!("{}{}", old.pem, new.pem)).unwrap();
    world.look().await;
    world.look().await;
    let first = world.shown.clone();
    assert!(world.shown().is_some());
    std::fs::write(&world.keeper.bundle, &new.pem).unwrap();
    world.look().await;
    assert_ne!(world.shown, first, "who is believed has changed");
}

#[test]
fn the_certificate_of_another_node_is_of_no_use() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let asked = request("x", "node2", &key).unwrap();
    let certificate = authority.sign(std::str::from_utf8(&asked.spec.request.0).unwrap(), DAY);
    let held = format!("{certificate}{}", key.serialize_pem());
    let judge = |held: &str, node, now| usable(authority.pem.as_bytes(), held.as_bytes(), node, now).map(drop);
    let now = SystemTime::now();
    assert!(judge(&held, "node2", now).is_ok());
    assert!(matches!(judge(&held, "node1", now), Err(Useless::OtherNode)));
    assert!(matches!(judge(&held, "node2", now + Duration::from_secs(90_000)), Err(Useless::Untrusted(_))));
    let other_key = format!("{certificate}{}", KeyPair::generate().unwrap().serialize_pem());
    assert!(matches!(judge(&other_key, "node2", now), Err(Useless::Identity(_))));
    assert!(matches!(judge("", "node2", now), Err(Useless::Missing)));
}

#[test]
fn four_fifths_of_the_time_are_used() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let asked = request("x", "node2", &key).unwrap();
    let certificate = authority.sign(std::str::from_utf8(&asked.spec.request.0).unwrap(), 600);
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let after = renewal(&certificate).unwrap().duration_since(SystemTime::now()).unwrap();
    assert_eq!(after.as_secs().div_ceil(3600), 7, "an hour has passed");
}
