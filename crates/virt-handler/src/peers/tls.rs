//! Connections with other nodes as they really are: mutual TLS 1.3 on TCP.
//!
//! Each node has one certificate for both roles. It names the node ([`certified_name`]), and both sides check the chain up to the
//! cluster's authority and the name: the caller that it reached the node it wanted, the called who called. Certificates that the
//! authority gave to others (users, API servers) have no such name and prove nothing here.
//!
//! A connection whose other end is cut off breaks within seconds. That says nothing about the other end: only the connection is gone.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::task::AbortOnDropHandle;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Peer, Peers};
use crate::handshakes::Handshakes;
use crate::launcher::Stream;

/// What the name of every node's certificate ends with.
const SUFFIX: &str = ".node.migration.kubevirt.io";
/// How long it may take to connect.
const PATIENCE: Duration = Duration::from_secs(5);
/// Data that nobody has confirmed for this long ends the connection. Shorter, and a hiccup of the network ends a move; longer, and a guest
/// in doubt stands still longer.
const UNCONFIRMED: Duration = Duration::from_secs(8);
/// A quiet connection is probed after this time, ...
const QUIET: Duration = Duration::from_secs(3);
/// ... this often, ...
const PROBE: Duration = Duration::from_secs(2);
/// ... and given up after so many probes.
const PROBES: u32 = 3;

/// The name in a node's certificate.
pub fn certified_name(node: &str) -> String {
    format!("{node}{SUFFIX}")
}

/// The node that a certificate names. One that names several, or anything else, is nobody's.
pub(crate) fn certified_node(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let [GeneralName::DNSName(name)] = names.value.general_names.as_slice() else { return None };
    name.strip_suffix(SUFFIX).map(str::to_owned)
}

/// Whether a certificate has a DNS name, among others.
pub(crate) fn has_name(certificate: &CertificateDer<'_>, wanted: &str) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|name| matches!(name, GeneralName::DNSName(name) if *name == wanted))
}

/// Why a node has no identity for others.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Not what it should hold.
    #[error("{0} has to hold the cluster's CA certificate, the node's certificate and its key, in this order")]
    Incomplete(String),
    /// Not in PEM.
    #[error("{0} cannot be read as PEM")]
    Pem(String, #[source] rustls::pki_types::pem::Error),
    /// It cannot be used.
    #[error("{0} cannot be used for TLS")]
    Tls(String, #[source] rustls::Error),
    /// The authority cannot be used.
    #[error("the authority in {0} cannot be used for TLS")]
    Authority(String, #[source] rustls::server::VerifierBuilderError),
}

/// What a node shows to others, and what it expects of them.
#[derive(Clone)]
pub struct Identity {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Identity {
    /// From a PEM file with the authority's certificate, the node's certificate and its key. `name` is the file's, for errors.
    pub fn parse(pem: &[u8], name: &str) -> Result<Self, IdentityError> {
        let unreadable = |error| IdentityError::Pem(name.to_owned(), error);
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(unreadable)?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(unreadable)?;
        let [authority, own] = <[CertificateDer<'static>; 2]>::try_from(certificates)
            .map_err(|_| IdentityError::Incomplete(name.to_owned()))?;
        Self::new(vec![authority], vec![own], key, name)
    }

    /// From what it is made of. `name` says where it comes from, for errors.
    pub(crate) fn new(
        authorities: Vec<CertificateDer<'static>>,
        own: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        name: &str,
    ) -> Result<Self, IdentityError> {
        let unusable = |error| IdentityError::Tls(name.to_owned(), error);
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(unusable)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(rustls::crypto::ring::default_provider()));
        let callers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let callers = callers.map_err(|error| IdentityError::Authority(name.to_owned(), error))?;
        let version = [&rustls::version::TLS13];
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&version)
            .and_then(|builder| {
                builder.with_client_cert_verifier(callers).with_single_cert(own.clone(), key.clone_key())
            })
            .map_err(unusable)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&version)
            .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(own, key))
            .map_err(unusable)?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}

/// The identity that this node has at the moment; clones are the same one. Connections that exist keep the one they were made with.
#[derive(Clone, Default)]
pub struct Identities(Arc<RwLock<Option<Identity>>>);

impl Identities {
    /// From now on this one is shown.
    pub fn set(&self, identity: Identity) {
        *self.0.write() = Some(identity);
    }

    /// The present one, if there is one.
    pub fn get(&self) -> io::Result<Identity> {
        let none = || io::Error::new(io::ErrorKind::NotConnected, "this node has no certificate yet");
        self.0.read().clone().ok_or_else(none)
    }
}

impl From<Identity> for Identities {
    fn from(identity: Identity) -> Self {
        Self(Arc::new(RwLock::new(Some(identity))))
    }
}

/// Opens an unconnected TCP socket that can reach an address: in whatever network the node is.
pub type Sockets = Arc<dyn Fn(IpAddr) -> io::Result<OwnedFd> + Send + Sync>;

/// Sockets of this process's own network.
pub fn plain_sockets(address: IpAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// The way to other nodes.
pub struct TlsPeers {
    address: SocketAddr,
    identities: Identities,
    sockets: Sockets,
    accepted: Mutex<mpsc::Receiver<Peer>>,
    _listening: AbortOnDropHandle<()>,
}

impl TlsPeers {
    /// Listens at an address of the node, which has to stay the same over restarts: others find it in objects.
    pub fn listen(address: SocketAddr, identities: impl Into<Identities>, sockets: Sockets) -> io::Result<Self> {
        let identities = identities.into();
        let socket = socket_at(&sockets, address.ip())?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(1024)?;
        let address = listener.local_addr()?;
        let (hand_over, accepted) = mpsc::channel(1);
        let listening = tokio::spawn(accept_all(listener, identities.clone(), hand_over));
        let listening = AbortOnDropHandle::new(listening);
        Ok(Self { address, identities, sockets, accepted: Mutex::new(accepted), _listening: listening })
    }

    async fn connect(&self, node: &str, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let name = ServerName::try_from(certified_name(node))
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, format!("{node:?} names no node: {error}")))?;
        let identity = self.identities.get()?;
        let stream = socket_at(&self.sockets, address.ip())?.connect(address).await?;
        tune(&stream)?;
        let stream = TlsConnector::from(identity.client).connect(name, stream).await?;
        Ok(Box::new(stream))
    }
}

