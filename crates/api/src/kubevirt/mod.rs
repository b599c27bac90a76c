//! `KubeVirt`: how the system is installed and configured.

mod configuration;
mod devices;
mod migrations;
mod spec;
mod status;

pub use configuration::*;
pub use devices::*;
pub use migrations::*;
pub use spec::*;
pub use status::*;

use crate::object::object;

object! {
    /// How the system is installed and configured.
    pub struct KubeVirt {
        spec: KubeVirtSpec,
        status: KubeVirtStatus,
    }
    group: "kubevirt.io", version: "v1", older: ["v1alpha3"],
    singular: "kubevirt", plural: "kubevirts", scope: NamespaceResourceScope
}
