//! TLS: the server's certificate, which may be renewed while it runs, and client certificates, which are judged later.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferrovirt_apiserver::auth::AnyClientCertificate;
use parking_lot::RwLock;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How often the files are looked at. Certificates are renewed days before they end.
const LOOK: Duration = Duration::from_secs(30);

/// Where the server's certificate is.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate and those that lead to its authority, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{} holds no usable {what}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Setup(#[from] Error),
}

/// The server's certificate, as it is now.
#[derive(Debug)]
pub struct Certificate {
    files: Files,
    /// What was read last, to see whether it changed.
    current: RwLock<(Vec<u8>, Arc<CertifiedKey>)>,
}

impl Certificate {
    /// Reads the files.
    pub fn read(files: Files) -> Result<Arc<Self>, TlsError> {
        let current = RwLock::new(load(&files)?);
        Ok(Arc::new(Self { files, current }))
    }

    /// Looks for a new certificate again and again. One that cannot be used changes nothing.
    pub async fn follow(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.refresh();
        }
    }

    fn refresh(&self) {
        match load(&self.files) {
            Ok((text, _)) if text == self.current.read().0 => {}
            Ok(new) => {
                *self.current.write() = new;
                tracing::info!("the server's certificate was renewed");
            }
            Err(error) => tracing::warn!(%error, "the server's certificate cannot be renewed"),
        }
    }

    /// The certificate with its key, as it is now.
    pub(crate) fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().1.clone()
    }

    /// HTTP/2 and HTTP/1.1 with this certificate.
    pub fn server_config(self: Arc<Self>) -> Result<ServerConfig, TlsError> {
        let provider = provider();
        // No hints: the authority may change while the server runs.
        let clients = AnyClientCertificate::new(&provider, Vec::new());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(self);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn load(files: &Files) -> Result<(Vec<u8>, Arc<CertifiedKey>), TlsError> {
    let read = |path: &Path| std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source });
    let content = |path: &Path, what, why: String| TlsError::Content { path: path.to_owned(), what, why };
    let (mut text, key) = (read(&files.certificate)?, read(&files.key)?);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| content(&files.certificate, "certificate", error.to_string()))?;
    if chain.is_empty() {
        return Err(content(&files.certificate, "certificate", "there is none".to_owned()));
    }
    let private =
        PrivateKeyDer::from_pem_slice(&key).map_err(|error| content(&files.key, "private key", error.to_string()))?;
    let certified = CertifiedKey::from_der(chain, private, &provider())
        .map_err(|error| content(&files.key, "private key", error.to_string()))?;
    text.extend_from_slice(&key);
    Ok((text, Arc::new(certified)))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ferrovirt_apiserver::auth::Pki;

    use super::*;

    #[test]
    fn a_renewed_certificate_is_taken_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::open(&directory.path().join("pki"), &[], SystemTime::now()).unwrap();
        let files = Files { certificate: directory.path().join("tls.crt"), key: directory.path().join("tls.key") };
        let write = || {
            let identity = pki.server_identity("a", &["localhost".to_owned()], SystemTime::now()).unwrap();
            std::fs::write(&files.certificate, identity.certificate).unwrap();
            std::fs::write(&files.key, identity.key).unwrap();
        };
        assert!(matches!(Certificate::read(files.clone()), Err(TlsError::Read { .. })));
        write();
        let certificate = Certificate::read(files.clone()).unwrap();
        let shown = || certificate.current.read().1.cert[0].to_vec();
        let first = shown();
        certificate.refresh();
        assert_eq!(shown(), first);
        write();
        certificate.refresh();
        let second = shown();
        assert_ne!(second, first);
        std::fs::write(&files.certificate, "half of a cert").unwrap();
        certificate.refresh();
        assert_eq!(shown(), second);
        assert!(matches!(Certificate::read(files.clone()), Err(TlsError::Content { what: "certificate", .. })));
    }
}