impl Peers for TlsPeers {
    fn address(&self) -> (IpAddr, u16) {
        (self.address.ip(), self.address.port())
    }

    fn dial<'a>(&'a self, node: &'a str, address: (IpAddr, u16)) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move {
            let connecting = tokio::time::timeout(PATIENCE, self.connect(node, address.into()));
            connecting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
        .boxed()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<Peer>> {
        async move {
            let peer = self.accepted.lock().await.recv().await;
            peer.ok_or_else(|| io::Error::new(io::ErrorKind::BrokenPipe, "nobody listens any more"))
        }
        .boxed()
    }
}

fn socket_at(sockets: &Sockets, address: IpAddr) -> io::Result<TcpSocket> {
    Ok(TcpSocket::from_std_stream(std::net::TcpStream::from(sockets(address)?)))
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, QUIET)?;
    sockopt::set_tcp_keepintvl(stream, PROBE)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(UNCONFIRMED.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// Callers shake hands beside each other, so that one who is slow holds nobody up.
async fn accept_all(listener: TcpListener, identities: Identities, hand_over: mpsc::Sender<Peer>) {
    let mut handshakes = Handshakes::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: others need a moment to end.
                tracing::warn!(%error, "cannot accept another node's connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (identities, hand_over) = (identities.clone(), hand_over.clone());
        let welcome = async move { welcome(stream, &identities).await };
        handshakes.begin("a node of this cluster", welcome, |peer| async move { drop(hand_over.send(peer).await) });
    }
}

async fn welcome(stream: TcpStream, identities: &Identities) -> io::Result<Peer> {
    tune(&stream)?;
    let stream = TlsAcceptor::from(identities.get()?.server).accept(stream).await?;
    let node = stream.get_ref().1.peer_certificates().and_then(|chain| certified_node(chain.first()?));
    let node = node.ok_or_else(|| io::Error::new(io::ErrorKind::PermissionDenied, "its certificate names no node"))?;
    Ok(Peer { node, stream: Box::new(stream) })
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
