//! Another server on loopback, for tests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::pki::Identity;

/// A TLS server that answers each request with what a function makes of it.
pub(crate) struct Loopback {
    pub(crate) port: u16,
    /// How many connections it has seen.
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Loopback {
    /// Serves until `stop` is cancelled. With a `client_ca`, clients need a certificate of it.
    pub(crate) async fn start<F, R>(
        identity: &Identity,
        client_ca: Option<&str>,
        stop: CancellationToken,
        answer: F,
    ) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (tls, counted) = (acceptor(identity, client_ca), connections.clone());
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { return };
                counted.fetch_add(1, Ordering::Relaxed);
                let (tls, answer, stop) = (tls.clone(), answer.clone(), stop.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let service = service_fn(move |request| {
                        let answer = answer(request);
                        async { Ok::<_, Infallible>(answer.await) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
                    tokio::select! {
                        () = stop.cancelled() => {}
                        _ = connection => {}
                    }
                });
            }
        });
        Self { port, connections }
    }
}

fn acceptor(identity: &Identity, client_ca: Option<&str>) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    TlsAcceptor::from(Arc::new(builder.with_single_cert(vec![certificate], key).unwrap()))
}
