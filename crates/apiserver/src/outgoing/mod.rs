//! Connections from the API server to other servers: admission webhooks and extension API servers.
//!
//! A [`Client`] keeps idle connections and opens new ones through a [`Connector`], which looks up the service's
//! endpoints each time. Failures are told in the words that kube-apiserver's clients know.

pub mod endpoints;
#[cfg(test)]
pub(crate) mod testing;
pub mod trust;

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::endpoints::{Address, ResolveError, resolve};
use crate::http::body::RequestBody;
use crate::store::Store;

/// An idle connection is closed after this time.
const IDLE: Duration = Duration::from_secs(30);
/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(10);

/// Whom to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// A port of the service.
        port: u16,
    },
    /// An address outside of it.
    Host(Address),
}

impl Target {
    /// The name that the server's certificate must be for.
    pub fn server_name(&self) -> String {
        match self {
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Self::Host(address) => address.host.trim_matches(['[', ']']).to_owned(),
        }
    }
}

/// Why a connection did not come up.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The service has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Nobody answers there.
    #[error("dial tcp {address}: {}", dial_text(.source))]
    Dial {
        /// Where.
        address: Address,
        /// Why.
        source: io::Error,
    },
    /// Nobody answers in time.
    #[error("dial tcp {0}: i/o timeout")]
    Timeout(Address),
    /// The server is not who it should be, or does not speak TLS.
    #[error("{}", tls_text(.0))]
    Tls(io::Error),
    /// The name cannot be that of a server.
    #[error("\"{0}\" is not a host name")]
    Name(String),
}

fn dial_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        _ => error.to_string(),
    }
}

fn tls_text(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(reason)) => {
            format!("tls: failed to verify certificate: x509: {}", certificate_text(reason))
        }
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None => error.to_string(),
    }
}

fn certificate_text(reason: &CertificateError) -> String {
    match reason {
        // The last is an authority's certificate that nobody vouches for.
        CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_) => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } | CertificateError::NotValidYet => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let wanted = expected.to_str();
            let is_name = matches!(expected, ServerName::DnsName(_));
            let names = presented.iter().filter(|name| name.starts_with("DnsName") == is_name);
            let names: Vec<&str> = names.map(|name| plain_name(name)).collect();
            if names.is_empty() && !is_name {
                return format!("cannot validate certificate for {wanted} because it doesn't contain any IP SANs");
            }
            if names.is_empty() {
                return format!("certificate is not valid for any names, but wanted to match {wanted}");
            }
            format!("certificate is valid for {}, not {wanted}", names.join(", "))
        }
        other => other.to_string(),
    }
}

/// `DnsName("a.b")` → `a.b`
fn plain_name(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// Opens TLS connections to one target.
#[derive(Clone)]
pub struct Connector {
    store: Store,
    target: Target,
    tls: Arc<ClientConfig>,
}

impl Connector {
    /// A connector; services are looked up in `store`.
    pub fn new(store: Store, target: Target, tls: Arc<ClientConfig>) -> Self {
        Self { store, target, tls }
    }

    fn address(&self) -> Result<Address, ResolveError> {
        match &self.target {
            Target::Service { namespace, name, port } => resolve(&self.store, namespace, name, *port),
            Target::Host(address) => Ok(address.clone()),
        }
    }

    async fn connect(self) -> Result<TokioIo<Wire>, ConnectError> {
        let name = self.target.server_name();
        let name = ServerName::try_from(name.clone()).map_err(|_| ConnectError::Name(name))?;
        let address = self.address()?;
        let host = address.host.trim_matches(['[', ']']);
        let stream = match tokio::time::timeout(CONNECT, TcpStream::connect((host, address.port))).await {
            Err(_) => return Err(ConnectError::Timeout(address)),
            Ok(Err(source)) => return Err(ConnectError::Dial { address, source }),
            Ok(Ok(stream)) => stream,
        };
        let _ = stream.set_nodelay(true);
        let handshake = TlsConnector::from(self.tls).connect(name, stream);
        match tokio::time::timeout(CONNECT, handshake).await {
            Err(_) => Err(ConnectError::Timeout(address)),
            Ok(result) => result.map(|stream| TokioIo::new(Wire(stream))).map_err(ConnectError::Tls),
        }
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<TokioIo<Wire>, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// A TLS connection that an HTTP client can keep.
pub struct Wire(TlsStream<TcpStream>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// An HTTP/1.1 client for one target, with connections that are used again.
pub type Client = legacy::Client<Connector, RequestBody>;

/// A client that connects through `connector`.
pub fn client(connector: Connector) -> Client {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(8)
        .build(connector)
}

/// Why a request got no answer, without the layers in between.
pub fn error_text(error: &legacy::Error) -> String {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut last = error.to_string();
    while let Some(current) = cause {
        if let Some(connect) = current.downcast_ref::<ConnectError>() {
            return connect.to_string();
        }
        if current.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message) {
            return "EOF".to_owned();
        }
        last = current.to_string();
        cause = current.source();
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_as_go_tells_them() {
        let address = Address { host: "127.0.0.1".into(), port: 1 };
        let refused = ConnectError::Dial { address: address.clone(), source: io::ErrorKind::ConnectionRefused.into() };
        assert_eq!(refused.to_string(), "dial tcp 127.0.0.1:1: connect: connection refused");
        assert_eq!(ConnectError::Timeout(address).to_string(), "dial tcp 127.0.0.1:1: i/o timeout");
        let tls = |reason| ConnectError::Tls(io::Error::other(rustls::Error::InvalidCertificate(reason))).to_string();
        let prefix = "tls: failed to verify certificate: x509: certificate";
        assert_eq!(tls(CertificateError::UnknownIssuer), format!("{prefix} signed by unknown authority"));
        let names = |presented: &[&str]| CertificateError::NotValidForNameContext {
            expected: "a.b.svc".try_into().unwrap(),
            presented: presented.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            tls(names(&["DnsName(\"x.y\")", "IpAddress(127.0.0.1)"])),
            format!("{prefix} is valid for x.y, not a.b.svc")
        );
        assert_eq!(tls(names(&[])), format!("{prefix} is not valid for any names, but wanted to match a.b.svc"));
        assert_eq!(ConnectError::Tls(io::ErrorKind::UnexpectedEof.into()).to_string(), "EOF");
    }

    #[test]
    fn certificates_are_checked_for_the_name_of_the_service() {
        let service = Target::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
        assert_eq!(service.server_name(), "hook.ns.svc");
        assert_eq!(Target::Host(Address { host: "[::1]".into(), port: 1 }).server_name(), "::1");
    }
}
