//! A kubelet's device plugins (API `v1beta1`): they tell a kubelet that pods may have `/dev/kvm` and its like, and how often.
//!
//! ```text
//!   /var/lib/kubelet/device-plugins/
//!     kubelet.sock        ◄── Register: "devices.kubevirt.io/kvm is behind kubevirt-kvm.sock"
//!     kubevirt-kvm.sock   ◄── ListAndWatch, Allocate: the kubelet asks
//! ```
//!
//! | file | what |
//! |---|---|
//! | `messages` | the protobuf messages, a dozen fields in all |
//! | `grpc` | gRPC as far as it is needed: unary calls and one stream over HTTP/2 |
//! | `service` | what a plugin answers |
//! | `kubelet` | keeps one plugin known to the kubelet, whoever of the two restarts |
//! | `watch` | notices changes in directories |
//!
//! Any number of pods can use such a device at once, so each is shown as many. **A running pod never loses anything by what happens
//! here**: a plugin that goes away or a device that vanishes keeps new pods from coming, and that is all a kubelet makes of it.
//!
//! gRPC is spoken by hand: the messages fit on a page, and HTTP/2 is in the program anyway.

mod grpc;
mod kubelet;
mod messages;
mod service;
mod watch;

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

/// Where kubelets and device plugins meet.
pub const DIRECTORY: &str = "/var/lib/kubelet/device-plugins";

/// A device of the node that pods can share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// `kvm` for the resource `devices.kubevirt.io/kvm`.
    pub name: String,
    /// Its file on the node; in a pod it has the same path.
    pub path: PathBuf,
}

impl Device {
    /// The device `name` behind the file `path`.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), path: path.into() }
    }

    /// The resource that pods ask for.
    pub fn resource(&self) -> String {
        format!("devices.kubevirt.io/{}", self.name)
    }
}

/// How plugins run.
#[derive(Debug, Clone)]
pub struct Config {
    /// [`DIRECTORY`], but for tests.
    pub directory: PathBuf,
    /// One plugin for each.
    pub devices: Vec<Device>,
    /// How many pods may have a device at the same time.
    pub count: usize,
}

/// Runs one plugin for each device until told to stop.
pub async fn run(config: Config, stop: CancellationToken) {
    let Config { directory, devices, count } = config;
    let plugins = devices.into_iter().map(|device| kubelet::keep(directory.clone(), device, count));
    stop.run_until_cancelled(futures::future::join_all(plugins)).await;
}

#[cfg(test)]
mod tests;
