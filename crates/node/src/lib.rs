//! The embedded node runtime: pods on this machine, as OCI containers in namespaces and control groups of their own.
//!
//! It does what a launcher pod needs and what people expect of a pod when they look inside: volumes, probes, logs, `exec`,
//! `port-forward`. It is not a general kubelet: pods with the host's namespaces or privileged containers are refused with a reason.
//!
//! ```text
//!   API server  <-- node, lease (register) ---------+
//!        | pods with spec.nodeName = us             |
//!        v                                          |
//!   pod::supervisor --> pod::worker (one per uid) --+--> runtime: conmon + crun, one pair per container
//!                           |                       |
//!                           +--> volumes, networks, images
//!   api (Unix socket) <-- logs, exec, port-forward from the API server
//! ```
//!
//! # Guarantees
//!
//! - **A restart or `kill -9` of this process stops no container.** Monitors are detached; records are on disk before anything runs;
//!   the next process finds containers by process number, start and boot.
//! - **A container that ran is never silently started a second time.** One whose record is lost counts as ended.
//! - **No pod is the machine.** Whoever wrote it, its containers have the usual capabilities at most and gain no
//!   others, and they make only those calls of the kernel that programs need (`oci::security`, `oci::seccomp`).
//! - **Nothing of a pod is made outside of it**: not in the machine's directories, not in an image that others use, not where links in
//!   its volumes lead.
//! - **Nothing is left behind**: mounts, devices, networks, control groups and directories of a pod are gone before its object is.

pub mod api;
pub mod config;
pub mod host_root;
pub mod layout;
pub mod local_nodes;
pub mod local_path;
pub mod oci;
pub mod pod;
pub mod process;
pub mod register;
pub mod runtime;
pub mod sources;
pub mod volumes;

mod cgroups;
mod context;
mod descriptor;
mod files;
mod mounts;
mod policies;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrovirt_reconcile::{Clock, Recorder};
use kube::Client;
use tokio_util::sync::CancellationToken;

pub use config::NodeConfig;
pub use local_nodes::LocalNodes;
pub use sources::{ImageSource, PodNetworks};

use context::Context;
use layout::Layout;
use pod::supervisor::Supervisor;
use register::Capacity;
use runtime::Runtime;
use volumes::loops::LoopDevices;
use volumes::objects::ObjectReader;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The directory cannot be used.
    #[error("cannot prepare the node's directory {}: {source}", .path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The node's socket cannot be opened.
    #[error("cannot listen on {}: {source}; a shorter directory helps when the name is too long", .path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Runs the node until `stop`. Containers go on afterwards, and the next run takes them up again.
///
/// # Errors
/// When the node's directory cannot be used.
pub async fn run(
    config: NodeConfig,
    client: Client,
    images: Arc<dyn ImageSource>,
    networks: Arc<dyn PodNetworks>,
    stop: CancellationToken,
) -> Result<(), NodeError> {
    let layout = Layout::new(&config.directory);
    let directory = |source| NodeError::Directory { path: config.directory.clone(), source };
    prepare_directories(&config, &layout).map_err(directory)?;
    let runtime = Runtime::open(&layout, &config.crun, &config.conmon).map_err(directory)?;
    let node = Arc::new(Context {
        capacity: Capacity::of(&config),
        runtime,
        objects: ObjectReader::new(client.clone()),
        loops: LoopDevices::new(&config.shared_directory),
        recorder: Recorder::new(client.clone(), "ferrovirt-node", config.name.clone(), Clock::System),
        layout,
        client,
        images,
        networks,
        network_news: Arc::default(),
        config,
    });
    let listener = api::listen(&node).map_err(|source| NodeError::Socket { path: node.layout.socket(), source })?;
    let registering = register::keep(node.clone(), stop.clone());
    let serving = api::serve(node.clone(), listener, stop.clone());
    let restricting = policies::enforce(node.clone(), stop.clone());
    let pods = Supervisor::new(node).run(stop);
    tokio::join!(registering, serving, restricting, pods);
    Ok(())
}

fn prepare_directories(config: &NodeConfig, layout: &Layout) -> io::Result<()> {
    fs::create_dir_all(layout.pods())?;
    // Volumes hold secrets, and programs of other users have no business in them.
    fs::set_permissions(layout.pods(), fs::Permissions::from_mode(0o700))?;
    fs::create_dir_all(&config.shared_directory)?;
    fs::create_dir_all(layout.scratch())?;
    // The environment of a program has secrets too.
    fs::set_permissions(layout.scratch(), fs::Permissions::from_mode(0o700))?;
    host_root::prepare(&layout.host_root(), Path::new("/etc"))
}
