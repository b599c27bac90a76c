//! The guest's links in its pod's network namespace.

use std::io::Read;
use std::os::fd::OwnedFd;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::network::GuestLink;
use ferrovirt_network::ResolvConf;
use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::fs::{FileType, Mode, OFlags};

use crate::launcher::Launcher;
use crate::process::{IN_CONTAINER, PodProcess, look_at, path_of};

/// More than any resolver reads.
const LARGEST_RESOLV_CONF: u64 = 64 << 10;

/// Why a guest has no network.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// The object asks for something that is not there.
    #[error(transparent)]
    Unsupported(#[from] ferrovirt_network::Unsupported),
    /// The namespace of the pod cannot be entered.
    #[error("the network namespace of the launcher cannot be opened")]
    Namespace(#[source] std::io::Error),
    /// The pod's file system cannot be looked at.
    #[error("the files of the launcher cannot be read")]
    Files(#[source] std::io::Error),
    /// The kernel said no.
    #[error(transparent)]
    Network(#[from] ferrovirt_network::NetworkError),
    /// The node lets nothing through that comes from the guest.
    #[error("the node's network refuses the guest's hardware address {mac}: {reason}")]
    Refused {
        /// The guest's address.
        mac: String,
        /// What the node says.
        reason: String,
    },
    /// The launcher shares the node's network: there is nothing that may be changed.
    #[error(
        "the launcher runs in the node's own network namespace; guests need a pod with a network of its own (hostNetwork is not possible)"
    )]
    NodeNetwork,
}

impl WiringError {
    /// Only a change of the object helps.
    pub fn is_hopeless(&self) -> bool {
        matches!(self, Self::Unsupported(_))
    }
}

/// Makes links.
pub trait Wiring: Send + Sync {
    /// The guest's links, set up now if they were not before.
    fn links<'a>(
        &'a self,
        vmi: &'a VirtualMachineInstance,
        pod: &'a Pod,
        launcher: &'a dyn Launcher,
    ) -> BoxFuture<'a, Result<Vec<GuestLink>, WiringError>>;
}

/// The guest's move may end with post-copy.
fn may_post_copy(vmi: &VirtualMachineInstance) -> bool {
    let newest = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    newest.and_then(|state| state.migration_configuration.as_ref()?.allow_post_copy) == Some(true)
}

/// QEMU runs without privileges, and the kernel lets such a process handle its own page faults only where this is set. Where it cannot be
/// set, moves go on without post-copy.
fn let_guests_fetch_memory() {
    const SETTING: &str = "/proc/sys/vm/unprivileged_userfaultfd";
    if std::fs::read_to_string(SETTING).is_ok_and(|value| value.trim() == "0") {
        match std::fs::write(SETTING, "1") {
            Ok(()) => tracing::info!("{SETTING} is 1 from now on: a guest may move with post-copy"),
            Err(error) => tracing::warn!(%error, "{SETTING} cannot be set: guests move without post-copy"),
        }
    }
}

/// Links in real pods. What is set up is in the pod's namespace alone, so there is nothing to remember and nothing to undo.
#[derive(Default)]
pub struct PodWiring;

impl Wiring for PodWiring {
    fn links<'a>(
        &'a self,
        vmi: &'a VirtualMachineInstance,
        _pod: &'a Pod,
        launcher: &'a dyn Launcher,
    ) -> BoxFuture<'a, Result<Vec<GuestLink>, WiringError>> {
        async move {
            if may_post_copy(vmi) {
                let_guests_fetch_memory();
            }
            let plans = ferrovirt_network::plan(vmi)?;
            if plans.is_empty() {
                return Ok(Vec::new());
            }
            let process =
                launcher.process().ok_or_else(|| WiringError::Namespace(std::io::ErrorKind::NotFound.into()))?;
            let namespace = namespace(process)?;
            let resolv = process.with_root(resolv_conf).await.map_err(WiringError::Files)?;
            let resolv = ResolvConf::parse(&resolv.unwrap_or_default());
            Ok(ferrovirt_network::set_up(namespace, &plans, &resolv).await?.links)
        }
        .boxed()
    }
}

/// The network namespace of a process, which must not be ours.
fn namespace(process: &PodProcess) -> Result<OwnedFd, WiringError> {
    let pods = process.namespace("net").map_err(WiringError::Namespace)?;
    let failed = |errno: rustix::io::Errno| WiringError::Namespace(errno.into());
    let ours = rustix::fs::stat("/proc/self/ns/net").map_err(failed)?;
    if rustix::fs::fstat(&pods).map_err(failed)?.st_ino == ours.st_ino {
        return Err(WiringError::NodeNetwork);
    }
    Ok(pods)
}

/// The pod's resolv.conf. The pod could put anything there: no link leads out of its root, and only a file is opened.
fn resolv_conf(root: &OwnedFd) -> std::io::Result<String> {
    let (file, kind) = look_at(root, "etc/resolv.conf", IN_CONTAINER)?;
    if kind != FileType::RegularFile {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let file = rustix::fs::open(path_of(&file), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    std::fs::File::from(file).take(LARGEST_RESOLV_CONF).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
