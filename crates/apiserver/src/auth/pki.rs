//! The cluster's own certificate authority and keys, in one private directory.
//!
//! | file | what |
//! |---|---|
//! | `ca.pem` | signs the server's and all client certificates |
//! | `server.pem` | the API server's certificate |
//! | `front-proxy-ca.pem` | signs nothing but the next one |
//! | `front-proxy-client.pem` | shown to extension API servers, so that they believe the `X-Remote-*` headers |
//! | `service-account.pem` | signs service account tokens |
//!
//! A certificate and its key are one file, so that a crash cannot leave a pair that does not fit. Everything is made
//! at first start and kept; certificates that near their end, or lack a name, are made anew from the same authority.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::private_file;
use super::subject;
use super::tls::{AnyClientCertificate, Peer, user_of_certificate};

const DAY: Duration = Duration::from_secs(24 * 3600);
const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// What is closer to its end than this is made anew at start.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

const CA_NAME: &str = "ferrovirt-ca";
const FRONT_PROXY_CA_NAME: &str = "ferrovirt-front-proxy-ca";
/// The name in the front proxy's certificate, which extension API servers are told to accept.
pub const FRONT_PROXY_NAME: &str = "front-proxy-client";
/// Names under which clients inside the cluster know the API server.
pub const CLUSTER_NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// What went wrong with keys or certificates.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or the directory could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file holds no usable certificate and key. It is not replaced, since that would cut off all its clients.
    #[error("{} is damaged ({reason}); restore it, or remove it to make a new one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate for {subject:?}: {source}")]
    Issue {
        /// The name that it was for.
        subject: String,
        /// Why it failed.
        source: rcgen::Error,
    },
    /// TLS could not be set up with what we have.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

/// A certificate with its private key, both as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key (PKCS #8).
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// All keys and certificates of one cluster.
#[derive(Debug)]
pub struct Pki {
    ca: Identity,
    server: Identity,
    front_proxy_ca: Identity,
    front_proxy_client: Identity,
    service_account_key: String,
    user_verifier: Arc<dyn ClientCertVerifier>,
    front_proxy_verifier: Arc<dyn ClientCertVerifier>,
}

impl Pki {
    /// Opens the directory, making what is missing. `names` are the DNS names and addresses that the server is reached
    /// at, besides [`CLUSTER_NAMES`].
    pub fn open(directory: &Path, names: &[String], now: SystemTime) -> Result<Self, PkiError> {
        private_file::create_directory(directory)?;
        let files = Directory { path: directory, now };
        let ca = files.authority("ca.pem", CA_NAME)?;
        let front_proxy_ca = files.authority("front-proxy-ca.pem", FRONT_PROXY_CA_NAME)?;
        let names: BTreeSet<String> =
            CLUSTER_NAMES.into_iter().map(str::to_owned).chain(names.iter().cloned()).collect();
        let server = files.leaf("server.pem", &Leaf::server("kube-apiserver", names), &ca, CA_NAME)?;
        let proxy = Leaf::client(FRONT_PROXY_NAME, None);
        let front_proxy_client = files.leaf("front-proxy-client.pem", &proxy, &front_proxy_ca, FRONT_PROXY_CA_NAME)?;
        let service_account_key = files.key("service-account.pem")?;
        let user_verifier = verifier(&ca.certificate)?;
        let front_proxy_verifier = verifier(&front_proxy_ca.certificate)?;
        Ok(Self {
            ca,
            server,
            front_proxy_ca,
            front_proxy_client,
            service_account_key,
            user_verifier,
            front_proxy_verifier,
        })
    }

