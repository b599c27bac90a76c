//! Launchers as the handler sees them: a trait for the guests' sake, the real client, and the followers that keep the last
//! report of each.

mod client;
mod descriptor;
mod follow;
mod pace;

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_launcher_rpc::messages::{DomainReport, FreezeRequest, Refusal, StartRequest};
use ferrovirt_launcher_rpc::migration::{CancelRequest, Channel, SourceRequest, TargetRequest, VerdictRequest};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

pub use self::client::PodLaunchers;
pub use self::follow::{Followed, Followers};
use crate::process::PodProcess;

/// A call to a launcher takes no longer than this unless the launcher is broken; a start prepares disks and may.
pub const SHORT: Duration = Duration::from_secs(5);
/// Preparing disks, libvirt's start and QEMU's start, on a slow and busy machine.
pub const LONG: Duration = Duration::from_secs(120);

/// Why a call to a launcher failed.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// There is no launcher, or none that listens.
    #[error("the launcher cannot be reached: {0}")]
    Unreachable(String),
    /// It did not answer in time.
    #[error("the launcher did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// It refuses, and would again.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// It tried and failed; another time it may work.
    #[error("{}", .0.message)]
    Failed(Refusal),
    /// It answered something else.
    #[error("the launcher answered something unexpected: {0}")]
    Protocol(String),
}

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What a launcher's result looks like.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, LauncherError>>;

/// Simple calls without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Ask the guest to power off; kill it when the time is over.
    Shutdown {
        /// How long it may take.
        grace_seconds: u64,
    },
    /// Kill the guest.
    Kill,
    /// The final report is in the object: the launcher may exit.
    Done,
    /// Stop the guest's processors.
    Pause,
    /// Let them go on.
    Unpause,
    /// Press the reset button.
    Reset,
    /// Ask the guest to reboot.
    SoftReboot,
    /// Freeze file systems.
    Freeze(FreezeRequest),
    /// Thaw file systems.
    Unfreeze,
}

impl Command {
    /// The last part of the call's path.
    pub fn path(&self) -> &'static str {
        match self {
            Self::Shutdown { .. } => "shutdown",
            Self::Kill => "kill",
            Self::Done => "done",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Reset => "reset",
            Self::SoftReboot => "softreboot",
            Self::Freeze(_) => "freeze",
            Self::Unfreeze => "unfreeze",
        }
    }
}

/// A sidecar that holds an image: its root is the image's tree.
pub struct Holder {
    /// A connection to it. It answers each byte with the same.
    pub connection: UnixStream,
    /// The process that listens.
    pub process: Arc<PodProcess>,
}

/// The launcher of one pod.
pub trait Launcher: Send + Sync {
    /// The process that listens. Only a simulation's launcher has none.
    fn process(&self) -> Option<&Arc<PodProcess>>;
    /// The sidecar in the launcher's pod that holds the image of this name. Only real pods have them.
    fn holder<'a>(&'a self, _slot: &'a str) -> Answer<'a, Holder> {
        Box::pin(async { Err(LauncherError::Unreachable("there is no such container".to_owned())) })
    }
    /// Hands over the node's capability cache; libvirt starts.
    fn prepare(&self, cache: Vec<u8>) -> Answer<'_, ()>;
    /// The capability cache of the running libvirt.
    fn capabilities(&self) -> Answer<'_, Vec<u8>>;
    /// Starts the guest.
    fn start(&self, request: StartRequest) -> Answer<'_, DomainReport>;
    /// The present report and every later one, until the connection ends.
    fn events(&self) -> Answer<'_, BoxStream<'static, DomainReport>>;
    /// A simple call.
    fn command(&self, command: Command) -> Answer<'_, ()>;
    /// The body and content type of a read: `guest/info`, `screenshot`…
    fn read(&self, path: &'static str) -> Answer<'_, (String, Vec<u8>)>;
    /// The serial console (`console`) or display (`vnc`).
    fn open(&self, path: &'static str) -> Answer<'_, Box<dyn Stream>>;
    /// Makes the launcher the target of a move.
    fn prepare_target(&self, request: TargetRequest) -> Answer<'_, ()>;
    /// Begins a move; its reports tell the rest.
    fn begin_move(&self, request: SourceRequest) -> Answer<'_, ()>;
    /// Calls a move off, at either side.
    fn cancel_move(&self, request: CancelRequest) -> Answer<'_, ()>;
    /// Tells a source in doubt how its move ended.
    fn tell_verdict(&self, request: VerdictRequest) -> Answer<'_, ()>;
    /// The next connection that the source of a move makes; waits for it.
    fn outgoing<'a>(&'a self, id: &'a str) -> Answer<'a, (Channel, Box<dyn Stream>)>;
    /// A connection to a channel of the target of a move.
    fn incoming<'a>(&'a self, id: &'a str, channel: Channel) -> Answer<'a, Box<dyn Stream>>;
}

/// Finds the launcher of a pod.
pub trait Launchers: Send + Sync {
    /// Connects to the launcher in the pod with this uid.
    fn connect<'a>(&'a self, pod_uid: &'a str) -> Answer<'a, Arc<dyn Launcher>>;
    /// Whether any process of the pod with this uid runs on this node, whether it answers or not.
    fn remains<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, std::io::Result<bool>>;
}
