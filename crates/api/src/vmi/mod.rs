//! `VirtualMachineInstance`: one living guest.
//!
//! The spec is what a user or a `VirtualMachine` asks for; the status is the contract through which the components work
//! together (who owns the guest, how far it is, what is known about it).

mod access;
mod clock;
mod cpu;
mod devices;
mod disks;
mod domain;
mod features;
mod firmware;
mod migration_state;
mod network;
mod probe;
mod spec;
mod status;
mod volumes;

pub use access::*;
pub use clock::*;
pub use cpu::*;
pub use devices::*;
pub use disks::*;
pub use domain::*;
pub use features::*;
pub use firmware::*;
pub use migration_state::*;
pub use network::*;
pub use probe::*;
pub use spec::*;
pub use status::*;
pub use volumes::*;

use crate::object::object;

object! {
    /// One living guest.
    pub struct VirtualMachineInstance {
        spec: VirtualMachineInstanceSpec,
        status: VirtualMachineInstanceStatus,
    }
    group: "kubevirt.io", version: "v1", older: ["v1alpha3"],
    singular: "virtualmachineinstance", plural: "virtualmachineinstances", scope: NamespaceResourceScope
}
