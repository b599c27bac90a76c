//! Putting a server together: on a directory and a socket for users, or in memory for tests and the simulator.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::auth::token::{ServiceAccountTokens, SigningError, StaticTokens, TokenFileError};
use crate::auth::{Pki, PkiError, Tokens, kubeconfig};
use crate::controllers::{self, Housekeeper, Provisioner};
use crate::identity::Identity;
use crate::mounts::Mounts;
use crate::registry::Registry;
use crate::server::{Environment, Machine, Server};
use crate::status::ApiError;
use crate::store::{OpenError, Store, StoreOptions};
use crate::{bootstrap, serve};

/// Who issues service account tokens, as other clusters call themselves too.
const ISSUER: &str = "https://kubernetes.default.svc";
/// How often old history is looked at.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// How long a taken address is waited for.
const BIND_PATIENCE: Duration = Duration::from_secs(3);

/// How a cluster is started.
#[derive(Debug, Clone)]
pub struct Config {
    /// Everything the cluster knows is in here.
    pub directory: PathBuf,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// A file of static tokens: `token,user,uid,"group1,group2"` per line.
    pub token_file: Option<PathBuf>,
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory cannot be used.
    #[error("cannot use {path} for the cluster's state")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Keys and certificates cannot be made or read.
    #[error("cannot prepare the cluster's certificates")]
    Pki(#[from] PkiError),
    /// The store cannot be opened.
    #[error("cannot open the store")]
    Store(#[from] OpenError),
    /// The token key is unusable.
    #[error("cannot use the service account key")]
    Signing(#[from] SigningError),
    /// The token file is unusable.
    #[error("cannot use the token file {path}")]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TokenFileError,
    },
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The objects that every cluster has could not be made.
    #[error("cannot make the objects that every cluster has: {0}")]
    Bootstrap(ApiError),
}

/// A running cluster. Dropping it does not stop it; [`Cluster::stop`] does.
pub struct Cluster {
    /// The server, for code in this process.
    pub server: Arc<Server>,
    /// Where it listens.
    pub address: SocketAddr,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    stop: CancellationToken,
    keeper: Arc<Housekeeper>,
    listener: tokio::task::JoinHandle<io::Result<()>>,
}

impl Cluster {
    /// Lets a provisioner make volumes for the storage classes that name it.
    pub fn add_provisioner(&self, provisioner: Arc<dyn Provisioner>) {
        self.keeper.add_provisioner(provisioner);
    }

    /// Ends connections and controllers and closes the store.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.listener.await;
        self.keeper.stopped().await;
        self.server.store.close();
    }
}

/// Starts a cluster; when this returns, clients are served.
pub async fn start(config: &Config) -> Result<Cluster, StartError> {
    let directory = |source| StartError::Directory { path: config.directory.clone(), source };
    std::fs::create_dir_all(&config.directory).map_err(directory)?;
    let listen = |source| StartError::Listen { address: config.listen, source };
    // The address first: a second start on the same directory then fails before it touches anything.
    let listener = bind(config.listen).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let store = Store::open(&config.directory.join("store"), StoreOptions::default())?;
    let names = [address.ip().to_string(), "localhost".to_owned()];
    let pki = Pki::open(&config.directory.join("pki"), &names, SystemTime::now())?;
    let tls = Arc::new(pki.server_config()?);
    let url = format!("https://{address}");
    let kubeconfig = write_kubeconfig(&config.directory, &pki, &url)?;
    let tokens = Tokens::new(static_tokens(config)?, ServiceAccountTokens::new(ISSUER, pki.service_account_key())?);
    let server = assemble(store, Identity::new(pki, tokens, &url), Arc::new(Machine));
    let is_new = server.store.count("/namespaces", None) == 0;
    bootstrap::run(&server, address).await.map_err(StartError::Bootstrap)?;
    if is_new {
        // Nobody can have watched a cluster while it was being made.
        let _ = server.store.compact(server.store.revision()).await;
    }
    controllers::load_crds(&server);
    let stop = CancellationToken::new();
    let keeper = Housekeeper::start(server.clone(), stop.clone());
    tokio::spawn(maintain(server.store.clone(), stop.clone()));
    let listener = tokio::spawn(serve::serve(server.clone(), listener, tls, stop.clone()));
    Ok(Cluster { server, address, kubeconfig, stop, keeper, listener })
}

/// Binds the address. One that is taken may be free in a moment: a process that was just killed is still being cleared
/// away, or a client that tries to reconnect holds the port.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let begin = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < BIND_PATIENCE => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            bound => return bound,
        }
    }
}

fn assemble(store: Store, identity: Identity, environment: Arc<dyn Environment>) -> Arc<Server> {
    let admission = Admission::default();
    controllers::add_admission(&admission);
    Arc::new(Server {
        store,
        registry: Registry::default(),
        identity,
        admission,
        environment,
        mounts: Mounts::default(),
    })
}

/// A server without files and without a socket, with its controllers running until `stop` is cancelled. `directory`
/// only takes keys and certificates.
pub async fn in_memory(
    directory: &Path,
    environment: Arc<dyn Environment>,
    stop: CancellationToken,
) -> Result<(Arc<Server>, Arc<Housekeeper>), StartError> {
    let server = empty_in_memory(directory, environment)?;
    bootstrap::run(&server, SocketAddr::from(([127, 0, 0, 1], 6443))).await.map_err(StartError::Bootstrap)?;
    let keeper = Housekeeper::start(server.clone(), stop);
    Ok((server, keeper))
}

/// A server in memory before anything is in it: no namespace, no role, no controller that runs. Simulations make many of them.
pub fn empty_in_memory(directory: &Path, environment: Arc<dyn Environment>) -> Result<Arc<Server>, StartError> {
    let pki = Pki::open(directory, &[], SystemTime::now())?;
    let tokens = Tokens::new(StaticTokens::new(), ServiceAccountTokens::new(ISSUER, pki.service_account_key())?);
    Ok(assemble(Store::memory(), Identity::new(pki, tokens, "https://localhost"), environment))
}

fn static_tokens(config: &Config) -> Result<StaticTokens, StartError> {
    let Some(path) = &config.token_file else { return Ok(StaticTokens::new()) };
    let text = std::fs::read_to_string(path).map_err(|source| StartError::Directory { path: path.clone(), source })?;
    StaticTokens::from_csv(&text).map_err(|source| StartError::TokenFile { path: path.clone(), source })
}

fn write_kubeconfig(directory: &Path, pki: &Pki, url: &str) -> Result<PathBuf, StartError> {
    let path = directory.join("kubeconfig");
    let admin = pki.client_identity("kubernetes-admin", &["system:masters"], SystemTime::now())?;
    kubeconfig::write_private(&path, &kubeconfig::kubeconfig_yaml("ferrovirt", url, pki.ca_certificate(), &admin))?;
    Ok(path)
}

/// Keeps the history within its bounds.
async fn maintain(store: Store, stop: CancellationToken) {
    let begin = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(MAINTENANCE) => {}
        }
        if let Err(error) = store.maintain(begin.elapsed()).await {
            tracing::warn!(%error, "the history could not be compacted");
        }
    }
}
