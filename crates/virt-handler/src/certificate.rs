//! The node's certificate on a Kubernetes cluster: asked for, kept, renewed. Nobody has to handle it.
//!
//! ```text
//!   key (never leaves the node) ──► CertificateSigningRequest ──► virt-operator looks who asks, and signs
//!                                              │
//!   directory/identity.pem ◄── certificate ◄───┘        bundle: the authorities, from a ConfigMap
//!            └──────────────► Identities ◄──────────────────┘
//! ```
//!
//! The certificate names the node, and virt-operator signs only for who really is on that node. It is kept on the node, so a handler that
//! starts while nobody can sign goes on with what it has. Everything is looked at again and again, and whatever is missing is done: a
//! crash at any point is made good by the next look.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ferrovirt_kubernetes::{CertificateSigningRequest, Foreign};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{self, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::peers::tls::certified_node;
use crate::peers::{Identities, Identity, certified_name};

/// Who signs.
pub const SIGNER: &str = "ferrovirt.io/virt-handler";
/// How long a certificate shall hold.
const LIFETIME_SECONDS: i32 = 24 * 3600;
/// Between two looks when all is well; a new authority is known for longer than this before it signs.
const LOOK: Duration = Duration::from_secs(10);
/// Between two looks while others wait for the first certificate.
const SOON: Duration = Duration::from_secs(1);
/// After a refusal: who asks again at once is refused again.
const REFUSED: Duration = Duration::from_secs(60);

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
enum Useless {
    #[error("there is none")]
    Missing,
    #[error("it is not in PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    #[error("it does not name this node")]
    OtherNode,
    #[error("no known authority vouches for it now: {0}")]
    Untrusted(String),
    #[error(transparent)]
    Identity(#[from] crate::peers::IdentityError),
}

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("a key or a request for it cannot be made: {0}")]
    Request(#[from] rcgen::Error),
    #[error("the API server does not take the request: {0}")]
    Api(#[from] kube::Error),
    #[error("the request {name} was refused: {why}")]
    Refused { name: String, why: String },
}

/// A certificate that can be shown.
struct Usable {
    identity: Identity,
    /// From then on a new one is asked for.
    renew: SystemTime,
}

/// Keeps the certificate of one node.
pub struct Keeper {
    /// The API server, where certificates are asked for.
    pub client: Client,
    /// The node.
    pub node: String,
    /// Where key and certificate are kept; only its owner may look inside.
    pub directory: PathBuf,
    /// The authorities' certificates.
    pub bundle: PathBuf,
    /// Whom to tell.
    pub identities: Identities,
}

impl Keeper {
    /// Keeps the certificate for as long as it is polled.
    pub async fn run(self) {
        let mut shown = Vec::new();
        loop {
            let pause = self.look(&mut shown).await;
            tokio::time::sleep(pause).await;
        }
    }

    /// Shows what there is if it is not `shown` yet, and asks for more if it is needed. Returns when to look again.
    async fn look(&self, shown: &mut Vec<u8>) -> Duration {
        let authorities = std::fs::read(&self.bundle).unwrap_or_default();
        let held = std::fs::read(self.directory.join("identity.pem")).unwrap_or_default();
        let found = usable(&authorities, &held, &self.node, SystemTime::now());
        let needed = match found {
            Ok(usable) => {
                let both = [authorities.as_slice(), &held].concat();
                if both != *shown {
                    tracing::info!("the node's certificate is in use");
                    self.identities.set(usable.identity);
                    *shown = both;
                }
                if SystemTime::now() < usable.renew {
                    return LOOK;
                }
                "its end is near".to_owned()
            }
            Err(error) => error.to_string(),
        };
        match self.ask(&authorities).await {
            Ok(true) => Duration::ZERO,
            Ok(false) => {
                tracing::debug!(needed, "waiting for a certificate of this node");
                if shown.is_empty() { SOON } else { LOOK }
            }
            Err(error) => {
                tracing::warn!(%error, needed, "this node gets no certificate");
                if matches!(error, Failed::Refused { .. }) { REFUSED } else { LOOK }
            }
        }
    }

    /// Takes one step towards a new certificate; says whether it is there.
    async fn ask(&self, authorities: &[u8]) -> Result<bool, Failed> {
        let next = self.directory.join("next.key");
        let file = |path: &Path, error| Failed::File(path.to_owned(), error);
        let key = match std::fs::read_to_string(&next).ok().and_then(|pem| KeyPair::from_pem(&pem).ok()) {
            Some(key) => key,
            None => {
                let key = KeyPair::generate()?;
                write_private(&next, key.serialize_pem().as_bytes()).map_err(|error| file(&next, error))?;
                key
            }
        };
        let name = request_name(&self.node, &key);
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let Some(request) = api.get_opt(&name).await? else {
            let request = request(&name, &self.node, &key)?;
            return match api.create(&PostParams::default(), &request).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
                created => Ok(created.map(|_| false)?),
            };
        };
        if let Some(why) = refusal(&request) {
            // A request of this name stays refused; the next key has another.
            std::fs::remove_file(&next).map_err(|error| file(&next, error))?;
            return Err(Failed::Refused { name, why });
        }
        let Some(certificate) = request.0.status.and_then(|status| status.certificate) else { return Ok(false) };
        let held = [&certificate.0[..], b"\n", key.serialize_pem().as_bytes()].concat();
        if let Err(error) = usable(authorities, &held, &self.node, SystemTime::now()) {
            // Its authority may not have arrived here yet.
            tracing::debug!(%error, "the new certificate cannot be used yet");
            return Ok(false);
        }
        let identity = self.directory.join("identity.pem");
        write_private(&identity, &held).map_err(|error| file(&identity, error))?;
        std::fs::remove_file(&next).map_err(|error| file(&next, error))?;
        Ok(true)
    }
}

