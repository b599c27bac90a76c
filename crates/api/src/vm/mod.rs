//! `VirtualMachine`: the lasting intent behind a guest, which survives power-off.

mod datavolume;
mod spec;
mod status;

pub use datavolume::*;
pub use spec::*;
pub use status::*;

use crate::object::object;

object! {
    /// The lasting intent behind a guest.
    pub struct VirtualMachine {
        spec: VirtualMachineSpec,
        status: VirtualMachineStatus,
    }
    group: "kubevirt.io", version: "v1", older: ["v1alpha3"],
    singular: "virtualmachine", plural: "virtualmachines", scope: NamespaceResourceScope
}
