//! Makes keys and certificates: the part that needs randomness.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use serde_json::{Map, Value};

use super::{Authorities, BACKDATE, CERTIFICATE, EARLIER, KEY, Lifetimes, NEXT_CERTIFICATE, NEXT_KEY, text};

/// Why a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The library refuses.
    #[error("the certificate cannot be made")]
    Refused(#[from] rcgen::Error),
    /// There is no authority to sign with.
    #[error("the authority's Secret holds no usable certificate and key")]
    NoAuthority,
}

/// The fields of a Secret.
type Data = Map<String, Value>;

fn encoded(data: &mut Data, key: &str, value: &str) {
    data.insert(key.to_owned(), STANDARD.encode(value).into());
}

fn params(name: &str, now: Timestamp, end: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = std::time::SystemTime::from(now - BACKDATE).into();
    params.not_after = std::time::SystemTime::from(end).into();
    params
}

/// Certificate and key of a new authority. Its name says when it was made: two of them are never mistaken for each other.
fn authority(lifetime: SignedDuration, now: Timestamp) -> Result<(String, String), IssueError> {
    let key = KeyPair::generate()?;
    let mut params = params(&format!("kubevirt.io@{}", now.as_nanosecond()), now, now + lifetime);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// A Secret's fields for a new authority.
pub fn authority_data(lifetimes: &Lifetimes, now: Timestamp) -> Result<Data, IssueError> {
    let (certificate, key) = authority(lifetimes.authority, now)?;
    let mut data = Data::new();
    encoded(&mut data, CERTIFICATE, &certificate);
    encoded(&mut data, KEY, &key);
    Ok(data)
}

/// The same with a successor.
pub fn successor_data(secret: &Value, lifetimes: &Lifetimes, now: Timestamp) -> Result<Data, IssueError> {
    let mut data = secret["data"].as_object().cloned().ok_or(IssueError::NoAuthority)?;
    let (certificate, key) = authority(lifetimes.authority, now)?;
    encoded(&mut data, NEXT_CERTIFICATE, &certificate);
    encoded(&mut data, NEXT_KEY, &key);
    Ok(data)
}

/// The successor in its place, and the certificate of the one before among the earlier ones that are still valid.
pub fn promoted_data(secret: &Value, now: Timestamp) -> Result<Data, IssueError> {
    let authorities = Authorities::of(secret).ok_or(IssueError::NoAuthority)?;
    let next = authorities.next.ok_or(IssueError::NoAuthority)?;
    let key = text(secret, NEXT_KEY).ok_or(IssueError::NoAuthority)?;
    let earlier = [authorities.current].into_iter().chain(authorities.earlier).filter(|facts| facts.end > now);
    let mut data = Data::new();
    encoded(&mut data, CERTIFICATE, &next.pem);
    encoded(&mut data, KEY, &key);
    encoded(&mut data, EARLIER, &earlier.map(|facts| facts.pem).collect::<String>());
    Ok(data)
}

/// A certificate for both roles, signed by the authority of a Secret. It ends no later than the authority.
fn leaf(
    secret: &Value,
    name: &str,
    names: &[String],
    public_key: &impl PublicKeyData,
    lifetime: SignedDuration,
    now: Timestamp,
) -> Result<String, IssueError> {
    let authorities = Authorities::of(secret).ok_or(IssueError::NoAuthority)?;
    let key = KeyPair::from_pem(&text(secret, KEY).ok_or(IssueError::NoAuthority)?)?;
    let issuer = Issuer::from_ca_cert_pem(&authorities.current.pem, key)?;
    let mut params = params(name, now, authorities.current.end.min(now + lifetime));
    for name in names {
        params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params.signed_by(public_key, &issuer)?.pem())
}

/// A Secret's fields for virt-api: a new key with its certificate.
pub fn leaf_data(secret: &Value, names: &[String], lifetimes: &Lifetimes, now: Timestamp) -> Result<Data, IssueError> {
    let key = KeyPair::generate()?;
    let name = names.first().map(String::as_str).unwrap_or_default();
    let mut data = Data::new();
    encoded(&mut data, CERTIFICATE, &leaf(secret, name, names, &key, lifetimes.leaf, now)?);
    encoded(&mut data, KEY, &key.serialize_pem());
    Ok(data)
}

/// A request for a certificate whose signature proves that the asker has the key.
#[derive(Debug)]
pub struct Request {
    /// The names that it asks for.
    pub names: Vec<SanType>,
    key: rcgen::PublicKey,
}

impl Request {
    /// Reads and proves one.
    pub fn parse(pem: &str) -> Result<Self, rcgen::Error> {
        let request = CertificateSigningRequestParams::from_pem(pem)?;
        Ok(Self { names: request.params.subject_alt_names, key: request.public_key })
    }
}

/// Signs a request for exactly this name. Of the request only the key is used.
pub fn sign_request(
    secret: &Value,
    request: &Request,
    name: &str,
    lifetime: SignedDuration,
    now: Timestamp,
) -> Result<String, IssueError> {
    leaf(secret, "kubevirt.io:system:node:virt-handler", &[name.to_owned()], &request.key, lifetime, now)
}