/// Judges a certificate with its key, in PEM.
fn usable(authorities: &[u8], held: &[u8], node: &str, now: SystemTime) -> Result<Usable, Useless> {
    let certificates = |pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(Useless::Pem);
    let (authorities, chain) = (certificates(authorities)?, certificates(held)?);
    let (leaf, above) = chain.split_first().ok_or(Useless::Missing)?;
    let key = PrivateKeyDer::from_pem_slice(held).map_err(Useless::Pem)?;
    if certified_node(leaf).as_deref() != Some(node) {
        return Err(Useless::OtherNode);
    }
    vouched(&authorities, leaf, above, now).map_err(Useless::Untrusted)?;
    let renew = renewal(leaf).ok_or(Useless::Missing)?;
    let identity = Identity::new(authorities, chain.clone(), key, "the node's certificate")?;
    Ok(Usable { identity, renew })
}

/// Whether an authority vouches for a certificate at a time.
fn vouched(
    authorities: &[CertificateDer<'static>],
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = rustls::crypto::ring::default_provider().into();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
    let verifier = verifier.map_err(|error| error.to_string())?;
    let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
    verifier.verify_client_cert(leaf, above, now).map(drop).map_err(|error| error.to_string())
}

/// When a fifth of a certificate's time is left.
fn renewal(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).ok();
    let (from, to) = (seconds(certificate.validity().not_before)?, seconds(certificate.validity().not_after)?);
    Some(UNIX_EPOCH + Duration::from_secs(from + to.checked_sub(from)? / 5 * 4))
}

/// The name of the request for a key's certificate: a second attempt can only find the first one's.
fn request_name(node: &str, key: &KeyPair) -> String {
    let hash = digest(&SHA256, &key.subject_public_key_info());
    let hash: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    // The names of objects are no longer than 253 characters, and those of nodes may be as long.
    let node: String = node.chars().take(200).collect();
    format!("virt-handler-{}-{hash}", node.trim_end_matches(['.', '-']))
}

fn request(name: &str, node: &str, key: &KeyPair) -> Result<CertificateSigningRequest, rcgen::Error> {
    let mut wanted = CertificateParams::new(vec![certified_name(node)])?;
    wanted.distinguished_name = DistinguishedName::new();
    wanted.distinguished_name.push(DnType::CommonName, "virt-handler");
    let pem = wanted.serialize_request(key)?.pem()?;
    Ok(Foreign(v1::CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([("kubevirt.io".to_owned(), "virt-handler".to_owned())])),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            signer_name: SIGNER.to_owned(),
            request: ByteString(pem.into_bytes()),
            expiration_seconds: Some(LIFETIME_SECONDS),
            usages: Some(["digital signature", "server auth", "client auth"].map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }))
}

/// Why a request will never be granted, if that is so.
fn refusal(request: &CertificateSigningRequest) -> Option<String> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    let refused = conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"))?;
    let words = [&refused.reason, &refused.message].map(|word| word.as_deref().unwrap_or_default());
    Some(words.join(": "))
}

/// Replaces a file that only its owner may read, at once or not at all.
fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    let _ = std::fs::remove_file(&unfinished);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.and_then(|()| std::fs::rename(&unfinished, path))
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
