//! Client certificates: accepted in the handshake whoever signed them, believed only after verification.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::user::{EXTRA_CREDENTIAL_ID, UserInfo};

/// Who is at the other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// Somebody without a certificate, or with one that names nobody.
    #[default]
    Nobody,
    /// Somebody with a certificate of the cluster's CA.
    User(UserInfo),
    /// The front proxy, which speaks for the user in its `X-Remote-*` headers.
    FrontProxy,
    /// Somebody with a certificate that we do not trust.
    Unknown,
}

/// The user that a (verified!) certificate is for: common name, organisations as groups. `None` without a name.
pub(super) fn user_of_certificate(certificate: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    // Go takes the last one where there are several.
    let name = subject.iter_common_name().last()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok().map(str::to_owned)).collect();
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let fingerprint: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = BTreeMap::from([(EXTRA_CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])]);
    Some(UserInfo { name: name.to_owned(), uid: None, groups, extra })
}

/// Lets any client certificate through the handshake, or none, so that one of an unknown authority becomes a 401 with a body
/// and not a broken connection. The proof that the client has the key is still demanded.
#[derive(Debug)]
pub struct AnyClientCertificate {
    algorithms: WebPkiSupportedAlgorithms,
    hints: Vec<DistinguishedName>,
}

impl AnyClientCertificate {
    /// The hints name authorities, for clients that have certificates of several; without any they show what they have.
    pub fn new(provider: &CryptoProvider, hints: Vec<DistinguishedName>) -> Arc<Self> {
        Arc::new(Self { algorithms: provider.signature_verification_algorithms, hints })
    }
}

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
