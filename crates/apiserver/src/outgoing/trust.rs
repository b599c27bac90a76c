//! Whom the API server believes when it connects to others, and who it says it is.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::Value;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use crate::auth::pki::Identity;

/// Which server certificates are good.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'a> {
    /// Those that lead to one of these certificates (PEM).
    Bundle(&'a [u8]),
    /// Every one.
    Anyone,
}

/// Why TLS cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The bundle holds no certificate.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    Bundle,
    /// The key or certificate that we would show is unusable.
    #[error("unable to load the client certificate: {0}")]
    Identity(String),
    /// TLS itself refuses.
    #[error("{0}")]
    Tls(String),
}

/// The PEM text of a `caBundle` field; `None` when it is left out.
pub fn ca_bundle(field: &Value) -> Option<Vec<u8>> {
    let text = field.as_str().filter(|text| !text.is_empty())?;
    // What does not decode stays as it is, and is refused as no PEM.
    Some(STANDARD.decode(text).unwrap_or_else(|_| text.as_bytes().to_vec()))
}

/// TLS settings of a client that speaks HTTP/1.1. One connection then serves one request at a time, which spreads
/// requests over the endpoints of a service.
pub fn client_config(trust: Trust<'_>, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Bundle(pem) => Arc::new(BundleVerifier::new(pem, &provider)?),
        Trust::Anyone => Arc::new(AnyServer(provider.clone())),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError::Tls(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (certificate, key) = parse(identity)?;
            builder.with_client_auth_cert(vec![certificate], key).map_err(|e| TrustError::Identity(e.to_string()))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn parse(identity: &Identity) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), TrustError> {
    let bad = |error: rustls_pki_types::pem::Error| TrustError::Identity(error.to_string());
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(bad)?;
    Ok((certificate, PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(bad)?))
}

/// Believes what leads to the bundle, and the bundle's certificates themselves: webhooks often serve with a
/// self-signed certificate that is its own authority, which path building alone would refuse.
#[derive(Debug)]
struct BundleVerifier {
    paths: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl BundleVerifier {
    fn new(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Self, TrustError> {
        let bundle: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(bundle.iter().cloned()).0 == 0 {
            return Err(TrustError::Bundle);
        }
        let paths = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| TrustError::Tls(error.to_string()))?;
        Ok(Self { paths, bundle })
    }

    fn check_member(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
        let encoding = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| encoding())?;
        let now = i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
        if !now.is_some_and(|now| parsed.validity().is_valid_at(now)) {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.paths.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if verified.is_err() && self.bundle.iter().any(|member| member == end_entity) {
            Self::check_member(end_entity, server_name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.paths.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.paths.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.paths.supported_verify_schemes()
    }
}

/// `insecureSkipTLSVerify`: any certificate will do, as long as the server has its key.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_without_a_certificate_is_refused() {
        for bundle in [&b""[..], b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert_eq!(client_config(Trust::Bundle(bundle), None).err(), Some(TrustError::Bundle));
        }
        let nobody = Identity { certificate: "x".into(), key: "y".into() };
        assert!(matches!(client_config(Trust::Anyone, Some(&nobody)), Err(TrustError::Identity(_))));
    }

    #[test]
    fn a_self_signed_certificate_in_the_bundle_is_good_for_its_name_and_time() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["hook.default.svc".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = BundleVerifier::new(certificate.pem().as_bytes(), &provider).unwrap();
        let check = |name: &'static str, now: UnixTime| {
            let name = ServerName::try_from(name).unwrap();
            verifier.verify_server_cert(certificate.der(), &[], &name, &[], now).map(|_| ())
        };
        assert_eq!(check("hook.default.svc", UnixTime::now()), Ok(()));
        assert!(check("other.default.svc", UnixTime::now()).is_err());
        let past = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
        assert_eq!(check("hook.default.svc", past), Err(Error::InvalidCertificate(CertificateError::Expired)));
    }

    #[test]
    fn bundles_are_base64() {
        assert_eq!(ca_bundle(&"aGk=".into()), Some(b"hi".to_vec()));
        assert_eq!(ca_bundle(&Value::Null), None);
        assert_eq!(ca_bundle(&"".into()), None);
    }
}
