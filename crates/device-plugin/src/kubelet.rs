//! Keeps one plugin known to the kubelet, whoever of the two restarts.
//!
//! A kubelet that starts removes every socket in the directory and makes its own anew. So whenever something changes there, the plugin
//! looks: is its own socket still there, and is the kubelet's the one that it registered with? And a kubelet whose stream of devices
//! ended, for whatever reason, has forgotten the plugin.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch::Receiver;
use tokio_util::task::AbortOnDropHandle;

use crate::grpc::{self, CallError};
use crate::service::Service;
use crate::watch::Watch;
use crate::{Device, messages};

/// The kubelet's socket.
pub(crate) const SOCKET: &str = "kubelet.sock";
/// How long the kubelet may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nobody may listen to the devices of a registered plugin. A kubelet listens at once, unless it is very busy.
const UNHEARD: Duration = Duration::from_secs(10);
/// The first pause after something failed: a kubelet that has made its socket listens a moment later.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest one.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Which file a path leads to; a file that is made anew is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId(u64, i64, i64);

fn file_id(path: &Path) -> Option<FileId> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some(FileId(found.ino(), found.ctime(), found.ctime_nsec()))
}

/// The plugin's socket; its file goes with it.
struct Socket {
    path: PathBuf,
    id: Option<FileId>,
    _serving: AbortOnDropHandle<()>,
}

impl Socket {
    fn bind(path: &Path, service: &Arc<Service>) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let serving = AbortOnDropHandle::new(tokio::spawn(service.clone().serve(listener)));
        Ok(Self { path: path.to_owned(), id: file_id(path), _serving: serving })
    }

    fn is_there(&self) -> bool {
        file_id(&self.path) == self.id
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Why the kubelet does not know the plugin.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error("cannot make the socket {0}: {1}")]
    Socket(PathBuf, io::Error),
    #[error("{0} does not take the registration: {1}")]
    Call(PathBuf, CallError),
    #[error("{0} does not answer")]
    Silent(PathBuf),
}

struct Plugin {
    /// The kubelet's socket.
    kubelet: PathBuf,
    /// Our own.
    path: PathBuf,
    socket: Option<Socket>,
    service: Arc<Service>,
}

/// Runs one plugin, for ever.
pub(crate) async fn keep(directory: PathBuf, device: Device, count: usize) {
    let mut plugin = Plugin {
        kubelet: directory.join(SOCKET),
        path: directory.join(format!("kubevirt-{}.sock", device.name)),
        socket: None,
        service: Service::new(device, count),
    };
    let mut pause = FIRST_PAUSE;
    loop {
        // Watched before anything is looked at, so that no change is missed.
        let watch = match Watch::of(&directory) {
            Ok(watch) => watch,
            Err(error) => {
                tracing::warn!(%error, "cannot watch {}", directory.display());
                tokio::time::sleep(LONGEST_PAUSE).await;
                continue;
            }
        };
        match plugin.register().await {
            Ok(kubelet) => {
                pause = FIRST_PAUSE;
                tracing::info!(resource = plugin.service.device.resource(), "the kubelet has the device plugin");
                plugin.until_forgotten(&watch, kubelet).await;
            }
            Err(error) => {
                if pause == LONGEST_PAUSE {
                    tracing::warn!(%error, resource = plugin.service.device.resource(), "no pod gets the device");
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                    () = watch.changed() => {}
                }
            }
        }
    }
}

impl Plugin {
    /// Registers with the kubelet that is there now.
    async fn register(&mut self) -> Result<Option<FileId>, RegisterError> {
        if !self.socket.as_ref().is_some_and(Socket::is_there) {
            // The old one goes first, as it takes its file with it.
            self.socket = None;
            let bound = Socket::bind(&self.path, &self.service);
            self.socket = Some(bound.map_err(|error| RegisterError::Socket(self.path.clone(), error))?);
        }
        let kubelet = file_id(&self.kubelet);
        let endpoint = self.path.file_name().unwrap_or_default().to_string_lossy();
        let request = messages::register_request(&endpoint, &self.service.device.resource());
        let called = grpc::tell(&self.kubelet, "/v1beta1.Registration/Register", &request);
        match tokio::time::timeout(PATIENCE, called).await {
            Ok(Ok(())) => Ok(kubelet),
            Ok(Err(error)) => Err(RegisterError::Call(self.kubelet.clone(), error)),
            Err(_) => Err(RegisterError::Silent(self.kubelet.clone())),
        }
    }

    /// Waits until the kubelet, or what it knew, is not there any more.
    async fn until_forgotten(&self, watch: &Watch, kubelet: Option<FileId>) {
        let mut listeners = self.service.listeners();
        let replaced = async {
            while self.socket.as_ref().is_some_and(Socket::is_there) && file_id(&self.kubelet) == kubelet {
                watch.changed().await;
            }
        };
        tokio::select! {
            () = replaced => {}
            () = unheard(&mut listeners) => {}
        }
    }
}

/// Waits until nobody has listened for a while.
async fn unheard(listeners: &mut Receiver<usize>) {
    loop {
        let heard = listeners.wait_for(|count| *count > 0);
        if tokio::time::timeout(UNHEARD, heard).await.is_err() {
            return;
        }
        if listeners.wait_for(|count| *count == 0).await.is_err() {
            return;
        }
    }
}
