//! The way to virt-handlers on the nodes of a Kubernetes cluster: mutual TLS.
//!
//! Who answers must prove to be the node's own virt-handler: an address may be anybody's tomorrow. Connections are rare, one for each
//! command or console, so each is made from what is true at that moment: the node's address, the authorities, virt-api's own certificate.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ferrovirt_kubernetes::Node;
use futures::future::BoxFuture;
use kube::{Api, Client};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::handlers::{Handlers, Stream};
use crate::server::Certificate;

/// Where virt-handlers listen for virt-api.
const PORT: u16 = 8186;

/// What follows the node's name in the certificate of its virt-handler.
const CERTIFIED: &str = ".node.migration.kubevirt.io";

/// The virt-handlers of a cluster's nodes.
pub struct NodeHandlers {
    client: Client,
    certificate: Arc<Certificate>,
    bundle: PathBuf,
    port: u16,
}

impl NodeHandlers {
    /// virt-api shows `certificate`; the authorities that nodes are known by are in the file `bundle`, as PEM.
    pub fn new(client: Client, certificate: Arc<Certificate>, bundle: impl Into<PathBuf>) -> Self {
        Self { client, certificate, bundle: bundle.into(), port: PORT }
    }

    async fn address(&self, node: &str) -> io::Result<IpAddr> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = nodes.get_opt(node).await.map_err(io::Error::other)?;
        let found = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such node"))?;
        internal_address(&found).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the node has no InternalIP"))
    }

    fn tls(&self) -> io::Result<ClientConfig> {
        let unusable = |why: &dyn std::fmt::Display| {
            let why = format!("{} holds no usable authorities: {why}", self.bundle.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        };
        let pem = std::fs::read(&self.bundle).map_err(|error| unusable(&error))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
        }
        if roots.is_empty() {
            return Err(unusable(&"there is none"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let own = Arc::new(SingleCertAndKey::from(self.certificate.current()));
        Ok(builder.map_err(io::Error::other)?.with_root_certificates(roots).with_client_cert_resolver(own))
    }

    async fn dial(&self, node: &str) -> io::Result<Box<dyn Stream>> {
        let name = ServerName::try_from(format!("{node}{CERTIFIED}"))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "this is no name of a node"))?;
        let tls = TlsConnector::from(Arc::new(self.tls()?));
        let stream = TcpStream::connect((self.address(node).await?, self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

impl Handlers for NodeHandlers {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(self.dial(node))
    }
}

/// Where a node is reached inside of the cluster.
fn internal_address(node: &Node) -> Option<IpAddr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().filter(|address| address.type_ == "InternalIP").find_map(|address| address.address.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use ferrovirt_apiserver::auth::{Identity, Pki};
    use http::{Request, Response};
    use kube::client::Body;
    use rustls::ServerConfig;
    use rustls::server::WebPkiClientVerifier;
    use rustls_pki_types::PrivateKeyDer;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::server::Files;

    const NODE: &str = "node1.node.migration.kubevirt.io";

    fn pki(directory: &std::path::Path) -> Pki {
        Pki::open(&directory.join("pki"), &[], SystemTime::now()).unwrap()
    }

    /// virt-api in a cluster of `pki`, whose API server knows this one node.
    fn handlers(directory: &std::path::Path, pki: &Pki, node: Value) -> NodeHandlers {
        let files = Files { certificate: directory.join("tls.crt"), key: directory.join("tls.key") };
        let own = pki.peer_identity("virt-api", "virt-api.kubevirt.svc", SystemTime::now()).unwrap();
        std::fs::write(&files.certificate, own.certificate).unwrap();
        std::fs::write(&files.key, own.key).unwrap();
        let bundle = directory.join("ca-bundle");
        std::fs::write(&bundle, pki.ca_certificate()).unwrap();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = match request.uri().path() {
                "/api/v1/nodes/node1" => (200, node.clone()),
                _ => (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404})),
            };
            let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
        });
        NodeHandlers::new(Client::new(service, "default"), Certificate::read(files).unwrap(), bundle)
    }

    fn node() -> Value {
        let addresses =
            json!([{"type": "Hostname", "address": "node1"}, {"type": "InternalIP", "address": "127.0.0.1"}]);
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}, "status": {"addresses": addresses}})
    }

    /// Somebody who lets in whom `pki` vouches for, and says hello; returns the port.
    async fn listen(pki: &Pki, shown: &Identity) -> u16 {
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate(pki.ca_certificate())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let callers = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
        let config = builder.unwrap().with_client_cert_verifier(callers);
        let config = config.with_single_cert(vec![certificate(&shown.certificate)], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(mut stream) = TlsAcceptor::from(Arc::new(config)).accept(stream).await {
                let _ = stream.write_all(b"hello").await;
            }
        });
        port
    }

    async fn hello(mut handlers: NodeHandlers, port: u16) -> io::Result<String> {
        handlers.port = port;
        let mut stream = handlers.connect("node1").await?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await?;
        Ok(String::from_utf8_lossy(&word).into_owned())
    }

    #[tokio::test]
    async fn the_nodes_own_handler_is_reached() {
        let directory = tempfile::tempdir().unwrap();
        let pki = pki(directory.path());
        let port = listen(&pki, &pki.peer_identity("virt-handler", NODE, SystemTime::now()).unwrap()).await;
        assert_eq!(hello(handlers(directory.path(), &pki, node()), port).await.unwrap(), "hello");
    }

    #[tokio::test]
    async fn another_node_or_another_cluster_is_not_taken_for_it() {
        let [directory, foreign] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let (ours, theirs) = (pki(directory.path()), pki(foreign.path()));
        let name = "node2.node.migration.kubevirt.io";
        let port = listen(&ours, &ours.peer_identity("virt-handler", name, SystemTime::now()).unwrap()).await;
        assert!(hello(handlers(directory.path(), &ours, node()), port).await.is_err());
        let port = listen(&ours, &theirs.peer_identity("virt-handler", NODE, SystemTime::now()).unwrap()).await;
        assert!(hello(handlers(directory.path(), &ours, node()), port).await.is_err());
    }

    #[tokio::test]
    async fn what_is_missing_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let pki = pki(directory.path());
        let said = |handlers: NodeHandlers, node: &'static str| async move {
            handlers.connect(node).await.err().unwrap().to_string()
        };
        assert_eq!(said(handlers(directory.path(), &pki, node()), "node2").await, "there is no such node");
        let mut without = node();
        without["status"]["addresses"] = json!([]);
        assert_eq!(said(handlers(directory.path(), &pki, without), "node1").await, "the node has no InternalIP");
        assert_eq!(said(handlers(directory.path(), &pki, node()), "a b").await, "this is no name of a node");
        let blind = handlers(directory.path(), &pki, node());
        std::fs::write(&blind.bundle, "").unwrap();
        let words = said(blind, "node1").await;
        assert!(words.ends_with("ca-bundle holds no usable authorities: there is none"), "{words}");
    }
}