    /// The authority that clients must trust, as PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.ca.certificate
    }

    /// The authority behind [`Pki::front_proxy_client`], as PEM: `requestheader-client-ca-file` of
    /// `extension-apiserver-authentication`.
    pub fn front_proxy_ca_certificate(&self) -> &str {
        &self.front_proxy_ca.certificate
    }

    /// The identity under which requests are passed on to extension API servers.
    pub fn front_proxy_client(&self) -> &Identity {
        &self.front_proxy_client
    }

    /// The key that signs service account tokens (ECDSA P-256, PKCS #8 PEM).
    pub fn service_account_key(&self) -> &str {
        &self.service_account_key
    }

    /// A certificate with which `user`, a member of `groups`, can log in. It is not kept.
    pub fn client_identity(&self, user: &str, groups: &[&str], now: SystemTime) -> Result<Identity, PkiError> {
        let identity = issue_leaf(&Leaf::client(user, groups.first().copied()), &self.ca, CA_NAME, now)?;
        if groups.len() < 2 {
            return Ok(identity);
        }
        let failed = |source| PkiError::Issue { subject: user.to_owned(), source };
        let authority = KeyPair::from_pem(&self.ca.key).map_err(failed)?;
        let (der, _) = parse(&identity).map_err(PkiError::Tls)?;
        let certificate = subject::rename(&der, user, groups, &authority)
            .ok_or_else(|| failed(rcgen::Error::CouldNotParseCertificate))?;
        Ok(Identity { certificate, key: identity.key })
    }

    /// A server certificate for another component (an extension API server, a webhook), signed by the cluster's CA.
    pub fn server_identity(&self, name: &str, names: &[String], now: SystemTime) -> Result<Identity, PkiError> {
        issue_leaf(&Leaf::server(name, names.iter().cloned().collect()), &self.ca, CA_NAME, now)
    }

    /// A certificate for a component that both calls others of its kind and is called by them, signed by the cluster's CA.
    pub fn peer_identity(&self, user: &str, name: &str, now: SystemTime) -> Result<Identity, PkiError> {
        let mut leaf = Leaf::server(user, BTreeSet::from([name.to_owned()]));
        leaf.calls = true;
        issue_leaf(&leaf, &self.ca, CA_NAME, now)
    }

    /// How the API server speaks TLS: HTTP/2 and HTTP/1.1, client certificates welcome but not needed.
    ///
    /// As in kube-apiserver, a certificate of an unknown authority does not fail the handshake; [`Pki::peer`] tells
    /// it apart afterwards, and the request is answered with 401 unless it has a good token.
    pub fn server_config(&self) -> Result<ServerConfig, PkiError> {
        let (chain, key) = parse(&self.server).map_err(PkiError::Tls)?;
        let provider = provider();
        let verifier = AnyClientCertificate::new(&provider, self.user_verifier.root_hint_subjects().to_vec());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(vec![chain], key))
            .map_err(|error| PkiError::Tls(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Who is at the other end of a connection, by the certificates that it showed.
    pub fn peer(&self, certificates: &[CertificateDer<'_>], now: SystemTime) -> Peer {
        let Some((leaf, intermediates)) = certificates.split_first() else { return Peer::Nobody };
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        if self.user_verifier.verify_client_cert(leaf, intermediates, now).is_ok() {
            return user_of_certificate(leaf).map_or(Peer::Nobody, Peer::User);
        }
        let proxied = self.front_proxy_verifier.verify_client_cert(leaf, intermediates, now).is_ok();
        if proxied && user_of_certificate(leaf).is_some_and(|user| user.name == FRONT_PROXY_NAME) {
            return Peer::FrontProxy;
        }
        Peer::Unknown
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn verifier(ca: &str) -> Result<Arc<dyn ClientCertVerifier>, PkiError> {
    let failed = |error: &dyn std::fmt::Display| PkiError::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).map_err(|e| failed(&e))?;
    roots.add(ca).map_err(|e| failed(&e))?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| failed(&e))
}

/// What a certificate that signs nothing is for.
struct Leaf<'a> {
    name: &'a str,
    group: Option<&'a str>,
    /// Subject alternative names; only servers have them.
    names: BTreeSet<String>,
    /// It is a client's, or also a client's.
    calls: bool,
}

impl<'a> Leaf<'a> {
    fn server(name: &'a str, names: BTreeSet<String>) -> Self {
        Self { name, group: None, names, calls: false }
    }

    fn client(name: &'a str, group: Option<&'a str>) -> Self {
        Self { name, group, names: BTreeSet::new(), calls: true }
    }

    fn params(&self, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
        let names: Vec<String> = self.names.iter().cloned().collect();
        let mut params = subject_params(self.name, now, LEAF_LIFETIME, names)?;
        if let Some(group) = self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let serves = (!self.names.is_empty()).then_some(ExtendedKeyUsagePurpose::ServerAuth);
        let calls = self.calls.then_some(ExtendedKeyUsagePurpose::ClientAuth);
        params.extended_key_usages = serves.into_iter().chain(calls).collect();
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }
}

fn subject_params(
    name: &str,
    now: SystemTime,
    lifetime: Duration,
    names: Vec<String>,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // A little in the past, for clients whose clock is behind ours.
    params.not_before = (now - DAY).into();
    params.not_after = (now + lifetime).into();
    Ok(params)
}

fn authority_params(name: &str, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = subject_params(name, now, CA_LIFETIME, Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// A self-signed authority, with an existing key so that what it signed before stays good.
fn issue_authority(name: &str, key: &KeyPair, now: SystemTime) -> Result<Identity, PkiError> {
    let certificate = authority_params(name, now).and_then(|params| params.self_signed(key));
    let certificate = certificate.map_err(|source| PkiError::Issue { subject: name.to_owned(), source })?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn issue_leaf(leaf: &Leaf<'_>, ca: &Identity, ca_name: &str, now: SystemTime) -> Result<Identity, PkiError> {
    let make = || {
        let issuer = Issuer::new(authority_params(ca_name, now)?, KeyPair::from_pem(&ca.key)?);
        let key = KeyPair::generate()?;
        let certificate = leaf.params(now)?.signed_by(&key, &issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    };
    make().map_err(|source| PkiError::Issue { subject: leaf.name.to_owned(), source })
}

/// The state directory, at one moment.
struct Directory<'a> {
    path: &'a Path,
    now: SystemTime,
}

impl Directory<'_> {
    fn authority(&self, file: &str, name: &str) -> Result<Identity, PkiError> {
        let path = self.path.join(file);
        let key = match private_file::read(&path)? {
            Some(text) => {
                let identity = split(&text).map_err(|reason| PkiError::Damaged { path: path.clone(), reason })?;
                if facts(&identity).is_ok_and(|facts| facts.lasts(self.now)) {
                    return Ok(identity);
                }
                KeyPair::from_pem(&identity.key)
            }
            None => KeyPair::generate(),
        };
        let key = key.map_err(|source| PkiError::Issue { subject: name.to_owned(), source })?;
        self.keep(&path, issue_authority(name, &key, self.now)?)
    }

    fn leaf(&self, file: &str, leaf: &Leaf<'_>, ca: &Identity, ca_name: &str) -> Result<Identity, PkiError> {
        let path = self.path.join(file);
        // A leaf that cannot be read is no loss: it is made anew.
        let kept = private_file::read(&path)?.and_then(|text| split(&text).ok());
        if let Some(identity) = kept
            && facts(&identity).is_ok_and(|facts| facts.lasts(self.now) && facts.names.is_superset(&leaf.names))
            && signed_by(&identity, ca)
        {
            return Ok(identity);
        }
        self.keep(&path, issue_leaf(leaf, ca, ca_name, self.now)?)
    }

    fn key(&self, file: &str) -> Result<String, PkiError> {
        let path = self.path.join(file);
        if let Some(text) = private_file::read(&path)? {
            return match KeyPair::from_pem(&text) {
                Ok(_) => Ok(text),
                Err(error) => Err(PkiError::Damaged { path, reason: error.to_string() }),
            };
        }
        let key = KeyPair::generate().map_err(|source| PkiError::Issue { subject: file.to_owned(), source })?;
        let pem = key.serialize_pem();
        private_file::write(&path, pem.as_bytes())?;
        Ok(pem)
    }

    fn keep(&self, path: &Path, identity: Identity) -> Result<Identity, PkiError> {
        private_file::write(path, format!("{}{}", identity.certificate, identity.key).as_bytes())?;
        Ok(identity)
    }
}

/// Takes a file of ours apart again.
fn split(text: &str) -> Result<Identity, String> {
    let (certificate, key) = text.split_once("-----BEGIN PRIVATE KEY-----").ok_or("it has no private key")?;
    let identity = Identity { certificate: certificate.to_owned(), key: format!("-----BEGIN PRIVATE KEY-----{key}") };
    parse(&identity)?;
    Ok(identity)
}

fn parse(identity: &Identity) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), String> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())
        .map_err(|error| format!("its certificate cannot be read: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
        .map_err(|error| format!("its private key cannot be read: {error}"))?;
    Ok((certificate, key))
}

/// What decides whether a certificate can still be used.
struct Facts {
    not_after: i64,
    names: BTreeSet<String>,
}

impl Facts {
    fn lasts(&self, now: SystemTime) -> bool {
        let needed = (now + RENEW_BEFORE).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        i64::try_from(needed).is_ok_and(|needed| self.not_after > needed)
    }
}

fn facts(identity: &Identity) -> Result<Facts, String> {
    let (der, _) = parse(identity)?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| extension.value.general_names.iter().filter_map(name_text).collect());
    Ok(Facts { not_after: certificate.validity().not_after.timestamp(), names: names.unwrap_or_default() })
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a leaf names this authority's key as its issuer's: a leaf of an authority that was removed since must go.
fn signed_by(leaf: &Identity, ca: &Identity) -> bool {
    use x509_parser::extensions::ParsedExtension;
    let Ok(((leaf, _), (ca, _))) = parse(leaf).and_then(|leaf| Ok((leaf, parse(ca)?))) else { return false };
    let (Ok((_, leaf)), Ok((_, ca))) = (X509Certificate::from_der(&leaf), X509Certificate::from_der(&ca)) else {
        return false;
    };
    let issuer_key = leaf.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0),
        _ => None,
    });
    let own_key = ca.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
        _ => None,
    });
    issuer_key.is_some() && issuer_key == own_key
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    fn open(directory: &Path) -> Pki {
        Pki::open(directory, &["10.0.0.1".to_owned()], SystemTime::now()).unwrap()
    }

    fn der(identity: &Identity) -> CertificateDer<'static> {
        parse(identity).unwrap().0
    }

    #[test]
    fn everything_is_kept_private_and_reused() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("pki");
        let first = open(&directory);
        let second = open(&directory);
        assert_eq!(first.ca_certificate(), second.ca_certificate());
        assert_eq!(first.server.certificate, second.server.certificate);
        assert_eq!(first.front_proxy_client.certificate, second.front_proxy_client.certificate);
        assert_eq!(first.service_account_key(), second.service_account_key());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        for file in std::fs::read_dir(&directory).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), 0o600);
        }
    }

    #[test]
    fn the_server_certificate_follows_its_names_and_its_end() {
        let home = tempfile::tempdir().unwrap();
        let first = open(home.path());
        let now = SystemTime::now();
        let renamed = Pki::open(home.path(), &["vm.example".to_owned()], now).unwrap();
        assert_ne!(first.server.certificate, renamed.server.certificate);
        assert!(facts(&renamed.server).unwrap().names.contains("vm.example"));
        let late = Pki::open(home.path(), &["vm.example".to_owned()], now + LEAF_LIFETIME - DAY).unwrap();
        assert_ne!(renamed.server.certificate, late.server.certificate);
        assert_eq!(first.ca_certificate(), late.ca_certificate());
    }

    #[test]
    fn an_authority_near_its_end_keeps_its_key() {
        let home = tempfile::tempdir().unwrap();
        let first = open(home.path());
        let later = SystemTime::now() + CA_LIFETIME - DAY;
        let renewed = Pki::open(home.path(), &[], later).unwrap();
        assert_ne!(first.ca.certificate, renewed.ca.certificate);
        assert_eq!(first.ca.key, renewed.ca.key);
        let client = first.client_identity("jane", &[], later).unwrap();
        assert!(matches!(renewed.peer(&[der(&client)], later), Peer::User(_)));
    }

    #[test]
    fn a_leaf_of_a_removed_authority_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let first = open(home.path());
        std::fs::remove_file(home.path().join("ca.pem")).unwrap();
        let second = open(home.path());
        assert_ne!(first.ca.key, second.ca.key);
        assert_ne!(first.server.certificate, second.server.certificate);
    }

    #[test]
    fn a_damaged_authority_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        open(home.path());
        for file in ["ca.pem", "service-account.pem"] {
            let path = home.path().join(file);
            let good = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, "nonsense").unwrap();
            let error = Pki::open(home.path(), &[], SystemTime::now()).unwrap_err();
            assert!(matches!(&error, PkiError::Damaged { path: named, .. } if *named == path), "{error}");
            std::fs::write(&path, good).unwrap();
        }
        std::fs::write(home.path().join("server.pem"), "nonsense").unwrap();
        open(home.path());
    }

    #[test]
    fn peers_are_told_apart_by_their_authority() {
        let home = tempfile::tempdir().unwrap();
        let other_home = tempfile::tempdir().unwrap();
        let (pki, other) = (open(home.path()), open(other_home.path()));
        let now = SystemTime::now();
        let admin = pki.client_identity("admin", &["system:masters"], now).unwrap();
        let Peer::User(user) = pki.peer(&[der(&admin)], now) else { panic!("not a user") };
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("admin", &["system:masters".to_owned()][..]));
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
        assert_eq!(pki.peer(&[der(pki.front_proxy_client())], now), Peer::FrontProxy);
        assert_eq!(pki.peer(&[], now), Peer::Nobody);
        assert_eq!(other.peer(&[der(&admin)], now), Peer::Unknown);
        assert_eq!(pki.peer(&[der(&admin)], now + 2 * LEAF_LIFETIME), Peer::Unknown, "expired");
        assert_eq!(pki.peer(&[der(&pki.server)], now), Peer::Unknown, "not for clients");
        let same_name = issue_leaf(&Leaf::client(FRONT_PROXY_NAME, None), &pki.ca, CA_NAME, now).unwrap();
        assert!(matches!(pki.peer(&[der(&same_name)], now), Peer::User(_)), "a name alone does not make a proxy");
    }

    #[test]
    fn a_user_may_have_many_groups() {
        let home = tempfile::tempdir().unwrap();
        let pki = open(home.path());
        let now = SystemTime::now();
        let groups: Vec<String> = (0..40).map(|number| format!("group-{number}-grün")).collect();
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        for count in [0, 1, 2, 40] {
            let identity = pki.client_identity("jane", &groups[..count], now).unwrap();
            let Peer::User(user) = pki.peer(&[der(&identity)], now) else { panic!("not a user with {count} groups") };
            assert_eq!(user.name, "jane");
            assert_eq!(user.groups, &groups[..count]);
        }
    }

    #[test]
    fn a_nonsense_name_cannot_be_certified() {
        let home = tempfile::tempdir().unwrap();
        let error = Pki::open(home.path(), &["ü".to_owned()], SystemTime::now()).unwrap_err();
        assert!(matches!(error, PkiError::Issue { .. }), "{error}");
    }

    /// A handshake with our own server as a client with `identity`; returns who the server saw.
    async fn handshake(pki: &Pki, identity: Option<&Identity>) -> Peer {
        let acceptor = TlsAcceptor::from(Arc::new(pki.server_config().unwrap()));
        let mut roots = RootCertStore::empty();
        roots.add(der(&pki.ca)).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (certificate, key) = parse(identity).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (near, far) = tokio::io::duplex(1 << 16);
        let client = async {
            let name = "localhost".try_into().unwrap();
            let mut stream = TlsConnector::from(Arc::new(config)).connect(name, near).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            stream.write_all(b"x").await.unwrap();
            stream.flush().await.unwrap();
            stream
        };
        let server = async {
            let mut stream = acceptor.accept(far).await.unwrap();
            stream.read_u8().await.unwrap();
            pki.peer(stream.get_ref().1.peer_certificates().unwrap_or_default(), SystemTime::now())
        };
        let (_client, peer) = tokio::join!(client, server);
        peer
    }

    #[tokio::test]
    async fn clients_log_in_with_their_certificate_or_without() {
        let home = tempfile::tempdir().unwrap();
        let other_home = tempfile::tempdir().unwrap();
        let (pki, other) = (open(home.path()), open(other_home.path()));
        let jane = pki.client_identity("jane", &["dev"], SystemTime::now()).unwrap();
        assert!(matches!(handshake(&pki, Some(&jane)).await, Peer::User(user) if user.name == "jane"));
        assert_eq!(handshake(&pki, None).await, Peer::Nobody);
        assert_eq!(handshake(&pki, Some(pki.front_proxy_client())).await, Peer::FrontProxy);
        // A client may leave out a certificate that the server's hints do not ask for; ours does not look at them.
        let stranger = other.client_identity("jane", &["system:masters"], SystemTime::now()).unwrap();
        assert_eq!(handshake(&pki, Some(&stranger)).await, Peer::Unknown);
    }
}
